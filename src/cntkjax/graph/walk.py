"""Traversal of a graph from its outputs to its leaves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from .function import Node
from .variable import Edge


def walk(root: Node, depth: int = 0) -> Iterator[Node | Edge]:
    """Primitives, blocks and leaves below the root, each once: a node, then its operands in order, as in CNTK.

    Up to `depth` blocks are entered on the path to a node (-1: all); the nodes inside follow those around the block. A
    traversal that starts inside a block ends at the block's arguments.
    """
    entered: dict[Edge, Edge] = {}  # arguments of the entered blocks, and the operands bound to them
    waiting: deque[tuple[Node | Edge, int]] = deque([(root.root_function, depth)])
    seen: set[Node | Edge] = set()
    while waiting:
        node, below = waiting.popleft()
        if isinstance(node, Edge):
            while node in entered:
                node = entered[node]
            node = source_of(node)
        if node in seen:
            continue
        seen.add(node)
        yield node
        if isinstance(node, Edge):
            continue
        if node.block_composite is not None and below != 0:
            entered.update(node.block_map)
            waiting.extend((operand, below - 1) for _, operand in node.block_map)
            waiting.append((node.block_composite.root_function, below - 1))
        else:
            waiting.extendleft((operand, below) for operand in reversed(node.node_inputs))


def source_of(variable: Edge) -> Node | Edge:
    """The node that computes the variable, or the leaf itself."""
    return variable if variable._owner is None else variable._owner
