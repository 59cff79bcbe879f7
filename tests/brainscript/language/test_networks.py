"""Networks of descriptions: names, roles, precision, loops."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.configuration.source import ConfigError, Text
from tests.brainscript.language.descriptions import MLP, build


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


def test_precision_is_that_of_the_configuration():
    assert build("w = ParameterTensor {2}", precision="double").nodes["w"].dtype == np.float64


@pytest.mark.parametrize("text", ["x = Input {d}", "x = Parameter {2, d}", "x = Constant (d)"])
def test_a_text_in_the_place_of_a_number_is_named(text):
    with pytest.raises(ConfigError, match=r"line \d, column \d+: .*number.*four.*\n.*\n *\^"):
        build(f"d = 'four'\n{text}")


def test_a_function_that_hides_one_of_the_library_calls_itself():
    """Functions may be recursive, so an example of Microsoft's page about expressions is none that runs."""
    message = r"'Tanh' has 2 positional arguments, 1 are given: .*; it hides the library's"
    with pytest.raises(ConfigError, match=message):
        build("Layers = { Tanh (x, n) = Tanh (ParameterTensor {(n : 0)} * x) }\nx = Input {2}\nh = Layers.Tanh (x, 3)")


def test_a_loop_through_a_delay_sums_over_time():
    network = build("""
        x = Input {1}
        total = x + PastValue (1, total, defaultHiddenActivation=0)
        last = BS.Sequences.Last (total)
    """)
    x, last = network.nodes["x"], network.nodes["last"]
    result = C.combine([last.owner]).eval({x: [np.array([[1], [2], [3]], np.float32), np.array([[5]], np.float32)]})
    np.testing.assert_array_equal(np.ravel(result), [6, 5])


def test_delays_begin_with_the_value_that_cntk_takes():
    """BS.Loop.Previous and Next with 0.1, as its log of the example G2P shows; layers and counts with 0."""
    network = build("""
        x = Input {1}
        previous = BS.Loop.Previous (x)
        next = BS.Loop.Next (x)
        layer = DelayLayer {} (x)
        count = BS.Loop.Count (x)
    """)
    nodes = [network.nodes[name] for name in ("previous", "next", "layer", "count")]
    function = C.combine([node.owner for node in nodes])
    values = function.eval({network.nodes["x"]: [np.array([[5], [6]], np.float32)]})
    computed = [np.ravel(values[output]).tolist() for output in function.outputs]
    np.testing.assert_allclose(computed, [[0.1, 5], [6, 0.1], [0, 5], [1, 2]])


def test_operands_of_different_ranks_are_spliced_also_if_one_is_of_a_loop():
    network = build("""
        x = Input {4}
        count = BS.Loop.Count (x)
        all = Splice (count : x : Constant (7))
        wide = Splice (count : count, axis=3)
    """)
    function = C.combine([network.nodes["all"].owner, network.nodes["wide"].owner])
    values = function.eval({network.nodes["x"]: [np.ones((2, 4), np.float32)]})
    computed = [np.asarray(values[output]) for output in function.outputs]
    np.testing.assert_array_equal(computed[0], [[[[1, 1, 1, 1, 1, 7]], [[2, 1, 1, 1, 1, 7]]]])
    assert computed[1].ravel().tolist() == [1, 1, 2, 2] and network.nodes["wide"].shape == (2, 1, 1)


def test_a_loop_whose_shape_grows_is_an_error_with_its_place():
    with pytest.raises(ConfigError, match=r"line 2, column 5: Tanh 'h': the shapes .* do not converge"):
        build("x = Input {1}\nh = Tanh (x + SplitDimension (BS.Loop.Previous (h), 1, 1))")


def test_values_of_the_configuration_around_are_visible():
    network = build("w = ParameterTensor {size}", scope={"size": Text("size", "4")})
    assert network.nodes["w"].shape == (4,)


def test_a_role_that_is_no_node_is_an_error_at_its_place():
    with pytest.raises(ConfigError, match="line 2, column .*: expected a node in outputNodes here, this is a number"):
        build("x = Input {3}\noutputNodes = (x.dim)")


def test_names_and_shapes_of_nodes_are_those_of_cntks_logs():
    """Text/IRMetric and Image/Regression: sparse inputs, what Splice and Sqrt are applied to, sums over minibatches."""
    network = build("""
        x = Input {3} ; q = SparseInput (5) ; labels = Input {2} ; both = Tanh (Splice (x : x))
        loss = SquareError (labels, LinearLayer {2} (q)) ; rmse = Sqrt (0.5 .* ReduceSum (labels .* labels))
        criterionNodes = (loss) ; evaluationNodes = (rmse : both)
    """)
    assert network.operations["q"] == "SparseInputValue" and network.operations["x"] == "InputValue"
    assert network.inputs["both"] == ["both.z.out"] and network.inputs["rmse"] == ["rmse.z"]
    assert [network.shown_shapes()[name] for name in ("loss", "rmse", "both")] == ["[1]", "[1 x *]", "[6 x *]"]
