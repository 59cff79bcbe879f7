"""What all learners share: counters, rates, the step in pieces, restored state."""

import jax
import numpy as np
import optax
import pytest

import cntkjax as C
from cntkjax import learners as L
from tests.learners.weights import MAKE, Weights, steps


@pytest.mark.parametrize(
    "options, minibatch_size, averages",
    [
        ({}, 0, False),
        ({"minibatch_size": 4}, 4, False),
        ({"minibatch_size": L.IGNORE}, 0, True),
        ({"use_mean_gradient": True}, 0, True),
        ({"use_mean_gradient": False}, 0, False),
        ({"use_mean_gradient": True, "minibatch_size": 4}, 4, False),
    ],
)
def test_the_minibatch_size_decides_whether_gradients_are_averaged(options, minibatch_size, averages):
    learner = L.sgd([Weights([1.0])], 0.1, **options)
    assert (learner.minibatch_size, learner.is_compatible_mode()) == (minibatch_size, averages)
    assert learner.is_minibatch_size_explicitly_specified == ("minibatch_size" in options or averages)


def test_the_minibatch_size_can_be_changed_as_in_cntk():
    w = Weights([1.0, 2.0], np.float64)
    learner = L.sgd([w], L.learning_parameter_schedule(0.1, 8))
    learner.minibatch_size = L.IGNORE
    learner.update({w: np.array([1.0, -2.0])}, 4)
    np.testing.assert_allclose(w.value, [0.9875, 2.025], rtol=1e-12)


# ---------------------------------------------------------------- update


@pytest.mark.parametrize(
    "gradients, count, error, says",
    [
        (lambda w: {}, 1, RuntimeError, "no gradient of parameter 'w'"),
        (lambda w: {w: np.zeros(3)}, 1, ValueError, r"'w' has shape \(2,\), but its gradient has \(3,\)"),
        (lambda w: {w: [0.0, 0.0]}, 1, TypeError, "must be an array, not list"),
        (lambda w: {w: np.zeros(2)}, 0, ValueError, "0 samples"),
        (lambda w: {w: np.zeros(2)}, 2.5, TypeError, "training_sample_count = 2.5"),
    ],
)
def test_an_error_in_a_step_changes_nothing(gradients, count, error, says):
    w = Weights([1.0, 2.0])
    learner = L.momentum_sgd([w], 0.1, 0.9)
    with pytest.raises(error, match=says):
        learner.update(gradients(w), count)
    assert w.value.tolist() == [1.0, 2.0] and learner.total_number_of_samples_seen() == 0


def test_steps_are_counted():
    learner = L.sgd([Weights([1.0])], 0.1)
    steps(learner, 1.0, [4, 3], is_sweep_end=True)
    counts = (
        learner.total_number_of_samples_seen(),
        learner.total_number_of_minibatches_seen(),
        learner.total_number_of_sweeps_seen(),
    )
    assert counts == (7, 2, 2)


def test_a_rate_of_zero_skips_and_does_not_count_the_step():
    w = Weights([1.0])
    learner = L.adam([w], [0.0, 0.1], 0.9)
    assert learner.hyper(4) is None
    learner.advance(4, is_sweep_end=True)
    assert learner.update({w: np.ones(1, np.float32)}, 4, is_sweep_end=True) is False
    assert w.value.tolist() == [1.0] and learner.counters == L.Counters()


@pytest.mark.parametrize(
    "second, rates",
    [
        (L.learning_parameter_schedule([2, 3, 4]), [1, 1.5, 1.75, 2, 3, 3, 4, 4]),
        (L.learning_parameter_schedule([2, 3, 4], epoch_size=8), [1, 1.5, 1.75, 2, 2, 3, 3, 4]),
    ],
)
def test_a_new_rate_starts_when_it_is_set(second, rates):
    learner = L.sgd([Weights([0.0])], [1, 1.5, 1.75])
    actual = []
    for step in range(8):
        if step == 3:
            learner.reset_learning_rate(second)
        actual.append(learner.learning_rate())
        learner.advance(4, step in (0, 1, 3, 5, 6))
    assert actual == rates


