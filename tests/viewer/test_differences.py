"""Differences of two models, as text and in the page."""

import numpy as np
from cntk.layers import Dense, Dropout, Sequential

import cntk as C
from cntkjax.viewer import compare


def network(hidden=4, activation=C.tanh):
    x = C.input_variable(3, name="x")
    return Sequential([Dense(hidden, activation=activation, name="h"), Dropout(0.5), Dense(2)])(x)


def test_a_saved_model_equals_its_original(tmp_path):
    model = network()
    model.save(str(tmp_path / "a.model"))
    differences = compare(model, C.load_model(str(tmp_path / "a.model")))
    assert not differences and str(differences).startswith("The models are equal")


def test_the_largest_deviation_of_a_parameter_is_reported_with_its_place():
    model = network()
    other = model.clone("clone")
    weights = other.h.W.asarray()
    weights[1, 2] += 3
    weights[0, 0] -= 1
    other.h.W.value = weights
    (line,) = compare(model, other).parameters
    assert line.startswith("W in Times: largest deviation 3 at [1, 2], ") and line.endswith("2 of 12 values differ")


def test_values_that_are_not_a_number_differ_from_numbers_only():
    x = C.input_variable(2)
    a, b = (C.parameter((2,), init=np.array([np.nan, v], np.float32)) for v in (1, np.nan))
    assert not compare(x + a, x + a)
    assert "1 of 2 values differ" in compare(x + a, x + b).parameters[0]


def test_operations_attributes_and_shapes_that_differ_are_listed():
    differences = compare(network(), network(5, C.relu))
    assert "- Tanh" in differences.graph and "+ ReLU" in differences.graph
    assert any("shape [3 x 4] and [3 x 5]" in line for line in differences.parameters)
    x = C.input_variable(3)
    (line,) = compare(C.dropout(x, 0.25), C.dropout(x, 0.5)).attributes
    assert "0.25 and 0.5" in line


def test_inputs_that_differ_are_listed():
    graph = compare(C.tanh(C.input_variable(3, name="x")), C.tanh(C.input_variable(3, name="y"))).graph
    assert graph == ("- input x [3]", "+ input y [3]")


def test_the_page_marks_what_differs():
    x = C.input_variable(3, name="x")
    content = compare(C.tanh(x * 2), C.sigmoid(C.tanh(x * 3))).document("a and b")
    changes = {node["op"]: node.get("change") for node in content["nodes"]}
    assert (changes["StableSigmoid"], changes["ElementTimes"], changes["Tanh"]) == ("added", "changed", None)
    assert "+ StableSigmoid" in content["differences"]
