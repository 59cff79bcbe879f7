"""python -m benchmarks.long_run FOLDER --hours 8: what a training uses that goes on, alone or under `mpiexec -n 2`.

A tagger is trained on sequences of new lengths in each minibatch, while two threads evaluate it; now and then it is
tested, saved to a checkpoint in the folder, and restored. Each worker prints a line at equal intervals. Where the
folder has a checkpoint, the training goes on from it, in a new process. Needs psutil.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

import cntk as C
from benchmarks.worker import compilations
from cntkjax.engine.xla import cache

WIDTH, CLASSES, SEQUENCES, LONGEST = 4, 3, 16, 39
TEST_EVERY, SAVE_EVERY, RESTORE_EVERY = 50, 200, 1000  # steps
LONGEST_STEP = 10.0  # seconds: one that takes longer was stopped from outside, which does not count as training
PAUSE = 0.02  # seconds between the evaluations of a thread


class Mark(NamedTuple):
    """What a process uses after so many hours. `milliseconds`: the median of its steps since the last mark."""

    hours: float
    steps: int
    milliseconds: float
    megabytes: float
    files: int
    threads: int
    programs: int
    cache_megabytes: float


class Training:
    """A small tagger, its trainer, and data without end."""

    def __init__(self, seed: int) -> None:
        self.x, self.y = C.sequence.input_variable(WIDTH), C.sequence.input_variable(CLASSES)
        with C.layers.default_options(init=C.glorot_uniform(seed=1)):
            self.scores = C.layers.Sequential([C.layers.Recurrence(C.layers.LSTM(8)), C.layers.Dense(CLASSES)])(self.x)
        learner = C.momentum_sgd(self.scores.parameters, C.learning_parameter_schedule(0.01), C.momentum_schedule(0.9))
        if C.Communicator.num_workers() > 1:
            learner = C.data_parallel_distributed_learner(learner)
        losses = C.cross_entropy_with_softmax(self.scores, self.y), C.classification_error(self.scores, self.y)
        self.trainer = C.Trainer(self.scores, losses, [learner])
        self._random = np.random.default_rng(seed)

    def minibatch(self) -> dict[C.Variable, list[np.ndarray]]:
        """Sequences of random lengths."""
        lengths = self._random.integers(1, LONGEST + 1, size=SEQUENCES)
        inputs = [self._random.standard_normal((length, WIDTH), np.float32) for length in lengths]
        labels = [np.eye(CLASSES, dtype=np.float32)[self._random.integers(CLASSES, size=length)] for length in lengths]
        return {self.x: inputs, self.y: labels}

    def evaluate_until(self, end: threading.Event, seed: int) -> None:
        """What threads do beside the training."""
        random = np.random.default_rng(seed)
        while not end.wait(PAUSE):
            sequence = random.standard_normal((random.integers(1, LONGEST + 1), WIDTH), np.float32)
            assert np.isfinite(self.scores.eval({self.x: [sequence]})[0]).all()

    def step(self, number: int, data: dict[C.Variable, list[np.ndarray]], checkpoint: Path, seconds: float) -> bool:
        """Train on a minibatch, and do what else is due; False at the end, when no worker has data."""
        goes_on = self.trainer.train_minibatch(data)
        if goes_on and data and number % TEST_EVERY == 0:
            self.trainer.test_minibatch(data)
        if goes_on and number % SAVE_EVERY == 0:
            self.trainer.save_checkpoint(str(checkpoint), {"steps": number, "seconds": seconds})
        if goes_on and number % RESTORE_EVERY == 0:
            self.trainer.restore_from_checkpoint(str(checkpoint))
        return goes_on


def marks(hours: float, count: int, folder: Path) -> Iterator[Mark]:
    """Train for so many hours, and yield what is used at `count` equal intervals. `folder`: for the checkpoint.

    What was trained before the checkpoint that the folder has counts.
    """
    compiled, process = compilations(), psutil.Process()
    rank = C.Communicator.rank()
    training, end, checkpoint = Training(rank), threading.Event(), folder / "checkpoint"
    earlier = training.trainer.restore_from_checkpoint(str(checkpoint)) if checkpoint.exists() else {}
    threads = [threading.Thread(target=training.evaluate_until, args=(end, seed)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    seconds, number = earlier.get("seconds", 0.0), earlier.get("steps", 0)
    times: list[float] = []
    goes_on = True
    try:
        for place in range(1, count + 1):
            until = 3600 * hours * place / count
            if place < count and until < seconds:
                continue
            while seconds < until or (place == count and goes_on):
                data = training.minibatch() if seconds < 3600 * hours else {}
                before = time.perf_counter()
                number += 1
                goes_on = training.step(number, data, checkpoint, seconds)
                times.append(time.perf_counter() - before)
                seconds += min(times[-1], LONGEST_STEP)
            yield Mark(
                seconds / 3600, number, 1000 * statistics.median(times or [0]),
                process.memory_info().rss / 2**20, process.num_fds(), process.num_threads(), int(compiled["programs"]),
                _cache_size(),
            )
            times.clear()
    finally:
        end.set()
        for thread in threads:
            thread.join()


def _cache_size() -> float:
    store = cache.store()
    return 0.0 if store is None else store.usage().size / 2**20


def main(arguments: list[str] | None = None) -> None:
    """Print the marks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_run", description=__doc__)
    parser.add_argument("folder", type=Path, help="for the checkpoint; that of all workers")
    parser.add_argument("--hours", type=float, default=8, help="how long to train (default: 8)")
    parser.add_argument("--marks", type=int, default=16, help="the number of lines (default: 16)")
    options = parser.parse_args(arguments)
    rank = C.Communicator.rank()
    print(f"worker {rank}: hours  steps  ms  MB  files  threads  programs  cache, MB", flush=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    for mark in marks(options.hours, options.marks, options.folder):
        shown = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in mark)
        print(f"worker {rank}: {'  '.join(shown)}", flush=True)
    C.Communicator.finalize()


if __name__ == "__main__":
    main()
