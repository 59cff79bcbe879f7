"""The graph that is ported: which blocks are opened, what uses each variable, and where nodes stand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..engine.plan.parts import resolve
from ..engine.plan.rewrite import rewritten
from ..formats.onnx.cell_forms import is_cell
from ..graph.function import Node, nodes, nodes_inside
from ..graph.names import parents_of
from ..graph.variable import Edge, Leaf, outside, producer
from ..primitives.fused import GRID_SLICE, SEQUENCE_FIRST
from .table import PRIMITIVES
from .tree import Library

LAYERS = {"Times", "TransposeTimes", "Convolution", "BatchNormalization"}  # they become layers if they have parameters


class Graph:
    """The whole model. A block is opened, unless it becomes a module or a layer, or one operation can replace it."""

    def __init__(self, model: Node, library: Library) -> None:
        self.library = library
        self.parents = parents_of(model.root_function)
        self.nodes = [n for n in self.parents if n.block_composite is None]
        self.opened: set[Node] = set()
        self.absorbed: set[Node] = set()  # additions that are part of a layer
        self._modules: dict[Node, bool] = {}
        self.users: defaultdict[Edge, list[Node]] = defaultdict(list)
        roots = [node for v in model.outputs if (node := producer(resolve(v, opened))) is not None]
        for node in nodes(roots, inputs=lambda n: [resolve(v, opened) for v in operands(n)]):
            for v in operands(node):
                self.users[resolve(v, opened)].append(node)
        for v in model.outputs:
            self.users[resolve(v, opened)].append(model)

    def expand(self, node: Node) -> Node:
        """The node that computes the outputs of a node: inside of a block that is opened."""
        is_closed = node not in self.opened and (is_cell(node) or self.is_module(node))
        return node if is_closed else opened(node)

    def is_module(self, block: Node) -> bool:
        """True for a block of several layers whose weights nothing else uses."""
        if block not in self._modules:
            self._modules[block] = block.block_composite is not None and self._has_own_layers(block)
        return self._modules[block]

    def _has_own_layers(self, block: Node) -> bool:
        inner = set(nodes_inside(block))
        if sum(is_layer(n) for n in inner) < 2:
            return False
        return not _parameters(inner) & _parameters(n for n in self.nodes if n not in inner)

    def label(self, node: Node, module: Node | None) -> str:
        """A name for what becomes of a node: that of the innermost block with one around it within a module."""
        around = []
        block = self.parents.get(node)
        while block is not None and block is not module:
            around.append(block)
            block = self.parents[block]
        return next((b.name for b in around if b.name), around[-1].op_name if around else "")


def opened(node: Node) -> Node:
    """The operation that can replace a block, or the node that computes its outputs; other nodes are themselves."""
    if node.block_composite is None and node.op_name != "GatherPacked":
        return node
    new = rewritten(node)
    if node.block_composite is None or new is node.block_composite.root_function or new.op_name in PRIMITIVES:
        return new
    return node.block_composite.root_function


def operands(node: Node) -> Sequence[Edge]:
    """The operands of a node that the port needs; those of a block are outside of it."""
    if node.block_composite is not None:
        return [operand for _, operand in node.block_map]
    return node.node_inputs[:1] if node.primitive in (SEQUENCE_FIRST, GRID_SLICE) else node.node_inputs


def is_layer(node: Node) -> bool:
    """True for a node that becomes a layer."""
    return node.op_name in LAYERS and any(isinstance(outside(v), Leaf) for v in node.node_inputs)


def _parameters(members: Iterable[Node]) -> set[Edge]:
    return {v for n in members for v in map(outside, n.node_inputs) if isinstance(v, Leaf) and v.is_parameter}


__all__ = ["Graph", "opened", "operands"]
