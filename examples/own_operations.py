"""One operation written twice, in NumPy as a UserFunction and in JAX as a native function; both train the same network.

    python own_operations.py [--steps N]
"""
import argparse

import jax.numpy as jnp
import numpy as np
from cntk.ops.functions import UserFunction

import cntk as C


class Hat(UserFunction):
    """x * exp(-x * x / width), element by element: NumPy, with its gradient."""

    def __init__(self, x, width=2.0, name='hat'):
        super().__init__([x], name=name)
        self.width = width

    def infer_outputs(self):
        x = self.inputs[0]
        return [C.output_variable(x.shape, x.dtype, x.dynamic_axes)]

    def forward(self, argument, device=None, outputs_to_retain=None):
        return argument, argument * np.exp(-argument * argument / self.width)  # what backward needs, the value

    def backward(self, state, root_gradients):
        return root_gradients * (1 - 2 * state * state / self.width) * np.exp(-state * state / self.width)

    def serialize(self):
        return {'width': self.width}

    @staticmethod
    def deserialize(inputs, name, state):
        return Hat(*inputs, width=state['width'], name=name)


def hat(x, *, width=2.0):
    """The same in JAX: one sample in, one out; JAX finds the gradient."""
    return x * jnp.exp(-x * x / width)


def network(x, operation):
    hidden = operation(C.layers.Dense(16, init=C.glorot_uniform(seed=1))(x))
    return C.layers.Dense(1, init=C.glorot_uniform(seed=2))(hidden)


def train(operation, steps):
    """The last loss of a fit to sin(3 x), and the network."""
    x, y = C.input_variable(1), C.input_variable(1)
    model = network(x, operation)
    loss = C.squared_error(model, y)
    trainer = C.Trainer(model, (loss,), [C.adam(model.parameters, 0.02, 0.9, minibatch_size=C.learners.IGNORE)])
    points = np.linspace(-1.5, 1.5, 64, dtype=np.float32)[:, None]
    for _ in range(steps):
        trainer.train_minibatch({x: points, y: np.sin(3 * points)})
    return trainer.previous_minibatch_loss_average, model


def main(steps=300):
    if not C.cntk_py.is_native_user_function_registered('Hat'):
        C.ops.register_native_user_function('Hat', __name__, 'hat')
    in_numpy, model = train(lambda x: C.user_function(Hat(x, 2.0)), steps)
    in_jax, _ = train(lambda x: C.ops.native_user_function('Hat', [x], {'width': 2.0}), steps)
    print(f'loss after {steps} steps: {in_numpy:.5f} in NumPy, {in_jax:.5f} in JAX')
    return in_numpy, in_jax, model


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--steps', type=int, default=300)
    main(**vars(parser.parse_args()))
