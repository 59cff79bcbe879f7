"""Statements of NDL: errors name the place, and what was expected."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cntkjax.configuration.source import ConfigError
from tests.brainscript.ndl.test_evaluation import MLP, build


@pytest.mark.parametrize(("text", "place", "says"), [
    ("x = Input(2)\nz = Sigmiod(x)", "line 2, column 5", "did you mean 'Sigmoid'"),
    ("feature = Input(2)\nz = Tanh(featur)", "line 2, column 10", "did you mean 'feature'"),
    ("x = Input(2)\nOutputNodes = (y)", "line 2, column 16", "unknown name 'y'"),
    ("M(inp) = [ z = Tanh(inp) ]\nx = Input(2)\ny = M(inp)", "line 3, column 7", "unknown name 'inp'\n"),
    ("M(a, b) = [ z = Plus(a, b) ]\nx = Input(2)\ny = M(x)", "line 3, column 5", "has 2 parameters, 1 are given"),
    ("M(a) = [ z = M(a) ]\nx = Input(2)\ny = M(x)", "line 1, column 14", "does the recursion end"),
    ("run = net\nnett = [ x = Input(2) ]", "line 1, column 7", "no section 'net'; those of this text: nett"),
    ("x = Input(2", "line 1, column 12", "expected ')'"),
    ("a = Tanh(b)\nb = Tanh(a)", "line 1, column 5", "depends on itself"),
    ("net = [ x = Input(2)", "line 1, column 7", "not closed"),
    ("x = Input(2) ; y = x.z", "line 1, column 20", "there is no 'z' in it"),
    ("x = ImageInput(3, 3, 1) ; W = Parameter(2, 4) ; c = Convolution(W, x, {2, 2, 1}, mapCount=2)",
     "line 1, column 53", "set imageLayout to cudnn"),
])
def test_errors_name_the_place_and_what_was_expected(text, place, says):
    with pytest.raises(ConfigError) as error:
        build(text)
    assert place in str(error.value)
    assert says in str(error.value)


PIECES = [*"=(){}[]:;+*-/.,!_#$<", "\n", "1", "x", "'s'", "load", "run", "Input", "Times", "Parameter"]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 900), st.sampled_from(PIECES)), min_size=1, max_size=6), st.booleans())
def test_a_mutated_description_is_an_error_with_a_place_or_a_network(changes, replace):
    text = MLP
    for at, piece in changes:
        at = at % len(text)
        text = text[:at] + piece + text[at + (len(piece) if replace else 0) :]
    try:
        build(text)
    except ConfigError as error:
        assert "net.ndl" in str(error)
