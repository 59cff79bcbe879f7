"""python -m benchmarks.memory: memory of the process over 10,000 minibatches of sequences of varying lengths.

Needs psutil. Each minibatch has 16 new random sequences of 1 to 39 steps. Programs that are compiled for more sizes
take memory too, so their number is reported as well; it soon stops growing.
"""

from __future__ import annotations

import numpy as np
import psutil

import cntk as C
from benchmarks.worker import compilations

WIDTH, CLASSES, SEQUENCES, LONGEST = 4, 3, 16, 39


def marks(minibatches: int = 10_000, count: int = 10) -> list[tuple[float, int]]:
    """Resident megabytes and number of compiled programs, at `count` equal intervals while a small tagger trains."""
    compiled = compilations()
    x, y = C.sequence.input_variable(WIDTH), C.sequence.input_variable(CLASSES)
    scores = C.layers.Sequential([C.layers.Recurrence(C.layers.LSTM(8)), C.layers.Dense(CLASSES)])(x)
    learner = C.momentum_sgd(scores.parameters, C.learning_parameter_schedule(0.01), C.momentum_schedule(0.9))
    trainer = C.Trainer(scores, (C.cross_entropy_with_softmax(scores, y), C.classification_error(scores, y)), [learner])
    random, eye, measurements = np.random.default_rng(1), np.eye(CLASSES, dtype=np.float32), []
    for step in range(1, minibatches + 1):
        lengths = random.integers(1, LONGEST + 1, size=SEQUENCES)
        inputs = [random.standard_normal((length, WIDTH), np.float32) for length in lengths]
        trainer.train_minibatch({x: inputs, y: [eye[random.integers(CLASSES, size=length)] for length in lengths]})
        if step % (minibatches // count) == 0:
            assert np.isfinite(trainer.previous_minibatch_loss_average)
            measurements.append((psutil.Process().memory_info().rss / 2**20, int(compiled["programs"])))
    return measurements


if __name__ == "__main__":
    measurements = marks()
    print("minibatches  MB  programs")
    for index, (megabytes, programs) in enumerate(measurements, 1):
        print(f"{1000 * index:>11}  {megabytes:.1f}  {programs}")
    print(f"growth from minibatch 2,000 to 10,000: {measurements[-1][0] - measurements[1][0]:.1f} MB")
