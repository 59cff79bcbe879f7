"""A worker of test_quantized_training.py: trains a classifier of digits with gradients of 32 and of 1 bits.

    python quantized_digits.py <folder>

The set-up is one in which 1 bit ends where 32 bits do: a first sweep in which each worker trains by itself on all data,
as in the paper, a penalty on large weights, so that the loss has a minimum above 0, and a rate that falls at the end.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import cntkjax as C

SWEEPS, MINIBATCH, SAMPLES = 32, 32, 1437


def final_loss(bits):
    """The mean cross entropy of all training data, when training has ended."""
    C.cntk_py.set_fixed_random_seed(1)
    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))[:SAMPLES]
    images, labels = np.float32(digits.data[order] / 16), np.eye(10, dtype=np.float32)[digits.target[order]]
    x, y = C.input_variable(64), C.input_variable(10)
    z = C.layers.Sequential([C.layers.Dense(128, C.tanh), C.layers.Dense(10)])(x)
    loss = C.cross_entropy_with_softmax(z, y)
    rates = C.learning_parameter_schedule_per_sample([0.01] * 16 + [0.002] * 8 + [0.0004], epoch_size=SAMPLES)
    momentum = C.momentum_schedule_per_sample(math.exp(-1 / 300))
    learner = C.data_parallel_distributed_learner(
        C.momentum_sgd(z.parameters, rates, momentum, l2_regularization_weight=0.001),
        num_quantization_bits=bits, distributed_after=SAMPLES,
    )
    trainer, shuffle = C.Trainer(z, (loss, None), learner), np.random.RandomState(1)
    rank, workers = C.Communicator.rank(), C.Communicator.num_workers()
    for sweep in range(SWEEPS):
        order = shuffle.permutation(SAMPLES)
        for start in range(0, SAMPLES, MINIBATCH):
            chosen = order[start : start + MINIBATCH]
            share = chosen if sweep == 0 else chosen[rank::workers]
            trainer.train_minibatch({x: images[share], y: labels[share]})
    return float(np.mean(loss.eval({x: images, y: labels})))


def main(folder):
    losses = {bits: final_loss(bits) for bits in (32, 1)}
    (folder / f"{C.Communicator.rank()}.json").write_text(json.dumps(losses))
    C.Communicator.finalize()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
