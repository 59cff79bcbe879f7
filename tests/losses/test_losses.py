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


@pytest.mark.parametrize(("gain", "score", "loss", "gradient", "ndcg"), [
    ([3, 1], [0.1, 0.4], 40.658474, [-0.11678, 0.11678], 66.66667),
    ([3, 1], [0.4, 0.1], 0, [-0.08651, 0.08651], 200),
    ([3, 0], [0.1, 0.4], 73.81405, [-0.21201, 0.21201], 0),
    ([0, 0], [0.1, 0.4], 200, [0, 0], 0),
    ([1], [0.4], 0, [0], 100),
], ids=range(5))
def test_ranking_of_one_group(gain, score, loss, gradient, ndcg):
    s, g, group = (C.input_variable(1, needs_gradient=i == 0) for i in range(3))
    columns = (score, gain, [1] * len(gain))
    data = {v: np.array(c, np.float32)[:, None] for v, c in zip((s, g, group), columns, strict=True)}
    ranked = C.lambda_rank(s, g, group)
    np.testing.assert_allclose(ranked.eval(data), loss, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(ranked.grad(data, wrt=[s]).ravel(), gradient, atol=1e-5)
    np.testing.assert_allclose(C.ndcg_at_1(s, g, group).eval(data), ndcg, rtol=1e-5)


def test_ranking_is_averaged_over_groups():
    s, g, group = (C.input_variable(1, needs_gradient=i == 0) for i in range(3))
    columns = [[0.1, 0.4, 0.3, -0.2, 0.5], [3, 1, 0, 2, 0], [1, 1, 1, 2, 2]]
    data = {v: np.array(c, np.float32)[:, None] for v, c in zip((s, g, group), columns, strict=True)}
    np.testing.assert_allclose(C.lambda_rank(s, g, group).eval(data), 170.13533, rtol=1e-5)
    np.testing.assert_allclose(C.ndcg_at_1(s, g, group).eval(data), 83.33334, rtol=1e-5)
    gradient = C.lambda_rank(s, g, group).grad(data, wrt=[s]).ravel()
    np.testing.assert_allclose(gradient, [-0.21769, 0.10992, 0.10776, -0.24661, 0.24661], atol=1e-5)


def test_an_id_that_comes_again_later_is_another_group():
    s, g, group = (C.input_variable(1, needs_gradient=i == 0) for i in range(3))
    columns = [[0.0, 0.1, 0.4, 0.3, -0.2], [2, 3, 1, 2, 1], [0, 1, 1, 0, 0]]
    data = {v: np.array(c, np.float32)[:, None] for v, c in zip((s, g, group), columns, strict=True)}
    ranked = C.lambda_rank(s, g, group)
    np.testing.assert_allclose(ranked.eval(data), 33.88205, rtol=1e-5)
    np.testing.assert_allclose(ranked.grad(data, wrt=[s]).ravel(), [0, -0.11678, 0.11678, -0.05296, 0.05296], atol=1e-5)
    np.testing.assert_allclose(C.ndcg_at_1(s, g, group).eval(data), 388.88892, rtol=1e-5)


def test_weighted_binary_cross_entropy():
    p, label, weight = (C.input_variable(1, needs_gradient=i == 0) for i in range(3))
    columns = [[0.1, 0.9, 0.0, 1.0], [0, 0.5, 1, 1], [1, 2, 3, 4]]
    data = {v: np.array(c, np.float32)[:, None] for v, c in zip((p, label, weight), columns, strict=True)}
    loss = C.weighted_binary_cross_entropy(p, label, weight)
    np.testing.assert_allclose(loss.eval(data), 102.71666, rtol=1e-5)
    gradient = loss.grad(data, wrt=[p]).ravel()
    np.testing.assert_allclose(gradient[[0, 1, 3]], [1.1111112, 0, -4], rtol=1e-5)


def test_negative_samples_are_later_in_the_minibatch():
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((6, 5)).astype(np.float32) for _ in range(2))
    cosines = x @ y.T / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(y, axis=1)
    a, b = C.input_variable(5), C.input_variable(5)
    values = C.cosine_distance_with_negative_samples(a, b, 2, 3).eval({a: x, b: y})
    expected = [[cosines[i, i], *(cosines[i, (i + 2 + k) % 6] for k in range(3))] for i in range(6)]
    np.testing.assert_allclose(values, expected, atol=1e-5)


def test_noise_contrastive_estimation_with_every_class_drawn_is_exact():
    # With one class the noise draws that class, whatever the seed.
    x, label = C.input_variable(2), C.input_variable(1, is_sparse=True)
    W, b = C.parameter(init=np.array([[1.0, 2.0]], np.float32)), C.parameter(init=np.array([[0.5]], np.float32))
    loss = C.losses.nce_loss(W, b, x, label, np.ones(1, np.float32), num_samples=3)
    value = loss.eval({x: [[1, -1]], label: csr_matrix([[1.0]])})
    score, prior = -0.5, np.log(3)
    total = np.logaddexp(score, prior)
    np.testing.assert_allclose(value, [total - score + 3 * total - 3 * prior], rtol=1e-5)


def test_hierarchical_probabilities_sum_to_one():
    x, label = C.input_variable(3), C.input_variable(1)
    probability, groups, members = C.hierarchical_softmax_layer(x, label, 10)
    assert groups.shape == (4,) and [p.shape for p in members] == [(3,)] * 4
    data = np.ones((1, 3), np.float32)
    joint = np.concatenate([p.eval({x: data})[0] for p in members])
    np.testing.assert_allclose(joint.sum(), 1, rtol=1e-5)
    probabilities = [probability.eval({x: data, label: [[i]]}).item() for i in range(10)]
    np.testing.assert_allclose(probabilities, joint[:10], rtol=1e-5)
    assert [p.name for p in sorted(probability.parameters, key=lambda p: p.name)] == [
        "hsoftmax_b1", "hsoftmax_b2s", "hsoftmax_w1", "hsoftmax_w2s"
    ]


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
