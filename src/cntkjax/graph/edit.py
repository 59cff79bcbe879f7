"""Editing graphs: placeholders, clones, search."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .build import composite, infer_all, make_block, note_edit
from .errors import AxisError, ShapeError, in_layer
from .function import Function, copied_attributes, nodes
from .public import classes
from .variable import Leaf, Variable, VariableKind, unknown
from .walk import walk


def replace_placeholders(function: Function, substitutions: Mapping[Variable, Variable]) -> None:
    """Put variables in the place of placeholders, in place, and infer what follows from it."""
    for node in nodes([function.root_function]):
        node.node_inputs = [substitutions.get(v, v) for v in node.node_inputs]
        node.block_map = [(inner, substitutions.get(v, v)) for inner, v in node.block_map]
    note_edit()
    infer_all([function.root_function])


class Cloner:
    """Copies a graph; what was copied once is copied once only, so that sharing inside the graph stays."""

    def __init__(self, leaf: Callable[[Leaf], Variable], substitutions: Mapping[Variable, Variable]) -> None:
        self._leaf = leaf
        self.made: dict[Variable, Variable] = dict(substitutions)  # original: what stands for it in the copy
        self._nodes: dict[Function, Function] = {}
        self._loops: dict[Variable, Variable] = {}  # stands for an output that a cycle needs before it is made

    def graph(self, function: Function) -> Function:
        """The copy of a composite."""
        root = function.root_function
        for node in nodes([root], cut=dict(self.made)):
            self._node(node)
        if self._loops:
            copy = composite(self._copy_of(root), function._name)
            closing = {stand_in: self.made[old] for old, stand_in in self._loops.items()}
            self._loops.clear()
            replace_placeholders(copy, closing)
            return copy
        return composite(self._copy_of(root), function._name)

    def _copy_of(self, root: Function) -> Function:
        if root in self._nodes:
            return self._nodes[root]
        owner = self.made[root.node_outputs[0]]._owner
        if owner is None:
            raise ValueError(f"the output of the function itself is substituted by {owner!r}: nothing is left to clone")
        return owner

    def _variable(self, variable: Variable) -> Variable:
        made = self.made.get(variable)
        if made is not None:
            return made
        if isinstance(variable, Leaf):
            made = self.made[variable] = self._leaf(variable)
            return made
        if variable._owner is not None:  # met before it was made: a loop closes here
            # Its axes and type may be others in the copy.
            stand_in = classes.variable(VariableKind.Placeholder, *unknown(), name=variable.name)
            return self._loops.setdefault(variable, stand_in)
        made = self.made[variable] = classes.variable(
            variable._kind, variable.shape, variable.dtype, variable.dynamic_axes, name=variable.name,
            is_sparse=variable.is_sparse, needs_gradient=variable.needs_gradient,
        )
        return made

    def _node(self, node: Function) -> None:
        if not node.primitive.passes_through and all(v in self.made for v in node.node_outputs):
            return
        try:
            copy = self._copied(node)
        except (ShapeError, AxisError) as error:
            raise in_layer(error, node._layer) from None
        copy._layer = node._layer
        self._nodes[node] = copy
        if not node.primitive.passes_through:
            for old, new in zip(node.node_outputs, copy.node_outputs, strict=True):
                new._name = old._name
                self.made[old] = new

    def _copied(self, node: Function) -> Function:
        if node.block_composite is None:
            inputs = [self._variable(v) for v in node.node_inputs]
            return node.primitive.copy(node, inputs)
        # A block's own arguments are copied anew for this copy; leaves inside are shared with the graph around it.
        operands = [(inner, self._variable(outer)) for inner, outer in node.block_map]
        inside = Cloner(self._leaf, {v: self._variable(v) for v in node.node_inputs if isinstance(v, Leaf)})
        body = inside.graph(node.block_composite)
        return make_block(
            body, [(inside._variable(inner), outer) for inner, outer in operands], node.block_name, node._name,
            copied_attributes(node),
        )


class Flattener(Cloner):
    """Copies a graph without its blocks: what was inside of them stands in the graph itself."""

    def _node(self, node: Function) -> None:
        body = node.block_composite
        if body is None:
            super()._node(node)
            return
        for inner, outer in node.block_map:
            self.made[inner] = self._variable(outer)
        for inside in nodes([body.root_function], cut=dict(self.made)):
            self._node(inside)
        for old, inner in zip(node.node_outputs, body.outputs, strict=True):
            self.made[old] = self._variable(inner)
        self._nodes[node] = self._copy_of(body.root_function)


def find_inside(block: Function, name: str) -> list[Function | Variable]:
    """Nodes and leaves of that name in the graph inside a block, without what stands for its arguments outside."""
    inside = nodes([block.root_function])
    leaves = (v for node in inside for v in node.node_inputs if v._owner is None and v._bound is None)
    found: list[Function | Variable] = [*inside, *leaves]
    return [f for f in dict.fromkeys(found) if f._name == name]


def find_all(function: Function, name: str, depth: int = 0) -> list[Function | Variable]:
    """Functions and leaf variables of that name, `depth` blocks deep (-1: all the way)."""
    return [node for node in walk(function, depth) if (node.name if isinstance(node, Variable) else node._name) == name]
