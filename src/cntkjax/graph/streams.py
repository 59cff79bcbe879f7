"""Where random numbers go on: an evaluated function, or a trainer, has a stream of its own for each random node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .cells import Cell, Changes
from .function import Node


class StreamPlace(NamedTuple):
    """A place in a node's stream. `seeding`: how often its seed was set before.

    Units: `offset` is in numbers that CNTK's generator draws, or in evaluations.
    """

    seed: int
    offset: int
    seeding: int


class Drawn(NamedTuple):
    """How far streams have been drawn.

    `places`: of the next numbers, for nodes that have drawn any. `is_differentiated`: gradients were computed.
    """

    places: Mapping[Node, StreamPlace] = {}
    is_differentiated: bool = False


class Streams:
    """The streams of random numbers of a function or trainer, one for each random node.

    A stream begins at the node's `rngOffset`, also if its seed is set. When gradients are first computed, all of them
    begin again, since CNTK then compiles the function anew.

    `drawn`: how far they have been drawn. `generators`: a cache of those that draw on the host.
    """

    def __init__(self, drawn: Drawn = Drawn(), generators: dict[Node, Any] | None = None) -> None:
        self.drawn = Cell(drawn)
        self.generators: dict[Node, Any] = {} if generators is None else generators

    def place(self, node: Node, training: bool) -> StreamPlace:
        """The place of a node's next numbers. `training`: gradients are computed with them."""
        last = self._compiled(training).get(node)
        return _beginning(node) if last is None or last.seeding != node.seedings else last

    def after(self, places: Mapping[Node, StreamPlace], training: bool) -> Changes:
        """What changes when they go on at these places."""
        drawn = Drawn({**self._compiled(training), **places}, self.drawn.value.is_differentiated or training)
        return {self.drawn: drawn}

    def _compiled(self, training: bool) -> Mapping[Node, StreamPlace]:
        """The places, as far as CNTK's compiled network is one for such a computation."""
        return self.drawn.value.places if self.drawn.value.is_differentiated or not training else {}

    def store(self) -> None:
        """Let new streams of these nodes begin here; it may be repeated."""
        for node in self.drawn.value.places:
            node.node_attributes["rngOffset"] = self.place(node, False).offset

    def restart(self) -> None:
        """Go on where new streams begin now; it may be repeated."""
        drawn = self.drawn.value
        self.drawn.value = drawn._replace(places={node: _beginning(node) for node in drawn.places})

    def copy(self) -> Streams:
        """The same streams, unaffected by later draws from these."""
        return Streams(self.drawn.value, self.generators)


def _beginning(node: Node) -> StreamPlace:
    return StreamPlace(node.node_attributes["rngSeed"], node.node_attributes.get("rngOffset", 0), node.seedings)


__all__ = ["Drawn", "StreamPlace", "Streams"]
