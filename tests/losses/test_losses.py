"""Losses of a whole minibatch, and cross entropy with sparse labels (numbers recorded from CNTK 2.7)."""

import jax
import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C
from cntkjax.engine.run.program_cache import programs

OUTPUTS = np.array([[1.0, 2, 3, 0], [0, 5, 1, 1], [2, 2, 1, 0]], np.float32)
LABELS = np.eye(4, dtype=np.float32)[[2, 0, 1]]


def test_sparse_and_dense_labels_have_the_same_loss():
    z = C.input_variable(4, needs_gradient=True)
    dense, sparse = C.input_variable(4), C.input_variable(4, is_sparse=True)
    for op in (C.cross_entropy_with_softmax, C.classification_error):
        expected = op(z, dense).eval({z: OUTPUTS, dense: LABELS})
        np.testing.assert_allclose(op(z, sparse).eval({z: OUTPUTS, sparse: csr_matrix(LABELS)}), expected, rtol=1e-6)
    soft = csr_matrix(np.array([[0.5, 0.5, 0, 0], [0, 0, 0, 1], [0.1, 0.2, 0.3, 0.4]], np.float32))
    gradients = [
        C.cross_entropy_with_softmax(z, label).grad({z: OUTPUTS, label: data}, wrt=[z])
        for label, data in ((dense, LABELS), (sparse, csr_matrix(LABELS)), (dense, soft.toarray()), (sparse, soft))
    ]
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-6)
    np.testing.assert_allclose(gradients[2], gradients[3], atol=1e-6)


def test_a_sparse_label_is_never_made_dense(monkeypatch):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")  # what was compiled before is not traced
    monkeypatch.setattr("cntkjax.engine.data.sparse.Sparse.todense", None)
    z, label = C.input_variable(50, needs_gradient=True), C.input_variable(50, is_sparse=True)
    loss = C.cross_entropy_with_softmax(z, label)
    programs.clear()
    loss.grad({z: np.zeros((3, 50)), label: csr_matrix(np.eye(50, dtype=np.float32)[:3])}, wrt=[z])


def test_the_gradient_of_the_logarithm_of_a_sum_keeps_no_exponentials():
    from cntkjax.primitives.reduce import _log_sum

    x = np.zeros((8, 1000), np.float32)
    residuals = jax.tree.leaves(jax.vjp(lambda x: _log_sum(x, (1,)), x)[1])
    assert sum(k.size for k in residuals) <= 2 * x.size


def test_weighted_binary_cross_entropy():
    p, label, weight = (C.input_variable(1, needs_gradient=i == 0) for i in range(3))
    columns = [[0.1, 0.9, 0.0, 1.0], [0, 0.5, 1, 1], [1, 2, 3, 4]]
    data = {v: np.array(c, np.float32)[:, None] for v, c in zip((p, label, weight), columns, strict=True)}
    loss = C.weighted_binary_cross_entropy(p, label, weight)
    np.testing.assert_allclose(loss.eval(data), 102.71666, rtol=1e-5)
    gradient = loss.grad(data, wrt=[p]).ravel()
    np.testing.assert_allclose(gradient[[0, 1, 3]], [1.1111112, 0, -4], rtol=1e-5)


@pytest.mark.parametrize("make", [
    lambda x: C.cross_entropy_with_softmax(x, C.input_variable(5)),
    lambda x: C.cosine_distance(x, C.input_variable(5)),
    lambda x: C.classification_error(C.input_variable((2, 3)), C.input_variable((2, 3)), 0, topN=2),
    lambda x: C.losses.nce_loss(C.parameter((4, 3)), C.parameter(4), x, x, np.ones(4)),
    lambda x: C.losses.nce_loss(C.parameter((3, 4)), C.parameter((4, 1)), x, x, np.ones(4)),
], ids=range(5))
def test_operands_that_do_not_fit_are_errors(make):
    with pytest.raises(ValueError):
        make(C.input_variable(4))


def test_cosines_of_nan_are_nan():
    x, y = C.input_variable(2), C.input_variable(2)
    data = {x: np.array([[1, np.nan], [3, 4], [0, 0]], np.float32), y: np.array([[1, 0], [4, 3], [1, 1]], np.float32)}
    np.testing.assert_allclose(C.cosine_distance(x, y).eval(data), [np.nan, 0.96, 0], rtol=1e-6)
    negatives = C.cosine_distance_with_negative_samples(x, y, shift=1, num_negative_samples=1).eval(data)
    np.testing.assert_allclose(negatives[:, 0], [np.nan, 0.96, 0], rtol=1e-6)


def test_criteria_along_no_axis_take_all_elements_of_a_sample():
    output, target = C.input_variable((2, 3), needs_gradient=True), C.input_variable((2, 3))
    draw = np.random.RandomState(0)
    data = {output: draw.randn(2, 2, 3).astype(np.float32), target: draw.rand(2, 2, 3).astype(np.float32)}
    loss, error = C.cross_entropy_with_softmax(output, target, None), C.classification_error(output, target, None)
    assert loss.shape == error.shape == ()
    np.testing.assert_allclose(loss.eval(data), [2.4060, 0.3877], atol=1e-4)
    np.testing.assert_array_equal(error.eval(data), [1, 1])
