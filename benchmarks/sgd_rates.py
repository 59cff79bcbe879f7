"""How good automatic learning rates are: against the best of 12 constant ones, started 100 times too high and too low.

    python -m benchmarks.sgd_rates digits [--seeds 1 2]
    python -m benchmarks.sgd_rates atis --folder ../shared/data/atis

Prints, for each seed, the loss on the training data after three epochs with each rate of the grid, and then that of
``autoAdjustLR = searchBeforeEpoch``, with its share of minibatches in trials. ``--near 8`` trains with as many rates
within 1% of the best of the grid, too: how much their losses differ is the accuracy of all of these figures.
docs/sgd_block.md has them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cntkjax as C
from cntkjax.sgd import SGD, History

EPOCHS, GRID = 3, 12
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))


class Task(NamedTuple):
    """`train(block)` returns the history and the loss after it; `rates` are the grid, per sample."""

    train: Callable[[SGD], tuple[History, float]]
    rates: np.ndarray
    block: dict[str, Any]


def digits(folder: Path | None) -> Task:
    """The convolutional network of examples/digits.py."""
    import digits as example

    (images, labels), _ = example.data()

    def train(block: SGD) -> tuple[History, float]:
        x, y = C.input_variable((1, example.SIDE, example.SIDE)), C.input_variable(example.CLASSES)
        loss = C.cross_entropy_with_softmax(example.network()(x), y)
        history = block.train(loss, (images, labels), progress_writers=[])
        return history, float(np.mean(loss.eval({x: images, y: labels})))

    return Task(train, np.geomspace(1e-4, 0.32, GRID), {"minibatchSize": 16})


def atis(folder: Path | None) -> Task:
    """The slot tagger of examples/atis_tagging.py, in epochs of 36,000 words."""
    import atis_tagging as example

    assert folder is not None
    path = str(folder / "atis.train.ctf")

    def train(block: SGD) -> tuple[History, float]:
        query = C.sequence.input_variable(example.WORDS, is_sparse=True, name="query")
        slots = C.sequence.input_variable(example.LABELS, is_sparse=True, name="slots")
        loss = C.cross_entropy_with_softmax(example.tagger()(query), slots)
        history = block.train(loss, example.reader(path, training=True), progress_writers=[])
        source = example.reader(path, training=False)
        streams = {query: source.streams.query, slots: source.streams.slots}
        return history, loss.test(source, 500, model_inputs_to_streams=streams).metric

    return Task(train, np.geomspace(3e-4, 1.0, GRID), {"minibatchSize": 50, "epochSize": 36000})


TASKS = {"digits": digits, "atis": atis}


def main(name: str, folder: Path | None, seeds: list[int], near: int) -> None:
    task = TASKS[name](folder)
    ratios = []
    for seed in seeds:

        def run(seed: int = seed, **block: Any) -> tuple[History, float]:
            C.cntk_py.set_fixed_random_seed(seed)
            return task.train(SGD(maxEpochs=EPOCHS, momentumPerMB=0.9, **task.block, **block))

        losses = []
        for rate in task.rates:
            losses.append(run(learningRatesPerSample=float(rate))[1])
            print(f"seed {seed}: constant rate {rate:.2e}: loss {losses[-1]:.4f}", flush=True)
        best = int(np.nanargmin(losses))
        if near:
            rates = task.rates[best] * np.linspace(0.99, 1.01, near)
            others = np.array([run(learningRatesPerSample=float(rate))[1] for rate in rates])
            print(f"seed {seed}: within 1% of {task.rates[best]:.2e}: losses of {others.min():.4f} to "
                  f"{others.max():.4f}, standard deviation {100 * others.std() / others.mean():.0f}%", flush=True)
        for factor in (100, 0.01):
            start = float(task.rates[best] * factor)
            history, loss = run(learningRatesPerSample=start, autoAdjustLR="searchBeforeEpoch")
            share = sum(e.search_minibatches for e in history) / sum(e.minibatches for e in history)
            searched = ", ".join(f"{rate:.1e}" for rate in history.rates)
            ratios.append(loss / losses[best])
            print(f"seed {seed}: searched from {start:.2e}: rates {searched}: loss {loss:.4f}, "
                  f"{ratios[-1]:.2f} of the best; {100 * share:.1f}% of the minibatches in trials", flush=True)
    print(f"fraction of the best constant rate's loss: median {np.median(ratios):.2f}; "
          f"{sum(ratio <= 1.05 for ratio in ratios)} of {len(ratios)} at most 1.05")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("name", choices=TASKS)
    arguments.add_argument("--folder", type=Path, help="where atis.train.ctf is")
    arguments.add_argument("--seeds", type=int, nargs="+", default=[1])
    arguments.add_argument("--near", type=int, default=0, help="how many rates near the best of the grid to try, too")
    main(**vars(arguments.parse_args()))
