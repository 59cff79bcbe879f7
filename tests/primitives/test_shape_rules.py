"""The inferred shape is that of the computation, for random shapes and attributes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cntkjax as C
from cntkjax.interop import to_jax

CHECKED = settings(max_examples=40, database=None, derandomize=True)
shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def agrees(op, *inputs):
    """Assert that shape rule and lowering agree on a batch of two; nothing is compiled or computed."""
    variables = [C.input_variable(shape) for shape in inputs]
    node = op(*variables)
    function, parameters = to_jax(node)
    arrays = {v: jnp.zeros((2, *v.shape)) for v in variables}
    results = jax.eval_shape(function, parameters, *(arrays[v] for v in function.arguments))
    for variable, array in zip(node.outputs, results if isinstance(results, tuple) else [results], strict=True):
        assert array.shape == (2, *variable.shape)


@CHECKED
@given(shapes, st.data())
def test_shapes_of_reductions_agree_with_lowering(shape, data):
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    reduce = data.draw(st.sampled_from([C.reduce_sum, C.reduce_max, C.reduce_log_sum_exp, C.reduce_l2]))
    keep = data.draw(st.booleans())
    agrees(lambda x: reduce(x, axes, keepdims=keep), shape)
    agrees(lambda x: C.argmax(x, axes[0]), shape)


@CHECKED
@given(shapes, st.data())
def test_shapes_of_broadcast_operands_agree_with_lowering(shape, data):
    other = tuple(data.draw(st.sampled_from([1, n])) for n in shape[data.draw(st.integers(0, len(shape) - 1)) :])
    f = data.draw(st.sampled_from([C.plus, C.element_max, C.element_divide, C.log_add_exp, C.greater, C.squared_error]))
    agrees(f, shape, other)
    agrees(lambda x, y: C.element_select(x, y, x), shape, other)


@CHECKED
@given(shapes, st.data())
def test_shapes_of_reshaped_operands_agree_with_lowering(shape, data):
    rank = len(shape)
    perm = data.draw(st.permutations(range(rank)))
    agrees(lambda x: C.transpose(x, perm), shape)
    axis = data.draw(st.integers(0, rank - 1))
    agrees(lambda x: C.reshape(x, (-1,), axis, data.draw(st.integers(axis + 1, rank))), shape)
    agrees(lambda x: C.flatten(x, axis), shape)
    agrees(lambda x: C.expand_dims(x, axis), shape)
    agrees(lambda x: C.one_hot(x, 4, axis=axis), shape)
    agrees(lambda x: C.top_k(x, data.draw(st.integers(1, shape[axis])), axis), shape)
    agrees(lambda x: C.splice(x, x, x, axis=axis), shape)
    agrees(lambda x: C.pad(x, [(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in shape]), shape)


@CHECKED
@given(shapes, st.data())
def test_shapes_of_slices_agree_with_lowering(shape, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    begin = data.draw(st.integers(0, shape[axis] - 1))
    end = data.draw(st.integers(begin + 1, shape[axis]))
    stride = data.draw(st.sampled_from([-2, -1, 1, 2, 3]))
    agrees(lambda x: C.slice(x, axis, begin, end, stride), shape)


@CHECKED
@given(shapes, shapes, st.data())
def test_shapes_of_products_agree_with_lowering(left, out, data):
    inner = data.draw(st.integers(1, len(left)))
    weights = left[len(left) - inner :] + out
    agrees(lambda x: C.times(x, C.parameter(weights), output_rank=len(out)), left)
    agrees(lambda x: C.times_transpose(x, C.parameter((3, left[-1]))), left)


sizes = st.tuples(st.integers(3, 9), st.integers(3, 9))
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@CHECKED
@given(sizes, pairs, pairs, st.booleans(), st.integers(1, 2), st.integers(1, 3))
def test_shapes_of_convolutions_agree_with_lowering(size, window, strides, padded, dilation, channels):
    if not padded and any((k - 1) * dilation >= n for k, n in zip(window, size, strict=True)):
        return
    auto, x = [False, padded, padded], (channels, *size)
    kernel, transposed = C.parameter((4, channels, *window)), C.parameter((channels, 4, *window))
    agrees(lambda x: C.convolution(kernel, x, strides, auto_padding=auto, dilation=(1, dilation, dilation)), x)
    agrees(lambda x: C.convolution_transpose(transposed, x, strides, auto_padding=[False]), x)


@CHECKED
@given(sizes, pairs, pairs, st.booleans(), st.booleans(), st.sampled_from([C.MAX_POOLING, C.AVG_POOLING]))
def test_shapes_of_pooling_agree_with_lowering(size, window, strides, padded, ceil, kind):
    agrees(lambda x: C.pooling(x, kind, window, strides, [padded], ceil_out_dim=ceil), (2, *size))


@pytest.mark.parametrize("leaf", [lambda: C.parameter((-2,), init=2), lambda: C.constant(2, (-2,))])
@pytest.mark.parametrize("op", [
    lambda v, p: v + p, lambda v, p: p * v, C.log_add_exp, lambda v, p: C.element_select(C.greater(v, 5), v, p),
])
def test_a_leaf_of_unknown_shape_takes_that_of_the_other_operands(leaf, op):
    """As in CNTK 2.7, where scripts give constants the shape of a function of placeholders."""
    x, argument, value = C.input_variable((2, 3)), C.placeholder(), leaf()
    f = op(argument, value)
    assert f.shape == value.shape == (-2,)
    f.replace_placeholders({argument: x})
    assert f.shape == value.shape == value.value.shape == (2, 3)
    ones = np.ones((1, 2, 3), np.float32)
    np.testing.assert_allclose(f.eval({x: ones}), op(C.constant(ones), C.constant(2)).eval())
