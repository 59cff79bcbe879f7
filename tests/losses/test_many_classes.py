"""Losses for very many classes."""

from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C


def test_negative_samples_are_later_in_the_minibatch():
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((6, 5)).astype(np.float32) for _ in range(2))
    cosines = x @ y.T / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(y, axis=1)
    a, b = C.input_variable(5), C.input_variable(5)
    values = C.cosine_distance_with_negative_samples(a, b, 2, 3).eval({a: x, b: y})
    expected = [[cosines[i, i], *(cosines[i, (i + 2 + k) % 6] for k in range(3))] for i in range(6)]
    np.testing.assert_allclose(values, expected, atol=1e-5)


@pytest.mark.parametrize(("lengths", "negatives"), [
    ((2, 2, 2), [[3, 2], [5, 4], [0, 1]]),  # as CNTK has them
    ((3, 1, 2), [[5, 3, 1], [2], [0, 4]]),
])
def test_the_first_steps_of_all_sequences_come_before_the_second_ones(lengths, negatives):
    angles = np.split(np.arange(sum(lengths)) / 10, np.cumsum(lengths)[:-1])
    x, y = ([np.stack([np.cos(a), np.sin(a)], 1) for a in of] for of in ([0 * a for a in angles], angles))
    a, b = C.sequence.input_variable(2), C.sequence.input_variable(2)
    cosines = C.cosine_distance_with_negative_samples(a, b, shift=4, num_negative_samples=1).eval({a: x, b: y})
    for sequence, drawn in zip(cosines, negatives, strict=True):
        np.testing.assert_allclose(sequence[:, 1], np.cos(np.array(drawn) / 10), atol=1e-6)


def test_noise_contrastive_estimation_with_every_class_drawn_is_exact():
    # With one class the noise draws that class, whatever the seed.
    x, label = C.input_variable(2), C.input_variable(1, is_sparse=True)
    W, b = C.parameter(init=np.array([[1.0, 2.0]], np.float32)), C.parameter(init=np.array([[0.5]], np.float32))
    loss = C.losses.nce_loss(W, b, x, label, np.ones(1, np.float32), num_samples=3)
    value = loss.eval({x: [[1, -1]], label: csr_matrix([[1.0]])})
    score, prior = -0.5, np.log(3)
    total = np.logaddexp(score, prior)
    np.testing.assert_allclose(value, [total - score + 3 * total - 3 * prior], rtol=1e-5)
    named = [node.name for node in C.logging.depth_first_search(loss, lambda node: node.name != "", depth=1)]
    assert named == [
        "lossOnPositives", "positiveLogits", "positiveWeights", "positiveBiases", "logNoisePrior",
        "sampledImportanceWeights", "importanceWeights", "negativeSamples", "noise", "negativeLogits",
        "negativeWeights", "negativeBiases", "noisePriorEntropy",
    ]


def test_the_graph_of_a_hierarchical_softmax_has_the_operations_of_cntk():
    probability, _, _ = C.hierarchical_softmax_layer(C.input_variable(2), C.input_variable(1), 4)
    nodes = C.logging.depth_first_search(probability, lambda node: isinstance(node, C.Function))
    assert Counter(node.op_name for node in nodes) == {
        "OneHotOp": 3, "Times": 4, "TransposeTimes": 2, "Plus": 4, "Minus": 1, "ElementTimes": 2, "ElementDivide": 1,
        "Floor": 2, "Softmax": 2, "Reshape": 2,
    }


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
