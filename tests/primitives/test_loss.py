"""Losses and metrics of whole minibatches: the numbers are those of CNTK 2.7."""

import numpy as np
import pytest

import cntkjax as C
from tests.ops.test_cntk_behaviour import x

F = np.float32


def test_fmeasure_of_images_is_one_for_each_channel():
    a, b = x(2, 2, 2), x(2, 2, 2)
    assert [C.losses.fmeasure(x(*s), x(*s)).shape for s in ((3,), (2, 3), (2, 3, 4), (2, 2, 2, 2))] == [
        (), (), (2, 1, 1), ()
    ]
    data = {a: [[[[1, 0], [1, 0]], [[1, 1], [1, 1]]]], b: [[[[1, 1], [0, 0]], [[1, 1], [1, 1]]]]}
    assert C.losses.fmeasure(a, b).eval(data).ravel().tolist() == [0.5, 0]


@pytest.mark.parametrize(
    "score, gain, loss, gradient",
    [
        ([1, 2, 0.5], [2, 0, 1], 88.57686, [-0.23562214, 0.21584961, 0.01977252]),
        ([1, 2, 3, 4], [3, 2, 1, 0], 154.46906, [-0.42639077, -0.19442718, 0.03752109, 0.58329684]),
        ([1, 2, 3], [0, 1, 2], -183.94414, [0, 0, 0]),
    ],
)
def test_lambda_rank_takes_the_given_order_as_the_ideal_one(score, gain, loss, gradient):
    s, g, group = x(1, needs_gradient=True), x(1), x(1)
    f = C.lambda_rank(s, g, group)
    data = {s: np.reshape(score, (-1, 1)), g: np.reshape(gain, (-1, 1)), group: np.ones((len(gain), 1))}
    assert np.allclose(f.eval(data), loss) and np.allclose(f.grad(data, wrt=[s]).ravel(), gradient, atol=1e-6)


@pytest.mark.parametrize(
    "penalties, squash, one, other, expected",
    [
        ((0, 2, 2), True, [2, 2, 1, 0], [2, 2, 2, 1], 6),
        ((1, 1, 2), False, [2, 3, 2, 3], [3, 0, 3, 1], 4),
        ((2, 0, 0), True, [2, 0, 3], [0, 1, 1], 7.5),
    ],
)
def test_among_edits_of_equal_cost_substitutions_come_first_and_deletions_last(penalties, squash, one, other, expected):
    a, b = C.sequence.input_variable(4), C.sequence.input_variable(4)
    one_hot = np.eye(4, dtype=F)
    f = C.edit_distance_error(a, b, *penalties, squashInputs=squash)
    assert np.isclose(f.eval({a: [one_hot[one]], b: [one_hot[other]]}), expected)


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
