"""python -m benchmarks.memory: memory of the process over 10,000 minibatches of sequences of varying lengths.

Needs psutil. The first tenth of the minibatches compiles the programs and is not counted as growth.
"""

from __future__ import annotations

import numpy as np
import psutil

import cntk as C

WIDTH, CLASSES = 4, 3


def resident() -> float:
    """Megabytes that this process keeps in memory."""
    return psutil.Process().memory_info().rss / 2**20


def megabytes(minibatches: int = 10_000, marks: int = 10) -> list[float]:
    """Resident memory at `marks` equal distances while a small tagger trains on ever new random sequences."""
    x, y = C.sequence.input_variable(WIDTH), C.sequence.input_variable(CLASSES)
    scores = C.layers.Sequential([C.layers.Recurrence(C.layers.LSTM(8)), C.layers.Dense(CLASSES)])(x)
    learner = C.momentum_sgd(
        scores.parameters, C.learning_parameter_schedule_per_sample(0.01), C.momentum_schedule(0.9)
    )
    trainer = C.Trainer(scores, (C.cross_entropy_with_softmax(scores, y), C.classification_error(scores, y)), [learner])
    random, eye, seen = np.random.default_rng(1), np.eye(CLASSES, dtype=np.float32), []
    for done in range(1, minibatches + 1):
        lengths = random.integers(1, 40, size=random.integers(1, 9))
        trainer.train_minibatch({
            x: [random.standard_normal((length, WIDTH), np.float32) for length in lengths],
            y: [eye[random.integers(CLASSES, size=length)] for length in lengths],
        })  # fmt: skip
        if done % (minibatches // marks) == 0:
            assert np.isfinite(trainer.previous_minibatch_loss_average)
            seen.append(resident())
    return seen


if __name__ == "__main__":
    seen = megabytes()
    print("MB at every thousandth minibatch:", ", ".join(f"{value:.1f}" for value in seen))
    print(f"growth since the first: {seen[-1] - seen[0]:.1f} MB")
