"""First steps of other trainers, compiled beside that of one: only speed depends on it."""

import gc

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run import compilations
from cntkjax.engine.xla import background
from cntkjax.graph.proxy import unwrap
from cntkjax.train import _expected


@pytest.fixture(autouse=True)
def two_cores_and_no_cache(monkeypatch):
    monkeypatch.setattr(_expected, "cores", lambda: 2)
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")


def adversaries(sequences=False):
    """The trainers of a judge and a generator, which share both networks, and their arguments."""
    C.cntk_py.reset_random_seed(1)
    variable = C.sequence.input_variable if sequences else C.input_variable
    noise, real = variable(3), variable(4)
    fake = C.layers.Dense(4, C.tanh)(C.layers.Dropout(0.3)(noise))
    judge = C.layers.Sequential([C.layers.Dense(5, C.tanh), C.layers.Dense(1, C.sigmoid)])
    real_score, fake_score = judge(real), judge(fake)
    learner = lambda z: C.adam(z.parameters, C.learning_parameter_schedule(0.1), C.momentum_schedule(0.9))  # noqa: E731
    judging = -(C.log(real_score) + C.log(1 - fake_score))
    trainers = C.Trainer(None, judging, learner(real_score)), C.Trainer(None, -C.log(fake_score), learner(fake))
    return trainers, noise, real


def data(*shape):
    return np.sin(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)


def losses(trainers, noise, real, steps=3, batch=4):
    results = []
    for _ in range(steps):
        for trainer in trainers:
            feed = {noise: data(batch, 3), real: data(batch, 4)}
            trainer.train_minibatch({v: feed[v] for v in trainer.loss_function.arguments})
            results.append(trainer.previous_minibatch_loss_average)
    return results


def executables(trainer):
    return list(unwrap(trainer)._step(()).program.executables)


@pytest.fixture(autouse=True)
def nothing_is_left_to_compile():
    """What a test began to compile is no program of the next one."""
    yield
    background.compilations.submit(int).result()


def compiled(since):
    return [c.background for c in compilations.report().programs[since:]]


def test_the_first_step_of_a_trainer_is_compiled_beside_that_of_another_one():
    trainers, noise, real = adversaries()
    before = len(compilations.report().programs)
    trainers[0].train_minibatch({noise: data(4, 3), real: data(4, 4)})
    background.compilations.submit(int).result()
    assert len(executables(trainers[1])) == 1 and sorted(compiled(before)) == [False, True]
    losses(trainers, noise, real)
    assert len(compiled(before)) == 2  # and that program is the one that it runs


def test_losses_are_the_same_bit_for_bit(monkeypatch):
    beside = losses(*adversaries())
    monkeypatch.setattr(_expected, "cores", lambda: 1)
    assert losses(*adversaries()) == beside


def test_a_minibatch_of_another_size_gets_its_own_shapes():
    trainers, noise, real = adversaries()
    trainers[0].train_minibatch({noise: data(4, 3), real: data(4, 4)})
    background.compilations.submit(int).result()
    trainers[1].train_minibatch({noise: data(2, 3)})
    (policy,) = unwrap(trainers[1])._step(()).program.packer.shapes._policies.values()
    assert [shape.batch for shape in policy.ready] == [2]


def test_nothing_is_initialized_for_it():
    trainers, noise, real = adversaries()
    trainers[0].train_minibatch({noise: data(4, 3), real: data(4, 4)})
    assert unwrap(trainers[1]).learners[0].optax_cell.value is None
    assert trainers[1].total_number_of_samples_seen == 0


@pytest.mark.parametrize("reason", ["sequences", "other data", "deterministic", "gone"])
def test_nothing_is_compiled_for_steps_that_cannot_be_foretold(reason, monkeypatch):
    trainers, noise, real = adversaries(sequences=reason == "sequences")
    trainer = trainers[0]
    if reason == "other data":
        trainer, trainers = trainers[1], trainers[::-1]
    if reason == "deterministic":
        monkeypatch.setattr(_expected.Settings, "deterministic", True)
    if reason == "gone":
        trainers = trainers[:1]
        gc.collect()
    before = len(compilations.report().programs)
    feed = {noise: data(4, 3), real: data(4, 4)}
    if reason == "sequences":
        feed = {v: [array] for v, array in feed.items()}
    trainer.train_minibatch({v: feed[v] for v in trainer.loss_function.arguments})
    background.compilations.submit(int).result()
    assert compiled(before) == [False]
