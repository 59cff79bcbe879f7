"""Reductions beyond one sample, and where CNTK's answers are special (numbers recorded from CNTK 2.7)."""

import numpy as np
import pytest

import cntkjax as C

BATCH = C.Axis.default_batch_axis()


class TestErrors:
    def test_an_axis_that_does_not_exist(self):
        with pytest.raises(ValueError, match=r"axis 2 is out of bounds for an operand with 2 static axes"):
            C.reduce_sum(C.input_variable((2, 3)), 2)

    def test_a_sequence_axis_that_the_operand_does_not_have(self):
        with pytest.raises(ValueError, match="ReduceElements: the operand has no sequence axis"):
            C.reduce_sum(C.input_variable(2), C.Axis.default_dynamic_axis())
        with pytest.raises(ValueError, match="ReduceElements: the operand has no sequence axis"):
            C.reduce_sum(C.sequence.input_variable(2), C.Axis("other"))

    def test_the_batch_axis_of_sequences(self):
        with pytest.raises(RuntimeError, match="differ in length"):
            C.reduce_sum(C.sequence.input_variable(2), BATCH)

    def test_the_batch_axis_of_a_parameter(self):
        with pytest.raises(RuntimeError, match="no batch axis"):
            C.reduce_sum(C.parameter((2, 3)), BATCH)


def described(variable):
    """What computes a variable: names of nodes, attributes, and nodes inside blocks."""
    node = variable.owner if variable.is_output else None
    if node is None:
        return "x"
    node = node.root_function
    inside = f"<{described(node.block_root.outputs[0])}>" if node.is_block else ""
    axes = [str(a.static_axis_index(False)) for k, v in node.node_attributes.items() if k.startswith("axis")
            for a in (v if isinstance(v, list) else [v])]
    return f"{node.op_name}{'[%s]' % ' '.join(axes) if axes else ''}{inside}({', '.join(map(described, node.inputs))})"


@pytest.mark.parametrize(("make", "nodes"), [
    (lambda x: C.reduce_sum(x, (1, 2)),
     "ReduceElements[1 2]<MultiAxisReduce<ReduceElements[-2 -1](x)>(x)>(x)"),
    (lambda x: C.reduce_max(x, 1, keepdims=False),
     "ReduceElements[1]<Reshape(MultiAxisReduce<ReduceElements[-2](x)>(x))>(x)"),
    (lambda x: C.reduce_mean(x), "ReduceElements[2147483647]<ReduceElements[2147483647](x)>(x)"),
    (lambda x: C.softmax(x, 1),
     "Softmax[1]<ElementDivide<ElementTimes(x, Reciprocal(x))>(Exp(Minus(x, ReduceElements[-2](x))), "
     "ReduceElements[-2](Exp(Minus(x, ReduceElements[-2](x)))))>(x)"),
    (lambda x: C.softmax(x), "Softmax(x)"),
    (lambda x: C.argmax(x, 0), "ReduceElements[-3](x)"),
    (lambda x: C.squared_error(x, x),
     "SquaredError<ReduceElements[2147483647](ElementTimes(Minus(x, x), Minus(x, x)))>(x, x)"),
    (lambda x: C.plus(x, x, x), "Plus(x, Plus(x, x))"),
], ids=range(8))
def test_graphs_are_composed_as_in_cntk(make, nodes):
    assert described(make(C.input_variable((2, 3, 4))).outputs[0]) == nodes


def test_a_softmax_of_the_user_in_a_block_of_that_name():
    @C.BlockFunction("Softmax", "")
    def softmax(x):
        shifted = C.exp(x - C.reduce_max(x, axis=-2))
        return C.element_divide(shifted, C.reduce_sum(shifted, axis=-2))

    x, data = C.input_variable((3, 2)), np.float32([[[1, 2], [3, 4], [5, 7]]])
    expected = np.exp(data) / np.exp(data).sum(1, keepdims=True)
    np.testing.assert_allclose(softmax(x).eval({x: data}), expected, rtol=1e-6)


@pytest.mark.parametrize("sizes", [(4, 2), (1, 2), (3, 1), (3, 3)])
def test_a_reduced_axis_is_dropped_beside_several_free_dimensions(sizes):
    """CNTK refuses it."""
    x = C.input_variable((C.FreeDimension, 3, C.FreeDimension))
    data = np.arange(sizes[0] * 3 * sizes[1], dtype=np.float32).reshape(1, sizes[0], 3, sizes[1])
    np.testing.assert_array_equal(C.reduce_max(x, 1, keepdims=False).eval({x: data}), data.max(2))
    turned = C.reshape(x, (3, C.FreeDimension, C.FreeDimension)).eval({x: data})
    np.testing.assert_array_equal(turned, data.reshape(1, 3, *sizes))


@pytest.mark.parametrize("axis", [-1, -2])
def test_a_reduced_axis_goes_and_free_ones_stay_in_their_order(axis):
    """One of the free sizes is that of another axis; CNTK 2.7 drops no axis of values with two free dimensions."""
    x = C.input_variable((C.FreeDimension, C.FreeDimension, 3, 2), dynamic_axes=[])
    data = np.arange(36, dtype=np.float32).reshape(3, 2, 3, 2)
    np.testing.assert_array_equal(C.reduce_sum(x, axis, keepdims=False).eval({x: data}), data.sum(axis))
