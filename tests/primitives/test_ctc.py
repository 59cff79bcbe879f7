"""Connectionist temporal classification against the enumeration of all alignments, and numbers of CNTK 2.7."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import log_softmax, logsumexp

import cntkjax as C

TOKENS, BLANK = 4, 3


def frames(phones, bounds, time):
    """Labels as CNTK's readers mark them: 2 where a label begins, 1 in its other frames."""
    scores, current = np.zeros((time, TOKENS)), BLANK
    for t in range(time):
        current = phones[bounds.index(t)] if t in bounds else current
        scores[t, current] = 2 if t in bounds else 1
    return scores


def allowed(path, phones, bounds, delay, blank):
    """The alignments that CNTK 2.7 admits, found with features that allow a single path."""
    label, before = -1, blank
    for t, token in enumerate(path):
        label += token not in (blank, before)
        before = token
        if token != blank and label < len(phones) - 1 and t > bounds[label + 1] + delay:
            return False
        if delay > 0 and token == blank and label == len(phones) - 1 and delay <= t < len(path) - 1:
            return False
    return True


def enumerated(x, phones, bounds, delay=-1, blank=BLANK):
    """The loss and its gradient, over all paths."""
    log_p, weights, posterior = log_softmax(x, 1), [], np.zeros_like(x)
    for path in itertools.product({*phones, blank}, repeat=len(x)):
        labels = [k for k, _ in itertools.groupby(path) if k != blank]
        if labels != phones or (delay >= 0 and not allowed(path, phones, bounds, delay, blank)):
            continue
        weights.append(log_p[np.arange(len(x)), path].sum())
        posterior[np.arange(len(x)), path] += np.exp(weights[-1])
    posterior /= np.exp(logsumexp(weights))
    if 0 < delay < len(x):  # CNTK's gradient treats a blank in the last frame as the last label
        posterior[-1] = np.arange(TOKENS) == phones[-1]
    return -logsumexp(weights), np.exp(log_p) - posterior


def computed(xs, labels, delay=-1, blank=BLANK, dtype=np.float64):
    label = C.sequence.input_variable(TOKENS, dtype)
    feature = C.sequence.input_variable(TOKENS, dtype, needs_gradient=True)
    loss = C.forward_backward(C.labels_to_graph(label), feature, blank, delay)
    feeds = {label: [a.astype(dtype) for a in labels], feature: [a.astype(dtype) for a in xs]}
    gradient, value = loss.grad(feeds, wrt=[feature], outputs=[loss])
    return value, gradient


PHONES = [([0, 1], [0, 1], 5), ([0, 0, 1], [0, 2, 3], 6), ([2], [1], 4), ([], [], 3), ([1, 0, 1], [0, 1, 2], 5)]


@pytest.mark.parametrize("delay", [-1, 0, 1, 2, 5])
def test_sums_over_all_alignments_of_packed_sequences(delay):
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal((time, TOKENS)) for _, _, time in PHONES]
    value, gradients = computed(xs, [frames(*p) for p in PHONES], delay)
    expected = [enumerated(x, *case[:2], delay if case[0] else -1) for x, case in zip(xs, PHONES, strict=True)]
    np.testing.assert_allclose(value, sum(w[0] for w in expected), rtol=1e-9)
    for gradient, (_, reference) in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, reference, atol=1e-9)


@pytest.mark.parametrize("blank", [0, 2**64 - 1])
def test_any_token_can_be_the_blank(blank):
    x = np.random.default_rng(1).standard_normal((4, TOKENS))
    value, _ = computed([x], [frames([1, 2], [0, 2], 4)], blank=blank)
    np.testing.assert_allclose(value, enumerated(x, [1, 2], [0, 2], blank=min(blank, TOKENS - 1))[0], rtol=1e-9)


def test_values_match_cntk():
    x = np.random.RandomState(0).randn(5, TOKENS)
    value, (gradient,) = computed([x], [frames([0, 1, 2], [0, 2, 4], 5)], dtype=np.float32)
    assert value == pytest.approx(3.598606, rel=1e-6)
    np.testing.assert_allclose(gradient[4], [0.6308, 0.1153, -0.7452, -0.0009], atol=1e-4)


@pytest.mark.parametrize("dtype, tolerance", [(np.float16, 2e-2), (np.float32, 1e-6)])
def test_long_sequences_stay_finite(dtype, tolerance):
    time = 200
    value, (gradient,) = computed([np.zeros((time, TOKENS))], [frames([0, 1], [0, 9], time)], dtype=dtype)
    # The first label ends at frame a and began at any up to it, the second begins at b and ends at any from it.
    paths = float(sum((a + 1) * (time - b) for b in range(1, time) for a in range(b)))
    np.testing.assert_allclose(value, time * np.log(TOKENS) - np.log(paths), rtol=max(tolerance, 1e-5))
    assert np.isfinite(gradient).all()


def test_impossible_labels_have_a_large_loss_and_no_gradient():
    rng = np.random.default_rng(2)
    xs = [rng.standard_normal((2, TOKENS)), rng.standard_normal((4, TOKENS))]
    value, (impossible, possible) = computed(xs, [frames([1, 1], [0, 1], 2), frames([2], [1], 4)])
    assert value == pytest.approx(1e11)
    assert not impossible.any()
    np.testing.assert_allclose(possible, enumerated(xs[1], [2], [1])[1], atol=1e-9)


def test_sparse_labels():
    label = C.sequence.input_variable(TOKENS, is_sparse=True)
    feature = C.sequence.input_variable(TOKENS)
    loss = C.forward_backward(C.labels_to_graph(label), feature, BLANK)
    x = np.random.default_rng(3).standard_normal((3, TOKENS)).astype(np.float32)
    value = loss.eval({label: [csr_matrix(frames([1], [0], 3).astype(np.float32))], feature: [x]})
    np.testing.assert_allclose(value, enumerated(x, [1], [0])[0], rtol=1e-5)


def test_wrong_operands_are_errors_when_the_graph_is_built():
    label, feature = C.sequence.input_variable(4, name="label"), C.sequence.input_variable(5, name="scores")
    with pytest.raises(ValueError, match=r"ForwardBackward: labels and features differ(.*\n)+.*'scores'"):
        C.forward_backward(C.labels_to_graph(label), feature, 3)
    with pytest.raises(ValueError, match="ForwardBackward: blankTokenId = 4 is not a token"):
        C.forward_backward(C.labels_to_graph(label), label, 4)
    with pytest.raises(ValueError, match="ForwardBackward: .*have to be sequences"):
        C.forward_backward(C.labels_to_graph(label), C.input_variable(4), 3)
