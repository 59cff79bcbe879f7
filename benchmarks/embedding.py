"""python -m benchmarks.embedding: the training step of an embedding with 1,000 and with 1,000,000 rows.

Both run in one process, in interleaved rounds. Prints milliseconds per step (medians) and their ratio for each learner.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

import cntk as C

SENTENCES, WORDS, CLASSES, STEPS = 32, 20, 5, 20
RATE, MOMENTUM = C.learning_parameter_schedule(0.01), C.momentum_schedule(0.9)
LEARNERS = {
    "sgd": lambda p: C.sgd(p, RATE),
    "momentum_sgd": lambda p: C.momentum_sgd(p, RATE, MOMENTUM),
    "adagrad": lambda p: C.adagrad(p, RATE),
    "adam": lambda p: C.adam(p, RATE, MOMENTUM),
}


def stepper(vocabulary: int, make_learner: Callable[[Sequence[C.Parameter]], C.Learner]) -> Callable[[], float]:
    """A function that takes one training step of a small sentence classifier and returns the loss."""
    x, y = C.sequence.input_variable(vocabulary, is_sparse=True), C.input_variable(CLASSES)
    model = C.layers.Sequential([
        C.layers.Embedding(100), C.layers.Fold(C.layers.LSTM(64)), C.layers.Dense(CLASSES)
    ])(x)
    trainer = C.Trainer(model, (C.cross_entropy_with_softmax(model, y), None), [make_learner(model.parameters)])
    random = np.random.default_rng(0)
    words = C.Value.one_hot([random.integers(vocabulary, size=WORDS).tolist() for _ in range(SENTENCES)], vocabulary)
    feeds = {x: words, y: np.eye(CLASSES, dtype=np.float32)[random.integers(CLASSES, size=SENTENCES)]}

    def step() -> float:
        trainer.train_minibatch(feeds)
        return trainer.previous_minibatch_loss_average

    return step


def main() -> None:
    """Measure all learners and print a table."""
    print("learner        1,000 rows  1,000,000 rows  ratio")
    for name, make_learner in LEARNERS.items():
        steppers = [stepper(rows, make_learner) for rows in (1_000, 1_000_000)]
        times_of_sides: list[list[float]] = [[], []]
        for round_number in range(STEPS):
            for step, times in zip(steppers, times_of_sides, strict=True):
                begin = time.perf_counter()
                step()
                if round_number >= 3:  # the first ones compile
                    times.append(1000 * (time.perf_counter() - begin))
        small, large = map(statistics.median, times_of_sides)
        print(f"{name:<14} {small:>7.2f} ms {large:>12.2f} ms  {large / small:.2f}")


if __name__ == "__main__":
    main()
