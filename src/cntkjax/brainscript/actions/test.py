"""The actions test and eval."""

from __future__ import annotations

import sys
from typing import Any

from ...eval import Evaluator
from ...graph.proxy import unwrap
from ...ops import combine
from ...sgd import ConfigError
from ...train._sources import next_minibatch
from ..configuration import Block
from ..log import Criterion, listed
from ..network import Network
from ..readers import open_reader, streams_of
from .building import read_or_built
from .session import Command, criteria, named_nodes

MINIBATCH = 40960  # samples, unless the block says


def test(command: Command) -> None:
    """Evaluate the criteria of a network on data."""
    network = read_or_built(command)
    evaluate(network, command)


def evaluate(network: Network, command: Command) -> list[float]:
    """The averages of the criteria, which are logged."""
    names = _criteria(network, command)
    nodes = [network.nodes[each.name] for each in names]
    evaluators: list[Any] = [unwrap(Evaluator(node)) for node in nodes]
    arguments: list[Any] = [combine([node]).arguments for node in nodes]
    source = open_reader(command.reader(), once=True, shuffled=False)
    size, epoch = minibatch_size(command.block), command.block.integer("epochSize", 0)
    if epoch:
        source.end_at(epoch)
    inputs = streams_of(nodes, source)
    tally = _Tally(names, command, command.block.integer("numMBsToShowResult", 100) or sys.maxsize)
    while minibatch := next_minibatch(source, size, inputs):
        given = [{variable: minibatch[variable] for variable in used} for used in arguments]
        sums = [each.test_sum(data) for each, data in zip(evaluators, given, strict=True)]
        tally.add([total for total, _ in sums], max(samples for _, samples in sums))
    return tally.finish()


def minibatch_size(block: Block) -> int:
    """The size of minibatches of actions that do not train: the first of those that the block lists."""
    sizes = block.array("minibatchSize")
    return int(float(sizes[0])) if sizes else MINIBATCH


def _criteria(network: Network, command: Command) -> list[Criterion]:
    """The nodes that are evaluated: those that the block names, or all evaluation nodes and criteria."""
    names = named_nodes(network, command.block.array("evalNodeNames"), "evalNodeNames")
    if not names:
        log = command.log
        log.line("evalNodeNames are not specified, using all the default evalnodes and training criterion nodes.")
        log.line()
        names = [*network.roles["evaluation"], *network.roles["criterion"]]
    if not names:
        raise ConfigError("the model has no evaluation nodes and no criteria: name nodes in evalNodeNames")
    return criteria(network, list(dict.fromkeys(names)))


class _Tally:
    """Sums over minibatches, and the lines about them."""

    def __init__(self, names: list[Criterion], command: Command, every: int) -> None:
        self._names, self._log, self._every = names, command.log, every
        self._minibatches = self._samples = self._shown = self._samples_shown = 0
        self._totals, self._totals_shown = [0.0] * len(names), [0.0] * len(names)

    def add(self, totals: list[float], samples: int) -> None:
        """Count a minibatch."""
        self._totals = [a + b for a, b in zip(self._totals, totals, strict=True)]
        self._samples += samples
        self._minibatches += 1
        if self._minibatches % self._every == 0:
            self._show()

    def _show(self) -> None:
        totals = [a - b for a, b in zip(self._totals, self._totals_shown, strict=True)]
        samples = self._samples - self._samples_shown
        self._log.line(f"Minibatch[{self._shown + 1}-{self._minibatches}]: {listed(self._names, totals, samples)}")
        self._shown, self._samples_shown, self._totals_shown = self._minibatches, self._samples, list(self._totals)

    def finish(self) -> list[float]:
        """Log the averages of all; returns them."""
        if not self._samples:
            raise ConfigError("the reader has no data")
        if self._minibatches > self._shown:
            self._show()
        shown = "; ".join(
            each.with_perplexity(total, self._samples) for each, total in zip(self._names, self._totals, strict=True)
        )
        self._log.line(f"Final Results: Minibatch[1-{self._minibatches}]: {shown}")
        return [total / self._samples for total in self._totals]


__all__ = ["evaluate", "minibatch_size", "test"]
