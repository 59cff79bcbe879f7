"""Partitions a plan into stages, for an evaluation with several batch sizes.

Nodes one of which is computed from the other along dynamic axes have the same number of samples; they form a subgraph
of one batch size. Functions of the user that can run on the host, between programs, belong to none. What a subgraph
computes before it needs a value of another one is a stage, and each of these functions is a stage of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from ...graph.function import Node
from ...graph.variable import Edge
from .parts import Loop, Part, inputs_of, nodes_of

StageKey = tuple[int, Hashable]  # how many borders of subgraphs lie before the stage, and its subgraph


@dataclass(eq=False)
class Stage:
    """Nodes that one program computes, or one function of the user.

    `inputs`: what other stages compute for it; `outputs`: what is needed outside of it; of a function, all it returns.
    """

    inputs: list[Edge]
    outputs: list[Edge]
    function: Node | None


def partition(parts: Sequence[Part], outputs: Sequence[Edge]) -> list[Stage]:
    """The stages of a plan with these parts and outputs, in the order of computation."""
    on_host: dict[Part, Node] = {
        part: part for part in parts if not isinstance(part, Loop) and part.primitive.runs_on_host
    }
    stage_of = _assign_stages(parts, on_host)
    stages: dict[StageKey, list[Part]] = defaultdict(list)
    for part in parts:
        stages[stage_of[part]].append(part)
    producer = {v: part for part in parts for v in _outputs(part)}

    def stage_inputs(part: Part) -> list[Edge]:
        return [v for v in inputs_of(part) if v in producer and stage_of[producer[v]] != stage_of[part]]

    needed = {v for part in parts for v in stage_inputs(part)} | set(outputs)
    return [
        Stage(
            list(dict.fromkeys(v for part in members for v in stage_inputs(part))),
            [v for part in members for v in _outputs(part) if part in on_host or v in needed],
            on_host.get(members[0]),
        )
        for _, members in sorted(stages.items(), key=lambda item: item[0][0])
    ]


class _DisjointSets:
    """Union-find over parts and variables."""

    def __init__(self) -> None:
        self._parent: dict[Part | Edge, Part | Edge] = {}

    def find(self, x: Part | Edge) -> Part | Edge:
        """The representative of the set of x."""
        while (parent := self._parent.setdefault(x, x)) is not x:
            x = parent
        return x

    def union(self, x: Part | Edge, y: Part | Edge) -> None:
        """Merge the sets of x and y; the representative is that of y."""
        self._parent[self.find(x)] = self.find(y)


def _assign_stages(parts: Sequence[Part], on_host: Collection[Part]) -> dict[Part, StageKey]:
    """The stage of each part."""
    subgraphs = _subgraphs(parts, on_host)
    stage_of: dict[Part, StageKey] = {}
    producer: dict[Edge, Part] = {}
    for part in parts:
        subgraph = subgraphs.find(part)
        before = [stage_of[producer[v]] for v in inputs_of(part) if v in producer]
        stage_of[part] = max((depth + (other is not subgraph) for depth, other in before), default=0), subgraph
        producer.update(dict.fromkeys(_outputs(part), part))
    return stage_of


def _subgraphs(parts: Sequence[Part], on_host: Collection[Part]) -> _DisjointSets:
    """The parts and their variables, grouped by batch size."""
    subgraphs = _DisjointSets()
    users: dict[Edge, set[Part]] = defaultdict(set)
    for part in reversed(parts):
        if part not in on_host:
            members: list[Part | Edge] = [v for v in (*inputs_of(part), *_outputs(part)) if v.dynamic_axes]
            if not members:  # it is computed where it is needed, if that is a single subgraph
                using = {subgraphs.find(user) for v in _outputs(part) for user in users[v]}
                members = [*using] if len(using) == 1 and using.isdisjoint(on_host) else []
            for member in members:
                subgraphs.union(member, part)
        for v in inputs_of(part):
            users[v].add(part)
    return subgraphs


def _outputs(part: Part) -> list[Edge]:
    return [v for node in nodes_of(part) for v in node.node_outputs]
