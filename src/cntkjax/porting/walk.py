"""From a graph to modules: blocks of several layers become modules, other blocks are written in place."""

from __future__ import annotations

import keyword
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from ..engine.plan.parts import resolve
from ..graph.function import Function, nodes
from ..graph.names import numbered
from ..graph.shape import Shape
from ..graph.variable import Leaf, Variable, outside, producer, value_of
from .table import PRIMITIVES
from .tree import Call, Expression, Layer, Module, member, refuse

LAYERS = {"Times", "Convolution", "BatchNormalization"}  # primitives that become layers if they have parameters
_RESERVED = {*keyword.kwlist, "self", "lengths", "np", "nn", "torch", "jnp", "nnx", "jax", "F",
             "reshape_samples", "pool_max", "pool_mean"}  # libraries and helpers in the source


def identifier(text: str, default: str = "x") -> str:
    """The text as a Python identifier in lower case.

    >>> identifier("Conv2D.first"), identifier("3"), identifier("")
    ('conv2d_first', 'x_3', 'x')
    """
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()
    name = name if name[:1].isalpha() else f"{default}_{name}".rstrip("_")
    return f"{name}_" if name in _RESERVED else name


def expanded(node: Function) -> Function:
    """The node that computes the outputs of a block."""
    return node if node.block_composite is None else node.block_composite.root_function


def describe(model: Function, names: Sequence[str]) -> Module:
    """The module of a model, whose arguments get these names.

    Errors: PortError naming a node for which there is no counterpart.
    """
    module = Module("model")
    body = Body(module, Graph(model))
    body.take(model.arguments, names)
    body.add([model.root_function])
    module.results = [body.value(v) for v in model.outputs]
    return module


class Graph:
    """The whole model: its primitives, what uses each variable, and the additions that are part of a layer."""

    def __init__(self, model: Function) -> None:
        everything = nodes([model.root_function], into_blocks=True)
        self.primitives = [n for n in everything if n.block_composite is None]
        self.users: defaultdict[Variable, list[Function]] = defaultdict(list)
        for node in self.primitives:
            for v in node.node_inputs:
                self.users[resolve(v, expanded)].append(node)
        for v in model.outputs:
            self.users[resolve(v, expanded)].append(model)
        self.absorbed: set[Function] = set()


