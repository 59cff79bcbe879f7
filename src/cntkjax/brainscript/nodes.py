"""Nodes of a network before it is built: operations, inputs and names, as its description gives them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ..configuration import ConfigError, Place
from ..engine.plan.components import strongly_connected_components

Chain = tuple[tuple[str, Place], ...]


@dataclass
class Seeds:
    """The seeds of random parameters: 1, 2, 3, ... in the order of creation, through all commands of a run (log)."""

    last: int = 0

    def next(self) -> int:
        """The seed of one more parameter."""
        self.last += 1
        return self.last


_seeds: ContextVar[Seeds] = ContextVar("seeds")


def seeds() -> Seeds:
    """Those of the run, or from 1 on outside of one."""
    return _seeds.get(Seeds())


@contextmanager
def seeds_of_run() -> Iterator[Seeds]:
    """Networks that are described meanwhile count on from each other."""
    token = _seeds.set(Seeds())
    try:
        yield _seeds.get()
    finally:
        _seeds.reset(token)


@dataclass(eq=False)
class NetNode:
    """A node of a network that a description creates.

    `inputs` is None until those of a delay are known, since they may depend on the node itself: `late` gives them.
    `options`: plain Python values (numbers, strings, truth values, lists). `variable`: what the node is already, if it
    comes from another network, where its inputs were `originals`. `place` and `chain`: where a description creates it.
    """

    operation: str
    name: str
    inputs: list[NetNode] | None
    options: dict[str, Any]
    place: Place | None = None
    chain: Chain = field(default=(), repr=False)
    late: Callable[[], list[NetNode]] | None = field(default=None, repr=False)
    tag: str = ""
    variable: Any = None
    originals: list[NetNode] = field(default_factory=list, repr=False)

    def operands(self) -> list[NetNode]:
        """The inputs; those of a delay are evaluated now."""
        if self.inputs is None:
            self.inputs = self.late() if self.late is not None else []
        return self.inputs

    def error(self, message: str) -> ConfigError:
        """An error at the place of the node."""
        text = f"{self.operation} '{self.name}': {message}"
        return ConfigError(text) if self.place is None else self.place.error(text, self.chain)


def named(roots: Iterable[NetNode]) -> dict[str, NetNode]:
    """All nodes that the roots depend on, by names that are unique, in CNTK's order: roots, then inputs, by distance.

    The second node of a name gets an underscore in front, as in CNTK.
    """
    by_name: dict[str, NetNode] = {}
    seen: set[int] = set()
    waiting = deque(roots)
    while waiting:
        node = waiting.popleft()
        if id(node) in seen:
            continue
        seen.add(id(node))
        while node.name in by_name:
            node.name = "_" + node.name
        by_name[node.name] = node
        waiting.extend(node.operands())
    return by_name


def ordered(nodes: Sequence[NetNode], is_delay: Callable[[NetNode], bool]) -> list[list[NetNode]]:
    """The nodes in an order of computation, those of a loop together.

    Within a loop the delays come first, and the others in the order in which they can be computed from these.
    """
    components = strongly_connected_components(nodes, lambda node: iter(node.operands()))
    return [_loop(component[::-1], is_delay) for component in components]


def _loop(component: list[NetNode], is_delay: Callable[[NetNode], bool]) -> list[NetNode]:
    """The nodes of a loop, delays first."""
    if len(component) == 1:
        return component
    done, rest = ([node for node in component if is_delay(node) is delays] for delays in (True, False))
    inside = set(rest)
    for part in strongly_connected_components(rest, lambda n: (each for each in n.operands() if each in inside)):
        if len(part) > 1:
            raise part[0].error("the loop has no delay: only PastValue and FutureValue may close one")
        done += part
    return done


def changed(nodes: Iterable[NetNode], others: Container[NetNode] = ()) -> list[NetNode]:
    """Those of the nodes that have to be built: new ones, those with other inputs, others, and what depends on such."""
    nodes = list(nodes)
    return _with_users(nodes, [
        node for node in nodes
        if node.variable is None or [*map(id, node.operands())] != [*map(id, node.originals)] or node in others
    ])


def _with_users(nodes: Iterable[NetNode], begin: Iterable[NetNode]) -> list[NetNode]:
    """Some of the nodes, and those that depend on them."""
    users: dict[int, list[NetNode]] = {}
    for node in nodes:
        for operand in node.operands():
            users.setdefault(id(operand), []).append(node)
    reached = {id(node): node for node in begin}
    waiting = list(reached.values())
    while waiting:
        for user in users.get(id(waiting.pop()), ()):
            if id(user) not in reached:
                reached[id(user)] = user
                waiting.append(user)
    return list(reached.values())


def reachable(roots: Iterable[NetNode], known: Container[int] = ()) -> list[NetNode]:
    """The roots and all that they depend on, without nodes that are known, by `id`, and what only these need."""
    reached: dict[int, NetNode] = {}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if id(node) not in reached and id(node) not in known:
            reached[id(node)] = node
            waiting.extend(node.operands())
    return list(reached.values())


def replaced(
    roots: Iterable[NetNode], replacements: dict[int, NetNode], rename: Callable[[str], str]
) -> dict[int, NetNode]:
    """Copies of nodes in which others are replaced: of all that depend on these. Nodes are keys by `id`.

    `rename`: the name of a copy.
    """
    nodes = reachable(roots)
    copies = dict(replacements)
    users = _with_users(nodes, [node for node in nodes if id(node) in replacements])
    copied = [user for user in users if id(user) not in replacements]
    for user in copied:
        copy = NetNode(user.operation, rename(user.name), None, user.options, user.place, user.chain, tag=user.tag)
        copy.variable, copy.originals = user.variable, user.originals or user.operands()
        copies[id(user)] = copy
    for user in copied:
        copies[id(user)].inputs = [copies.get(id(operand), operand) for operand in user.operands()]
    return copies


__all__ = ["Chain", "NetNode", "changed", "named", "ordered", "reachable", "replaced", "seeds", "seeds_of_run"]
