"""A graph made ready for lowering: blocks opened, loops found, everything in the order of computation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph.axis import Axis
from ...graph.build import edits
from ...graph.errors import AxisError, explain
from ...graph.function import CUSTOM, Function
from ...graph.shape import INFERRED, is_unknown
from ...graph.variable import Leaf, Variable
from .padding import padding_shows
from .rewrite import rewritten

if TYPE_CHECKING:
    from .partition import Stage


def resolve(variable: Variable) -> Variable:
    """The variable that really holds the data: through blocks inwards, through their arguments outwards.

    Of what is computed as a whole that is the output of the node that does it.
    """
    while True:
        owner = variable._owner
        if owner is not None and (node := rewritten(owner)) is not owner:
            variable = node.node_outputs[owner.node_outputs.index(variable)]
        elif variable._bound is not None:
            variable = variable._bound
        else:
            return variable


@dataclass(eq=False)
class Loop:
    """A strongly connected component: nodes in the order of one step, delays first.

    Or several that lead to one another, with what lies between them, which may stop once what the last delay gives is 0
    in all sequences: `apart` has what it is made of, in order (`early_exit.fuse_early_exit`).
    """

    delays: list[Function]
    nodes: list[Function]
    axis: Axis
    backwards: bool
    wanted: list[Variable] = field(default_factory=list)  # what is used outside the loop
    apart: list[Function | Loop] = field(default_factory=list)

    @cached_property
    def outputs(self) -> set[Variable]:
        """Everything that is computed in the loop."""
        return {v for node in (*self.delays, *self.nodes) for v in node.node_outputs}


Part = Function | Loop


def nodes_of(part: Part) -> Sequence[Function]:
    """The nodes of a part."""
    return (*part.delays, *part.nodes) if isinstance(part, Loop) else (part,)


def inputs_of(part: Part) -> list[Variable]:
    """What the nodes of a part compute from, those of a loop that they make themselves included."""
    return [resolve(v) for node in nodes_of(part) for v in node.node_inputs]


def outputs_of(part: Part) -> list[Variable]:
    """What a part computes; of a loop only what is used outside of it."""
    return part.wanted if isinstance(part, Loop) else list(part.node_outputs)


class Plan:
    """What is computed for some outputs, in order.

    `leaves`, `arguments` and `random` (nodes that draw numbers) are in order of appearance. Two graphs of the same
    structure have equal `key`s, and one compiled program serves both, given their leaves in this order. Variables that
    are `given` are arguments, though they could be computed.
    """

    def __init__(self, outputs: Sequence[Variable], given: Sequence[Variable] = ()) -> None:
        from .early_exit import fuse_early_exit  # it is about parts, which are defined here

        self.requested = tuple(outputs)  # kept alive, so that no other variable gets one of their ids
        self.outputs = [resolve(v) for v in outputs]
        self.given = frozenset(given)
        roots = [v._owner for v in self.outputs if v._owner is not None and v not in self.given]
        found_components = list(components(roots, self._operands if given else _operands))
        self.parts: list[Part] = [
            _loop(c) if len(c) > 1 or _feeds_itself(c[0]) else c[0] for c in found_components
        ]
        self.nodes = [node for part in self.parts for node in nodes_of(part)]
        found = dict.fromkeys(
            v for v in [*(resolve(i) for n in self.nodes for i in n.node_inputs), *self.outputs]
            if v._owner is None or v in self.given
        )
        self.leaves: list[Leaf] = [v for v in found if isinstance(v, Leaf)]
        self.arguments = [v for v in found if not isinstance(v, Leaf)]
        self.random = [n for n in self.nodes if "rngSeed" in n.node_attributes]
        self.edits = edits()
        self._check()
        whole, self.parts = self.parts, fuse_early_exit(self.parts, self.outputs)
        for part in dict.fromkeys([*whole, *self.parts]):
            if isinstance(part, Loop):
                inside = set(nodes_of(part))
                used = {resolve(v) for n in self.nodes if n not in inside for v in n.node_inputs} | set(self.outputs)
                part.wanted = [v for n in nodes_of(part) for v in n.node_outputs if v in used]

    def _operands(self, node: Function) -> Iterator[Function]:
        return (v._owner for v in map(resolve, node.node_inputs) if v._owner is not None and v not in self.given)

    def _check(self) -> None:
        for v in self.arguments:
            if v.is_placeholder:
                raise ValueError(explain(
                    f"placeholder {v.name or v.uid!r} has not been replaced, so there is nothing to compute from",
                    {"here": v}, "call the function with an argument, or use replace_placeholders",
                ))
        from_data = any(INFERRED in v.shape for v in self.arguments)  # their inferred dimensions come with the data
        for node in self.nodes:
            for v in node.node_outputs:
                if is_unknown(v.shape) or (INFERRED in v.shape and not from_data):
                    raise ValueError(explain(f"the shape of {v!r} is not known", {"node": v}))

    @cached_property
    def looked_up(self) -> frozenset[Leaf]:
        """Leaves of which only rows are chosen: right operands of products with sparse data, and nothing else."""
        return frozenset(self.weights_of(
            lambda node: node.op_name == "Times" and _is_made_sparse(resolve(node.node_inputs[0]))
        ))

    def weights_of(self, fits: Callable[[Function], bool]) -> dict[Leaf, list[Function]]:
        """Leaves that are second operands of such nodes outside of loops, and nothing else; with these nodes."""
        found: dict[Leaf, list[Function]] = {}
        elsewhere: set[Variable] = {*self.outputs, *self.assigned}
        inside = {n for part in self.parts if isinstance(part, Loop) for n in nodes_of(part)}
        for node in self.nodes:
            for place, v in enumerate(map(resolve, node.node_inputs)):
                if isinstance(v, Leaf) and place == 1 and node not in inside and fits(node):
                    found.setdefault(v, []).append(node)
                else:
                    elsewhere.add(v)
        return {v: nodes for v, nodes in found.items() if v not in elsewhere}

    @cached_property
    def delays(self) -> list[Function]:
        """Nodes that look back, into the minibatch before where a sequence is cut."""
        return [n for n in self.nodes if n.primitive.delay < 0]

    @cached_property
    def calls_python(self) -> bool:
        """True if it runs code of the user."""
        return any(n.primitive.calls_python for n in self.nodes)

    @cached_property
    def loop_axes(self) -> frozenset[Axis]:
        """Sequence axes along which there are loops."""
        return frozenset(part.axis for part in self.parts if isinstance(part, Loop))

    @cached_property
    def assigned(self) -> frozenset[Variable]:
        """Parameters and constants that `Assign` nodes write."""
        return frozenset(resolve(n.node_inputs[0]) for n in self.nodes if n.primitive.name == "Assign")

    @cached_property
    def whole_batch(self) -> bool:
        """True if the batch axis may not be padded."""
        return any(n.primitive.whole_batch for n in self.nodes)

    @cached_property
    def stages(self) -> list[Stage]:
        """What it is cut into for an evaluation with several batch sizes."""
        from .partition import stages_of

        return stages_of(self)

    @property
    def free_dimension_sizes(self) -> Hashable:
        """Sizes of free dimensions that users' functions have made last; another one is another program."""
        return tuple(n.primitive.free_dimension_sizes() for n in self.nodes if n.primitive.calls_python)

    @cached_property
    def equal_lengths(self) -> list[tuple[Variable, Variable]]:
        """Pairs of variables whose sequences have to be of equal lengths although their axes differ."""
        return self._on_other_axes("ReconcileDynamicAxis")

    @cached_property
    def equal_lengths_made(self) -> list[tuple[Variable, Variable]]:
        """Pairs of variables whose sequences have to be of equal lengths, which only the program knows."""
        return self._on_other_axes("ScatterPacked")

    def _on_other_axes(self, op: str) -> list[tuple[Variable, Variable]]:
        """The first two operands of such nodes, where both are sequences, over different axes."""
        found = [[resolve(v) for v in n.node_inputs[:2]] for n in self.nodes if n.primitive.name == op]
        return [(a, b) for a, b in found if a.sequence_axis and b.sequence_axis and a.sequence_axis != b.sequence_axis]

    @cached_property
    def unpacks(self) -> bool:
        """True if sequences become arrays: then each has to stand in a row of its own."""
        return any(n.primitive.name == "UnpackSequenceOp" for n in self.nodes)

    @cached_property
    def unpacked(self) -> frozenset[Axis]:
        """Axes of arguments whose sequences become arrays; all of them if arrays come of sequences that were made."""
        axes = {resolve(n.node_inputs[0]).sequence_axis for n in self.nodes if n.primitive.name == "UnpackSequenceOp"}
        given = frozenset(v.sequence_axis for v in self.arguments if v.sequence_axis is not None)
        return given & axes if given >= axes else given

    @cached_property
    def shows_longest(self) -> bool:
        """True if it can be seen how long these arrays are: not if they are only reduced, with neutral padding."""
        return padding_shows(((n, [resolve(v) for v in n.node_inputs]) for n in self.nodes), self.outputs)

    @cached_property
    def is_double(self) -> bool:
        """True if any value is double precision."""
        variables = (*self.leaves, *self.arguments, *(v for n in self.nodes for v in n.node_outputs))
        return any(v.dtype is np.float64 for v in variables)

    @cached_property
    def key(self) -> Hashable:
        """The structure: equal for graphs that compute the same from their leaves and arguments."""
        number: dict[Variable, Any] = {}
        axes: dict[Axis, int] = {}

        def describe(v: Variable) -> Hashable:
            numbered = tuple(
                axes.setdefault(a, len(axes)) if a.is_sequence_axis else a.name for a in v.dynamic_axes
            )
            return v.shape, v.dtype, numbered, v.is_sparse

        for kind, found in (("leaf", self.leaves), ("argument", self.arguments)):
            number.update({v: (kind, i) for i, v in enumerate(found)})
        number.update({v: (i, k) for i, n in enumerate(self.nodes) for k, v in enumerate(n.node_outputs)})
        return (
            tuple(describe(v) for v in (*self.leaves, *self.arguments)),
            tuple(
                (
                    n.primitive.name,
                    _frozen({k: v for k, v in n.node_attributes.items() if k not in _NOT_STRUCTURE}),
                    n.primitive.traits(n),
                    tuple(number[resolve(i)] for i in n.node_inputs),
                    tuple(describe(v) for v in n.node_outputs),
                )
                for n in self.nodes
            ),
            tuple(number[v] for v in self.outputs),
            self.shows_longest,  # for which the values of constants count
        )


