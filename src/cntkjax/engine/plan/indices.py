"""Where indices come from: those that are fed, or constants, are checked before a program runs.

Other indices, which the program computes, are checked in the program: they select NaN if they are out of range.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...graph.function import Node
from ...graph.variable import Edge, producer
from .parts import resolve

Range = tuple[int, slice]  # an axis, counted from the last (-1), and the part of it that is used


@dataclass(frozen=True)
class Indices:
    """An input or constant whose elements, in these ranges, are all used as indices into an axis of `size` elements."""

    node: Node
    source: Edge
    size: int
    ranges: tuple[Range, ...] = ()

    def of(self, samples: Any) -> Any:
        """The indices among samples of the source. Shapes: [..., *shape of the source] -> [..., *shape]."""
        for axis, part in self.ranges:
            samples = samples[(..., part, *(slice(None),) * (-axis - 1))]
        return samples


def indices_of(nodes: Iterable[Node], known: Collection[Edge]) -> list[Indices]:
    """The indices of nodes, as far as they are fed or constants, and the size of the axis is known.

    `known`: variables that are fed, although they are computed.
    """
    found: list[Indices] = []
    for node in nodes:
        size = node.primitive.index_limit(node)
        if size is not None:
            found += _sources(Indices(node, resolve(node.node_inputs[node.primitive.index_operand]), size), known)
    return found


def _sources(indices: Indices, known: Collection[Edge]) -> Iterator[Indices]:
    """The indices in terms of the inputs and constants that their elements come from, if these are not computed."""
    variable, node = indices.source, producer(indices.source)
    if node is None:
        if variable.is_input or variable.is_constant:
            yield indices
    elif variable not in known:
        for operand in map(resolve, node.node_inputs[node.primitive.rearranged_operands]):
            if not indices.ranges or operand.shape == variable.shape:
                yield from _sources(replace(indices, source=operand), known)
        part = node.primitive.static_slice(node)
        operand = resolve(node.node_inputs[0])
        if part is not None and part.stride > 0 and operand.shape[part.axis] > 0:
            begin = part.begin % operand.shape[part.axis]
            used = slice(begin, begin + part.stride * variable.shape[part.axis], part.stride)
            yield from _sources(replace(indices, source=operand, ranges=((part.axis, used), *indices.ranges)), known)


def are_in_range(indices: Edge, size: int) -> bool:
    """True if a variable has only indices from 0 to below `size`, whatever is fed, or is a constant.

    Of constants this is checked before each run.
    """
    indices = resolve(indices)
    node = producer(indices)
    if node is None:
        return indices.is_constant
    bound = node.primitive.index_bound(node, indices)
    if bound is not None:
        return bound <= size
    operands = node.node_inputs[node.primitive.rearranged_operands]
    return bool(operands) and all(are_in_range(v, size) for v in operands)


__all__ = ["Indices", "are_in_range", "indices_of"]
