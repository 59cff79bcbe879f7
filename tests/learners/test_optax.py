"""optax transformations as learners, against optax itself."""

import jax
import numpy as np
import optax
import pytest

import cntkjax as C

F = np.float32


def sample(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def expected_value(transformation, value, gradients):
    state = transformation.init([value])
    for gradient in gradients:
        updates, state = transformation.update([gradient], state, [value])
        value = optax.apply_updates([value], updates)[0]
    return np.asarray(value)


TRANSFORMATIONS = {
    "adamw": lambda: optax.adamw(0.1),
    "lion": lambda: optax.lion(0.1),
    "chain": lambda: optax.chain(optax.clip_by_global_norm(1), optax.sgd(0.1)),
    "schedule": lambda: optax.adam(optax.linear_schedule(0.1, 0.0, 10)),
    "adafactor": lambda: optax.adafactor(0.1),
}


@pytest.mark.parametrize("make", TRANSFORMATIONS.values(), ids=TRANSFORMATIONS)
def test_updates_equal_those_of_optax(make):
    gradients = [sample(3, 2, seed=s) for s in range(5)]
    w = C.parameter(init=sample(3, 2, seed=9))
    expected = expected_value(make(), w.value, gradients)
    learner = C.learners.from_optax([w], make())
    for gradient in gradients:
        assert learner.update({w: 4 * gradient}, 4)  # a sum over four samples
    assert np.allclose(w.value, expected, atol=1e-6)
    assert learner.total_number_of_samples_seen() == 20


def test_a_schedule_scales_the_updates():
    gradients = [sample(2, seed=s) for s in range(4)]
    w = C.parameter(init=np.zeros(2, F))
    schedule = C.learning_parameter_schedule([0.1, 0.0, 0.2], minibatch_size=C.learners.IGNORE, epoch_size=1)
    learner = C.learners.from_optax([w], optax.sgd(1.0), schedule)
    taken = [learner.update({w: g}, 1) for g in gradients]
    assert taken == [True, False, False, False], "a rate of 0 stops the count, as in CNTK"
    assert np.allclose(w.value, -0.1 * gradients[0])
    assert learner.learning_rate() == 0


def test_in_a_trainer_with_embeddings():
    s, y = C.sequence.input_variable(50, is_sparse=True), C.input_variable(3)
    model = C.layers.Sequential([C.layers.Embedding(8), C.sequence.last, C.layers.Dense(3)])(s)
    loss = C.cross_entropy_with_softmax(model, y)
    trainer = C.Trainer(model, (loss,), [C.learners.from_optax(model.parameters, optax.adam(0.05))])
    words = [[i, 50 - 1 - i] for i in range(20)]
    labels = np.eye(3, dtype=F)[[i % 3 for i in range(20)]]
    for _ in range(30):
        trainer.train_minibatch({s: C.Value.one_hot(words, 50), y: labels})
    assert trainer.previous_minibatch_loss_average < 0.1


def test_checkpoints_resume():
    w = C.parameter(init=sample(3))
    learner = C.learners.from_optax([w], optax.adamw(0.1))
    learner.update({w: sample(3, seed=2)}, 1)
    checkpoint, value = learner.create_checkpoint(), w.value
    learner.update({w: sample(3, seed=3)}, 1)
    expected = w.value
    w.value = value
    other = C.learners.from_optax([w], optax.adamw(0.1))
    other.restore_from_checkpoint(checkpoint)
    other.update({w: sample(3, seed=3)}, 1)
    assert np.allclose(w.value, expected, atol=1e-7)


def test_half_precision_has_master_weights():
    w = C.parameter(init=np.ones(2, np.float16))
    learner = C.learners.from_optax([w], optax.sgd(1e-5))
    for _ in range(100):
        learner.update({w: np.ones(2, np.float16)}, 1)
    assert np.allclose(w.value, 0.999, atol=2e-4)


def test_only_transformations_are_accepted():
    with pytest.raises(TypeError, match="needs an optax transformation"):
        C.learners.from_optax([C.parameter(1)], jax.grad)
