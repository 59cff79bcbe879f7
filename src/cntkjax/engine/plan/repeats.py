"""Repeated structure: a recurrence that is unrolled by hand, or equal layers, one after the other.

A plan is searched for a chain of equal nodes each of which depends on the one before it. What a node of the chain
needs, and those before it do not, is a piece. Pieces that compute the same from the piece before, from what all of them
share, and from values of their own are one `Repeat`, which is compiled once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, TypeAlias

from ...graph.function import Node
from ...graph.shape import is_known
from ...graph.variable import Edge, Leaf
from .parts import Loop, Part, all_outputs_of, inputs_of, resolve
from .structure import describing, node_structure

LEAST_PIECES, LEAST_NODES = 8, 64  # what is smaller compiles as fast as it is
MOST_STACKED = 1 << 14  # elements of leaves that each piece may have of its own, as these are copied in each run
MANY_NODES = 1000  # in all pieces, from which compiling takes so long that these may have more
_COMPARED = 3  # how many nodes are compared, one below the other, to find those that may be a chain
_WORK, _FEWEST_CHAINS = 10_000, 8  # nodes that are visited while chains are tried; this many are tried
_PERIODS = 2, 3  # of chains with several nodes in each piece, as the sums in each layer of a Transformer
_CHAINS_OF_PERIODS = 2  # chains that are tried with them

Output: TypeAlias = tuple[int, int]  # the place of a node in its piece, the number of an output
Place: TypeAlias = Mapping[Part, tuple[int, int]]  # the piece of a part, and its place there, -1 for the last one


class OperandSource(NamedTuple):
    """Where an operand is computed: in its piece or in the one before, by the node in this place."""

    inside: bool
    node: int
    number: int


@dataclass(frozen=True)
class Repeat:
    """Pieces that compute the same, each from the one before.

    `pieces`: the nodes of each, in the same order. `apart`: nodes that differ between pieces, and depend on none.
    `carried`: the outputs that the next piece reads; `initial`: what the first piece reads in their place. `own`: what
    pieces read of values of their own: for each such operand the variables of all pieces. `outputs`: what is read
    elsewhere, apart from what the last piece carries.
    """

    pieces: list[list[Node]]
    apart: list[Node]
    carried: list[Output]
    initial: list[Edge]
    own: list[tuple[Edge, ...]]
    outputs: list[Output]

    @property
    def rank(self) -> tuple[int, int]:
        """How it compares with others: that which carries least is best, of those the largest."""
        return -len(self.carried), len(self.pieces) * len(self.pieces[0])

    def variable(self, piece: int, output: Output) -> Edge:
        """An output of a piece."""
        node, number = output
        return self.pieces[piece][node].node_outputs[number]


def repeats(parts: Sequence[Part], outputs: Sequence[Edge], samples: int = 0) -> list[Part | Repeat]:
    """The parts in an order of computation, where repeated pieces are one item.

    `samples`: of the minibatch, in all steps. Where there is much to compile, each piece may have as many elements of
    weights of its own as it computes for these.
    """
    rest, ordered = list(parts), list[Part | Repeat]()
    while len(rest) >= LEAST_NODES and (found := _Search(rest, outputs, samples).best()) is not None:
        before, repeat = found
        ordered += [*before, repeat]
        done = {*before, *repeat.apart, *(node for piece in repeat.pieces for node in piece)}
        rest = [part for part in rest if part not in done]
    return [*ordered, *rest]


class _Search:
    """The search for the repeat of a plan's parts that carries least."""

    def __init__(self, parts: Sequence[Part], outputs: Sequence[Edge], samples: int) -> None:
        self.parts, self.requested, self.samples = parts, frozenset(outputs), samples
        self.describe = describing()
        self.maker = {v: part for part in parts for v in all_outputs_of(part)}
        self.operands = {part: list(map(resolve, part.node_inputs)) for part in parts if not isinstance(part, Loop)}
        self.structure = {node: self._structure(node) for node in self.operands}
        self.readers: dict[Edge, list[Part]] = {}
        for part in parts:
            for v in dict.fromkeys(inputs_of(part)):
                self.readers.setdefault(v, []).append(part)

    def _structure(self, node: Node) -> Hashable:
        """What a node computes from operands of whatever kind; nothing is like a node that has effects."""
        if not _is_pure(node):
            return id(node)
        return node_structure(node, dict.fromkeys(self.operands[node]), self.describe)

    def best(self) -> tuple[list[Part], Repeat] | None:
        """A repeat, and the parts to compute before it."""
        chains = sorted(self._chains(), key=self._readers_of, reverse=True)
        best = self._best_of(chains[: max(_FEWEST_CHAINS, _WORK // len(self.parts))])
        if best is None:
            few = chains[:_CHAINS_OF_PERIODS]
            best = self._best_of(chain[i::period] for period in _PERIODS for chain in few for i in range(period))
        return best

    def _best_of(self, chains: Iterable[Sequence[Node]]) -> tuple[list[Part], Repeat] | None:
        """Of the repeats along these chains the one that carries least, and of those the longest."""
        best: tuple[list[Part], Repeat] | None = None
        for chain in chains:
            found = self._repeat(chain)
            if found is not None and (best is None or found[1].rank > best[1].rank):
                best = found
            if best is not None and len(best[1].carried) == 1 and len(best[1].pieces) >= len(chain) - 1:
                break
        return best

    def _chains(self) -> list[tuple[Node, ...]]:
        """Groups of nodes that may be a chain, in order: those that are equal, with what they read, down to a depth."""
        numbers: dict[Hashable, int] = {}
        labels: dict[Part, Hashable] = {n: numbers.setdefault(s, len(numbers)) for n, s in self.structure.items()}
        groups: dict[tuple[int, Hashable], list[Node]] = {}
        for depth in range(_COMPARED):
            numbers = {}
            labels = {
                node: numbers.setdefault((labels[node], *(self._label(v, labels) for v in operands)), len(numbers))
                for node, operands in self.operands.items()
            }
            for node, label in labels.items():
                groups.setdefault((depth, label), []).append(node)  # type: ignore[arg-type]
        distinct = dict.fromkeys(tuple(group) for group in groups.values() if len(group) >= LEAST_PIECES)
        return list(distinct)

    def _readers_of(self, chain: Sequence[Node]) -> int:
        """How many parts read a node in the middle of a chain: most read what is carried from piece to piece."""
        return sum(len(self.readers.get(v, ())) for v in chain[len(chain) // 2].node_outputs)

    def _label(self, v: Edge, labels: Mapping[Part, Hashable]) -> Hashable:
        """Parameters are told apart, as those of the gates in a cell; constants are not, as each piece has its own."""
        maker = self.maker.get(v)
        if maker is None:
            return v if v.is_parameter else self.describe(v)
        return labels.get(maker, id(maker))

    def _repeat(self, chain: Sequence[Node]) -> tuple[list[Part], Repeat] | None:
        """The longest run of equal pieces along a chain, and all that is computed before."""
        pieces = self._pieces(chain)
        begin, end = _longest_run([len(piece) for piece in pieces])
        if end - begin < LEAST_PIECES:
            return None
        # Counted from the end: the first piece may begin with nodes that the others do not have.
        place = {node: (i, k - len(piece)) for i, piece in enumerate(pieces) for k, node in enumerate(piece)}
        forms = [self._form(i, piece, place) if i else None for i, piece in enumerate(pieces)]
        begin, end = _longest_run(forms)
        if end - begin < LEAST_PIECES or (end - begin) * len(pieces[begin]) < LEAST_NODES:
            return None
        repeat = self._described(pieces, begin, end, place)
        before = [part for piece in pieces[:begin] for part in piece]
        return None if repeat is None else (before, repeat)

    def _pieces(self, chain: Sequence[Node]) -> list[list[Part]]:
        """For each node of a chain what it depends on and those before do not, in an order that follows operands."""
        visited: set[Part] = set()
        return [piece for node in chain if (piece := list(self._new_ancestors(node, visited)))]

    def _new_ancestors(self, node: Part, visited: set[Part]) -> Iterator[Part]:
        waiting: list[tuple[Part, Iterator[Edge]]] = []

        def enter(part: Part) -> None:
            if part not in visited:
                visited.add(part)
                waiting.append((part, iter(dict.fromkeys(inputs_of(part)))))

        enter(node)
        while waiting:
            maker = next((m for v in waiting[-1][1] if (m := self.maker.get(v)) is not None and m not in visited), None)
            if maker is not None:
                enter(maker)
            else:
                yield waiting.pop()[0]

    def _form(self, number: int, piece: Sequence[Part], place: Place) -> Hashable:
        """What is equal for pieces that compute the same, but for nodes that depend on none before."""
        form: list[Hashable] = []
        free: set[Part] = set()
        for node in piece:
            if isinstance(node, Loop) or not _is_pure(node):
                return number
            sources = [self._source(v, number, place) for v in self.operands[node]]
            makers = [self.maker.get(v) for v in self.operands[node]]
            is_free = all(s is None or m in free for s, m in zip(sources, makers, strict=True))
            if is_free:
                free.add(node)
            shapes = tuple(map(self.describe, node.node_outputs))
            form.append((tuple(sources), (node.primitive.name, shapes) if is_free else self.structure[node]))
        return tuple(form)

    def _source(self, v: Edge, number: int, place: Place) -> OperandSource | None:
        """Where an operand of a piece is computed; None if outside of it and of the piece before."""
        maker = self.maker.get(v)
        if maker is None or isinstance(maker, Loop) or place[maker][0] < number - 1:
            return None
        piece, node = place[maker]
        return OperandSource(piece == number, node, list(maker.node_outputs).index(v))

    def _described(
        self, all_pieces: Sequence[Sequence[Part]], begin: int, end: int, place: Place
    ) -> Repeat | None:
        """The repeat of a run of pieces; None if they need more than `Repeat` can say."""
        pieces: list[list[Node]] = [list(piece) for piece in all_pieces[begin:end]]  # type: ignore[arg-type]
        apart = self._apart(pieces, place)
        repeated = [k for k in _places(pieces[0]) if k not in apart]
        carried, own = self._entering(pieces, apart, begin, place)
        inside = {piece[k] for piece in pieces for k in repeated}
        far = any(self.maker.get(v) in inside for variables in own for v in variables)  # from a piece long before
        if not carried or far or not apart.isdisjoint(k for k, _ in carried) or not self._is_small(own, pieces):
            return None
        outputs = [
            (k, i) for k in repeated for i in range(len(pieces[0][k].node_outputs))
            if self._is_read([p[k].node_outputs[i] for p in (pieces[:-1] if (k, i) in carried else pieces)], inside)
        ]
        number = {k: i for i, k in enumerate(repeated)}
        return Repeat(
            [[piece[k] for k in repeated] for piece in pieces], [piece[k] for piece in pieces for k in sorted(apart)],
            [(number[k], i) for k, i in carried], list(carried.values()), own, [(number[k], i) for k, i in outputs],
        )

    def _entering(
        self, pieces: Sequence[Sequence[Node]], apart: set[int], begin: int, place: Place
    ) -> tuple[dict[Output, Edge], list[tuple[Edge, ...]]]:
        """What pieces read of the ones before, with what the first one reads there, and of values of their own."""
        carried: dict[Output, Edge] = {}
        own: dict[tuple[Edge, ...], None] = {}
        for k, nodes in zip(_places(pieces[0]), zip(*pieces, strict=True), strict=True):
            for variables in [] if k in apart else zip(*(self.operands[node] for node in nodes), strict=True):
                source = self._source(variables[0], begin, place)
                if source is None or (source.inside and source.node in apart):
                    own |= {variables: None} if len(set(variables)) > 1 else {}
                elif not source.inside:
                    carried[source.node, source.number] = variables[0]
        return carried, list(own)

    def _apart(self, pieces: Sequence[Sequence[Node]], place: Place) -> set[int]:
        """The places of nodes that differ between pieces, and of what these read in their piece."""
        kinds = [len({self.structure[n] for n in nodes}) for nodes in zip(*pieces, strict=True)]
        apart = {k for k in _places(kinds) if kinds[k] > 1}
        members = set(pieces[0])
        for k in reversed(_places(kinds)):
            if k in apart:
                makers = [self.maker.get(v) for v in self.operands[pieces[0][k]]]
                apart |= {place[m][1] for m in makers if m in members}
        return apart

    def _is_small(self, own: Iterable[tuple[Edge, ...]], pieces: Sequence[Sequence[Node]]) -> bool:
        """Whether little is stacked of leaves that pieces have of their own; see `repeats`."""
        leaves = [variables[0] for variables in own if isinstance(variables[0], Leaf)]
        if not all(is_known(v.shape) for v in leaves):
            return False
        stacked = sum(prod(v.shape) for v in leaves)
        if stacked <= MOST_STACKED or len(pieces) * len(pieces[0]) < MANY_NODES:
            return stacked <= MOST_STACKED
        return stacked <= sum(self._elements(v) for node in pieces[0] for v in node.node_outputs)

    def _elements(self, v: Edge) -> int:
        """The elements of a value, in all samples; 0 if they are not known."""
        return prod(v.shape) * (self.samples if v.dynamic_axes else 1) if is_known(v.shape) else 0

    def _is_read(self, variables: Iterable[Edge], inside: set[Node]) -> bool:
        """Whether any is read elsewhere."""
        readers = (reader for v in variables for reader in self.readers.get(v, ()))
        return not self.requested.isdisjoint(variables) or any(reader not in inside for reader in readers)


def _places(piece: Sequence[object]) -> range:
    """The places of a piece's nodes; see `Place`."""
    return range(-len(piece), 0)


def _longest_run(forms: Sequence[Hashable]) -> tuple[int, int]:
    """Begin and end of the longest run of equal items."""
    best, begin = (0, 0), 0
    for i in range(1, len(forms) + 1):
        if i == len(forms) or forms[i] != forms[begin]:
            best = max(best, (begin, i), key=lambda run: run[1] - run[0])
            begin = i
    return best


def _is_pure(node: Node) -> bool:
    """True for nodes that only compute values of samples: no random numbers, state, Python code, or other axes."""
    p = node.primitive
    has_effects = p.calls_python or p.assigns_operand or p.recomputes_operands or p.running_operands != slice(0)
    axes = {axis for v in node.node_inputs for axis in v.dynamic_axes}
    changes_axes = p.delay or p.needs_exact_batch or any(set(v.dynamic_axes) - axes for v in node.node_outputs)
    return not has_effects and not changes_axes and "rngSeed" not in node.node_attributes


__all__ = ["Repeat", "repeats"]