class Body:
    """The module that is being described, and the expressions of the variables in it."""

    def __init__(self, module: Module, graph: Graph) -> None:
        self.module, self.graph = module, graph
        self.values: dict[Variable, Expression] = {}
        self.leaves: dict[Leaf, str] = {}
        self.layers: dict[str, str] = {}  # by the leaves and options
        self.locals: set[str] = set()
        self.layer_name = ""  # of the innermost block around the node that is being described

    def take(self, variables: Iterable[Variable], names: Sequence[str] = ()) -> None:
        """Make these variables the arguments of the module."""
        for i, v in enumerate(variables):
            name = names[i] if names else numbered(identifier(v.name), self.locals)
            self.values[v] = name
            self.locals.add(name)
            self.module.arguments.append(name)

    # ---- nodes
    def add(self, roots: Sequence[Function]) -> None:
        """Describe the nodes that compute these."""
        for node in nodes(roots):
            if node.block_composite is None:
                self._primitive(node)
            elif self._is_module(node):
                self._submodule(node)
            else:
                self._in_place(node, node.block_composite)

    def _primitive(self, node: Function) -> None:
        row = PRIMITIVES.get(node.op_name)
        if row is None:
            raise refuse(node)
        results = row(self, node)
        for v, result in zip(node.node_outputs, results if isinstance(results, list) else [results], strict=True):
            self.values[v] = self._assigned(result, node)

    def _assigned(self, value: Expression, node: Function) -> Expression:
        """The name of a local variable with this value; leaves and names stay as they are."""
        if isinstance(value, str) or (value.op == "member" and not value.operands):
            return value
        label = value.options["name"] if value.op == "member" else identifier(node.name or value.op)
        name = numbered(label, self.locals)
        self.locals.add(name)
        self.module.body.append((name, value))
        return name

    def _in_place(self, block: Function, inside: Function) -> None:
        around, self.layer_name = self.layer_name, block.name or self.layer_name or block.op_name
        for argument, operand in block.block_map:
            if not isinstance(outside(operand), Leaf):
                self.values[argument] = self.value(operand)
        self.add([inside.root_function])
        for v, inner in zip(block.node_outputs, inside.outputs, strict=True):
            self.values[v] = self.value(inner)
        self.layer_name = around

    def _is_module(self, block: Function) -> bool:
        """True for a block of several layers whose weights nothing else uses."""
        inner = set(nodes([expanded(block)], into_blocks=True))
        if sum(is_layer(n) for n in inner) < 2:
            return False
        others = (n for n in self.graph.primitives if n not in inner)
        return not _leaves(inner) & _leaves(others)

    def _submodule(self, block: Function) -> None:
        inside = block.block_composite
        assert inside is not None
        module = Module(identifier(block.op_name, "block"))
        body = Body(module, self.graph)
        taken = [(a, o) for a, o in block.block_map if not isinstance(outside(o), Leaf)]
        body.take([a for a, _ in taken])
        body.add([inside.root_function])
        module.results = [body.value(v) for v in inside.outputs]
        name = self.member_name(block.name or block.op_name, module)
        call = member(name, *(self.value(o) for _, o in taken))
        result = self._assigned(call, block)
        for i, v in enumerate(block.node_outputs):
            self.values[v] = result if len(block.node_outputs) == 1 else Call("item", (result,), {"index": i})

    # ---- for the rows of the table
    def value(self, variable: Variable) -> Expression:
        """The expression of a variable that has been computed, or of a leaf."""
        source = outside(variable)
        if isinstance(source, Leaf):
            return self._leaf(source)
        if variable not in self.values:
            node = producer(source)
            raise refuse(node, f"{node.op_name} is part of a recurrent loop") if node else ValueError(f"{variable!r}")
        return self.values[variable]

    def _leaf(self, leaf: Leaf) -> Expression:
        array = np.asarray(value_of(leaf))
        if leaf.is_constant and array.size == 1:
            return Call("scalar", (), {"value": float(str(array.reshape(())))})
        if leaf not in self.leaves:
            options = {"shape": array.shape, "trainable": leaf.is_parameter}
            self.leaves[leaf] = self.member_name(leaf.name or leaf.uid, Layer("Array", options, {"": array}))
        return member(self.leaves[leaf])

    def member_name(self, label: str, value: Layer | Module) -> str:
        """Add a member to the module; returns its name."""
        name = numbered(identifier(label), self.module.members)
        self.module.members[name] = value
        return name

    def layer(self, node: Function, leaves: Sequence[Leaf], layer: Layer) -> str:
        """Add a layer with these weights, unless the module has it already; returns its name."""
        key = f"{layer.kind} {layer.options} {[v.uid for v in leaves]}"
        if key not in self.layers:
            self.layers[key] = self.member_name(self.layer_name or node.name or layer.kind, layer)
        return self.layers[key]

    def bias_after(self, node: Function, shape: Shape) -> list[Leaf]:
        """The leaf of this shape, if any, that the only use of a node adds to its output: the layer takes it over."""
        output = resolve(node.node_outputs[0], expanded)
        match self.graph.users[output]:
            case [Function(op_name="Plus") as addition]:
                added = [outside(v) for v in addition.node_inputs if resolve(v, expanded) is not output]
                if len(added) == 1 and isinstance(added[0], Leaf) and added[0].shape == shape:
                    self.graph.absorbed.add(addition)
                    return [added[0]]
        return []


def is_layer(node: Function) -> bool:
    """True for a node that becomes a layer."""
    return node.op_name in LAYERS and any(isinstance(outside(v), Leaf) for v in node.node_inputs)


def _leaves(members: Iterable[Function]) -> set[Variable]:
    return {v for n in members for v in map(outside, n.node_inputs) if isinstance(v, Leaf) and v.is_parameter}


__all__ = ["Body", "describe", "expanded", "identifier"]
