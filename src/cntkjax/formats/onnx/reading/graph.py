"""An ONNX graph as a function: its nodes read one after another.

As in CNTK, all dimensions of the file become static axes: open ones free axes (-3). Operations that ONNX has on a batch
take the first axis as the batch axis, and make it a free static axis again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .... import ops
from ....graph.function import Function as GraphFunction
from ....graph.shape import FREE
from ....variables import Constant, Parameter
from ...dictionary import FormatError
from .._onnx import ELEMENT, FLOATING, onnx
from .checks import DEEPEST, array_of, in_order, limited
from .table import FOLDED, OPERATIONS, Node
from .values import BOOL, FLOAT, INT, Tensor, kind_of, output_of, plain

_KEEP_VALUES = ("Identity", "Slice", "Split", "Squeeze", "Unsqueeze", "Reshape", "Transpose", "Expand", "Gather")
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")


class Reader:
    """The tensors of a graph by name."""

    def __init__(
        self, opset: int, name: str, folder: Path | None, from_cntk: bool = False, outer: Reader | None = None
    ) -> None:
        self.opset, self.name, self.folder, self.from_cntk = opset, name, folder, from_cntk
        self.depth: int = 0 if outer is None else outer.depth + 1
        if self.depth > DEEPEST:
            raise FormatError(f"{name}: graphs are nested deeper than {DEEPEST} levels")
        self.tensors: dict[str, Tensor] = dict(outer.tensors) if outer else {}
        self.named: set[Any] = outer.named if outer else set()
        self.makers: dict[str, Node] = dict(outer.makers) if outer else {}  # the node that makes a tensor

    # ---- the whole
    def model(self, graph: Any) -> Any:
        """The function of the outermost graph."""
        self.initializers(graph)
        for value in graph.input:
            if value.name not in self.tensors:
                self.tensors[value.name] = self.input(value)
        self.nodes(graph.node)
        if not graph.output:
            raise FormatError(f"{self.name} has no outputs")
        return self._function([self.result(o.name) for o in graph.output])

    def _function(self, outputs: list[Any]) -> Any:
        if len(outputs) == 1:
            if outputs[0].is_output and len(outputs[0].owner.outputs) == 1:
                return ops.as_composite(outputs[0].owner)
            return ops.alias(outputs[0])
        outputs = [v if v.is_output and v not in outputs[:i] else ops.alias(v).output
                   for i, v in enumerate(outputs)]
        return ops.combine(outputs)

    def result(self, name: str) -> Any:
        """The variable of an output of the graph."""
        if name not in self.tensors:
            raise FormatError(f"{self.name}: nothing makes the output {name!r}")
        try:
            return self.tensors[name].variable
        except ValueError as error:
            raise FormatError(f"{self.name}, output {name!r}: {error}") from error

    def initializers(self, graph: Any) -> None:
        """The constants that a graph brings along."""
        if graph.sparse_initializer:
            raise FormatError(f"{self.name}: sparse initializers cannot be read")
        for tensor in graph.initializer:
            if tensor.name in self.tensors and self.depth == 0:
                raise FormatError(f"{self.name}: there are two initializers {tensor.name!r}")
            self.tensors[tensor.name] = self.constant(array_of(tensor, self.name, self.folder), tensor.name, True)

    def constant(self, array: np.ndarray, name: str = "", trained: bool = False) -> Tensor:
        """A known array; as a variable it is a constant, or a parameter if it was trained."""
        kind = kind_of(array.dtype)

        def variable() -> Any:
            if array.dtype == object:
                raise ValueError("the size of a free axis cannot be computed with")
            dtype = array.dtype if array.dtype.type in ELEMENT and kind == FLOAT else np.dtype(np.float32)
            value = np.asarray(array, dtype)
            if trained and kind == FLOAT:
                return Parameter(init=value, dtype=dtype.type, name=name)
            return Constant(value, dtype=dtype.type, name=name)

        return Tensor(kind, array=array, make_variable=variable)

    def input(self, value: Any) -> Tensor:
        """An argument of the function."""
        where = f"{self.name}, input {value.name!r}"
        if not value.type.HasField("tensor_type"):
            raise FormatError(f"{where} is no tensor")
        tensor = value.type.tensor_type
        if tensor.elem_type not in (*FLOATING, 2, 3, 4, 5, 6, 7, 9, 12, 13):
            raise FormatError(f"{where}: elements of type {tensor.elem_type} cannot be read")
        if not tensor.HasField("shape"):
            raise FormatError(f"{where} has no shape: not even its rank is known")
        shape = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else FREE for d in tensor.shape.dim]
        if any(d == 0 for d in shape):
            shape = [d or FREE for d in shape]  # how some exporters write an open dimension
        if len(shape) > 32 or any(d > 2**31 for d in shape):
            raise FormatError(f"{where} has the shape {shape}")
        kind = FLOAT if tensor.elem_type in FLOATING else BOOL if tensor.elem_type == 9 else INT
        dtype = FLOATING.get(tensor.elem_type, np.float32)
        return Tensor(kind, ops.input_variable(tuple(shape), dtype=dtype, dynamic_axes=[], name=value.name))

    # ---- nodes
    def nodes(self, protos: Any) -> None:
        """Reads nodes in the order of the file."""
        for i, proto in enumerate(in_order(protos, self.tensors, self.name)):
            where = f"{self.name}, node {proto.name or i!r} ({proto.op_type})"
            if proto.domain not in _DOMAINS:
                raise FormatError(f"{where}: operations of the domain {proto.domain!r} are not known")
            if proto.op_type not in OPERATIONS:
                raise FormatError(f"{where}: this operation cannot be read")
            self._check_operands(proto, where)
            node = Node(self, proto, where)
            try:
                made = self._made(node)
            except FormatError:
                raise
            except RecursionError:
                raise
            except Exception as error:  # operands that don't fit break a rule anywhere; what it broke stays attached
                raise FormatError(f"{where} does not fit its operands: {error}") from error
            if len(made) < len([n for n in proto.output if n]):
                raise FormatError(f"{where}: its outputs behind the first {len(made)} cannot be read")
            for name, value in zip(proto.output, made, strict=False):
                if name:
                    self.tensors[name] = value
                    self.makers[name] = node

    def _check_operands(self, proto: Any, where: str) -> None:
        """As many operands as the operation has in the standard."""
        defs = onnx().defs
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if not defs.has(proto.op_type, self.opset if not domain else 1, domain):
            return  # no longer part of the standard, or of another one
        schema = defs.get_schema(proto.op_type, self.opset if not domain else 1, domain)
        if not schema.min_input <= len(proto.input) <= schema.max_input:
            least, most = schema.min_input, schema.max_input
            wanted = f"{least}" if least == most else f"{least} to {most if most < 2**30 else 'many'}"
            raise FormatError(f"{where}: it has {len(proto.input)} operands; the operation takes {wanted}")

    def _made(self, node: Node) -> list[Tensor]:
        given = [node.tensor(i) for i in range(len(node)) if node.has(i)]
        fold = FOLDED.get(node.op)
        if fold is not None and given and all(t.is_known for t in given):
            if all(t.kind != FLOAT for t in given):
                made = fold(node)
                return [self.constant(plain(a), node.name) for a in (made if isinstance(made, list) else [made])]
            return self._lazily(node, fold)
        return self._tensors(node, OPERATIONS[node.op](node))

    def _lazily(self, node: Node, fold: Any) -> list[Tensor]:
        """Weights that are only rearranged: an array for those who need it, and the graph for those who compute."""
        kept: dict[str, list[Any]] = {}

        def graph(i: int) -> Any:
            if "graph" not in kept:
                kept["graph"] = self._tensors(node, OPERATIONS[node.op](node))
            return kept["graph"][i].variable

        def array(i: int) -> Any:
            if "array" not in kept:
                made = fold(node)
                kept["array"] = made if isinstance(made, list) else [made]
            return kept["array"][i]

        return [
            Tensor(FLOAT, make_variable=lambda i=i: graph(i), make_array=lambda i=i: array(i))  # type: ignore[misc]
            for i in range(len(node.proto.output))
        ]

    def _tensors(self, node: Node, made: Any) -> list[Tensor]:
        """What a node was read as, under its name."""
        listed = made if isinstance(made, list) else [made]
        result = []
        for i, value in enumerate(listed):
            if isinstance(value, Tensor):
                if value.has_variable and i == 0:
                    value = Tensor(value.kind, self._named(node, value.variable), uniform=value.uniform)
                if node.op in _KEEP_VALUES:
                    value.uniform = node.tensor(0).uniform
                result.append(value)
            elif isinstance(value, np.ndarray):
                limited(value.size, node.where)
                result.append(self.constant(value, node.name))
            else:
                result.append(Tensor(FLOAT, self._named(node, value) if i == 0 else output_of(value)))
        return result

    def _named(self, node: Node, value: Any) -> Any:
        """The variable; what made it gets the name of the node."""
        variable: Any = output_of(value)
        if not node.name:
            return variable
        if not variable.is_output or variable.owner.name or variable in self.named:
            variable = ops.alias(variable, name=node.name).output
            self.named.add(variable)
            return variable
        self.named.add(variable)
        is_composite = isinstance(value, GraphFunction) and value.is_composite
        made: Any = value if is_composite else ops.as_composite(variable.owner)
        made.name = node.name
        return variable

    def body(self, graph: Any, given: dict[str, Tensor]) -> Reader:
        """A graph inside a node, read with what is known around it."""
        inner = Reader(self.opset, self.name, self.folder, self.from_cntk, self)
        inner.tensors.update(given)
        inner.initializers(graph)
        inner.nodes(graph.node)
        return inner
