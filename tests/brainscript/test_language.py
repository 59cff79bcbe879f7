"""BrainScript: what descriptions mean, and what is said about those that mean nothing."""


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cntkjax as C
from cntkjax.brainscript.language import build_network
from cntkjax.brainscript.source import ConfigError, Text

MLP = """
    model = Sequential (DenseLayer {4, activation=Sigmoid} : LinearLayer {2})  # two layers
    features = Input {3}
    labels = Input {2}
    z = model (features)
    ce = CrossEntropyWithSoftmax (labels, z)
    errs = ClassificationError (labels, z, tag='evaluation')
    featureNodes = (features) ; labelNodes = (labels)
    criterionNodes = (ce)
    outputNodes = (z)
"""


def build(text, **options):
    return build_network(Text("net.bs", text), options.pop("scope", {}), **options)


def value(expression, members=""):
    """The number that an expression is: the dimension of a constant."""
    network = build(f"{members}\n x = ConstantTensor (1, ({expression}))")
    return network.nodes["x"].shape[0]


@pytest.mark.parametrize(("expression", "expected"), [
    ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("2 ** 3", 8), ("7 % 4", 3), ("8 / 2 / 2", 2),
    ("10 - 2 - 3", 5), ("-1 + 3", 2),
    ("if 1 < 2 then 3 else 4", 3), ("if !(1 < 2) || false then 3 else 4", 4), ("if true && 1 != 2 then 3 else 4", 3),
    ("(3 : 4 : 5)[1]", 4), ("Length (1 : (2 : 3) : 4)", 4), ("Length ([| 1 ; (2 : 3) |])", 2),
    ("{ x = 5 ; y = x + 1 }.y", 6), ("(x => x + 1) (3)", 4),
    ("array[1..3] (i => i * i)[3]", 9), ("Length ('abcd')", 4),
    ("({ a = 1 ; b = 2 } with { b = 3 }).b", 3),
    ("Floor (2.5) + Ceil (2.5) + Round (2.5)", 8),
    ("Max (3, 4) - Min (3, 4)", 1),
    ("if 'a' + 'b' == 'ab' then 1 else 2", 1), ("Mod (7, 4) + IntDiv (7, 4)", 4),
    ("Length (Replace ('a-b', '-', '--'))", 4),
    ("5 /* a ( comment */ - 2 // another )\n", 3),
])
def test_expressions_of_numbers_have_the_values_of_the_language(expression, expected):
    assert value(expression) == expected


def test_functions_take_optional_arguments_by_name_and_see_the_scope_of_their_definition():
    members = """
        base = 10
        f (x, step=1) = base + x * step
        g {n} = { base = 1 ; r = f (n, step=2) }.r
        fib (n) = if n < 2 then n else fib (n - 1) + fib (n - 2)
        squares[i:1..4] = if i == 1 then 1 else squares[i-1] + 2 * i - 1
    """
    assert value("f (3)", members) == 13
    assert value("g {3}", members) == 16
    assert value("fib (10)", members) == 55
    assert value("squares[4]", members) == 16


def test_what_is_never_used_is_never_evaluated():
    assert value("if true then 3 else Fail ('no')", "unused (x) = nonsense + x") == 3


def test_a_network_has_the_names_roles_and_operations_that_cntk_gives():
    network = build(MLP)
    assert network.roles == {
        "feature": ["features"], "label": ["labels"], "criterion": ["ce"], "evaluation": ["errs"], "output": ["z"],
    }
    assert network.operations["z.x"] == "Sigmoid"
    assert network.inputs["z"] == ["z.PlusArgs[0]", "model.arrayOfFunctions[1].b"]
    assert network.inputs["z.x"] == ["z.x._.x"] if "z.x._.x" in network.nodes else ["z.x._"]
    assert network.nodes["model.arrayOfFunctions[0].arrayOfFunctions[0].W"].shape == (3, 4)
    assert all(variable.name == name for name, variable in network.nodes.items())


def test_a_second_node_of_one_name_gets_an_underscore():
    network = build("f = Input {2} ; z = Sequential (DenseLayer {2} : ReLU : Dropout : LinearLayer {2}) (3 .* f)")
    assert network.operations["z.x._"] == "RectifiedLinear"
    assert any(name.startswith("_") for name in network.nodes)


def test_parameters_are_seeded_in_the_sorted_order_of_names_and_depth_first():
    network = build("""
        x = Input {2}
        w = ParameterTensor {(3 : 2)} ; b = ParameterTensor {3} ; zero = ParameterTensor {3, initValue=0}
        z = w * x + b + zero
    """)
    for name, shape, seed in (("b", (3,), 1), ("w", (2, 3), 2)):
        expected = C.parameter(shape, init=C.uniform(0.05, seed=seed)).value
        np.testing.assert_array_equal(network.nodes[name].value, expected)
    assert not network.nodes["zero"].value.any()


def test_a_seed_of_its_own_counts_no_number_and_an_offset_is_added():
    text = "a = ParameterTensor {2, randomSeed=7} ; b = ParameterTensor {2}"
    network = build(text, seed_offset=3)
    np.testing.assert_array_equal(network.nodes["a"].value, C.parameter(2, init=C.uniform(0.05, seed=10)).value)
    np.testing.assert_array_equal(network.nodes["b"].value, C.parameter(2, init=C.uniform(0.05, seed=4)).value)


def test_precision_is_that_of_the_configuration():
    assert build("w = ParameterTensor {2}", precision="double").nodes["w"].dtype == np.float64


def test_a_loop_through_a_delay_sums_over_time():
    network = build("""
        x = Input {1}
        total = x + PastValue (1, total, defaultHiddenActivation=0)
        last = BS.Sequences.Last (total)
    """)
    x, last = network.nodes["x"], network.nodes["last"]
    result = C.combine([last.owner]).eval({x: [np.array([[1], [2], [3]], np.float32), np.array([[5]], np.float32)]})
    np.testing.assert_array_equal(np.ravel(result), [6, 5])


def test_values_of_the_configuration_around_are_visible():
    network = build("w = ParameterTensor {size}", scope={"size": Text("size", "4")})
    assert network.nodes["w"].shape == (4,)


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


def test_a_factor_of_a_learning_rate_is_known_to_the_network():
    network = build("""
        a = ParameterTensor {2, learningRateMultiplier=3}
        b = ParameterTensor {2, learningRateMultiplier=0}
    """)
    assert network.rates == {"a": 3.0}
    assert network.nodes["b"].is_constant


def test_reductions_are_over_their_axis_and_take_a_tag():
    network = build("""
        x = Input {(2 : 3)}
        rows = ReduceSum (x, axis=1, tag='output') ; columns = ReduceMax (x, axis=2, tag='output')
        all = ReduceMean (x, tag='output') ; pair = Splice (x : x, axis=3, tag='output')
    """)
    assert network.roles["output"] == ["all", "columns", "pair", "rows"]
    data = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    for name, expected in (("rows", data.sum(2, keepdims=True)), ("columns", data.max(1, keepdims=True)),
                           ("all", data.mean(keepdims=True)[0]), ("pair", np.stack([data, data], 1))):
        result = network.nodes[name].owner.eval({network.nodes["x"]: data})
        np.testing.assert_allclose(result, expected.reshape(result.shape), rtol=1e-6)
        assert network.nodes[name].shape == expected.shape[1:]
