"""Operations along the batch and sequence axes, for which CNTK has no meaning."""

from functools import partial

import numpy as np
import pytest
from scipy.special import logsumexp

import cntkjax as C
from cntkjax.graph.errors import AxisError

STEPS, BATCH = C.Axis.default_dynamic_axis(), C.Axis.default_batch_axis()
LENGTHS = (3, 1, 4, 2)

REDUCTIONS = {
    C.reduce_sum: np.sum, C.reduce_mean: np.mean, C.reduce_max: np.max, C.reduce_min: np.min, C.reduce_prod: np.prod,
    C.reduce_log_sum_exp: logsumexp,
    C.reduce_l1: lambda x, axis: np.abs(x).sum(axis), C.reduce_l2: lambda x, axis: np.sqrt((x * x).sum(axis)),
    C.reduce_sum_square: lambda x, axis: (x * x).sum(axis),
}


def sequences(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, 2, 3)) for n in LENGTHS]


@pytest.mark.parametrize("reduce", REDUCTIONS, ids=lambda f: f.__name__)
def test_reductions_over_the_steps_of_each_sequence(reduce):
    x, data, reference = C.sequence.input_variable((2, 3), np.float64), sequences(), REDUCTIONS[reduce]
    several = C.combine([reduce(x, axis=STEPS), reduce(x, axis=[STEPS, 1]), reduce(x, axis=[STEPS, BATCH])])
    steps, steps_and_static, everything = several.eval({x: data}).values()
    np.testing.assert_allclose(steps, [reference(s, axis=0) for s in data])
    np.testing.assert_allclose(steps_and_static, [reference(s, axis=(0, 2))[:, None] for s in data])
    np.testing.assert_allclose(everything, reference(np.concatenate(data), axis=0))


@pytest.mark.parametrize("find, reference", [(C.argmax, np.argmax), (C.argmin, np.argmin)])
def test_the_step_of_the_largest_element(find, reference):
    x, data = C.sequence.input_variable((2, 3), np.float64), sequences()
    np.testing.assert_array_equal(find(x, axis=STEPS).eval({x: data}), [reference(s, axis=0) for s in data])


def test_the_mean_over_a_sequence_has_the_gradient_of_one_share_a_step():
    x, data = C.sequence.input_variable((2, 3), np.float64, needs_gradient=True), sequences()
    for gradient, n in zip(C.reduce_mean(x, axis=STEPS).grad({x: data}), LENGTHS, strict=True):
        np.testing.assert_allclose(gradient, np.full((n, 2, 3), 1 / n))


def test_slices_of_the_batch():
    x = C.input_variable(2, needs_gradient=True)
    data = np.arange(10, dtype=np.float32).reshape(5, 2)
    z = C.slice(x, BATCH, 1, 4, 2)
    assert z.dynamic_axes == (BATCH,)
    np.testing.assert_array_equal(z.eval({x: data}), data[1:4:2])
    np.testing.assert_array_equal(C.reduce_sum(z, axis=C.Axis.all_axes()).grad({x: data})[:, 0], [0, 1, 0, 1, 0])


def test_slices_of_steps():
    x, data = C.sequence.input_variable((2, 3), np.float64), sequences()
    for value, s in zip(C.slice(x, STEPS, 0, 1).eval({x: data}), data, strict=True):
        np.testing.assert_array_equal(value, s[0])


def test_gathers_of_other_samples_of_the_minibatch():
    x, i = C.input_variable(2, needs_gradient=True), C.input_variable(1)
    data = np.arange(6, dtype=np.float32).reshape(3, 2)
    z = C.gather(x, i, axis=BATCH)
    np.testing.assert_array_equal(z.eval({x: data, i: [[2], [0], [2]]})[:, 0], data[[2, 0, 2]])
    np.testing.assert_array_equal(z.grad({x: data, i: [[2], [0], [2]]}, wrt=[x])[:, 0], [1, 0, 2])


def test_gathers_of_steps_of_each_sequence():
    x, i = C.sequence.input_variable((2, 3), np.float64), C.input_variable(2, np.float64)
    data, places = sequences(), np.array([[2, 0], [0, 0], [3, 1], [1, 1]])
    rows = C.gather(x, i, axis=STEPS).eval({x: data, i: places})
    np.testing.assert_array_equal(rows, [s[p] for s, p in zip(data, places, strict=True)])


def test_products_over_the_batch():
    x = C.input_variable(2)
    data = np.arange(6, dtype=np.float32).reshape(3, 2)
    samples = C.unpack_batch(x)
    np.testing.assert_allclose(C.times(C.swapaxes(samples), samples).eval({x: data}), data.T @ data)


