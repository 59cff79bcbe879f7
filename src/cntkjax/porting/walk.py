"""From a graph to modules: blocks of several layers become modules, other blocks are written in place."""

from __future__ import annotations

import builtins
import keyword
import unicodedata
from collections import ChainMap
from collections.abc import Iterable, Iterator, MutableMapping, Sequence

import numpy as np

from ..engine.plan.components import strongly_connected_components
from ..graph.axis import Axis
from ..graph.function import Node
from ..graph.names import numbered
from ..graph.shape import Shape
from ..graph.variable import Edge, Leaf, block_operand, outside, producer, value_of
from .graph import Graph, operands
from .loops import is_loop, recurrence
from .table import PRIMITIVES
from .tree import Expression, Layer, Library, Module, Op, Statement, member, refuse

_RESERVED = {*keyword.kwlist, *dir(builtins), "self", "np", "nn", "torch", "jnp", "nnx", "jax", "keras", "ops", "F"}


def identifier(text: str, default: str = "x") -> str:
    """The text as a Python identifier in lower case.

    >>> identifier("Conv2D.first"), identifier("3"), identifier("")
    ('conv2d_first', 'x_3', 'x')
    >>> identifier("Слой-1"), identifier("σ²")
    ('слой_1', 'σ2')
    """
    characters = unicodedata.normalize("NFKC", text.lower())  # as Python does, so that equal names are seen to be equal
    words = "".join(c if f"x{c}".isidentifier() else " " for c in characters).split()
    name = "_".join(words).strip("_")
    name = name if name[:1].isalpha() else f"{default}_{name}".rstrip("_")
    return f"{name}_" if name in _RESERVED else name


def names_of(arguments: Sequence[Edge], taken: Iterable[str]) -> tuple[list[str], dict[Axis, str]]:
    """Names for the arguments of a model, and for the lengths along their sequence axes.

    `taken`: those of functions in the source.
    """
    names: list[str] = []
    for v in arguments:
        names.append(numbered(identifier(v.name), {*names, *taken}))
    axes: dict[Axis, str] = {}
    for v, name in zip(arguments, names, strict=True):
        if v.sequence_axis is not None:
            axes.setdefault(v.sequence_axis, f"{name}_lengths")
    single = dict.fromkeys(axes, "lengths")
    return names, {k: numbered(name, {*names, *taken}) for k, name in (single if len(axes) == 1 else axes).items()}


def describe(model: Node, library: Library) -> Module:
    """The module of a model; its arguments are those of the model, then the lengths of their sequences.

    Along a sequence axis that the model creates, the lengths are results.
    Errors: PortError naming a node for which there is no counterpart.
    """
    module = Module("model")
    body = Body(module, Graph(model, library))
    names, lengths = names_of(model.arguments, library.helpers)
    body.take(model.arguments, names)
    module.signatures = [(_dimensions(v), np.dtype(v.dtype).name) for v in model.arguments]
    for axis, name in lengths.items():
        body.axes[axis] = name
        body.locals.add(name)
        module.arguments.append(name)
        module.signatures.append(((None,), "int32"))
    body.compute(model.outputs)
    created = dict.fromkeys(v.sequence_axis for v in model.outputs if v.sequence_axis not in (None, *lengths))
    module.results = [*map(body.value, model.outputs), *(body.lengths(axis) for axis in created if axis)]
    return module


def _dimensions(argument: Edge) -> tuple[int | None, ...]:
    return (*[None] * len(argument.dynamic_axes), *(d if d >= 0 else None for d in argument.shape))


