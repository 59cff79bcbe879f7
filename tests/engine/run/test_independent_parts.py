"""Parts of a graph that share no dynamic axis may be fed with different numbers of samples (numbers of CNTK 2.7)."""

import numpy as np
import pytest

import cntkjax as C

x, s = C.input_variable(2, name="x"), C.sequence.input_variable(2, name="s")
SAMPLES = np.arange(12, dtype=np.float32).reshape(6, 2) / 10
SEQUENCES = [np.full((3, 2), 1, np.float32), np.full((2, 2), 2, np.float32)]
FEEDS = {x: SAMPLES, s: SEQUENCES}


class Parts:
    """A value of each of 6 samples, one of each of 2 sequences, and one of each of their 5 steps."""

    def __init__(self):
        self.w, self.v = C.parameter((2, 1), init=1.0), C.parameter((2, 1), init=1.0)
        self.samples, self.steps = C.times(x, self.w), C.times(s, self.v)
        self.sequences = C.sequence.reduce_sum(self.steps)

    def total(self, *parts):
        return C.plus(*(C.reduce_sum(C.square(p), axis=C.Axis.all_axes()) for p in parts))


@pytest.fixture
def parts():
    return Parts()


def test_each_part_is_computed_from_its_own_feeds(parts):
    f = C.combine([parts.samples, parts.sequences, parts.steps])
    samples, sequences, steps = f.eval(FEEDS).values()
    np.testing.assert_allclose(samples.ravel(), [0.1, 0.5, 0.9, 1.3, 1.7, 2.1], rtol=1e-6)
    assert sequences.tolist() == [[6], [8]]
    assert [step.ravel().tolist() for step in steps] == [[2, 2, 2], [4, 4]]


def test_gradients_of_one_part_pass_through_it_alone(parts):
    f = C.combine([parts.samples, parts.sequences])
    state, _ = f.forward(FEEDS, f.outputs, {parts.samples.output})
    gradients = f.backward(state, {parts.samples.output: np.ones((6, 1), np.float32)}, {parts.w})
    np.testing.assert_allclose(gradients[parts.w].ravel(), [3, 3.6], rtol=1e-6)


def test_a_sum_over_all_axes_joins_parts(parts):
    gradients = parts.total(parts.samples, parts.sequences).grad(FEEDS, wrt=[parts.w, parts.v])
    np.testing.assert_allclose(gradients[parts.w].ravel(), [9.4, 10.72], rtol=1e-6)
    np.testing.assert_allclose(gradients[parts.v].ravel(), [100, 100], rtol=1e-6)


def test_a_sum_is_repeated_for_each_step_of_the_other_part(parts):
    total = C.reduce_sum(parts.samples, axis=C.Axis.all_axes())
    f = C.combine([parts.samples, parts.steps + C.sequence.broadcast_as(total, parts.steps)])
    np.testing.assert_allclose(np.concatenate(f.eval(FEEDS)[f.outputs[1]]).ravel(), [8.6] * 3 + [10.6] * 2, rtol=1e-6)


@pytest.mark.parametrize(
    "order, count", [("samples sequences", 6), ("sequences samples", 2), ("samples steps", 6), ("steps samples", 5)]
)
def test_the_first_part_of_a_loss_counts_the_samples(parts, order, count):
    loss = parts.total(*(getattr(parts, name) for name in order.split()))
    trainer = C.Trainer(None, (loss, None), [C.sgd([parts.w, parts.v], 0.0001)])
    trainer.train_minibatch(FEEDS)
    assert trainer.previous_minibatch_sample_count == count


def test_training_on_both_parts(parts):
    trainer = C.Trainer(None, (parts.total(parts.samples, parts.sequences), None), [C.sgd([parts.w, parts.v], 0.01)])
    trainer.train_minibatch(FEEDS)
    assert trainer.previous_minibatch_loss_average == pytest.approx(18.343332926)
    np.testing.assert_allclose(parts.w.value.ravel(), [0.98433334, 0.9821333], rtol=1e-6)
    np.testing.assert_allclose(parts.v.value.ravel(), [0.8333333, 0.8333333], rtol=1e-6)


def test_the_loss_of_one_part_and_the_metric_of_another(parts):
    trainer = C.Trainer(None, (C.square(parts.samples), C.square(parts.sequences)), [C.sgd([parts.w], 0.01)])
    assert trainer.test_minibatch(FEEDS) == 50


def test_sequences_of_another_axis_are_another_part(parts):
    other = C.sequence.input_variable(2, sequence_axis=C.Axis("other"))
    steps, others = C.combine([parts.steps, other * 1]).eval({s: SEQUENCES, other: SEQUENCES * 2}).values()
    assert len(steps) == 2 and len(others) == 4


class TestWhatCannotDiffer:
    def test_samples_of_two_arguments(self):
        y = C.input_variable(2)
        with pytest.raises(ValueError, match="different numbers of sequences or samples"):
            C.combine([x * 1, y * 1]).eval({x: SAMPLES, y: SAMPLES[:2]})

    def test_samples_and_sequences_that_are_added(self, parts):
        with pytest.raises(RuntimeError, match="different numbers of sequences or samples"):
            C.plus(parts.samples, parts.sequences).eval(FEEDS)
