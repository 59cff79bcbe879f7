"""Strongly connected components of a graph, and the recurrent loops that they are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from ...graph.axis import Axis
from ...graph.errors import AxisError, explain
from ...graph.function import Node
from .parts import Loop, Part, operand_nodes

Vertex = TypeVar("Vertex", bound=Hashable)


def parts_of(
    roots: Sequence[Node], operands_of: Callable[[Node], Iterator[Node]] = operand_nodes
) -> list[Part]:
    """The nodes and loops that the roots are computed from, in the order of computation."""
    return [
        loop_of(component) if len(component) > 1 or component[0] in operand_nodes(component[0]) else component[0]
        for component in strongly_connected_components(roots, operands_of)
    ]


def strongly_connected_components(
    roots: Sequence[Vertex], operands_of: Callable[[Vertex], Iterator[Vertex]]
) -> Iterator[list[Vertex]]:
    """Strongly connected components, operands first (Tarjan, SIAM J. Computing 1(2), 1972), without recursion."""
    index: dict[Vertex, int] = {}
    low: dict[Vertex, int] = {}
    open_nodes: list[Vertex] = []
    is_open: set[Vertex] = set()
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
                    component = _pop_until(node, open_nodes)
                    is_open.difference_update(component)
                    yield component


def _pop_until(node: Vertex, stack: list[Vertex]) -> list[Vertex]:
    """Pop the nodes of a stack from this one on, in order."""
    first = len(stack) - 1
    while stack[first] is not node:
        first -= 1
    component = stack[first:]
    del stack[first:]
    return component


def loop_of(component: Sequence[Node]) -> Loop:
    """The loop that a strongly connected component is.

    Errors: ValueError for a cycle without a delay, with delays by no step, or with delays in both directions; AxisError
            for values along different sequence axes.
    """
    delays = [n for n in component if n.primitive.delay]
    outputs = {n: n.node_outputs[0] for n in component}
    if not delays:
        raise ValueError(explain(
            "the graph has a cycle without a delayed value in it", {"in": outputs[component[0]]},
            "close recurrent loops through cntk.sequence.past_value or future_value",
        ))
    if still := [n for n in delays if not n.node_attributes["offset"]]:
        raise ValueError(explain(
            "a delay in a recurrent loop goes by no step, so its value would depend on itself",
            {n.primitive.name: outputs[n] for n in still}, "give it a time_step of at least 1, or leave it out",
        ))
    if len(directions := {n.primitive.delay for n in delays}) > 1:
        raise ValueError(explain(
            "a recurrent loop looks both back and ahead, so there is no order in which to compute it",
            {n.primitive.name: outputs[n] for n in delays},
            "use past_value only or future_value only inside one loop",
        ))
    axes: set[Axis | None] = {v.sequence_axis for v in outputs.values()}
    axis = next(iter(axes))
    if len(axes) > 1 or axis is None:
        nowhere = axes == {None}
        raise AxisError(explain(
            "no value in a recurrent loop has a sequence axis along which it could run" if nowhere else
            "the values in a recurrent loop do not all have the same sequence axis",
            {n.primitive.name: outputs[n] for n in component},
            "let a step use a value of a sequence" if nowhere else
            "inside a loop, use only values with the sequence axis along which it runs",
        ))
    return Loop(delays, _order_in_step(component, delays), axis, reverse=directions == {1})


def _order_in_step(component: Sequence[Node], delays: Sequence[Node]) -> list[Node]:
    """The nodes other than the delays, with which a step begins, each after its operands (depth first).

    A cycle without a delay would never end here; that of a component that has one elsewhere takes a malformed graph.
    """
    nodes = set(component)
    order: list[Node] = []
    done = set(delays)
    for node in component:
        stack = [node] if node not in done else []
        while stack:
            top = stack[-1]
            waiting = [o for o in operand_nodes(top) if o in nodes and o not in done]
            if waiting and top not in done:
                stack.append(waiting[0])
                continue
            stack.pop()
            if top not in done:
                done.add(top)
                order.append(top)
    return order
