"""A graph as a script of the CNTK API. Each statement is run as it is written, so that layers can be compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from ..engine.plan.components import strongly_connected_components
from ..graph.axis import ALL_AXES, ALL_STATIC, BATCH, END_STATIC, SEQUENCE, Axis
from ..graph.function import Node, nodes, nodes_inside
from ..graph.names import numbered
from ..graph.variable import Edge, Leaf, outside, producer, value_of
from .likeness import Unlike, alike
from .tree import PortError, refuse
from .walk import identifier

Row = Callable[[Node, list[str]], Iterable[str]]  # from the operands' texts to calls that may be meant
CALLS: dict[str, Row] = {}  # by the name of an operation, or of a block that an operation makes
NAMED: set[str] = set()  # blocks of operations without options
LAYERS: dict[str, Row] = {}  # by the name of a layer's block
HEADER = "import cntk as C\nimport numpy as np"

_DELAYS = ("PastValue", "FutureValue")
_AXES = {
    ALL_AXES: "all_axes", ALL_STATIC: "all_static_axes", BATCH: "default_batch_axis",
    SEQUENCE: "default_dynamic_axis", END_STATIC: "end_static_axis",
}
_WRITTEN = 4  # elements of a constant that is written out


def rows(table: dict[str, Row], *names: str) -> Callable[[Row], Row]:
    """Decorator: register a function under these names."""

    def register(row: Row) -> Row:
        table.update(dict.fromkeys(names, row))
        return row

    return register


def call(path: str, *operands: str, **options: Any) -> str:
    """The text of a call; an option that is None or "" is left out.

    >>> call("reduce_sum", "x", axis=1, name="")
    'C.reduce_sum(x, axis=1)'
    """
    keywords = [f"{k}={text_of(v)}" for k, v in options.items() if v is not None and v != ""]
    return f"C.{path}({', '.join([*operands, *keywords])})"


def text_of(value: Any) -> str:
    """A value as an expression."""
    if isinstance(value, Axis):
        return f"C.Axis.{_AXES[value]}()" if value in _AXES else str(value.static_axis_index())
    if isinstance(value, type) and issubclass(value, np.generic):
        return f"np.{value.__name__}"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(text_of, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    return f'"{value}"' if type(value) is str and repr(value) == f"'{value}'" and '"' not in value else repr(value)


def shape_text(shape: Sequence[int]) -> str:
    """A shape as people write it: one size by itself."""
    return str(shape[0]) if len(shape) == 1 else text_of(tuple(shape))


class Code(str):
    """A text that is an expression already."""

    def __repr__(self) -> str:
        return str(self)


class Script:
    """The statements that build a model; `variables` has what they assign."""

    def __init__(self, model: Node) -> None:
        self.lines: list[str] = []
        self.variables: dict[str, Any] = {}
        exec(HEADER, self.variables)
        self.texts: dict[Edge, str] = {}
        self.axes: dict[Axis, str] = {}
        self.replaced: dict[Edge, Edge] = {}  # outputs of blocks that are written as operations of the same name
        self.trusted: set[str] = set()
        self.compared: list[tuple[Edge, Edge]] = []  # the operands of these
        self.users: defaultdict[Edge, set[Node]] = defaultdict(set)
        for node in nodes([model.root_function], into_blocks=True):
            for v in operands(node):
                self.users[outside(v)].add(node)
        for v in model.outputs:
            self.users[v].add(model)
        is_double = bool(model.parameters) and all(p.dtype == np.float64 for p in model.parameters)
        self.options = "C.default_options(dtype=np.float64)" if is_double else ""  # around all statements
        with self.value(self.options) if self.options else nullcontext():
            self.result = self._build(model)
        self.counterparts = self._compared(model)

    def _build(self, model: Node) -> str:
        """Write the whole graph; returns the name of what has its outputs."""
        for v in model.arguments:
            self.texts[v] = self._input(v)
        self.compute(model.outputs)
        if len(model.outputs) == 1 and producer(model.outputs[0]):  # a leaf is no function
            return self.text(model.outputs[0])
        return self.assign("outputs", f"C.combine([{', '.join(map(self.text, model.outputs))}])")

    def _compared(self, model: Node) -> dict[Edge, Edge]:
        try:
            outputs = zip(model.outputs, self.value(self.result).outputs, strict=True)
            return alike([*outputs, *self.compared], self.replaced)
        except Unlike as unlike:
            raise PortError(
                producer(unlike.variable) or unlike.variable, "no function of the public API makes this",
            ) from None

    # ---- statements
    def assign(self, label: str, text: str) -> str:
        """Add a statement that gives an expression a new name, which is returned."""
        name = numbered(identifier(label, "v"), {*self.variables, "weights"})
        line = f"{name} = {text}"
        exec(line, self.variables)
        self.lines.append(line)
        return name

    def run(self, statement: str) -> None:
        """Add another statement."""
        exec(statement, self.variables)
        self.lines.append(statement)

    def value(self, text: str) -> Any:
        """The value of an expression."""
        return eval(text, self.variables)

    # ---- leaves
    def text(self, variable: Edge) -> str:
        """The expression of a variable that has been computed, or of a leaf."""
        source = self._written(variable)
        if source not in self.texts:
            self.texts[source] = self._leaf(source)  # type: ignore[arg-type]
        return self.texts[source]

    def _input(self, v: Edge) -> str:
        dtype = None if v.dtype == np.float32 else np.dtype(v.dtype).type
        options: dict[str, Any] = {"dtype": dtype, "is_sparse": v.is_sparse or None, "name": v.name}
        if v.sequence_axis is None:
            axes = None if v.dynamic_axes else Code("[]")
            return self.assign(v.name or "x", call("input_variable", shape_text(v.shape), dynamic_axes=axes, **options))
        if v.sequence_axis != SEQUENCE:
            if v.sequence_axis not in self.axes:
                axis = call("Axis", repr(v.sequence_axis.name))
                self.axes[v.sequence_axis] = self.assign(f"{v.name}_axis", axis)
            options["sequence_axis"] = Code(self.axes[v.sequence_axis])
        return self.assign(v.name or "x", call("sequence.input_variable", shape_text(v.shape), **options))

    def _leaf(self, leaf: Leaf) -> str:
        dtype = None if leaf.dtype == np.float32 else np.dtype(leaf.dtype).type
        if leaf.is_parameter:
            text = call("parameter", shape_text(leaf.shape), dtype=dtype, name=leaf.name)
            return self.assign(leaf.name or "weights", text)
        array = np.asarray(value_of(leaf))
        if leaf.shape == () and not leaf.name:
            return repr(float(str(array)))
        if array.size <= _WRITTEN:
            return self.assign(leaf.name or "constant", call("constant", text_of(array.tolist()), dtype=dtype,
                                                             name=leaf.name))
        text = call("constant", "0", shape_text(leaf.shape), dtype=dtype, name=leaf.name)
        return self.assign(leaf.name or "constant", text)

    # ---- nodes
    def compute(self, variables: Iterable[Edge]) -> None:
        """Write what computes these variables."""
        roots = list(self._producers(variables))
        for component in strongly_connected_components(roots, lambda n: self._producers(operands(n))):
            node = component[0]
            if len(component) > 1 or node in self._producers(operands(node)):
                self._loop(component)
            else:
                self._node(node)

    def _producers(self, variables: Iterable[Edge]) -> Iterator[Node]:
        for v in map(self._written, variables):
            node = producer(v)
            if node is not None and v not in self.texts:
                yield node

    def _written(self, variable: Edge) -> Edge:
        """The variable itself, or what is bound to it, unless a name stands for it."""
        return variable if variable in self.texts else outside(variable)

    def _loop(self, component: Sequence[Node]) -> None:
        """Delays look back at placeholders, which are replaced when all is written."""
        members = _with_inner(component)
        if self._recurrence(component, members):
            return
        later: dict[Edge, str] = {}
        for v in (self._written(v) for n in component if _looks_back(n) for v in operands(n)):
            if producer(v) in members and v not in later:
                later[v] = self.texts[v] = self.assign(f"{v.name or 'later'}_", "C.placeholder()")
        self.compute([v for n in component for v in n.node_outputs if v not in later])
        for v in later:
            owner = producer(v)
            if self.texts[v] == later[v] and owner is not None:
                self._node(owner)
        pairs = ", ".join(f"{name}: {self._edge(self.texts[v])}" for v, name in later.items())
        self.run(f"C.combine([{', '.join(self.texts[v] for v in later)}]).replace_placeholders({{{pairs}}})")

    def _recurrence(self, component: Sequence[Node], members: set[Node]) -> bool:
        """Write a loop of one cell as the layer Recurrence, if it is one."""
        cells = [n for n in component if n.is_block]
        used = {v for n in component for v in n.node_outputs if self.users[v] - members}
        if len(cells) != 1 or used != {cells[0].node_outputs[0]} or cells[0].op_name not in LAYERS:
            return False
        x = operands(cells[0])[-1]
        if producer(self._written(x)) in members:
            return False
        for text in LAYERS[cells[0].op_name](cells[0], [self.text(x)]):
            cell, _, operand = text.rpartition("(")
            for backwards in (None, True):
                call_text = f"{call('layers.Recurrence', cell, go_backwards=backwards)}({operand}"
                if self._makes(call_text, cells[0].node_outputs[:1], [x], members):
                    self.texts[cells[0].node_outputs[0]] = self.assign(cells[0].name or cells[0].op_name, call_text)
                    return True
        return False

    def _makes(self, text: str, outputs: Sequence[Edge], given: Sequence[Edge], members: set[Node]) -> bool:
        """Whether a call makes these outputs of what is given, with leaves that only the members of a part use."""
        known = {v: new for v in given if (new := _variable(self.value(self.text(v)))) is not None}
        try:
            counterparts = alike(zip(outputs, self.value(text).outputs, strict=True), known)
        except (ValueError, TypeError):
            return False
        leaves = (v for v in counterparts if isinstance(v, Leaf) and v not in map(outside, known))
        return all(self.users[v] <= members for v in leaves if v.is_parameter or v.shape)

    def _edge(self, text: str) -> str:
        return text if ".outputs[" in text else f"{text}.output"

    def _node(self, node: Node) -> None:
        texts = [self.text(v) for v in operands(node)]
        if node.is_block:
            text = self._layer(node, texts) or self._operation(node, texts) or self._block(node)
        else:
            row = CALLS.get(node.op_name)
            if row is None:
                raise refuse(node)
            text = next(iter(row(node, texts)))
        name = self.assign(node.name or node.op_name.split("::")[-1], text)
        outputs = node.node_outputs
        if text in self.trusted:
            self.replaced[outputs[0]] = self.value(name).outputs[0]
        for i, v in enumerate(outputs):
            self.texts[v] = name if len(outputs) == 1 else f"{name}.outputs[{i}]"

    def _layer(self, block: Node, texts: list[str]) -> str:
        """The call that makes the same of the operands as a block does, if there is one."""
        row = LAYERS.get(block.op_name) or CALLS.get(block.op_name)
        inputs = operands(block)
        candidates, members = row(block, texts) if row is not None else (), _with_inner([block])
        return next((text for text in candidates if self._makes(text, block.node_outputs, inputs, members)), "")

    def _operation(self, block: Node, texts: list[str]) -> str:
        """The call of the operation that a block is named for, if its name says all: CNTK composes some in another way.
        """
        if block.op_name not in NAMED:
            return ""
        text = next(iter(CALLS[block.op_name](block, texts)))
        self.trusted.add(text)
        news = (_variable(self.value(x)) for x in texts)
        self.compared += ((old, new) for old, new in zip(operands(block), news, strict=True) if new is not None)
        return text

    def _block(self, block: Node) -> str:
        """The block with what is in it, written before."""
        composite = block.block_composite
        assert composite is not None
        pairs = []
        for argument, operand in block.block_map:
            outer = self.text(operand)
            self.texts[argument] = self.assign(argument.name or "x", call("placeholder", name=argument.name))
            pairs.append(f"({self.texts[argument]}, {outer})")
        self.compute(composite.outputs)
        results = [self.text(v) for v in composite.outputs]
        result = results[0] if len(results) == 1 else f"C.combine([{', '.join(results)}])"
        return call("as_block", result, f"[{', '.join(pairs)}]", text_of(block.op_name), text_of(block.name))


def _with_inner(members: Iterable[Node]) -> set[Node]:
    """Nodes, with those inside of blocks."""
    return {m for n in members for m in (n, *nodes_inside(n))}


def _looks_back(node: Node) -> bool:
    """True for a delay, and a block with one inside."""
    return any(n.op_name in _DELAYS for n in nodes_inside(node) or [node])


def operands(node: Node) -> Sequence[Edge]:
    """The operands of a node; those of a block are outside of it."""
    return [operand for _, operand in node.block_map] if node.is_block else node.node_inputs


def _variable(value: Any) -> Edge | None:
    """The variable that a text stands for; None for a number."""
    if isinstance(value, Edge):
        return value
    return value.outputs[0] if isinstance(value, Node) else None


__all__ = ["CALLS", "HEADER", "LAYERS", "NAMED", "Code", "Script", "call", "operands", "rows", "shape_text", "text_of"]
