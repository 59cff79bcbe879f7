"""Unpacked sequences: where no output depends on their padding, lengths are rounded up, and programs are few."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import layers as L
from cntkjax.engine.plan.plan import Plan
from cntkjax.engine.run.program_cache import programs

e = C.sequence.input_variable(3, sequence_axis=C.Axis("encoder"), needs_gradient=True)
d = C.sequence.input_variable(4)
o = C.sequence.input_variable(3, sequence_axis=C.Axis("others"))
steps, unpacked_mask = C.sequence.unpack(e, 0).outputs
mask = C.reshape(unpacked_mask, (1,), 1, 1)


def attention_mean(far):
    """A softmax-weighted mean over the steps, with a mask that puts `far` into the padding."""
    weights = C.softmax(C.element_select(mask, C.times(steps, np.ones((3, 1), np.float32)), far), axis=0)
    return C.reduce_sum(weights * steps, axis=0)


def in_a_loop():
    """Attention to all steps that looks at its last result."""
    result = C.placeholder(())
    before, keys = C.sequence.past_value(result, 0.5), C.sequence.broadcast_as(steps, d)
    weights = C.softmax(C.reduce_sum(keys * before, 1), 0)
    loop = C.tanh(before + C.reduce_sum(weights * C.exp(keys), C.Axis.all_static_axes()) / 9)
    return C.sequence.last(loop.replace_placeholders({result: loop.output}))


def self_attention(scores_of):
    """Each step is a mean of all, weighted by the softmax of its scores with them."""
    keys = C.sequence.broadcast_as(steps, e)
    return C.sequence.reduce_sum(C.times(C.softmax(scores_of(keys)), keys))


def masked_scores(keys):
    return C.element_select(C.sequence.broadcast_as(unpacked_mask, e), C.times_transpose(e, keys), -1e30)


def unpacked_self_attention(scores_of, axis=1):
    """The same of arrays: scores of all steps with all others have two axes of steps."""
    weights = C.softmax(scores_of(C.times_transpose(steps, steps)), axis=axis)
    return C.sequence.reduce_sum(C.to_sequence_like(C.times(weights, steps), e))


far = (C.transpose(mask, (1, 0)) - 1) * 1e30  # beyond the ends of the steps that are attended to

INDEPENDENT = {
    "self-attention of arrays": unpacked_self_attention(lambda scores: scores + far),
    "self-attention of arrays, selected": unpacked_self_attention(
        lambda scores: C.element_select(C.transpose(mask, (1, 0)), scores / 2, -1e30)),
    "sum of products of all steps": C.reduce_sum(C.times_transpose(steps, steps)),
    "self-attention": self_attention(masked_scores), "self-attention, transposed keys": self_attention(
        lambda keys: C.element_select(
            C.sequence.broadcast_as(unpacked_mask, e), C.times(e, C.transpose(keys, (1, 0))), -1e30)),
    "sum": C.reduce_sum(steps, 0), "sum of squares": C.reduce_sum(steps * steps, 0),
    "masked": C.reduce_sum((steps + 1) * mask, 0), "masked softmax": attention_mean(-1e30),
    "attention": L.AttentionModel(5)(e, d), "softmax of each step": C.reduce_sum(C.softmax(steps, 1) * mask, 0),
    "sum over the features, softmax": C.times(C.softmax(C.element_select(
        unpacked_mask, C.reshape(C.reduce_sum(steps * np.float32([1, 2, 3]), 1), (-1,)), -1e30)), steps),
    "maximum over all axes": C.reduce_max(C.element_select(mask, steps, -1e30)),
    "product with a mask": C.times(unpacked_mask, 2 * steps), "without the mask's axis of size 1":
        C.reduce_sum(C.reshape(mask, (-1,)) * C.reshape(C.reduce_sum(steps, 1), (-1,))),
    "largest logarithm of softmax": C.reduce_max(C.log_softmax(C.element_select(mask, steps, -1e30), 0), 0),
}
MASKED = {
    "mean": C.reduce_mean(steps, 0), "mean over all axes": C.reduce_mean(C.exp(steps)),
    "maximum": C.reduce_max(steps, 0), "minimum": C.reduce_min(C.abs(steps) + 1, 0),
    "logarithm of a sum of exponentials": C.reduce_log_sum_exp(steps, 0),
    "sum of others": C.reduce_sum(steps + 1, 0), "a mask that is not far": attention_mean(-5.0),
    "softmax of each step, unmasked": C.reduce_sum(C.softmax(steps, 1), 0),
    "sum over softmax": C.reduce_sum(C.softmax(steps, 0) * C.exp(steps), 0),
    "sum over logarithms of softmax": C.reduce_sum(C.log_softmax(steps, 0) * steps, 0),
    "product over the steps": C.times(C.reshape(C.reduce_sum(C.exp(steps), 1), (-1,)), steps + 1),
    "norms": C.reduce_sum(C.sqrt(C.reduce_sum(C.square(steps), 1)), 0),
    "in a loop": in_a_loop(), "self-attention without a mask": self_attention(lambda keys: C.times_transpose(e, keys)),
}
# CNTK 2.7: the sum of the output for each sequence, and the sum of the absolute gradients of its steps.
OF_CNTK = {
    "mean": ([0.25708, 0.08224], [3, 2.4]),
    "mean over all axes": ([1.362616, 1.242627], [1.36262, 1.04263]),
    "maximum": ([2.244197, 2.242948], [3, 3]),
    "minimum": ([4.329464, 3.0], [2, 0]),
    "logarithm of a sum of exponentials": ([5.683524, 5.464862], [3, 2.51221]),
    "sum of others": ([16.2854, 15.411198], [15, 12]),
    "a mask that is not far": ([1.336368, 1.443896], [3.41359, 3.54464]),
    "softmax of each step, unmasked": ([5.0, 5.0], [0, 0]),
    "sum over softmax": ([5.288596, 4.952963], [5.7949, 5.27015]),
    "sum over logarithms of softmax": ([4.680405, 5.291626], [27.1322, 21.5095]),
    "product over the steps": ([77.081039, 67.485512], [138.399, 105.404]),
    "norms": ([6.101769, 4.899374], [7.73682, 6.11726]),
    "in a loop": ([0.876189, 0.868621], [0.211117, 0.224159]),
    "self-attention without a mask": ([1.412345, 0.382452], [17.274246, 13.74344]),
}
DEPENDENT = {
    "self-attention of arrays without a mask": unpacked_self_attention(lambda scores: scores),
    "self-attention of arrays, masked along the other axis": unpacked_self_attention(
        lambda scores: scores + (mask - 1) * 1e30),
    "self-attention of arrays, softmax along the other axis": unpacked_self_attention(lambda scores: scores + far, 0),
    "scores with themselves": C.times_transpose(steps, steps),
    "the array": C.combine([steps]), "the mask": C.combine([unpacked_mask]), "softmax": C.softmax(steps, 0),
    "product": C.reduce_prod(steps, 0), "along another axis": C.reduce_sum(steps, 1),
    "a product with a fixed size": C.times(np.ones((4, 5), np.float32), steps),
    "a sum of products with a fixed size": C.reduce_sum(steps * np.ones((5, 1), np.float32), 0),
    "a sum of products with other sequences": C.reduce_sum(steps * C.sequence.unpack(o, 0, True), 0),
    "elements that change their step": C.reduce_sum(C.reshape(steps, (3, -1)), 1),
}


@pytest.mark.parametrize("name", [*INDEPENDENT, *MASKED, *DEPENDENT])
def test_whether_an_output_depends_on_padding_and_needs_masks(name):
    masks = Plan((INDEPENDENT | MASKED | DEPENDENT)[name].outputs).masks
    assert masks == {} if name in INDEPENDENT else masks is None if name in DEPENDENT else masks


@pytest.mark.parametrize("name", INDEPENDENT)
def test_more_padding_changes_no_value_and_needs_no_other_program(name):
    f = INDEPENDENT[name]
    rng = np.random.default_rng(0)
    short, long = (rng.standard_normal((n, 3)).astype(np.float32) for n in (5, 8))
    word = np.ones((2, 4), np.float32)

    def evaluated(*texts):
        feeds = {e: list(texts), d: [word] * len(texts)}
        return f.eval({v: feeds[v] for v in f.arguments})[0]

    evaluated(long, long[:6])
    before = sum(len(p.executables) for p in programs)
    padded = evaluated(short, short[:4])
    assert sum(len(p.executables) for p in programs) == before
    np.testing.assert_allclose(padded, evaluated(short, long), rtol=1e-5)
    programs.clear()
    np.testing.assert_allclose(padded, evaluated(short, short), rtol=1e-5)


def wave(n):
    return np.sin(np.arange(3 * n, dtype=np.float32)).reshape(n, 3)


def run_padded(name, compute):
    """What `compute` returns for sequences of 5 and 4 steps, in a program for longer ones."""
    f = C.reduce_sum(MASKED[name])
    feeds = {e: [wave(9), wave(6)], d: [np.ones((2, 4), np.float32)] * 2}
    compute(f, {v: feeds[v] for v in f.arguments})
    before = sum(len(p.executables) for p in programs)
    result = compute(f, {v: feeds[v] for v in f.arguments} | {e: [wave(5), wave(4)[::-1]]})
    assert sum(len(p.executables) for p in programs) == before
    return result


@pytest.mark.parametrize("name", MASKED)
def test_masked_values_are_those_of_cntk_in_a_program_for_longer_sequences(name):
    values = run_padded(name, lambda f, feeds: f.eval(feeds))
    np.testing.assert_allclose(np.ravel(values), OF_CNTK[name][0], rtol=5e-6)


@pytest.mark.parametrize("name", MASKED)
def test_gradients_through_masks_are_those_of_cntk(name):
    gradients = run_padded(name, lambda f, feeds: f.grad(feeds, wrt=[e]))
    sums = [np.abs(np.asarray(g)).sum() for g in gradients]
    np.testing.assert_allclose(sums, OF_CNTK[name][1], rtol=1e-5, atol=1e-6)


def test_steps_beyond_the_longest_are_as_finite_as_those_within():
    offset = C.parameter(3)
    f = C.reduce_sum(C.reduce_mean(C.sqrt(C.abs(steps + offset)), 0))
    f.grad({e: [np.ones((9, 3), np.float32), np.ones((7, 3), np.float32)]}, wrt=[offset])
    gradient = f.grad({e: [np.ones((7, 3), np.float32)] * 2}, wrt=[offset])
    np.testing.assert_allclose(gradient, [1, 1, 1], rtol=1e-6)


def test_sequences_that_are_computed_are_unpacked_to_the_longest_of_them_as_in_cntk():
    condition = C.sequence.input_variable(1, sequence_axis=e.dynamic_axes[1])
    f = C.reduce_sum(C.exp(C.sequence.unpack(C.sequence.gather(e, condition), 0, True)), 0)
    kept = [np.float32([[1], [0], [1], [0], [0]]), np.float32([[1], [0], [0], [0]])]
    values = f.eval({e: [np.ones((5, 3), np.float32), np.ones((4, 3), np.float32)], condition: kept})
    np.testing.assert_allclose(values[..., 0].ravel(), [5.4365635, 3.7182817], rtol=1e-6)  # those of CNTK 2.7


def test_lengths_of_other_sequences_are_rounded_up_even_if_outputs_depend_on_padding():
    f = C.sequence.last(L.Recurrence(L.RNNStep(2))(d)) + C.reduce_mean(C.reduce_mean(steps, 0))
    texts = [np.ones((5, 3), np.float32)] * 2

    def evaluated(*lengths):
        return f.eval({e: texts, d: [np.ones((n, 4), np.float32) for n in lengths]})

    evaluated(8, 6)
    before = sum(len(p.executables) for p in programs)
    np.testing.assert_allclose(evaluated(7, 6)[1], evaluated(6, 6)[0], rtol=1e-6)
    assert sum(len(p.executables) for p in programs) == before
