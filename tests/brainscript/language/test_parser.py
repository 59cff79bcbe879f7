"""Descriptions that mean nothing: errors name the place, and what was expected."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cntkjax.configuration.source import ConfigError
from tests.brainscript.language.descriptions import MLP, build


@pytest.mark.parametrize(("text", "place", "says"), [
    ("z = ReLu (x)\nx = Input {2}", "line 1, column 5", "did you mean 'ReLU'"),
    ("a = b\nb = a", "line 1, column 5", "depends on itself"),
    ("f (n) = f (n + 1)\nx = f (1)", "line 1, column 9", "does the recursion end"),
    ("x[i:1..1000000000] = i", "line 1, column 1", "1,000,000,000 elements"),
    ("x = (1 + 2", "line 1, column 5", "not closed by ')'"),
    ("x = DenseLayer {2, activaton=ReLU}", "line 1, column 5", "did you mean 'activation'"),
    ("x = {a = 1}.b", "line 1, column 12", "no member 'b'"),
    ("x = 'abc", "line 1, column 5", "no end"),
    ("x = 1\nx = 2", "line 2, column 1", "second time"),
    ("x = 1 +\n", "line 2, column 1", "expected an expression"),
    ("a = Input {2} ; w = ParameterTensor {(3 : 4)} ; z = w * a", "line 1, column 55", "Times 'z'"),
    ("x = new ComputationNode { operation = 'Sigmiod' ; inputs = Input {2} }", "line 1, column 5", "'Sigmoid'"),
    ("x = 1 y = 2", "line 1, column 7", "a new line"),
    ("f (x) = x ; y = f (1, 2)", "line 1, column 17", "1 positional arguments, 2 are given"),
    ("include 'nowhere.bs'", "line 1, column 9", "no file nowhere.bs"),
    ("x = \u201cabc\u201d", "line 1, column 5", "quotes are"),
    ("x = 'a' * 2", "line 1, column 9", "a string * a number has no meaning"),
    ("x = (1 : 2)[5]", "line 1, column 13", "outside the array's"),
    ("f (n) = if n == 0 then 1 else f (n - 1) + f (n - 1)\nx = f (60)", "net.bs", "steps: does it end"),
])
def test_errors_name_the_place_and_what_was_expected(text, place, says):
    with pytest.raises(ConfigError) as error:
        build(text)
    assert place in str(error.value)
    assert says in str(error.value)
    assert "^" in str(error.value)


def test_an_included_file_is_an_expression_or_the_members_of_a_record(tmp_path, monkeypatch):
    """As on the page "BrainScript config file overview": the network is what a file has."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "members.bs").write_text("x = Input {2} ; z = Sigmoid (x)")
    (tmp_path / "record.bs").write_text("# a network\n{ include 'members.bs' ; outputNodes = (z) }")
    assert list(build("(new ComputationNetwork\n include 'record.bs')").nodes) == ["x", "z"]
    assert list(build("(new ComputationNetwork include 'members.bs')").nodes) == ["x", "z"]
    assert list(build("include 'record.bs'").nodes) == ["x", "z"]
    (tmp_path / "number.bs").write_text("(1)")
    with pytest.raises(ConfigError, match=r"line 1, column 1: the file has an expression here, not members"):
        build("include 'number.bs'")


def test_errors_in_the_library_are_reported_where_the_user_called_it():
    with pytest.raises(ConfigError, match="net.bs, line 2, column 38") as error:
        build("x = Input {2}\nz = Sequential (LinearLayer {2} : 5) (x)")
    assert "expected a function here, this is a number" in str(error.value)


PIECES = [
    *"=(){}[]:;+*-/.,!_#$<", "\n", "1", "0.5", "1e999", "x", "y", "'s'", ".*", "=>", "..", "&&", "==", "/*", "*/",
    "\u00e9",
    "if", "then", "else", "new", "array", "with", "true", "include", "Input", "Sequential", "DenseLayer", "PastValue",
    "ComputationNode",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.sampled_from(PIECES)), min_size=1, max_size=6), st.booleans())
def test_a_mutated_description_is_an_error_with_a_place_or_a_network(changes, replace):
    text = MLP
    for at, piece in changes:
        at = at % len(text)
        text = text[:at] + piece + text[at + (len(piece) if replace else 0) :]
    try:
        build(text)
    except ConfigError as error:
        assert "net.bs" in str(error)