def test_a_new_rate_must_be_a_schedule():
    learner = L.sgd([Weights([0.0])], 0.1)
    with pytest.raises(ValueError, match="learningRateSchedule = 0.3 .* TrainingParameterSchedule"):
        learner.reset_learning_rate(0.3)


@pytest.mark.parametrize(
    "learner, values",
    [  # CNTK 2.7: first element after five steps with gradient (1, -2), smoothed gradients reset after the second
        (lambda p: L.adam(p, 0.1, 0.9, variance_momentum=0.9), 0.8750000032084541),
        (lambda p: L.fsadagrad(p, 0.1, 0.9, variance_momentum=0.9), 0.9574500000000001),
        (lambda p: L.momentum_sgd(p, 0.1, 0.9), 0.9787250000000001),
        (lambda p: L.adadelta(p), 0.9977429868071431),
    ],
)
def test_resetting_smoothed_gradients_keeps_the_counts(learner, values):
    w = Weights([1.0, 2.0], np.float64)
    learner = learner([w])
    for step in range(5):
        if step == 2:
            learner.reset_smoothed_gradients()
        learner.update({w: np.array([1.0, -2.0])}, 4)
    np.testing.assert_allclose(w.value[0], values, rtol=1e-13)
    assert learner.total_number_of_samples_seen() == 20


@pytest.mark.parametrize(
    "first, second, minibatch_size, move",
    [  # CNTK 2.7: w after one step with gradient 1 summed over 4 samples
        (L.learning_parameter_schedule(0.1), L.learning_parameter_schedule_per_sample(0.1), 0, -0.025),
        (L.learning_parameter_schedule_per_sample(0.1), L.learning_parameter_schedule(0.1), 1, -0.1),
        (L.learning_parameter_schedule(0.1, 8), L.learning_parameter_schedule_per_sample(0.1), 8, -0.0125),
    ],
)
def test_a_new_rate_has_the_minibatch_size_of_the_old_one(first, second, minibatch_size, move):
    w = Weights([0.0], np.float64)
    learner = L.sgd([w], first)
    learner.reset_learning_rate(second)
    assert steps(learner, 0.25, [4]) == pytest.approx(move)
    assert learner.rate_schedule.minibatch_size == minibatch_size


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (1, 2, 1), (2,)])
def test_axes_of_length_one_do_not_matter(shape):
    w = Weights([1.0, 2.0], np.float64)
    L.sgd([w], 0.1).update({w: np.array([1.0, -1.0]).reshape(shape)}, 1)
    assert w.value == pytest.approx([0.9, 2.1])


class Writer:
    def __init__(self):
        self.lines = []

    def write(self, key, value):
        self.lines.append(f"{key}: {value}")


def test_changes_of_rate_and_momentum_are_reported():
    rate = L.learning_parameter_schedule_per_sample([0.1, 0.2, 0.1, 0.0], epoch_size=4)
    momentum = L.momentum_schedule([0.1, 0.2, 0.2, 0.3], epoch_size=4)
    writers = {}
    for make in (L.momentum_sgd, L.nesterov):
        writers[make], learner = Writer(), make([Weights([1.0])], rate, momentum)
        learner.add_progress_writers([writers[make]])
        steps(learner, 1.0, [4] * 5)
    assert writers[L.momentum_sgd].lines == [  # CNTK 2.7
        "Learning rate per 1 samples: 0.1", "Momentum per minibatch: 0.1",
        "Learning rate per 1 samples: 0.2", "Momentum per minibatch: 0.2",
        "Learning rate per 1 samples: 0.1",
        "Learning rate per 1 samples: 0.0",
    ]
    assert writers[L.nesterov].lines == [line for line in writers[L.momentum_sgd].lines if line.startswith("Learning")]


def test_a_restored_learner_takes_the_same_steps():
    first, second = Weights(np.ones((3, 4))), Weights(np.ones((3, 4)))
    one, other = (L.momentum_sgd([w], 0.1, 0.9, gaussian_noise_injection_std_dev=0.5) for w in (first, second))
    steps(one, 1.0, [2])
    assert not np.allclose(first.value, steps(other, 1.0, [2]))
    other.restore_from_checkpoint(one.create_checkpoint())
    second.value = first.value
    np.testing.assert_allclose(steps(one, 1.0, [3]), steps(other, 1.0, [3]))


