"""Converted models share what did not change, and the original model does not change."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.misc import convert, convert_optimized_rnnstack

X = np.float32([[1, -2, 3]])


def is_dense(*names):
    return lambda f: f.op_name == "Dense" and f.name in names


def dense(*names):
    layers = [C.layers.Dense(3, activation=C.tanh, name=name) for name in names]
    return C.layers.Sequential(layers)(C.input_variable(3, name="x"))


def negated(block):
    return C.negate(block.inputs[-1], name="new")


def test_functions_in_a_row_are_replaced_and_the_others_keep_their_parameters():
    model = dense("first", "second", "third")
    converted = convert(model, is_dense("first", "second"), negated)
    assert converted.parameters == model.parameters[:2]
    expected = np.tanh(X @ model.third.W.value + model.third.b.value)
    np.testing.assert_allclose(converted.eval({converted.arguments[0]: X}), expected, rtol=1e-6)
    assert len(model.parameters) == 6


def test_the_root_can_be_replaced():
    model = dense("a")
    converted = convert(model, is_dense("a"), negated)
    np.testing.assert_array_equal(converted.eval({converted.arguments[0]: X}), -X)


def test_without_a_match_the_model_itself_is_returned():
    model = dense("a")
    assert convert(model, is_dense("z"), negated) is model


def test_shared_functions_are_converted_once():
    x = C.input_variable(3)
    shared = C.sigmoid(x)
    converted = convert(C.tanh(shared) + shared, lambda f: f.op_name == "StableSigmoid", lambda f: C.relu(f.inputs[0]))
    matches = C.logging.graph.depth_first_search(converted, lambda n: getattr(n, "op_name", "") == "ReLU")
    assert len(matches) == 1
    np.testing.assert_allclose(converted.eval({x: X}), np.tanh(np.maximum(X, 0)) + np.maximum(X, 0), rtol=1e-6)


def test_functions_inside_blocks_are_replaced_in_a_copy():
    model = dense("first", "second")
    before = model.eval({model.arguments[0]: X})
    converted = convert(model, lambda f: f.op_name == "Tanh", lambda f: C.relu(f.inputs[0]))
    W, b, V, c = converted.first.W, converted.first.b, converted.second.W, converted.second.b
    hidden = np.maximum(X @ W.value + b.value, 0)
    expected = np.maximum(hidden @ V.value + c.value, 0)
    np.testing.assert_allclose(converted.eval({converted.arguments[0]: X}), expected, rtol=1e-5)
    np.testing.assert_array_equal(model.eval({model.arguments[0]: X}), before)
    assert {p.uid for p in converted.parameters} == {p.uid for p in model.parameters}


def test_within_a_recurrence():
    x = C.sequence.input_variable(1)
    model = C.layers.Recurrence(lambda h, x: C.tanh(h + x))(x)
    converted = convert(model, lambda f: f.op_name == "Tanh", lambda f: C.relu(f.inputs[0]))
    np.testing.assert_array_equal(converted.eval({x: [np.float32([[1], [2], [-4]])]})[0].ravel(), [1, 3, 0])


def test_several_outputs():
    x = C.input_variable(3)
    model = C.combine([C.sigmoid(x), C.tanh(x)])
    converted = convert(model, lambda f: f.op_name == "Tanh", lambda f: C.negate(f.inputs[0]))
    np.testing.assert_array_equal(converted.eval({x: X})[converted.outputs[1]], -X)


def test_a_converter_has_to_return_as_many_outputs():
    x = C.input_variable(3)
    with pytest.raises(ValueError, match="outputs"):
        convert(C.tanh(x), lambda f: True, lambda f: C.combine([C.sigmoid(x), C.relu(x)]))


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("cell", "op"), [("lstm", "LSTM"), ("rnnTanh", "RNNStep"), ("rnnReLU", "RNNStep")])
def test_stacks_become_layers_that_compute_the_same(cell, op, both):
    x = C.sequence.input_variable(3)
    weights = C.parameter((C.InferredDimension, 2), init=C.glorot_uniform(seed=1))
    stack = C.optimized_rnnstack(x, weights, 2, 2, both, cell, name="s")
    converted = convert_optimized_rnnstack(stack)
    data = [np.random.default_rng(i).normal(size=(n, 3)).astype(np.float32) for i, n in enumerate((4, 1))]
    for actual, expected in zip(converted.eval({x: data}), stack.eval({x: data}), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    blocks = C.logging.graph.depth_first_search(converted, lambda n: getattr(n, "op_name", "") == op)
    names = {"s_fw0", "s_bw0", "s_fw1", "s_bw1"} if both else {"s_0", "s_1"}
    assert {b.name for b in blocks} == names
    assert np.prod(weights.shape) == sum(p.value.size for p in converted.parameters) + sum(
        p.value.size for p in converted.parameters if p.name == "b"
    )


def test_a_stack_of_gru_has_no_equivalent():
    x = C.sequence.input_variable(3)
    weights = C.parameter((C.InferredDimension, 2), init=1)
    with pytest.raises(ValueError, match="unsupported recurrent_op"):
        convert_optimized_rnnstack(C.optimized_rnnstack(x, weights, 2, 1, recurrent_op="gru"))


def test_functions_in_the_middle_of_a_block_are_replaced():
    """Source: CNTK 2.7 gives 2."""
    x, inside = C.input_variable(2), C.placeholder()
    block = C.as_block(C.layers.Dense(2, init=1)(C.sigmoid(inside)), [(inside, x)], "Layers")
    model = C.misc.convert(block, lambda f: f.op_name == "StableSigmoid", lambda f: C.relu(f.inputs[0]))
    np.testing.assert_array_equal(model.eval({x: np.float32([[2, -1]])}), [[2, 2]])
