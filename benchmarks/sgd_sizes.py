"""How many updates automatic minibatch sizes save: the loss after as many epochs, of a fixed size and of growing ones.

    python -m benchmarks.sgd_sizes digits [--seeds 1 2 3] [--epochs 10] [--rate 0.008]
    python -m benchmarks.sgd_sizes atis --folder ../shared/data/atis --epochs 3 --rate 0.1

Prints for both the loss on the training data, the updates, those of trials included, and the sizes by epoch.
docs/sgd_block.md has the figures.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cntkjax as C
from cntkjax.sgd import SGD

from .sgd_rates import TASKS


def main(name: str, folder: Path | None, seeds: list[int], epochs: int, rate: float) -> None:
    task = TASKS[name](folder)
    for seed in seeds:
        for grows in (False, True):
            C.cntk_py.set_fixed_random_seed(seed)
            block = SGD(maxEpochs=epochs, learningRatesPerSample=rate, momentumPerMB=0.9, autoAdjustMinibatch=grows,
                        **task.block)
            history, loss = task.train(block)
            updates, trials = (sum(e.minibatches for e in history), sum(e.search_minibatches for e in history))
            print(f"seed {seed}, {'growing' if grows else 'fixed'} size: loss {loss:.4f} after {updates} updates"
                  f"{f' and {trials} in trials' if trials else ''}; sizes {history.minibatch_sizes}", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("name", choices=TASKS)
    arguments.add_argument("--folder", type=Path, help="where atis.train.ctf is")
    arguments.add_argument("--seeds", type=int, nargs="+", default=[1])
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--rate", type=float, default=0.008, help="per sample")
    main(**vars(arguments.parse_args()))
