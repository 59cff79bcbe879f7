"""What the host sends with a step: on a GPU at most three arrays, ahead of the step; and nothing waits for the step."""

import threading
from dataclasses import replace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import cntk as C
from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.run.transfers import Sent, received, sent
from cntkjax.engine.xla.platform import LOWERINGS
from cntkjax.graph.seed import reset_random_seed


def images():
    random = np.random.default_rng(0)
    x, y = C.input_variable((3, 24, 24)), C.input_variable(5)
    model = C.layers.Sequential([
        C.layers.Convolution2D((3, 3), 4, activation=C.relu), C.layers.BatchNormalization(), C.layers.Dropout(0.2),
        C.layers.Dense(5),
    ])(x)
    rates = C.learning_parameter_schedule([0.1, 0.01], minibatch_size=16, epoch_size=32)
    learner = C.momentum_sgd(model.parameters, rates, C.momentum_schedule(0.9))
    feed = {x: random.random((16, 3, 24, 24), np.float32), y: np.eye(5, dtype=np.float32)[np.arange(16) % 5]}
    return model, y, learner, feed, {}


def sequences(**options):
    random = np.random.default_rng(0)
    x, y = C.sequence.input_variable(50, is_sparse=True), C.sequence.input_variable(10, is_sparse=True)
    w = C.input_variable(8)
    states = C.layers.Sequential([C.layers.Embedding(8), C.layers.Recurrence(C.layers.LSTM(6))])(x)
    model = C.layers.Dense(10)(C.splice(C.layers.Dropout(0.3)(states), C.sequence.broadcast_as(w, states)))
    words, classes = ([random.integers(0, width, n).tolist() for n in (5, 3, 7, 2)] for width in (50, 10))
    feed = {x: C.Value.one_hot(words, 50), y: C.Value.one_hot(classes, 10), w: random.random((4, 8), np.float32)}
    return model, y, C.adam(model.parameters, 0.01, 0.9), feed, options


CASES = {
    "images": images, "sequences": sequences, "accumulated": lambda: sequences(accumulate=2),
    "half precision": lambda: sequences(precision="float16"),
}


@pytest.fixture
def joined(monkeypatch):
    """The CPU takes what the host sends as a GPU does."""
    monkeypatch.setitem(LOWERINGS, "cpu", replace(LOWERINGS["cpu"], joined_transfers=True))
    programs.clear()
    yield
    programs.clear()


def trained(name, steps):
    """A trainer after some steps, with the losses of these, and the minibatch that it was trained on."""
    reset_random_seed()
    model, labels, learner, feed, options = CASES[name]()
    criteria = C.cross_entropy_with_softmax(model, labels), C.classification_error(model, labels)
    trainer = C.Trainer(model, criteria, learner, **options)
    losses = []
    for _ in range(steps):
        trainer.train_minibatch(feed)
        losses.append(trainer.previous_minibatch_loss_average)
    return trainer, losses, feed


@pytest.mark.parametrize("name", CASES)
def test_a_step_sends_at_most_three_arrays_before_its_program_is_started(name, joined, capfd):
    trainer, _, feed = trained(name, 5)
    capfd.readouterr()
    with jax.transfer_guard("disallow"):  # of what is sent only when the program is started
        trainer.train_minibatch(feed)
    with jax.transfer_guard("log_explicit"):
        trainer.train_minibatch(feed)
    assert 1 <= capfd.readouterr().err.count("host-to-device transfer") <= 3


@pytest.mark.parametrize("name", CASES)
def test_joined_arrays_train_as_separate_ones_do(name, request):
    trainer, losses, _ = trained(name, 4)
    values = [p.value for p in trainer.model.parameters]
    request.getfixturevalue("joined")
    joined_trainer, joined_losses, _ = trained(name, 4)
    np.testing.assert_allclose(joined_losses, losses, rtol=1e-6)
    for value, other in zip(values, (p.value for p in joined_trainer.model.parameters), strict=True):
        np.testing.assert_allclose(other, value, rtol=1e-5, atol=1e-6)


def test_evaluations_and_gradients_send_at_most_three_arrays(joined, capfd):
    x = C.input_variable(3, needs_gradient=True)
    f = C.reduce_sum(C.times(x, C.parameter((3, 2), init=1)) * 2)
    for call in (f.eval, f.grad):
        call({x: np.ones((4, 3))})
        capfd.readouterr()
        with jax.transfer_guard("log_explicit"):
            result = call({x: np.ones((4, 3))})
        assert 1 <= capfd.readouterr().err.count("host-to-device transfer") <= 3
        np.testing.assert_array_equal(result, np.full((4, 3), 4) if call == f.grad else np.full(4, 12))


