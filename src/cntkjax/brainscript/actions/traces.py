"""Values of nodes in the log while a network trains: those of ``Trace``, and those that traceNodeNames... list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from ...configuration import Block, Text, assignments
from ...logging._progress_writer import is_due
from ...ops import alias, gradient
from ..log import Log
from ..network import Network
from ..readers import Source, streams_of
from .output_format import Format, OutputWriter, output_format
from .session import named_nodes
from .write import written

_KINDS = ("real", "category", "sparse")


@dataclass(frozen=True)
class _Trace:
    """A node, and when and how it is shown: in the first minibatches, and in every so many."""

    name: str
    value: Any
    form: Format
    title: str
    first: int = 0
    every: int = 1


class Traces:
    """Called with each minibatch, it logs the values of traced nodes before the parameters are updated.

    No page or log of CNTK shows its lines; these are a title, and the values as the action write has them.
    """

    def __init__(self, network: Network, loss: str, sgd: Block, source: Source, log: Log) -> None:
        self._network, self._log, self._minibatches = network, log, 0
        self._traces = [*_of_network(network, loss), *_of_block(network, sgd)]
        self._streams = streams_of([each.value for each in self._traces], source) if self._traces else {}

    def __call__(self, minibatch: Mapping[Any, Any]) -> None:
        """Log the traces that are due; an empty minibatch ends the data."""
        self._minibatches += bool(minibatch)
        for each in self._traces if minibatch else ():
            if is_due(self._minibatches, each.every, each.first):
                title = f"{each.title} {each.name}, minibatch {self._minibatches}:"
                self._log.line(title, *self._shown(each, minibatch))

    def _shown(self, trace: _Trace, minibatch: Mapping[Any, Any]) -> list[str]:
        """The lines of a value; why there is none, if it is a gradient within a recurrent loop."""
        name, text = trace.name, StringIO()
        data = {variable: minibatch[info] for variable, info in self._streams.items()}
        try:
            written({name: trace.value}, data, {name: OutputWriter(trace.form, name, text)}, self._network)
        except ValueError as error:
            return str(error).splitlines()[:1]
        return text.getvalue().splitlines()


def _of_network(network: Network, loss: str) -> Iterator[_Trace]:
    for name, options in network.traces.items():
        text = Text(f"the format of {name}", options.get("format") or "")
        form = output_format(Block("format", None, assignments(text)))
        rows, steps = (int(options.get(key, 0)) or None for key in ("onlyUpToRow", "onlyUpToT"))
        title, node = options.get("say") or "Trace", network.nodes[name]
        shown = {title: alias(node)}
        if options.get("logGradientToo") and name in network.reached([loss]):
            shown[f"{title}, gradient of"] = gradient(network.nodes[loss], node)
        for what, value in shown.items():
            yield _Trace(name, value, replace(form, rows=rows, steps=steps), what,
                         int(options.get("logFirst", 10)), int(options.get("logFrequency", 100)))


def _of_block(network: Network, sgd: Block) -> Iterator[_Trace]:
    for kind in _KINDS:
        for name in named_nodes(network, sgd, f"traceNodeNames{kind.title()}"):
            yield _Trace(name, alias(network.nodes[name]), Format(kind), "Trace")


__all__ = ["Traces"]
