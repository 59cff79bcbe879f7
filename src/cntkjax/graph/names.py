"""Names that tell things apart: numbered ones, and dotted ones of what lies inside of blocks."""

from __future__ import annotations

from collections.abc import Container

from .function import Node, nodes
from .variable import Leaf


def numbered(name: str, taken: Container[str]) -> str:
    """The name, or the first of ``name_1``, ``name_2``, ... that is not taken.

    >>> numbered("W", {"W", "W_1"})
    'W_2'
    """
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def parents_of(root: Node) -> dict[Node, Node | None]:
    """All nodes, operands first, each with the innermost block that contains it."""
    parents: dict[Node, Node | None] = dict.fromkeys(nodes([root]))
    waiting = list(parents)
    while waiting:
        block = waiting.pop()
        if block.block_composite is not None:
            inside = [n for n in nodes([block.block_composite.root_function]) if n not in parents]
            parents.update(dict.fromkeys(inside, block))
            waiting += inside
    return {node: parents[node] for node in nodes([root], into_blocks=True)}


def paths_of(root: Node) -> dict[Node, str]:
    """The dotted names of the blocks around each node, its own included if it is one; "" outside of blocks.

    A block without a name has that of its operation; blocks of the same name side by side are numbered.

    >>> import cntkjax as C
    >>> model = C.layers.Sequential([C.layers.Dense(4, name="h"), C.layers.Dense(2), C.layers.Dense(2)])
    >>> list(dict.fromkeys(paths_of(model(C.input_variable(3)).root_function).values()))
    ['h', 'Dense', 'Dense_1']
    """
    parents = parents_of(root)
    labels: dict[Node | None, dict[str, Node]] = {}  # by the block around them
    own: dict[Node, str] = {}
    for node, parent in parents.items():
        if node.is_block:
            siblings = labels.setdefault(parent, {})
            own[node] = numbered(node.name or node.op_name, siblings)
            siblings[own[node]] = node

    def path(block: Node | None) -> str:
        return "" if block is None else ".".join(filter(None, (path(parents[block]), own[block])))

    return {node: path(node if node.is_block else parent) for node, parent in parents.items()}


def leaf_paths(root: Node) -> dict[Leaf, str]:
    """The path of the first operation that uses each parameter or constant."""
    found: dict[Leaf, str] = {}
    for node, path in paths_of(root).items():
        for leaf in node.node_inputs:
            if isinstance(leaf, Leaf):
                found.setdefault(leaf, path)
    return found


__all__ = ["leaf_paths", "numbered", "parents_of", "paths_of"]