ARRAYS = {
    "kinds": [
        np.arange(5, dtype=kind).reshape(5, 1)
        for kind in (np.float32, np.int32, np.uint32, np.float16, np.int16, np.uint8, np.int8, ml_dtypes.bfloat16)
    ] + [np.array([True, False, True])],
    "scalars": [np.int32(-7), np.float32(0.1), np.bool_(True), np.float64(1 / 3), np.zeros((), np.uint8)],
    "strides": [np.arange(12, dtype=np.float32).reshape(3, 4).T, np.arange(10, dtype=np.uint8)[::-3]],
    "empty": [np.zeros((0, 3), np.float32), np.zeros(0, bool)],
    "large": [np.full((n, 100), n, np.float32) for n in (3, 400, 300, 200)],
    "not of the host": [jnp.arange(3), np.arange(2)],
}


@pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
@pytest.mark.parametrize("arrays", ARRAYS.values(), ids=list(ARRAYS))
def test_a_program_receives_what_was_sent(arrays, double, joined):
    with jax.enable_x64(double):
        arrays = {str(i): a for i, a in enumerate(arrays)}
        form = sent(arrays)
        assert isinstance(form, Sent)
        after = jax.jit(received)(form)
        before = jax.jit(lambda tree: tree)(arrays)  # in the types that jax gives them
        jax.tree.map(np.testing.assert_array_equal, after, before)
        assert {k: a.dtype for k, a in after.items()} == {k: a.dtype for k, a in before.items()}


def test_double_precision_arrives_whole(joined):
    x = C.input_variable(3, dtype=np.float64, needs_gradient=True)
    data = np.full((2, 3), 1 / 3)
    np.testing.assert_allclose(C.square(x).eval({x: data}), data**2, rtol=1e-15)
    np.testing.assert_allclose(C.square(x).grad({x: data}), 2 * data, rtol=1e-15)


def test_double_precision_is_no_view_of_the_words(joined):
    """Where it was, XLA let kernels on a GPU write over it while they read it: tests/gpu has such a program."""
    with jax.enable_x64(True):
        trace = jax.make_jaxpr(received)(sent([np.arange(6.0), np.arange(3)]))
    views = [(e.invars[0].aval.dtype, e.params["new_dtype"]) for e in trace.eqns if "bitcast" in e.primitive.name]
    assert views == [(np.uint64, np.float64), (np.uint64, np.int64)]


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


def ones_behind(gate):
    """A function that returns an array of ones on the device, which are there when the gate is open."""

    def wait(x):
        gate.wait(100)
        return np.asarray(x)

    # XLA:CPU calls Python before it returns, unless the program has to wait for another one; this one takes a second.
    first = jax.jit(lambda x: jax.lax.fori_loop(0, 40, lambda _, x: jnp.tanh(x @ x), x)[:128, :500])
    corner = jax.ShapeDtypeStruct((), np.float32)
    last = jax.jit(lambda x: jnp.sign(x + 1 + jax.pure_callback(wait, corner, x[0, 0])))
    factor = jnp.ones((1000, 1000))
    gate.set()
    last(first(factor)).block_until_ready()
    gate.clear()
    return lambda: last(first(factor))


def test_nothing_waits_for_steps_whose_results_nobody_reads(gate):
    """Steps are started, counted and reported while the first of them cannot begin to compute."""
    ones = ones_behind(gate)
    x, y = C.input_variable(500), C.input_variable(1)
    model = C.layers.Sequential([C.layers.Dense(500), C.layers.Dense(1)])(x)
    rates = C.learning_parameter_schedule([0.1, 0.01], minibatch_size=128, epoch_size=128 * 102)
    error = C.squared_error(model, y)
    printer = C.logging.ProgressPrinter(freq=100)
    trainer = C.Trainer(model, (error, error), C.adam(model.parameters, rates, 0.9), printer)
    targets = np.ones((128, 1), np.float32)
    for _ in range(100):  # the first ones run a version that another one replaces; some of its runs are timed
        trainer.train_minibatch({x: np.ones((128, 500), np.float32), y: targets})
    (executable,) = trainer._step(()).program.executables
    assert executable.allowance.is_unlimited
    array = ones()
    for _ in range(5):
        trainer.train_minibatch({x: array, y: targets})
    assert trainer.total_number_of_samples_seen == 128 * 105
    assert not gate.is_set() and not array.is_ready()
    gate.set()
    assert np.isfinite(trainer.previous_minibatch_loss_average)
