"""Editing graphs: placeholders, clones, search."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from .axis import Axis
from .build import block_inputs, bound_arguments, composite, infer_all, make_block, note_edit
from .errors import AxisError, ShapeError, in_layer
from .function import Node, copied_attributes, leaves, native_inputs, nodes
from .public import classes
from .variable import Edge, Leaf, VariableKind, unknown
from .walk import walk


def replace_placeholders(function: Node, substitutions: Mapping[Edge, Edge]) -> None:
    """Replace placeholders in place, and infer the shapes that depend on them."""
    for node in nodes([function.root_function]):
        _move_values_inside(node, substitutions)
        node.node_inputs = [substitutions.get(v, v) for v in node.node_inputs]
        node.block_map = [(inner, substitutions.get(v, v)) for inner, v in node.block_map]
    note_edit()
    infer_all([function.root_function])


def _move_values_inside(node: Node, substitutions: Mapping[Edge, Edge]) -> None:
    """Let parameters and constants replace the arguments of a block: as in CNTK, their order is that inside."""
    inside = {i: substitutions[v] for i, v in node.block_map if v in substitutions and _is_value(substitutions[v])}
    if inside and node.block_composite is not None:
        replace_placeholders(node.block_composite, inside)
        node.block_map = [(inner, v) for inner, v in node.block_map if inner not in inside]
        node.node_inputs = block_inputs(node)


def copied_node(node: Node, inputs: Sequence[Edge]) -> Node:
    """A node like this one with other operands; that of a user's function is what its `clone` returns."""
    return node.primitive.copy(node, inputs)


class Cloner:
    """Copies a graph. Each node and leaf is copied once, so shared ones stay shared.

    `leaf`, `copy`: what makes the copies of leaves and of nodes other than blocks.
    `replacements` maps each variable of the original to the one that replaces it in the copy.
    """

    def __init__(
        self, leaf: Callable[[Leaf], Edge], substitutions: Mapping[Edge, Edge],
        copy: Callable[[Node, Sequence[Edge]], Node] = copied_node,
    ) -> None:
        self._leaf, self._copy = leaf, copy
        self.replacements: dict[Edge, Edge] = dict(substitutions)
        self._nodes: dict[Node, Node] = {}
        self._new_axes: dict[Axis, Axis] = {}  # those of the copies, for axes that nodes of the original make
        self._loops: dict[Edge, Edge] = {}  # placeholders for outputs that a cycle uses before they are copied

    def graph(self, function: Node) -> Node:
        """The copy of a composite. As in CNTK, its parameters are created in the order of the function's own."""
        root = function.root_function
        for leaf in leaves(root, self._followed):
            if isinstance(leaf, Leaf):
                self._variable(leaf)
        for node in nodes([root], cut=dict(self.replacements), inputs=self._operands):
            self._node(node)
        if self._loops:
            copy = composite(self._copy_of(root), function._name)
            outputs = {placeholder: self.replacements[old] for old, placeholder in self._loops.items()}
            self._loops.clear()
            replace_placeholders(copy, outputs)
            return copy
        return composite(self._copy_of(root), function._name)

    def _copy_of(self, root: Node) -> Node:
        if root in self._nodes:
            return self._nodes[root]
        owner = self.replacements[root.node_outputs[0]]._owner
        if owner is None:
            raise ValueError(f"the output of the function itself is substituted by {owner!r}: nothing remains to clone")
        return owner

    def _operand(self, node: Node, variable: Edge) -> Edge:
        """The variable whose copy becomes the operand of the node's copy."""
        return variable

    def _operands(self, node: Node) -> list[Edge]:
        return [self._operand(node, v) for v in node.node_inputs]

    def _followed(self, node: Node) -> list[Edge]:
        """The operands, in CNTK's own order, that nothing replaces."""
        return [v for v in (self._operand(node, v) for v in native_inputs(node)) if v not in self.replacements]

    def _variable(self, variable: Edge) -> Edge:
        copy = self.replacements.get(variable)
        if copy is not None:
            return copy
        if isinstance(variable, Leaf):
            copy = self.replacements[variable] = self._leaf(variable)
            return copy
        if variable._owner is not None:  # not copied yet: the loop is closed here
            # Its axes and type may differ in the copy.
            placeholder = classes.variable(VariableKind.Placeholder, *unknown(), name=variable.name)
            return self._loops.setdefault(variable, placeholder)
        copy = self.replacements[variable] = classes.variable(
            variable._kind, variable.shape, variable.dtype,
            tuple(self._new_axes.get(axis, axis) for axis in variable.dynamic_axes), name=variable.name,
            is_sparse=variable.is_sparse, needs_gradient=variable.needs_gradient,
        )
        return copy

    def _node(self, node: Node) -> None:
        if not node.primitive.passes_through and all(v in self.replacements for v in node.node_outputs):
            return
        try:
            copy = self._copied(node)
        except (ShapeError, AxisError) as error:
            raise in_layer(error, node._layer) from None
        copy._layer = node._layer
        self._nodes[node] = copy
        if not node.primitive.passes_through:
            for old, new in zip(node.node_outputs, copy.node_outputs, strict=True):
                new._name = old._name or new._name  # its node may have been named since
                self.replacements[old] = new
            self._note_new_axes(node, copy)

    def _note_new_axes(self, node: Node, copy: Node) -> None:
        """Note the axes that a node makes, so that inputs which are fed along them follow."""
        known = {axis for v in node.node_inputs for axis in v.dynamic_axes}
        for old, new in zip(node.node_outputs, copy.node_outputs, strict=True):
            if len(old.dynamic_axes) == len(new.dynamic_axes):
                self._new_axes |= {
                    a: b for a, b in zip(old.dynamic_axes, new.dynamic_axes, strict=True) if a not in known
                }

    def _copied(self, node: Node) -> Node:
        if node.block_composite is None:
            inputs = [self._variable(v) for v in self._operands(node)]
            return self._copy(node, inputs)
        # The block's arguments are new in each copy; leaves inside are shared with the enclosing graph.
        inside = Cloner(self._leaf, {
            v: self._variable(self._operand(node, v)) for v in node.node_inputs if isinstance(v, Leaf)
        }, self._copy)
        block_map = []
        for inner, outer in node.block_map:
            operand = self._variable(self._operand(node, outer))
            if _is_value(operand) and not _is_value(outer):  # it goes inside, which decides on the order of parameters
                inside.replacements[inner] = operand
            else:
                block_map.append((inside._variable(inner), operand))
        # They are bound first: a loop inside is inferred as it is copied, and would keep the axes of the old operands.
        with bound_arguments(block_map, node.block_name, node._name):
            body = inside.graph(node.block_composite)
        return make_block(body, block_map, node.block_name, node._name, copied_attributes(node))


