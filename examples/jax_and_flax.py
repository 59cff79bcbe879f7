"""Between CNTK and JAX: a Function in JAX's own training loop, a flax module among CNTK's layers, a gradient in a loss.

    python jax_and_flax.py                 needs flax and optax
"""
import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import cntk as C

CLASSES, MINIBATCH = 3, 50


def points(count, random):
    """Points of three spirals [count, 2], and which spiral each is of, one-hot [count, 3]."""
    spiral = random.randint(CLASSES, size=count)
    radius = random.random_sample(count)
    angle = 4 * radius + 2 * np.pi * spiral / CLASSES
    xy = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return xy.astype(np.float32), np.eye(CLASSES, dtype=np.float32)[spiral]


def by_jax(steps, random):
    """A Function as a pure function of parameters and inputs, trained by jax.grad, vmap and optax."""
    x = C.input_variable(2)
    hidden = C.layers.For(range(2), lambda: C.layers.Dense(64, activation=C.relu))
    model = C.layers.Sequential([hidden, C.layers.Dense(CLASSES)])(x)
    f, parameters = C.interop.to_jax(model)
    optimizer = optax.adam(0.02)
    state = optimizer.init(parameters)

    def loss(parameters, xy, labels):
        scores = jax.vmap(f, in_axes=(None, 0))(parameters, xy)
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(scores) * labels, axis=1))

    @jax.jit
    def step(parameters, state, xy, labels):
        updates, state = optimizer.update(jax.grad(loss)(parameters, xy, labels), state)
        return optax.apply_updates(parameters, updates), state

    for _ in range(steps):
        parameters, state = step(parameters, state, *points(MINIBATCH, random))
    for name, parameter in C.interop.leaf_names(model.parameters).items():
        parameter.value = np.asarray(parameters[name])
    return model


class Residual(nn.Module):
    """A flax module."""

    width: int

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(x)
        return x + nn.gelu(nn.Dense(self.width)(x))


def by_cntk(steps, random):
    """A flax module between CNTK's layers, trained by CNTK's Trainer with an optimizer of optax.

    The loss holds a gradient: that of the scores with respect to the points shall be small where points are.
    """
    x, y = C.input_variable(2), C.input_variable(CLASSES)
    model = C.layers.Dense(CLASSES)(C.interop.from_flax(Residual(64), x))
    slope = C.gradient(C.cross_entropy_with_softmax(model, y), x)
    loss = C.cross_entropy_with_softmax(model, y) + 0.001 * C.reduce_sum(C.square(slope))
    learner = C.learners.from_optax(model.parameters, optax.adamw(0.02))
    trainer = C.Trainer(model, (loss, C.classification_error(model, y)), [learner])
    for _ in range(steps):
        xy, labels = points(MINIBATCH, random)
        trainer.train_minibatch({x: xy, y: labels})
    return model


def main(steps=300, seed=1):
    C.cntk_py.set_fixed_random_seed(seed)
    errors = []
    for train in (by_jax, by_cntk):
        model = train(steps, np.random.RandomState(seed))
        xy, labels = points(1000, np.random.RandomState(seed + 1))
        errors.append(np.mean(np.argmax(model.eval(xy), axis=1) != np.argmax(labels, axis=1)))
        print('%-8s %5.1f%% of 1000 points are wrong' % (train.__name__, 100 * errors[-1]))
    return errors


if __name__ == '__main__':
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('--steps', type=int, default=300)
    arguments.add_argument('--seed', type=int, default=1)
    main(**vars(arguments.parse_args()))
