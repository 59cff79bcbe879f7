"""Unpacked sequences: where no output depends on their padding, lengths are rounded up, and programs are few."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import layers as L
from cntkjax.engine.plan.plan import Plan
from cntkjax.engine.run.program_cache import programs

e = C.sequence.input_variable(3, sequence_axis=C.Axis("encoder"))
d = C.sequence.input_variable(4)
o = C.sequence.input_variable(3, sequence_axis=C.Axis("others"))
steps, unpacked_mask = C.sequence.unpack(e, 0).outputs
mask = C.reshape(unpacked_mask, (1,), 1, 1)


def attention_mean(far):
    """A softmax-weighted mean over the steps, with a mask that puts `far` into the padding."""
    weights = C.softmax(C.element_select(mask, C.times(steps, np.ones((3, 1), np.float32)), far), axis=0)
    return C.reduce_sum(weights * steps, axis=0)


INDEPENDENT = {
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
DEPENDENT = {
    "the array": C.combine([steps]), "the mask": C.combine([unpacked_mask]), "mean": C.reduce_mean(steps, 0),
    "maximum": C.reduce_max(steps, 0), "softmax": C.softmax(steps, 0), "sum of others": C.reduce_sum(steps + 1, 0),
    "a mask that is not far": attention_mean(-5.0),
    "softmax of each step, unmasked": C.reduce_sum(C.softmax(steps, 1), 0),
    "along another axis": C.reduce_sum(steps, 1),
    "a product with a fixed size": C.times(np.ones((4, 5), np.float32), steps),
    "a sum of products with a fixed size": C.reduce_sum(steps * np.ones((5, 1), np.float32), 0),
    "a sum of products with other sequences": C.reduce_sum(steps * C.sequence.unpack(o, 0, True), 0),
    "elements that change their step": C.reduce_sum(C.reshape(steps, (3, -1)), 1),
}


@pytest.mark.parametrize("name", [*INDEPENDENT, *DEPENDENT])
def test_whether_an_output_depends_on_padding(name):
    assert Plan((INDEPENDENT | DEPENDENT)[name].outputs).depends_on_padding == (name in DEPENDENT)


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


def test_lengths_of_other_sequences_are_rounded_up_even_if_outputs_depend_on_padding():
    f = C.sequence.last(L.Recurrence(L.RNNStep(2))(d)) + C.reduce_mean(C.reduce_mean(steps, 0))
    texts = [np.ones((5, 3), np.float32)] * 2

    def evaluated(*lengths):
        return f.eval({e: texts, d: [np.ones((n, 4), np.float32) for n in lengths]})

    evaluated(8, 6)
    before = sum(len(p.executables) for p in programs)
    np.testing.assert_allclose(evaluated(7, 6)[1], evaluated(6, 6)[0], rtol=1e-6)
    assert sum(len(p.executables) for p in programs) == before
