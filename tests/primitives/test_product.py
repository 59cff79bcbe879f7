"""Products with sparse operands, and products that are summed along a sequence."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_matrix

import cntkjax as C
from cntkjax.interop import to_jax

OVER_SEQUENCE = C.ops.TIMES_REDUCE_SEQUENCE_AXIS_WITHOUT_INFERRED_INPUT_RANK
LENGTHS = (3, 1, 4, 2)  # so that several sequences share a row of the grid


def arrays(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, *shape)) for n in LENGTHS]


@pytest.mark.parametrize("output_rank, inner", [(1, 1), (2, 0)])
def test_products_of_all_steps_are_summed(output_rank, inner):
    a = C.sequence.input_variable((2, 3), np.float64, needs_gradient=True)
    b = C.sequence.input_variable((3, 4), np.float64)
    z = C.times(a, b, output_rank=output_rank, infer_input_rank_to_map=OVER_SEQUENCE)
    left, right = arrays(2, 3), arrays(3, 4, seed=1)
    expected = [sum(np.tensordot(x, y, inner) for x, y in zip(*p, strict=True)) for p in zip(left, right, strict=True)]
    assert z.dynamic_axes == (C.Axis.default_batch_axis(),)
    np.testing.assert_allclose(z.eval({a: left, b: right}), expected)
    gradient = z.grad({a: left, b: right}, wrt=[a])
    for actual, r in zip(gradient, right, strict=True):
        reference = r.sum(-1)[:, None] if inner else r.sum((1, 2))[:, None, None]
        np.testing.assert_allclose(actual, np.broadcast_to(reference, actual.shape))


def test_one_value_per_sequence_is_multiplied_by_each_step():
    a, b = C.sequence.input_variable((2, 3)), C.input_variable((3, 4))
    z = C.times(a, b, infer_input_rank_to_map=OVER_SEQUENCE)
    left, right = arrays(2, 3), np.random.default_rng(1).standard_normal((4, 3, 4))
    expected = [x.sum(0) @ y for x, y in zip(left, right, strict=True)]
    np.testing.assert_allclose(z.eval({a: left, b: right}), expected, rtol=1e-4, atol=1e-5)


def test_products_along_a_sequence_are_saved_and_loaded(tmp_path):
    a, b = C.sequence.input_variable((2, 3)), C.sequence.input_variable((3, 4))
    z = C.times(a, b, infer_input_rank_to_map=OVER_SEQUENCE)
    z.save(str(tmp_path / "model"))
    loaded = C.load_model(str(tmp_path / "model"))
    assert loaded.root_function.op_name == "Times"
    feeds = [arrays(2, 3), arrays(3, 4)]
    values = loaded.eval(dict(zip(loaded.arguments, feeds, strict=True)))
    np.testing.assert_allclose(values, z.eval({a: feeds[0], b: feeds[1]}))


def test_without_a_sequence_axis_there_is_nothing_to_sum():
    a, b = C.input_variable((2, 3), name="a"), C.parameter((3, 4))
    with pytest.raises(ValueError, match=r"Times: there is no sequence axis(.*\n)+.*'a'"):
        C.times(a, b, infer_input_rank_to_map=OVER_SEQUENCE)


def test_only_the_last_axis_of_a_sparse_operand_is_contracted():
    a, w = C.input_variable((2, 3), is_sparse=True, name="a"), C.parameter((2, 3, 4))
    with pytest.raises(RuntimeError, match="Times: 2 axes of a sparse left operand cannot be contracted"):
        C.times(a, w)


def test_other_axes_of_a_sparse_operand_are_mapped():
    a, w = C.input_variable((2, 3), is_sparse=True), C.parameter(init=np.arange(12, dtype=np.float32).reshape(3, 4))
    x = np.array([[0, 2, 0, 1, 0, 0], [0, 0, 3, 0, 0, 0]], np.float32)
    np.testing.assert_allclose(C.times(a, w).eval({a: csr_matrix(x)}), x.reshape(2, 2, 3) @ w.value)


@pytest.mark.parametrize("rank", [0, 3])
def test_the_output_rank_is_checked(rank):
    with pytest.raises(ValueError, match="Times: .*output ?[rR]ank"):
        C.times(C.input_variable(3), C.parameter((3, 4)), output_rank=rank)


def test_gradients_of_parameters_of_which_only_rows_are_used_are_sparse():
    x = C.input_variable(6, is_sparse=True)
    embedding, bias = C.parameter((6, 2), init=1.0), C.parameter((2,))
    loss = C.reduce_sum(C.times(x, embedding) + bias)
    feeds = {x: csr_matrix(np.eye(6, dtype=np.float32)[[1, 3, 1]])}
    expected = np.repeat([[0], [2], [0], [1], [0], [0]], 2, axis=1)
    gradients = loss.grad(feeds, wrt=[embedding, bias], as_numpy=False)
    assert gradients[embedding].is_sparse and not gradients[bias].is_sparse
    np.testing.assert_array_equal(gradients[embedding].asarray(), expected)
    fed = C.input_variable((6, 2))
    np.testing.assert_array_equal((fed * 2).eval({fed: gradients[embedding]})[0], 2 * expected)
    np.testing.assert_array_equal(loss.grad(feeds, wrt=[embedding]), expected)


def test_gradients_of_parameters_that_are_used_elsewhere_too_are_dense():
    x, embedding = C.input_variable(6, is_sparse=True), C.parameter((6, 2), init=1.0)
    loss = C.reduce_sum(C.times(x, embedding)) + C.reduce_sum(embedding)
    feeds = {x: csr_matrix(np.eye(6, dtype=np.float32)[[1, 3]])}
    assert not loss.grad(feeds, wrt=[embedding], as_numpy=False).is_sparse


def test_noise_contrastive_estimation_has_sparse_gradients():
    x, label = C.input_variable(3, needs_gradient=True), C.input_variable(50, is_sparse=True)
    weights, biases = C.parameter((50, 3), init=C.glorot_uniform(seed=1)), C.parameter((50, 1))
    loss = C.nce_loss(weights, biases, x, label, np.arange(1.0, 51), num_samples=4, seed=2)
    feeds = {x: np.ones((1, 3), np.float32), label: csr_matrix(np.eye(50, dtype=np.float32)[[7]])}
    gradients = loss.grad(feeds, wrt=[weights, biases], as_numpy=False)
    for p in (weights, biases):
        touched = np.flatnonzero(gradients[p].asarray().any(1))
        assert gradients[p].is_sparse and 7 in touched and len(touched) <= 5


def test_a_matrix_and_a_vector_are_multiplied_by_a_product_and_not_element_by_element():
    # Elementwise, the gradient for a weight of 3,455 rows took 30 times as long.
    x = C.input_variable(4)
    weight = C.parameter((7, 4), init=C.glorot_uniform(seed=1))
    f, parameters = to_jax(C.times_transpose(weight, x))
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert_allclose(f(parameters, data)[..., 0], data @ weight.value.T, rtol=1e-6)
    assert "dot_general" in str(jax.make_jaxpr(f)(parameters, data))


@pytest.mark.parametrize(("shape", "out"), [((6,), (4, 5)), ((3, 2), (7,)), ((3, 2), (4, 5))])
def test_the_gradient_of_a_weight_of_many_axes_needs_no_transpose(shape, out):
    # Each update that read it would transpose it: three quarters of Adam's time.
    f, parameters = to_jax(C.layers.Dense(out)(C.input_variable(shape)))
    data = np.ones((9, *shape), np.float32)
    gradient = jax.jit(jax.grad(lambda parameters, data: (f(parameters, data) ** 2).sum()))
    assert " transpose(" not in gradient.lower(parameters, data).compile().as_text()