def _is_value(variable: Edge) -> bool:
    return variable.is_parameter or variable.is_constant


class SubstitutingCloner(Cloner):
    """Copies a graph with substitutes for some of its variables, which may be computed from the graph itself.

    A substitute that depends on anything that is copied is copied too, and depends on the copies: for
    ``{x: past_value(f)}`` the copy of f is a loop. Where it uses the variable that it replaces, it uses that
    variable's copy. Other substitutes are used directly. `shares_leaves` says that `leaf` returns its argument.
    """

    def __init__(
        self, function: Node, leaf: Callable[[Leaf], Edge], shares_leaves: bool,
        substitutes: Mapping[Edge, Edge],
    ) -> None:
        self._graph, self._substitutes = set(nodes([function.root_function])), substitutes
        roots = [v._owner for v in function.outputs if v not in substitutes and v._owner is not None]
        copied = {
            v for v in _dependencies(roots, substitutes)
            if v not in substitutes and not (shares_leaves and isinstance(v, Leaf))
        }
        super().__init__(leaf, {
            v: v for v in substitutes.values()
            if v not in copied and (v._owner is None or copied.isdisjoint(_dependencies([v._owner])))
        })

    def _operand(self, node: Node, variable: Edge) -> Edge:
        return self._substitutes.get(variable, variable) if node in self._graph else variable


def _dependencies(roots: Sequence[Node], cut: Container[Edge] = frozenset()) -> Iterator[Edge]:
    """The outputs of the roots and all variables that they depend on, not followed beyond those in `cut`."""
    for node in nodes(roots, cut=cut):
        yield from node.node_outputs
        yield from node.node_inputs


class Flattener(Cloner):
    """Copies a graph without its blocks: the nodes inside them become nodes of the graph itself."""

    def _node(self, node: Node) -> None:
        body = node.block_composite
        if body is None:
            super()._node(node)
            return
        for inner, outer in node.block_map:
            self.replacements[inner] = self._variable(outer)
        for inside in nodes([body.root_function], cut=dict(self.replacements)):
            self._node(inside)
        for old, inner in zip(node.node_outputs, body.outputs, strict=True):
            self.replacements[old] = self._variable(inner)
        self._nodes[node] = self._copy_of(body.root_function)


def find_all(function: Node, name: str | None, depth: int = 0) -> list[Node | Edge]:
    """Functions and leaf variables of that name (None has none), in blocks up to `depth` deep (-1: all)."""
    return [node for node in walk(function, depth) if (node.name if isinstance(node, Edge) else node._name) == name]
