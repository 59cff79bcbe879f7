"""Metrics (numbers recorded from CNTK 2.7)."""

import numpy as np
import pytest

import cntkjax as C


def one_hot(tokens):
    return np.eye(5, dtype=np.float32)[tokens]


@pytest.mark.parametrize(("a", "b", "options", "edits"), [
    ([[0, 1, 2]], [[0, 2, 2]], (), 1),
    ([[0, 0, 1, 1]], [[0, 1, 1, 2]], (1, 1, 1, True), 4 / 3),
    ([[0, 0, 1, 1]], [[0, 1, 1, 2]], (10, 2, 3, True), 4 / 3),
    ([[0, 0, 1, 1]], [[0, 1, 1, 2]], (1, 1, 1, True, [2]), 0),
    ([[0, 0, 1, 1]], [[0, 1, 1, 2]], (1, 1, 1, False, [2]), 4 / 3),
    ([[0, 0, 1, 1]], [[0, 1, 1, 2]], (1, 1, 1, False, [2, 1]), 4),
    ([[0, 0, 1, 1], [3, 4]], [[0, 1, 1, 2], [4, 3]], (1, 5, 7), 4),
    ([[0, 0, 2, 0], [1, 2, 3]], [[1, 1, 1, 1], [0, 0, 1]], (1, 1, 1, True), 14),
    ([[0, 3, 0]], [[0, 0, 0]], (1, 1, 1, True, [3]), 3),
    ([[0, 1]], [[1, 2]], (2, 1, 1), 2),
], ids=range(10))
def test_edit_distance(grid, a, b, options, edits):
    x, y = C.sequence.input_variable(5), C.sequence.input_variable(5)
    data = {x: [one_hot(t) for t in a], y: [one_hot(t) for t in b]}
    np.testing.assert_allclose(C.edit_distance_error(x, y, *options).eval(data), edits, rtol=1e-5)


def test_samples_without_a_sequence_axis_are_sequences_of_one_step():
    x, y = C.input_variable(5), C.input_variable(5)
    assert C.edit_distance_error(x, y).eval({x: one_hot([0, 1, 2]), y: one_hot([0, 2, 2])}) == 1


def test_the_target_among_the_largest_counts_for_the_minibatch():
    z, target = C.input_variable(4), C.input_variable(4)
    error = C.classification_error(z, target, topN=2)
    assert error.dynamic_axes == () and error.shape == ()
    outputs = np.array([[1, 1, 1, 0]] * 4, np.float32)
    assert [error.eval({z: outputs[:1], target: one_hot([i])[:, :4]}) for i in range(4)] == [0, 0, 1, 1]
    assert error.eval({z: outputs, target: np.eye(4, dtype=np.float32)}) == 2


def test_the_share_of_errors_along_another_axis():
    z, target = C.input_variable((2, 3)), C.input_variable((2, 3))
    error = C.classification_error(z, target, axis=0)
    outputs = np.array([[[1, 5, 2], [2, 0, 1]]], np.float32)
    labels = np.array([[[0, 1, 0], [1, 0, 1]]], np.float32)
    np.testing.assert_allclose(error.eval({z: outputs, target: labels}), [1 / 3], rtol=1e-6)


def test_edit_distance_of_sequences_of_different_lengths():
    a = C.sequence.input_variable(5, sequence_axis=C.Axis("heard"))
    b = C.sequence.input_variable(5, sequence_axis=C.Axis("said"))
    predicted, reference = [[0, 1, 2], [3]], [[0, 2], [3, 4, 3]]  # one extra token, two missing ones
    feeds = {a: [one_hot(s) for s in predicted], b: [one_hot(s) for s in reference]}
    assert C.edit_distance_error(a, b).eval(feeds) == 3
