"""The actions test and eval."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ...configuration import Block
from ...engine.train.step import Step
from ...eval.evaluator import feeds
from ...ops import combine
from ...sgd import ConfigError
from ...train._sources import next_minibatch
from ..log import Criterion, Log, Sums
from ..network import Network
from ..readers import open_reader, pieces_of, streams_of
from .building import read_or_built
from .lattices import lattice_nodes, set_lattices
from .parallel_lines import is_parallel
from .session import Command, criteria, named_nodes

MINIBATCH = 40960  # samples, unless the block says


def test(command: Command) -> None:
    """Evaluate the criteria of a network on data."""
    evaluate(read_or_built(command), command)


def evaluate(network: Network, command: Command) -> list[float]:
    """The averages of the criteria, which are logged."""
    evaluation = Evaluation(network, _criteria(network, command), command.reader)
    interval = command.block.integer("numMBsToShowResult", 100)
    sums = evaluation.run(minibatch_size(command.block), command.block.integer("epochSize", 0), command.log, interval)
    command.log.line(f"Final Results: Minibatch[1-{sums.minibatches}]: {sums.shown(perplexity=True)}")
    return sums.averages()


class Evaluation:
    """The criteria of a network on the data of a reader."""

    def __init__(self, network: Network, criteria: Sequence[Criterion], reader: Block) -> None:
        self._network, self._criteria, self._reader = network, criteria, reader
        self._nodes: list[Any] = [network.nodes[each.name] for each in criteria]
        if lattice_nodes(network, self._nodes):  # whose files are not those of the training
            self._nodes = list(combine(self._nodes).clone("share").outputs)
            set_lattices(lattice_nodes(network, self._nodes), reader, reader.block("SGD") or reader)
        self._steps = [Step([node], [], ()) for node in self._nodes]
        self._arguments: list[Any] = [combine([node]).arguments for node in self._nodes]

    def run(self, size: int, epoch: int = 0, log: Log | None = None, every: int = 0) -> Sums:
        """The sums over the data, from their beginning.

        `size`: of minibatches. `epoch`: how many samples are read, 0 for all. `log`: gets a line after `every` (0: all)
        minibatches.
        Errors: ConfigError if there are no data.
        """
        source = open_reader(
            self._reader, once=True, samples=epoch, piece=size // pieces_of(self._reader), log=log
        )
        inputs = streams_of(self._nodes, source)
        self._network.forget_epoch()
        whole, since = Sums(self._criteria), Sums(self._criteria)
        while minibatch := next_minibatch(source, size, inputs):
            fed = [{variable: minibatch[variable] for variable in used} for used in self._arguments]
            outcomes = [step.run(feeds(step, data)) for step, data in zip(self._steps, fed, strict=True)]
            size_read = max(data.num_samples for data in minibatch.values())  # also of nodes of weights only
            sizes = [outcome.samples if data else size_read for data, outcome in zip(fed, outcomes, strict=True)]
            totals = [float(outcome.loss) for outcome in outcomes]
            for each in (whole, since):
                each.add(totals, sizes)
            if whole.minibatches % (every or sys.maxsize) == 0:
                since = self._show(since, whole, log)
        if not whole.minibatches:
            raise ConfigError("the reader has no data")
        for sums in (whole, since) if is_parallel(self._reader) and since.minibatches else ():
            sums.minibatches += 1  # CNTK's workers find the end of the data with another one (log)
        if since.minibatches:
            self._show(since, whole, log)
        return whole

    def _show(self, since: Sums, whole: Sums, log: Log | None) -> Sums:
        """Log the minibatches since the last line; returns new sums."""
        last = whole.minibatches
        if log is not None:
            log.detail(f"Minibatch[{last - since.minibatches + 1}-{last}]: {since.shown()}")
        return Sums(self._criteria)


def minibatch_size(block: Block) -> int:
    """The size of minibatches of actions that do not train: the first of those that the block lists."""
    return next(iter(block.integers("minibatchSize")), MINIBATCH)


def _criteria(network: Network, command: Command) -> list[Criterion]:
    """The nodes that are evaluated: those that the block names, or all evaluation nodes and criteria."""
    names = named_nodes(network, command.block, "evalNodeNames")
    if not names:
        command.log.line(
            "evalNodeNames are not specified, using all the default evalnodes and training criterion nodes."
        )
        command.log.detail("")
        names = [*network.roles["evaluation"], *network.roles["criterion"]]
    if not names:
        raise ConfigError("the model has no evaluation nodes and no criteria: name nodes in evalNodeNames")
    return criteria(network, list(dict.fromkeys(names)))


__all__ = ["Evaluation", "evaluate", "minibatch_size", "test"]
