"""What all learners share: arguments, counters, the step in pieces, noise, precision."""

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cntkjax as C
from cntkjax import learners as L
from cntkjax.graph.seed import get_random_seed
from cntkjax.learners import _transforms as transforms
from tests.learners.weights import Weights

RMSPROP = {"gamma": 0.9, "inc": 1.5, "dec": 0.5, "max": 0.05, "min": 0.001}
MAKE = {
    "sgd": lambda p, **o: L.sgd(p, 0.1, **o),
    "momentum_sgd": lambda p, **o: L.momentum_sgd(p, 0.1, 0.9, **o),
    "nesterov": lambda p, **o: L.nesterov(p, 0.1, 0.9, **o),
    "adagrad": lambda p, **o: L.adagrad(p, 0.1, **o),
    "adadelta": lambda p, **o: L.adadelta(p, **o),
    "rmsprop": lambda p, **o: L.rmsprop(p, 0.1, **RMSPROP, **o),
    "fsadagrad": lambda p, **o: L.fsadagrad(p, 0.1, 0.9, **o),
    "adam": lambda p, **o: L.adam(p, 0.1, 0.9, **o),
    "adamax": lambda p, **o: L.adam(p, 0.1, 0.9, adamax=True, **o),
}


def steps(learner, gradient, sizes, **options):
    for n in sizes:
        learner.update({p: np.full(p.shape, gradient * n, p.dtype) for p in learner.parameters}, n, **options)
    return learner.parameters[0].value


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
@pytest.mark.parametrize(
    "parameters, error, says",
    [
        ([], ValueError, "at least one parameter"),
        ("twice", ValueError, "'w' stands more than once"),
        ("alone", TypeError, "a list or tuple of parameters, not Parameter"),
        (["a"], TypeError, "'a' of type str is none"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_invalid_parameter_lists_are_errors(make, parameters, error, says):
    w = Weights([1.0])
    with pytest.raises(error, match=says):
        make({"twice": [w, w], "alone": w}.get(parameters, parameters) if isinstance(parameters, str) else parameters)


@pytest.mark.parametrize("value", ["a", None, (0.1, 0.2)])
def test_invalid_rates_and_momentums_are_errors(value):
    w = Weights([1.0])
    for make in (
        lambda: L.sgd([w], value),
        lambda: L.momentum_sgd([w], 0.1, value),
        lambda: L.adam([w], 0.1, 0.9, variance_momentum=value),
        lambda: L.sgd([w], 0.1, gaussian_noise_injection_std_dev=value),
    ):
        with pytest.raises(ValueError, match="must be a number, a list or a schedule"):
            make()


@pytest.mark.parametrize("value", [3, "x", None])
def test_unit_gain_must_be_a_bool(value):
    with pytest.raises(TypeError, match="unit_gain"):
        L.momentum_sgd([Weights([1.0])], 0.1, 0.9, unit_gain=value)


def test_a_negative_epsilon_is_an_error():
    with pytest.raises(ValueError, match="epsilon must not be negative, but is -1"):
        L.adam([Weights([1.0])], 0.1, 0.9, epsilon=-1)


@pytest.mark.parametrize(
    "name, value",
    [("gamma", 0), ("gamma", 1), ("inc", 1), ("dec", 1.0), ("dec", -0.7), ("max", 0.0005), ("max", 0.001), ("min", 0)],
)
def test_rmsprop_checks_its_limits(name, value):
    with pytest.raises(RuntimeError, match=f"rmsprop: .*{name}.*{value}"):
        L.rmsprop([Weights([1.0])], 0.1, **{**RMSPROP, name: value})


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


def test_the_default_of_unit_gain_does_not_affect_learners():
    assert L.default_unit_gain_value() is True
    try:
        L.set_default_unit_gain_value(False)
        assert L.default_unit_gain_value() is False
        w = Weights([1.0], np.float64)
        assert steps(L.momentum_sgd([w], 0.1, 0.9), 0.25, [4]) == pytest.approx(1 - 0.1 * 0.1 * 0.25)
    finally:
        L.set_default_unit_gain_value(True)


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
    with pytest.raises(ValueError, match="learning_rate = 0.3 .* TrainingParameterSchedule"):
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


@pytest.mark.parametrize("first", [1.0, 1e-6])
def test_step_sizes_of_rmsprop_may_overflow(first):
    w = Weights([0.0, 0.0])
    learner = L.rmsprop([w], 1.0, gamma=0.1, inc=3.0, dec=0.1, max=np.inf, min=1e-8)
    for step in range(120):
        learner.update({w: np.array([first, (-1) ** step], np.float32)}, 1)
    resting = w.value.copy()
    learner.update({w: np.array([first, 1], np.float32)}, 1)
    assert np.isfinite(resting).all() and (w.value == resting).all()  # as in CNTK 2.7


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


def test_double_precision_changes_no_setting():
    single, double = Weights([1.0]), Weights([1.0], np.float64, "double")
    learner = L.momentum_sgd([single, double], 0.1, 0.9)
    steps(learner, 1 / 3, [1, 1])
    exact = 1 - 0.1 / 3 * (0.1 + 0.19)
    assert single.value.dtype == np.float32 and abs(single.value[0] - exact) < 1e-7
    assert double.value.dtype == np.float64 and abs(double.value[0] - exact) < 1e-15
    assert not jax.config.jax_enable_x64


def test_half_precision_accumulates_small_steps():
    w = Weights([1.0, 2.0], np.float16)
    learner = L.momentum_sgd([w], 0.0004, 0.0)
    for _ in range(51):
        learner.update({w: np.array([1, -2], np.float16)}, 4)
    assert w.value.dtype == np.float16
    assert w.value.tolist() == [0.9951171875, 2.009765625]  # CNTK 2.7; each single step is below float16's resolution


def test_half_precision_follows_a_parameter_set_by_the_user():
    w = Weights([1.0], np.float16)
    learner = L.sgd([w], 0.5)
    steps(learner, 1.0, [1])
    w.value = np.array([3.0], np.float16)
    assert steps(learner, 1.0, [1]).tolist() == [2.5]


# ---------------------------------------------------------------- noise
def test_each_learner_takes_a_seed_as_in_cntk():
    w = C.parameter(1)
    before = get_random_seed()
    L.sgd([w], 0.1)
    L.adam([w], 0.1, 0.9, gaussian_noise_injection_std_dev=0.1)
    L.universal(lambda p, g: C.assign(p[0], g[0]), [w])
    assert get_random_seed() == before + 3

    class Own(C.UserLearner):
        def update(self, gradient_values, training_sample_count, sweep_end):
            return True

    Own([w], L.learning_parameter_schedule(0.1))
    assert get_random_seed() == before + 3




def test_the_deviation_of_noise_is_independent_of_the_rate():
    w = Weights(np.zeros(20000), np.float64)
    deviations = L.learning_parameter_schedule([1.0, 2.0], epoch_size=4)
    learner = L.sgd([w], 0.001, gaussian_noise_injection_std_dev=deviations)
    moves = [steps(learner, 0.0, [4]).copy()]
    moves.append(steps(learner, 0.0, [4]) - moves[0])
    for move, deviation in zip(moves, (1.0, 2.0), strict=True):
        assert move.std() == pytest.approx(deviation, rel=0.03)
        assert abs(move.mean()) < 0.05 * deviation
    assert abs(np.corrcoef(moves)[0, 1]) < 0.03


def test_parameters_and_learners_draw_different_noise():
    a, b, c = (Weights(np.zeros(5000), name=name) for name in "abc")
    steps(L.sgd([a, b], 0.1, gaussian_noise_injection_std_dev=1), 0.0, [1])
    steps(L.sgd([c], 0.1, gaussian_noise_injection_std_dev=1), 0.0, [1])
    assert np.abs(np.corrcoef([a.value, b.value, c.value]) - np.eye(3)).max() < 0.06


def test_l1_is_applied_after_the_noise():
    w = Weights(np.zeros(1000))
    steps(L.sgd([w], 1.0, gaussian_noise_injection_std_dev=0.1, l1_regularization_weight=0.2), 0.0, [1])
    assert (w.value == 0).mean() > 0.9


# ---------------------------------------------------------------- properties


@settings(max_examples=20)
@given(st.floats(0, 0.9), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_unit_gain_momentum_only_delays_a_constant_gradient(momentum, sizes):
    w = Weights([0.0], np.float64)
    with jax.disable_jit():
        steps(L.momentum_sgd([w], 0.1, momentum), 1.0, sizes)
    delay = momentum * (1 - momentum ** len(sizes)) / (1 - momentum)
    np.testing.assert_allclose(w.value, [-0.1 * (len(sizes) - delay)], rtol=1e-9)


@settings(max_examples=50)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5), st.floats(1e-3, 10), st.integers(1, 9))
def test_clipping_bounds_the_gradient(gradient, threshold, n):
    g = np.array(gradient, np.float32)
    hyper = {"divisor": 1.0, "weight": float(n), "rate": 1.0}

    def clipped(piece):
        return np.asarray(piece(threshold).update([g], piece(threshold).init([g]), [g], hyper=hyper)[0][0])

    by_value, by_norm = clipped(transforms.clip_by_value), clipped(transforms.clip_by_norm)
    limit = threshold * n
    np.testing.assert_allclose(by_value, np.clip(g, -limit, limit), rtol=1e-6, atol=1e-30)
    norm = np.linalg.norm(g.astype(np.float64))
    np.testing.assert_allclose(by_norm, g * min(1, limit / norm) if norm else g, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("name", sorted(n for n in dir(L.Learner) if not n.startswith("__") and n != "minibatch_size"))
def test_users_may_set_any_attribute(name):
    x = C.input_variable(1)
    w = C.parameter((1, 1), init=1)
    learner = L.sgd([w], 0.5)
    setattr(learner, name, "mine")
    assert getattr(learner, name) == "mine"
    C.Trainer(None, C.times(x, w), [learner]).train_minibatch({x: [[1]]})
    assert w.value == 0.5


# ---------------------------------------------------------------- learners in Python


class Fixed(L.UserLearner):
    def update(self, gradient_values, training_sample_count, sweep_end=False):
        for p, g in gradient_values.items():
            p.value = p.value - self.learning_rate() * g / training_sample_count
        return True


def test_a_user_learner_takes_its_own_step():
    w = Weights([1.0], np.float64)
    learner = Fixed([w], L.learning_parameter_schedule([0.1, 0.2], epoch_size=4))
    assert learner.update({w: np.array([4.0])}, 4) is True
    assert w.value == pytest.approx([0.9])
    assert learner.parameters == (w,) and learner.as_numpy
    assert learner.learning_rate() == 0.1 and learner.total_number_of_samples_seen() == 0  # as in CNTK


@pytest.mark.parametrize("as_numpy", [True, False])
def test_a_compiled_step_passes_gradients_to_a_user_learner(as_numpy):
    import cntkjax as C

    calls = []

    class Seeing(L.UserLearner):
        def update(self, gradient_values, training_sample_count, sweep_end):
            calls.append((gradient_values, training_sample_count, sweep_end))
            return len(calls) == 1

    x, w = C.input_variable(2), C.parameter((2, 1), init=1)
    z = C.times(x, w)
    trainer = C.Trainer(z, C.reduce_sum(z), [Seeing([w], L.learning_parameter_schedule(0.1), as_numpy=as_numpy)])
    feed = {x: np.array([[1, 2], [3, 5]], np.float32)}
    assert [trainer.train_minibatch(feed, is_sweep_end=end) for end in (False, True)] == [True, False]
    assert [(count, end) for _, count, end in calls] == [(2, False), (2, True)]
    gradient = calls[0][0][w]
    assert isinstance(gradient, np.ndarray if as_numpy else C.NDArrayView)
    np.testing.assert_array_equal(gradient if as_numpy else gradient.asarray(), [[4], [7]])
    assert w.value.tolist() == [[1], [1]]


def test_a_user_learner_may_use_any_attribute_names():
    import cntkjax as C

    class Momentum(L.UserLearner):
        def __init__(self, parameters, schedule):
            super().__init__(parameters, schedule)
            self.state, self._state, self.precision, self._step = {}, [], "full", 0

        def update(self, gradient_values, training_sample_count, sweep_end):
            self._step += 1
            for p, g in gradient_values.items():
                self.state[p] = 0.5 * self.state.get(p, 0) + g
                p.value = p.value - 0.1 * self.state[p]
            return self._state == [] and self.precision == "full"

    x, w = C.input_variable(1), C.parameter((1, 1), init=1)
    z = C.times(x, w)
    learner = Momentum([w], L.learning_parameter_schedule(0.1))
    trainer = C.Trainer(z, C.reduce_sum(z), [learner])
    assert [trainer.train_minibatch({x: [[1]]}) for _ in range(2)] == [True, True]
    assert learner._step == 2 and w.value.tolist() == [[pytest.approx(0.75)]]


def test_a_user_learner_without_update_is_an_error():
    w = Weights([1.0])
    with pytest.raises(NotImplementedError, match="UserLearner must define update"):
        L.UserLearner([w], L.learning_parameter_schedule(0.1)).update({}, 1)


def test_momentum_of_rows_smooths_averaged_gradients():
    """The numbers are CNTK's."""
    x = C.sequence.input_variable(4, is_sparse=True)
    E = C.parameter((4, 2), init=np.arange(8, dtype=np.float32).reshape(4, 2))
    loss = C.reduce_sum(C.square(C.times(x, E)))
    trainer = C.Trainer(None, loss, [C.momentum_sgd([E], 0.1, 0.9, use_mean_gradient=True)])
    for steps in ([[0, 1, 1], [2]], [[0], [0, 2]], [[1, 1]]):
        trainer.train_minibatch({x: C.Value.one_hot(steps, 4)})
    np.testing.assert_allclose(E.value, [[0, 0.9772], [1.9224, 2.8836], [3.9355, 4.9193], [6, 7]], atol=1e-4)
