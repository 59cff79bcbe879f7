"""Trains small networks on one device and on several, and prints what they have learned.

    python devices.py <devices> [far_ahead | in_turns]

`far_ahead` takes steps as fast as it can, and prints the last loss. `in_turns` trains two networks with layers that
stay as they are; in the last steps copies between devices are errors, and those from the host are printed.
"""

import json
import os
import sys

DEVICES = int(sys.argv[1]) if __name__ == "__main__" else 1
if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import numpy as np  # noqa: E402

import cntk as C  # noqa: E402
from cntkjax.engine.run.compilations import report  # noqa: E402

GUARDED_STEPS = 8  # the last ones of `in_turns`
SIZES = 16, 16, 13, 1, 1, 1, 1, 16  # of minibatches; the last one is exchanged by a program of its own


def dense(width=7):
    x, y = C.input_variable(5), C.input_variable(3)
    z = C.layers.Sequential([C.layers.Dense(width, C.tanh), C.layers.Dense(width, C.tanh), C.layers.Dense(3)])(x)
    return z, lambda rng, n: {x: rng.standard_normal((n, 5)), y: np.eye(3)[rng.integers(0, 3, n)]}, y


def dropout():
    x, y = C.input_variable(5), C.input_variable(3)
    z = C.layers.Sequential([C.layers.Dense(40, C.tanh), C.layers.Dropout(0.5, seed=3), C.layers.Dense(3)])(x)
    return z, lambda rng, n: {x: rng.standard_normal((n, 5)), y: np.eye(3)[rng.integers(0, 3, n)]}, y


def normalized():
    x, y = C.input_variable((2, 4, 4)), C.input_variable(3)
    layers = [C.layers.Convolution2D((3, 3), 4, pad=True), C.layers.BatchNormalization(map_rank=1), C.layers.Dense(3)]
    z = C.layers.Sequential(layers)(x)
    return z, lambda rng, n: {x: rng.standard_normal((n, 2, 4, 4)), y: np.eye(3)[rng.integers(0, 3, n)]}, y


def recurrent():
    x, y = C.sequence.input_variable(30, is_sparse=True), C.input_variable(3)
    layers = [C.layers.Embedding(6), C.layers.Recurrence(C.layers.LSTM(5)), C.sequence.last, C.layers.Dense(3)]
    z = C.layers.Sequential(layers)(x)

    def minibatch(rng, n):
        words = [rng.integers(0, 30, length).tolist() for length in rng.integers(1, 9, n)]
        return {x: C.Value.one_hot(words, 30), y: np.eye(3)[rng.integers(0, 3, n)]}

    return z, minibatch, y


def with_empty_sequences():
    x, y = C.sequence.input_variable(5), C.input_variable(3)
    z = C.layers.Dense(3)(C.sequence.reduce_sum(C.layers.Dense(4, C.tanh)(x)))

    def minibatch(rng, n):
        lengths = [2, *rng.integers(0, 2, n - 1)]
        return {x: [rng.standard_normal((k, 5)).astype(np.float32) for k in lengths], y: np.eye(3)[[0] * n]}

    return z, minibatch, y


def mean_over_unpacked_steps():
    x, y = C.sequence.input_variable(5), C.input_variable(3)
    steps = C.sequence.unpack(x, 0, True)
    pooled = C.reduce_mean(C.layers.Dense(4, C.tanh, input_rank=1)(steps), 0)  # over the longest of the whole minibatch
    z = C.layers.Dense(3)(C.reshape(pooled, (-1,)))

    def minibatch(rng, n):
        lengths = [*rng.integers(1, 5, n - 1), rng.integers(5, 9)]
        return {x: [rng.standard_normal((k, 5)).astype(np.float32) for k in lengths], y: np.eye(3)[[0] * n]}

    return z, minibatch, y


def over_the_batch():
    x, y = C.input_variable(5), C.input_variable(3)
    z = C.layers.Dense(3)(x - C.reduce_mean(x, axis=C.Axis.default_batch_axis()))
    return z, lambda rng, n: {x: rng.standard_normal((n, 5)), y: np.eye(3)[rng.integers(0, 3, n)]}, y


NETWORKS = {f.__name__: f for f in (
    dense, dropout, normalized, recurrent, with_empty_sequences, mean_over_unpacked_steps, over_the_batch,
)}


def train(network):
    C.cntk_py.set_fixed_random_seed(1)
    z, minibatch, y = NETWORKS[network]()
    loss, rng = C.cross_entropy_with_softmax(z, y), np.random.default_rng(0)
    trainer = C.Trainer(z, (loss, C.classification_error(z, y)), C.momentum_sgd(z.parameters, 0.1, 0.9))
    losses = []
    for n in SIZES:
        assert trainer.train_minibatch({v: _single(a) for v, a in minibatch(rng, n).items()})
        losses.append([trainer.previous_minibatch_loss_average, trainer.previous_minibatch_evaluation_average])
    _, values = trainer.train_minibatch(minibatch(rng, 16), outputs=[z])
    state = [v.value.ravel() for v in (*z.parameters, *z.constants)]
    counts = [trainer.total_number_of_samples_seen]
    return np.concatenate([*state, np.ravel(losses), np.ravel(values[z]), counts]).astype(float).tolist()


def _single(data):
    return data.astype(np.float32) if isinstance(data, np.ndarray) else data


def far_ahead():
    z, minibatch, y = dense(width=1000)  # takes a device longer than the host
    trainer = C.Trainer(z, (C.cross_entropy_with_softmax(z, y), None), C.sgd(z.parameters, 0.1))
    data = {v: _single(a) for v, a in minibatch(np.random.default_rng(0), 512).items()}
    for _ in range(300):
        trainer.train_minibatch(data)
    return trainer.previous_minibatch_loss_average


def in_turns():
    trainers = []
    for _ in range(2):
        z, minibatch, y = dense()
        learner = C.adam(z.parameters[:2], 0.1, 0.9)
        trainers.append((C.Trainer(z, (C.cross_entropy_with_softmax(z, y), None), learner), minibatch))
    rng = np.random.default_rng(0)
    for step in range(12 + GUARDED_STEPS // 2):
        is_guarded = step >= 12
        for trainer, minibatch in trainers:
            data = {v: _single(a) for v, a in minibatch(rng, 16).items()}
            with (
                jax.transfer_guard_device_to_device("disallow_explicit" if is_guarded else "allow"),
                jax.transfer_guard_host_to_device("log_explicit" if is_guarded else "allow"),
            ):
                trainer.train_minibatch(data)
    return [trainer.previous_minibatch_loss_average for trainer, _ in trainers]


if __name__ == "__main__":
    used = C.device.use_all_devices()
    if len(sys.argv) > 2:
        print(json.dumps({"far_ahead": far_ahead, "in_turns": in_turns}[sys.argv[2]]()))
    else:
        learned = {network: train(network) for network in NETWORKS}
        print(json.dumps({"devices": used, "learned": learned, "programs": [p.text for p in report().programs]}))