# Random numbers are given to a program afresh, and axes are told apart by their place in the graph, not by name.
_NOT_STRUCTURE = ("rngSeed", "rngOffset", "newDynamicAxes", CUSTOM)


def _frozen(value: Any) -> Hashable:
    if isinstance(value, dict):
        return tuple(sorted((k, _frozen(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    return value


def _operands(node: Function) -> Iterator[Function]:
    for v in node.node_inputs:
        owner = resolve(v)._owner
        if owner is not None:
            yield owner


def _feeds_itself(node: Function) -> bool:
    return node in _operands(node)


def components(
    roots: Sequence[Function], operands_of: Callable[[Function], Iterator[Function]] = _operands
) -> Iterator[list[Function]]:
    """Strongly connected components, operands first (Tarjan, SIAM J. Computing 1(2), 1972), without recursion."""
    index: dict[Function, int] = {}
    low: dict[Function, int] = {}
    open_nodes: list[Function] = []
    is_open: set[Function] = set()
    for start in roots:
        if start in index:
            continue
        work = [(start, operands_of(start))]
        index[start] = low[start] = len(index)
        open_nodes.append(start)
        is_open.add(start)
        while work:
            node, operands = work[-1]
            for operand in operands:
                if operand not in index:
                    index[operand] = low[operand] = len(index)
                    open_nodes.append(operand)
                    is_open.add(operand)
                    work.append((operand, operands_of(operand)))
                    break
                if operand in is_open:
                    low[node] = min(low[node], index[operand])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = open_nodes.pop()
                        is_open.discard(member)
                        component.append(member)
                        if member is node:
                            break
                    yield component[::-1]


def _loop(component: Sequence[Function]) -> Loop:
    nodes = set(component)
    delays = [n for n in component if n.primitive.delay]
    inside = {n: n.node_outputs[0] for n in component}
    if not delays:
        raise ValueError(explain(
            "the graph has a cycle without a delayed value in it", {"in": inside[component[0]]},
            "close recurrent loops through cntk.sequence.past_value or future_value",
        ))
    directions = {n.primitive.delay for n in delays}
    axes = {n.node_outputs[0].sequence_axis for n in component}
    if len(directions) > 1:
        raise ValueError(explain(
            "a recurrent loop looks both back and ahead, so there is no order in which to compute it",
            {n.primitive.name: inside[n] for n in delays},
            "use past_value only or future_value only inside one loop",
        ))
    if len(axes) > 1 or None in axes:
        raise AxisError(explain(
            "the values in a recurrent loop do not all have the same sequence axis",
            {n.primitive.name: inside[n] for n in component},
            "only values with the sequence axis along which the loop runs may stand in it",
        ))
    order: list[Function] = []
    done = set(delays)
    for node in component:  # depth first, delays are where a step begins
        stack = [node] if node not in done else []
        while stack:
            top = stack[-1]
            waiting = [o for o in _operands(top) if o in nodes and o not in done]
            if waiting and top not in done:
                stack.append(waiting[0])
                continue
            stack.pop()
            if top not in done:
                done.add(top)
                order.append(top)
    axis = next(iter(axes))
    assert axis is not None
    # A cycle without a delay in it would have hung above; Tarjan's components rule that out except through bad graphs.
    return Loop(delays, order, axis, backwards=directions == {1})


def _is_made_sparse(v: Variable) -> bool:
    """True for sparse data, and for what is drawn or made one-hot as sparse samples."""
    if v.is_sparse or v._owner is None:
        return v.is_sparse
    return v._owner.op_name == "RandomSample" or bool(v._owner.node_attributes.get("oneHotOutputSparse"))
