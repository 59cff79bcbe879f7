"""Nodes and their inference: shapes, types and axes, and errors. Expected numbers and texts are CNTK 2.7's."""

import numpy as np
import pytest

import cntkjax as C
from tests.graph.parts import parts


def test_every_operation_returns_a_composite_around_a_primitive():
    x, W, *_ = parts()
    f = C.times(x, W)
    assert f.is_composite and not f.is_primitive and f.root_function.is_primitive
    assert f.root_function.op_name == "Times" and f.output.owner is f.root_function
    assert f.output.uid == f.root_function.uid + "_Output_0"


def test_inferred_dimensions_are_filled_in_at_first_use():
    W = C.parameter((C.InferredDimension, 2), init=C.glorot_uniform())
    with pytest.raises(ValueError, match="no value yet"):
        _ = W.value
    f = C.times(C.input_variable((4, 3)), W)
    assert W.shape == (3, 2) and f.shape == (4, 2)
    assert W.value.shape == (3, 2) and np.abs(W.value).max() > 0


def test_inferred_dimensions_wait_for_placeholders():
    p, W = C.placeholder(), C.parameter((C.InferredDimension, 4))
    f = C.times(p, W) + 1
    assert f.shape == (-2,) and W.shape == (-1, 4)
    f.replace_placeholder(C.input_variable(3))
    assert f.shape == (4,) and W.shape == (3, 4)


def test_recurrence_gets_its_shape_from_outside_the_loop():
    s, h = C.sequence.input_variable(3), C.placeholder()
    f = C.relu(C.times(s, C.parameter((3, 4))) + C.times(C.sequence.past_value(h), C.parameter((4, 4))))
    assert f.shape == (4,) and f.placeholders == (h,)
    f.replace_placeholders({h: f})
    assert f.placeholders == () and f.shape == (4,)
    assert f.dynamic_axes == (C.Axis.default_batch_axis(), C.Axis.default_dynamic_axis())


@pytest.mark.parametrize("order", [lambda loop, v: loop + v, lambda loop, v: v + loop])
def test_nested_recurrences_get_their_shape_from_outside_both(order):
    v = C.sequence.input_variable((1, 4))

    def loop(step):
        p = C.placeholder()
        f = step(C.sequence.past_value(p))
        return f.replace_placeholders({p: f.output})

    f = loop(lambda h: C.tanh(order(loop(lambda g: C.sin(g + h)), v)))
    assert f.shape == (1, 4)
    expected = np.array([0.7615942, 0.9341569])  # of CNTK 2.7
    np.testing.assert_allclose(f.eval({v: [np.ones((2, 1, 4))]})[0], np.tile(expected, (4, 1)).T[:, None], rtol=1e-6)


def test_a_state_that_is_joined_with_an_input_gets_its_shape_from_the_weights_of_both():
    x, W = C.sequence.input_variable((1, 3)), C.parameter((5, 2), init=C.glorot_uniform(seed=1))

    def loop(initial_state):
        p = C.placeholder()
        f = C.tanh(C.times(C.splice(C.sequence.past_value(p, initial_state), x), W))
        return f.replace_placeholders({p: f.output})

    sequence = [np.ones((3, 1, 3), np.float32)]
    values = [loop(initial).eval({x: sequence})[0] for initial in (0, C.constant(0, (1, 2)))]
    assert values[0].shape == (3, 1, 2)
    np.testing.assert_array_equal(*values)


def test_operands_of_different_dynamic_axes():
    x, s = C.input_variable(3), C.sequence.input_variable(3)
    assert (x + s).dynamic_axes == s.dynamic_axes
    other = C.sequence.input_variable(3, sequence_axis=C.Axis("foo"))
    with pytest.raises(RuntimeError, match=r"(?s)do not match the dynamic axes \[#, \*\].*test_build.py.*broadcast_as"):
        _ = s + other


@pytest.mark.parametrize("build, message", [
    (lambda: C.input_variable(3) + C.constant(np.ones(2)), "Plus: the shapes of the operands do not broadcast"),
    (lambda: C.times(C.input_variable(3), C.parameter((4, 2))),
     r"inner dimensions differ: 3 \(left axis -1\) against 4 \(right axis 0\)"),
    (lambda: C.input_variable(2, dtype=np.float64) + C.input_variable(2),
     "operands of different types: float64 and float32"),
    (lambda: C.sequence.past_value(C.input_variable(2)), "has no sequence axis"),
])
def test_operands_that_do_not_fit_are_an_error_when_the_graph_is_built(build, message):
    for caught in (ValueError, RuntimeError):  # CNTK raises either
        with pytest.raises(caught, match=f"(?s){message}.*test_build.py"):
            build()


def test_blocks_show_as_one_operation_and_compute_what_they_wrap():
    @C.BlockFunction("Scale", "s")
    def scale(p, q):
        return p * q + 1

    x = C.input_variable(2, name="x")
    f = scale(x, C.constant([2, 3]))
    block = f.root_function
    assert block.is_block and block.op_name == "Scale" and f.output.name == "s"
    assert [inner.name for inner, _ in block.block_arguments_mapping] == ["x"], "the constant went inside"
    assert block.block_root.op_name == "Plus"
    np.testing.assert_array_equal(f.eval({x: [[1, 1]]}), [[3, 4]])
    np.testing.assert_array_equal(f.clone("clone", {x: x}).eval({x: [[1, 1]]}), [[3, 4]])