class Body:
    """What is being described, a module or a step inside of one, and the expressions of the variables in it."""

    def __init__(self, module: Module, graph: Graph, block: Node | None = None) -> None:
        self.module, self.graph, self.block = module, graph, block
        self.statements: list[Statement] = module.body
        self.values: MutableMapping[Edge, Expression] = {}
        self.axes: dict[Axis, Expression] = {}  # the lengths along sequence axes
        self.leaves: dict[Leaf, str] = {}
        self.layers: dict[str, str] = {}  # by the leaves and options
        self.locals: set[str] = set(graph.library.helpers)
        self.step_axis: Axis | None = None  # along which this is one step
        self.around: Body | None = None  # what gives lengths that are asked for
        self.requested: list[Axis] = []

    def step(self, axis: Axis, statements: list[Statement]) -> Body:
        """The body of one step along an axis, which uses what this one has."""
        inner = Body(self.module, self.graph, self.block)
        inner.statements, inner.step_axis, inner.around = statements, axis, self
        inner.values = ChainMap({}, self.values)
        inner.axes, inner.leaves, inner.layers, inner.locals = self.axes, self.leaves, self.layers, self.locals
        return inner

    def take(self, variables: Iterable[Edge], names: Sequence[str] = ()) -> None:
        """Make these variables the arguments of the module."""
        for i, v in enumerate(variables):
            name = names[i] if names else self.local(v.name)
            self.values[v] = name
            self.locals.add(name)
            self.module.arguments.append(name)

    # ---- nodes
    def compute(self, variables: Iterable[Edge]) -> None:
        """Describe what computes these variables."""
        roots = list(self._producers(variables))
        for component in strongly_connected_components(roots, lambda n: self._producers(operands(n))):
            if is_loop(self, component):
                recurrence(self, component)
            elif component[0].block_composite is None:
                self._primitive(component[0])
            elif self.graph.is_module(component[0]):
                self._submodule(component[0])
            else:
                self.open([component[0]], component[0].node_outputs)

    def open(self, blocks: Iterable[Node], variables: Iterable[Edge]) -> None:
        """Compute variables from what is inside of blocks."""
        self.graph.opened.update(blocks)
        self.compute(variables)

    def _producers(self, variables: Iterable[Edge]) -> Iterator[Node]:
        for v in map(self.resolve, variables):
            node = producer(v)
            if node is not None and v not in self.values:
                yield node

    def resolve(self, variable: Edge) -> Edge:
        """The variable that has an expression, now or when its node is described."""
        while variable not in self.values:
            owner = producer(variable)
            if owner is not None and (node := self.graph.expand(owner)) is not owner:
                variable = node.node_outputs[owner.node_outputs.index(variable)]
            elif (operand := block_operand(variable)) is not None:
                variable = operand
            else:
                break
        return variable

    def _primitive(self, node: Node) -> None:
        row = PRIMITIVES.get(node.op_name)
        if row is None:
            raise refuse(node)
        results = row(self, node)
        for v, result in zip(node.node_outputs, results if isinstance(results, list) else [results], strict=True):
            self.values[v] = self.assigned(result, node)

    def assigned(self, value: Expression, node: Node) -> Expression:
        """The name of a local variable with this value; leaves, numbers and names stay as they are."""
        if isinstance(value, str) or (value.op in ("member", "scalar") and not value.operands):
            return value
        is_layer = value.op in ("member", "rnn", "embedding")
        name = self.local(value.options["name"] if is_layer else node.name or value.op)
        self.statements.append((name, value))
        return name

    def local(self, label: str) -> str:
        """A new name for a local variable."""
        name = numbered(identifier(label), self.locals)
        self.locals.add(name)
        return name

    def _submodule(self, block: Node) -> None:
        inside = block.block_composite
        assert inside is not None
        module = Module(identifier(block.op_name, "block"))
        body = Body(module, self.graph, block)
        body.step_axis, body.around = self.step_axis, self
        taken = [(a, o) for a, o in block.block_map if not isinstance(outside(o), Leaf)]
        body.take([a for a, _ in taken])
        body.compute(inside.outputs)
        module.results = [body.value(v) for v in inside.outputs]
        name = self.member_name(block.name or block.op_name, module)
        lengths = [self.lengths(axis) for axis in body.requested]
        result = self.assigned(member(name, *(self.value(o) for _, o in taken), *lengths), block)
        for i, v in enumerate(block.node_outputs):
            self.values[v] = result if len(block.node_outputs) == 1 else Op("item", (result,), {"index": i})

    # ---- for the rows of the table
    def lead(self, variable: Edge) -> int:
        """The number of dimensions before those of a sample."""
        axes = outside(variable).dynamic_axes
        return len(axes) - (self.step_axis in axes)

    def value(self, variable: Edge) -> Expression:
        """The expression of a variable that has been computed, or of a leaf."""
        source = self.resolve(variable)
        if isinstance(source, Leaf):
            return self._leaf(source)
        return self.values[source]

    def lengths(self, axis: Axis) -> Expression:
        """The lengths of the sequences along an axis, which a module gets as an argument."""
        if axis not in self.axes:
            if self.around is None:
                raise ValueError(f"the lengths of sequences along {axis} are not known where the source needs them")
            self.axes[axis] = self.local("lengths")
            self.module.arguments.append(str(self.axes[axis]))
            self.requested.append(axis)
        return self.axes[axis]

    def like(self, axis: Axis) -> Expression | None:
        """A sequence along an axis."""
        return next((e for v, e in self.values.items() if v.sequence_axis == axis and isinstance(e, str)), None)

    def _leaf(self, leaf: Leaf) -> Expression:
        array = np.asarray(value_of(leaf))
        if leaf.is_constant and array.size == 1:
            return Op("scalar", (), {"value": float(str(array.reshape(())))})
        if leaf not in self.leaves:
            options = {"shape": array.shape, "trainable": leaf.is_parameter}
            self.leaves[leaf] = self.member_name(leaf.name or leaf.uid, Layer("Array", options, {"": array}))
        return member(self.leaves[leaf])

    def member_name(self, label: str, value: Layer | Module) -> str:
        """Add a member to the module; returns its name."""
        name = numbered(identifier(label), {*self.module.members, *self.graph.library.reserved.split()})
        self.module.members[name] = value
        return name

    def layer(self, node: Node, leaves: Sequence[Leaf], layer: Layer) -> str:
        """Add a layer with these weights, unless the module has it already; returns its name."""
        key = f"{layer.kind} {layer.options} {[v.uid for v in leaves]}"
        if key not in self.layers:
            layer.node = node
            label = self.graph.label(node, self.block) or node.name
            kind = layer.kind if node.block_composite is None else node.op_name
            self.layers[key] = self.member_name(label or kind, layer)
        return self.layers[key]

    def bias_after(self, node: Node, shape: Shape) -> list[Leaf]:
        """The leaf of this shape, if any, that the only use of a node adds to its output: the layer takes it over."""
        output = node.node_outputs[0]
        match self.graph.users[output]:
            case [Node(op_name="Plus") as addition]:
                leaves = [v for v in map(outside, addition.node_inputs) if isinstance(v, Leaf)]
                if len(leaves) == 1 and leaves[0].shape == shape:
                    self.graph.absorbed.add(addition)
                    return leaves
        return []


__all__ = ["Body", "describe", "identifier", "names_of"]