class TestBatchesOfAnotherSize:
    """Rows of each sample as a batch of samples, and back; numbers are CNTK's."""

    DATA = np.arange(24, dtype=np.float32).reshape(2, 2, 3, 2)

    @staticmethod
    def folded(x, shape):
        return C.to_batch(C.reshape(C.unpack_batch(x), shape))

    def test_rows_become_sequences_and_go_through_a_recurrence(self):
        x = C.input_variable((2, 3, 2), needs_gradient=True)
        steps = C.to_sequence(self.folded(x, (-1, 3, 2)))
        before = C.placeholder(dynamic_axes=steps.dynamic_axes)
        sums = steps + 0.5 * C.sequence.past_value(before)
        sums = sums.replace_placeholders({before: sums.output})
        values = sums.eval({x: self.DATA})
        assert len(values) == 4 and values[3].tolist() == [[18, 19], [29, 30.5], [36.5, 38.25]]
        batch = self.folded(C.sequence.last(sums), (-1, 2, 2))
        assert batch.eval({x: self.DATA}).tolist() == [[[5, 6.75], [15.5, 17.25]], [[26, 27.75], [36.5, 38.25]]]
        np.testing.assert_array_equal(batch.grad({x: self.DATA}), np.broadcast_to([[0.25], [0.5], [1]], (2, 2, 3, 2)))

    def test_all_samples_of_the_new_batch_are_counted(self):
        x, of = C.input_variable((2, 3, 2)), C.parameter(2)
        mean, variance, count = C.constant(0, 2), C.constant(0, 2), C.constant(0, ())
        normal = C.batch_normalization(
            self.folded(x, (-1, 2)), np.ones(2, "f"), np.zeros(2, "f"), mean, variance, False, 10, running_count=count
        )
        loss = C.reduce_sum(C.square(normal - of))
        trainer = C.Trainer(loss, (loss, None), [C.sgd([of], C.learning_parameter_schedule_per_sample(0.01))])
        for _ in range(2):
            trainer.train_minibatch({x: self.DATA})
            assert trainer.previous_minibatch_sample_count == 12
        assert count.value == 24 and mean.value.tolist() == [11, 12]
        assert trainer.previous_minibatch_loss_average == pytest.approx(2)


def test_one_value_per_sequence_is_spliced_to_each_step():
    # CNTK does this with x + y, but not in splice, select and losses.
    x, y = C.sequence.input_variable(2), C.input_variable(1)
    data, values = [s[:, 0, :2].astype(np.float32) for s in sequences()], np.arange(4, dtype=np.float32)[:, None]
    for row, s, v in zip(C.splice(x, y).eval({x: data, y: values}), data, values, strict=True):
        np.testing.assert_array_equal(row, np.concatenate([s, np.broadcast_to(v, (len(s), 1))], 1))


@pytest.mark.parametrize("axes", [[BATCH, BATCH], [C.Axis("a"), C.Axis("a")], [BATCH, C.Axis("a"), C.Axis("a")]])
@pytest.mark.parametrize("of", [C.input_variable, C.placeholder, partial(C.output_variable, dtype=np.float32)])
def test_a_duplicate_axis_is_an_error(of, axes):
    """As in CNTK."""
    with pytest.raises(ValueError, match="specified more than once"):
        of(2, dynamic_axes=axes)


def test_unknown_axes_are_not_ordered():
    """As in CNTK."""
    assert not C.Axis.unknown_dynamic_axes()[0].is_ordered


@pytest.mark.parametrize("number", [1, 3])
def test_a_loop_has_an_initial_state_for_each_sequence(number):
    steps = C.sequence.input_variable(2)
    f = C.layers.UnfoldFrom(lambda s: s * 0.5)(C.to_batch(C.constant([0.25, -0.5])), steps)
    with pytest.raises(RuntimeError, match=f"minibatches of 2 and {number} samples cannot be computed together"):
        f.eval({steps: [np.ones((2, 2), np.float32)] * number})


def test_a_clone_of_gather_keeps_the_name_of_the_axis():
    """So its values are combined with those of the original, if these have as many steps: as CNTK 2.7 prints them."""
    x, y = C.sequence.input_variable(1), C.sequence.input_variable(1)
    positive = C.sequence.gather(x, C.greater(x, 0))
    clone = positive.clone("share", {x: y})
    assert [axis.name for axis in clone.dynamic_axes] == [axis.name for axis in positive.dynamic_axes]
    steps = [np.float32([[1], [-2], [3]]), np.float32([[-1], [2]])]
    as_often = [np.float32([[5], [-2], [6]]), np.float32([[-1], [2]])]
    more_often = [np.float32([[1], [2], [-3]]), np.float32([[1], [2]])]
    both = positive + clone
    assert [v.ravel().tolist() for v in both.eval({x: steps, y: as_often})] == [[6, 9], [4]]
    with pytest.raises(AxisError, match=r"differ in length: \[2, 1\] against \[2, 2\]"):
        both.eval({x: steps, y: more_often})
    last = C.sequence.last(positive) + C.sequence.last(clone)
    assert last.eval({x: steps, y: more_often}).ravel().tolist() == [5, 4]
    gradients = C.sequence.reduce_sum(positive * clone).grad({x: steps, y: as_often}, [x, y])
    assert [v.ravel().tolist() for v in gradients[x]] == [[5, 0, 6], [0, 2]]
    assert [v.ravel().tolist() for v in gradients[y]] == [[1, 0, 3], [0, 2]]


def test_a_clone_of_to_sequence_keeps_the_name_of_the_axis():
    x, y = C.input_variable((C.FreeDimension, 2)), C.input_variable((C.FreeDimension, 2))
    steps = C.to_sequence(x)
    both = steps + steps.clone("share", {x: y})
    array = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    np.testing.assert_array_equal(both.eval({x: array, y: array + 1}), 2 * array + 1)
    with pytest.raises(AxisError, match=r"differ in length: \[3, 3\] against \[2, 2\]"):
        both.eval({x: array, y: array[:, :2]})
