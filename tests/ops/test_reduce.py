"""Reductions beyond one sample, and where CNTK's answers are special (numbers recorded from CNTK 2.7)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax.interop import leaf_names, to_jax

BATCH, EVERYTHING = C.Axis.default_batch_axis(), C.Axis.all_axes()
SEQUENCES = [np.arange(12, dtype=np.float32).reshape(2, 2, 3), np.ones((1, 2, 3), np.float32)]
OPS = {
    C.reduce_sum: np.sum, C.reduce_mean: np.mean, C.reduce_max: np.max, C.reduce_min: np.min, C.reduce_prod: np.prod,
    C.reduce_log_sum_exp: lambda x, axis=None: np.log(np.sum(np.exp(x), axis)),
}


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
class TestOverSamples:
    def test_batch_axis(self, op):
        data = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
        x = C.input_variable((2, 3))
        f = op(x, BATCH)
        assert f.shape == (2, 3) and f.dynamic_axes == ()
        np.testing.assert_allclose(f.eval({x: data}), OPS[op](data, axis=0), rtol=1e-5)

    def test_everything_leaves_padding_out(self, grid, op):
        x = C.sequence.input_variable((2, 3))
        f = op(x, EVERYTHING)
        assert f.shape == () and f.dynamic_axes == ()
        elements = np.concatenate([s.ravel() for s in SEQUENCES])
        np.testing.assert_allclose(f.eval({x: SEQUENCES}), OPS[op](elements), rtol=1e-5)

    def test_dropped_batch_axis_together_with_a_static_one(self, op):
        data = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
        x = C.input_variable((2, 3))
        value = op(x, [BATCH, 0], keepdims=False).eval({x: data})
        np.testing.assert_allclose(value, OPS[op](OPS[op](data, axis=1), axis=0), rtol=1e-5)


def test_each_of_several_largest_elements_gets_the_whole_gradient():
    x = C.input_variable(4, needs_gradient=True)
    assert C.reduce_max(x).grad({x: [[1, 3, 3, 2]]}).tolist() == [[0, 1, 1, 0]]
    over_batch = C.reduce_max(x, BATCH).grad({x: np.array([[0, -3, 1, 2], [0, -3, 2, 1]], np.float32)})
    assert over_batch.tolist() == [[1, 1, 0, 1], [1, 1, 1, 0]]


def test_gradients_at_the_edges_are_those_of_cntk():
    x = C.input_variable(4, needs_gradient=True)
    data = {x: np.array([[0, -1, 1e-40, 2]], np.float32)}
    np.testing.assert_allclose(C.log(x).grad(data), [[9.087821e36, 9.087821e36, 9.087821e36, 0.5]], rtol=1e-5)
    assert C.sqrt(x).grad(data)[0, :2].tolist() == [np.inf, np.inf]
    assert C.abs(x).grad({x: np.array([[0, -3, 1, 2]], np.float32)}).tolist() == [[0, -1, 1, 1]]
    assert C.clip(x, 1, 2).grad({x: np.array([[1, 2, 1.5, 3]], np.float32)}).tolist() == [[1, 1, 1, 0]]


def test_powers_of_zero_and_of_negative_numbers():
    base, exponent = C.input_variable(4, needs_gradient=True), C.input_variable(4, needs_gradient=True)
    power = C.pow(base, exponent)
    data = {base: np.array([[0, -1, 2, -2]], np.float32), exponent: np.array([[-1, 2, 0, 3]], np.float32)}
    assert power.eval(data).tolist() == [[0, 1, 1, -8]]
    gradient = power.grad(data, wrt=[base, exponent])
    assert gradient[base].tolist() == [[0, -2, 0, 12]]
    np.testing.assert_allclose(gradient[exponent], [[0, 0, 0.6931472, 0]], rtol=1e-6)


@pytest.mark.parametrize("value", [[5, np.inf, np.inf], [-np.inf] * 3, [0, 0, 0], [1e30, 2e30, -1e30]], ids=str)
def test_argmax_of_a_long_axis_takes_the_first(value):
    data = np.tile(np.array(value, np.float32), 50)
    assert C.argmax(C.constant(data)).eval() == data.argmax()
    assert C.hardmax(C.constant(data)).eval().argmax() == data.argmax()


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


def affine(shape, make=C.input_variable):
    """An input, its product with parameters plus a bias, and the bias.

    XLA may join the product and the sum to one instruction, which rounds once, in one kernel and not in another.
    """
    rng = np.random.default_rng(0)
    scale, bias = (C.parameter(init=rng.random(shape, np.float32)) for _ in range(2))
    x = make(shape)
    return x, x * scale + bias, bias


@pytest.mark.parametrize("op", [C.reduce_max, C.reduce_min, C.sequence.reduce_max])
@pytest.mark.parametrize("width", [33, 1000])
def test_no_gradient_is_lost_where_the_operand_of_a_maximum_could_be_rounded_in_two_ways(op, width):
    is_sequence = op is C.sequence.reduce_max
    x, y, bias = affine((1,), C.sequence.input_variable) if is_sequence else affine((width,))
    data = np.random.default_rng(1).standard_normal((50, width, *x.shape[:is_sequence])).astype(np.float32)
    assert op(y).grad({x: data}, wrt=[bias]).sum() == 50


@pytest.mark.parametrize("op", [C.reduce_max, C.reduce_min])
@pytest.mark.parametrize("shape, axes", [((33,), 0), ((1000,), 0), ((3, 50, 7), 1), ((3, 50, 7), [0, 2])], ids=str)
def test_no_gradient_of_a_maximum_is_lost_in_functions_that_jax_compiles(op, shape, axes):
    _, y, bias = affine(shape)
    data = np.random.default_rng(1).standard_normal((50, *shape)).astype(np.float32)
    f, parameters = to_jax(op(y, axes))
    name = next(n for n, parameter in leaf_names(y.parameters).items() if parameter == bias)
    gradients = jax.jit(jax.grad(lambda p: jnp.sum(f(p, data))))(parameters)
    assert gradients[name].sum() == f(parameters, data).size


@pytest.mark.parametrize("width", [33, 200, 1000])
def test_hardmax_finds_an_element_in_a_recurrence_that_is_differentiated(width):
    """Of what it compares there with the maximum none may be equal to it, as XLA computes both again."""
    rng = np.random.default_rng(0)
    scale, bias, weight = (C.parameter(init=rng.random(width, np.float32)) for _ in range(3))
    x = C.sequence.input_variable(width)
    y = C.layers.Recurrence(C.Function(lambda s, x: C.hardmax((s * weight + x) * scale + bias)))(x)
    data = [rng.standard_normal((n, width)).astype(np.float32) for n in (40, 30, 7)]
    _, values = C.reduce_sum(y * (x * bias)).grad({x: data}, wrt=[bias], outputs=[y])
    for sequence, value in zip(data, values, strict=True):
        state = np.zeros(width, np.float32)
        for step, found in zip(sequence, value, strict=True):
            largest = np.argmax((state * weight.value + step) * scale.value + bias.value)
            state = np.eye(width, dtype=np.float32)[largest]
            assert np.array_equal(found, state)


@pytest.mark.parametrize("width", [128, 1000, 1025])
def test_the_first_of_equal_elements_of_a_long_axis(width):
    x = C.input_variable((width, 2))
    rng = np.random.default_rng(0)
    data = rng.integers(0, 30, (20, width, 2)).astype(np.float32)
    data[0], data[1], data[2, -1] = -np.inf, 5, 40
    data[3, width // 2 :] = np.inf
    for op, find in ((C.argmax, np.argmax), (C.argmin, np.argmin)):
        assert np.array_equal(op(x, 0).eval({x: data})[:, 0], find(data, 1))
    flat = C.input_variable(width)
    assert np.array_equal(C.hardmax(flat).eval({flat: data[..., 0]}), np.eye(width)[data[..., 0].argmax(1)])


def test_a_softmax_of_the_user_in_a_block_of_that_name():
    @C.BlockFunction("Softmax", "")
    def softmax(x):
        shifted = C.exp(x - C.reduce_max(x, axis=-2))
        return C.element_divide(shifted, C.reduce_sum(shifted, axis=-2))

    x, data = C.input_variable((3, 2)), np.float32([[[1, 2], [3, 4], [5, 7]]])
    expected = np.exp(data) / np.exp(data).sum(1, keepdims=True)
    np.testing.assert_allclose(softmax(x).eval({x: data}), expected, rtol=1e-6)