# ---------------------------------------------------------------- the step in pieces


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_one_program_serves_all_steps_and_equals_update(make):
    options = {
        "l1_regularization_weight": 0.01,
        "l2_regularization_weight": 0.02,
        "gradient_clipping_threshold_per_sample": 0.5,
    }
    w, twin = Weights([[1.0, -2.0]]), Weights([[1.0, -2.0]])
    learner, pieces, traces = make([w], **options), make([twin], **options), []

    @jax.jit
    def step(gradients, state, values, hyper):
        traces.append(sorted(hyper))
        updates, state = pieces.transform.update(gradients, state, values, hyper=hyper)
        return optax.apply_updates(values, updates), state

    values = [jax.numpy.asarray(twin.value)]
    for n in (4, 1, 7):
        learner.update({w: np.full((1, 2), n, np.float32)}, n)
        values, pieces.optax_state = step([np.full((1, 2), n, np.float32)], pieces.optax_state, values, pieces.hyper(n))
        pieces.advance(n)
        for each in (learner, pieces):
            each.reset_learning_rate(L.learning_parameter_schedule_per_sample(0.1 / n))
    assert len(traces) == 1
    np.testing.assert_allclose(values[0], w.value, rtol=1e-6)
    assert pieces.counters.smoothed == learner.counters.smoothed


def test_the_state_is_keyed_by_link():
    learner = L.adam([Weights([1.0, 2.0]), Weights([[3.0]], name="v")], 0.1, 0.9, l2_regularization_weight=0.1)
    assert list(learner.optax_state) == ["mean", "l2", "adam", "rate", "descend"]
    assert learner.optax_state["adam"]._fields == ("squares", "trace")
    assert [s.shape for s in learner.optax_state["adam"].squares] == [(2,), (1, 1)]


def test_any_optax_transformation_is_a_rule():
    w, reference = Weights([1.0, -2.0]), np.array([1.0, -2.0], np.float32)
    rule = [("adam", optax.scale_by_adam()), ("rate", optax.scale(0.1))]
    learner = L.Learner([w], 1.0, rule, L.LearnerOptions(minibatch_size=L.IGNORE))
    adam = optax.adam(0.1)
    state = adam.init(reference)
    for n in (2, 5):
        updates, state = adam.update(np.float32([n, 1]), state)
        reference = optax.apply_updates(reference, updates)
        learner.update({w: n * np.float32([n, 1])}, n)
    np.testing.assert_allclose(w.value, reference, rtol=1e-6)


@pytest.mark.parametrize("name", sorted(n for n in dir(L.Learner) if not n.startswith("__") and n != "minibatch_size"))
def test_users_may_set_any_attribute(name):
    x = C.input_variable(1)
    w = C.parameter((1, 1), init=1)
    learner = L.sgd([w], 0.5)
    setattr(learner, name, "mine")
    assert getattr(learner, name) == "mine"
    C.Trainer(None, C.times(x, w), [learner]).train_minibatch({x: [[1]]})
    assert w.value == 0.5


def test_a_schedule_keeps_the_minibatch_size_that_its_first_learner_gave_it():
    """Recorded with CNTK 2.7, where learners that share a schedule depend on the order in which they are made."""
    w, rate = C.parameter((2, 2), init=1), C.learning_parameter_schedule(0.1)
    earlier, sized, later = C.sgd([w], rate), C.sgd([w], rate, minibatch_size=8), C.sgd([w], rate)
    assert (rate.minibatch_size, rate.is_minibatch_size_explicitly_specified) == (8, False)
    x = C.input_variable(2)
    steps = []
    for learner in (earlier, sized, later):
        before = w.value[0, 0]
        C.Trainer(None, (C.reduce_sum(C.times(x, w)), None), learner).train_minibatch({x: np.ones((4, 2))})
        steps.append(before - w.value[0, 0])
    np.testing.assert_allclose(steps, [0.1, 0.05, 0.05], rtol=1e-5)
    sized.reset_learning_rate(reset := C.learning_parameter_schedule(0.5))
    assert reset.minibatch_size == 8
    C.sgd([w], by_sample := C.learning_parameter_schedule_per_sample(0.1), use_mean_gradient=True)
    assert by_sample.minibatch_size == 0
