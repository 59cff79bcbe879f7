"""An ONNX graph as a function: its nodes are read one after another.

As in CNTK, all dimensions of the file become static axes, and open dimensions free axes (-3). Operations on batches
take the first axis as the batch axis, and return it as a free static axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .... import ops
from ....graph.function import Node
from ....graph.shape import FREE, Shape
from ....graph.variable import Edge, producer, rename
from ....ops.functions import Function
from ....variables import Constant, Parameter
from ...dictionary import FormatError
from .._onnx import ELEMENT, FLOATING, onnx
from .checks import MAX_DEPTH, MAX_UNROLLED, array_of, check_size, checked_nodes
from .table import FOLDED, NEEDS_SIZES, OPERATIONS, UNSUPPORTED, Fold, OnnxNode
from .values import BOOL, FLOAT, INT, OnnxTensor, Operand, array_list, kind_of, output_list, output_of, plain

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto

_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")


def _unreadable(node: OnnxNode, readable: int) -> OnnxTensor:
    """An output that is an error only where it is used: statistics of training are outputs that nobody needs."""

    def refuse() -> Operand:
        raise node.error(f"its outputs after the first {readable} cannot be read")

    return OnnxTensor(FLOAT, make_variable=refuse)


class GraphReader:
    """The tensors of a graph by name."""

    def __init__(
        self, opset: int, name: str, folder: Path | None, from_cntk: bool = False, outer: GraphReader | None = None
    ) -> None:
        self.opset, self.name, self.folder, self.from_cntk = opset, name, folder, from_cntk
        self.depth: int = 0 if outer is None else outer.depth + 1
        if self.depth > MAX_DEPTH:
            raise FormatError(f"{name}: graphs are nested deeper than {MAX_DEPTH} levels")
        self.outermost: GraphReader = self if outer is None else outer.outermost
        self.unrolled = 0  # nodes of the iterations of loops, in the outermost reader
        self.tensors: dict[str, OnnxTensor] = dict(outer.tensors) if outer else {}
        self.named: set[Edge] = outer.named if outer else set()
        # tensor -> the node that computes it
        self.producers: dict[str, OnnxNode] = dict(outer.producers) if outer else {}

    def model(self, graph: GraphProto) -> Node:
        """The function of the outermost graph."""
        self.initializers(graph)
        for value in graph.input:
            if value.name not in self.tensors:
                self.tensors[value.name] = self.input(value)
        self.nodes(graph.node)
        if not graph.output:
            raise FormatError(f"{self.name} has no outputs")
        return self._function([output_of(self.result(o.name)) for o in graph.output])

    def _function(self, outputs: list[Edge]) -> Node:
        if len(outputs) == 1:
            owner = producer(outputs[0])
            if owner is not None and len(owner.outputs) == 1:
                return ops.as_composite(owner, owner.name)  # type: ignore[arg-type]
            return ops.alias(outputs[0])
        outputs = [v if v.is_output and v not in outputs[:i] else ops.alias(v).output
                   for i, v in enumerate(outputs)]
        return ops.combine(outputs)

    def result(self, name: str) -> Operand:
        """The variable of an output of the graph. Errors: those of `output`; FormatError for a free axis' size."""
        try:
            return self.output(name).variable
        except ValueError as error:
            raise FormatError(f"{self.name}, output {name!r}: {error}") from error

    def output(self, name: str) -> OnnxTensor:
        """An output of the graph. Errors: FormatError if no node computes it."""
        if name not in self.tensors:
            raise FormatError(f"{self.name}: no node computes the output {name!r}")
        return self.tensors[name]

    def initializers(self, graph: GraphProto) -> None:
        """Read the initializers of a graph."""
        if graph.sparse_initializer:
            raise FormatError(
                f"{self.name}: sparse initializers cannot be read", fix="export the model with dense initializers"
            )
        for tensor in graph.initializer:
            if tensor.name in self.tensors and self.depth == 0:
                raise FormatError(f"{self.name}: there are two initializers {tensor.name!r}")
            self.tensors[tensor.name] = self.constant(array_of(tensor, self.name, self.folder), tensor.name, True)

    def constant(self, array: np.ndarray, name: str = "", trained: bool = False) -> OnnxTensor:
        """A known array; its variable is a constant, or a parameter if it was trained."""
        kind = kind_of(array.dtype)

        def variable() -> Operand:
            if array.dtype == object:
                raise ValueError("operations on the size of a free axis are not supported")
            dtype = array.dtype if array.dtype.type in ELEMENT and kind == FLOAT else np.dtype(np.float32)
            value = np.asarray(array, dtype)
            if trained and kind == FLOAT:
                return Parameter(init=value, dtype=dtype.type, name=name)
            return Constant(value, dtype=dtype.type, name=name)

        return OnnxTensor(kind, array=array, make_variable=variable)

    def input(self, value: ValueInfoProto) -> OnnxTensor:
        """An argument of the function. Errors: FormatError if it is no tensor, or of an unsupported type or shape."""
        where = f"{self.name}, input {value.name!r}"
        if not value.type.HasField("tensor_type"):
            raise FormatError(f"{where} is no tensor", fix=UNSUPPORTED)
        tensor = value.type.tensor_type
        if tensor.elem_type not in (*FLOATING, 2, 3, 4, 5, 6, 7, 9, 12, 13):
            raise FormatError(f"{where}: elements of type {tensor.elem_type} cannot be read", fix=UNSUPPORTED)
        shape = _shape_of(tensor, where)
        kind = FLOAT if tensor.elem_type in FLOATING else BOOL if tensor.elem_type == 9 else INT
        dtype = FLOATING.get(tensor.elem_type, np.float32)
        return OnnxTensor(kind, ops.input_variable(shape, dtype=dtype, dynamic_axes=[], name=value.name))

    # ---- nodes
    def nodes(self, protos: Iterable[NodeProto]) -> None:
        """Read nodes in the order of the file. Errors: FormatError with the node and the reason."""
        for i, proto in enumerate(checked_nodes(protos, self.tensors, self.name)):
            where = f"{self.name}, node {proto.name or i!r} ({proto.op_type})"
            if proto.domain not in _DOMAINS:
                raise FormatError(f"{where}: operations of the domain {proto.domain!r} are not known", UNSUPPORTED)
            if proto.op_type not in OPERATIONS and proto.op_type not in FOLDED:
                raise FormatError(
                    f"{where}: this operation cannot be read",
                    fix="export the model without it, or register a converter with formats.onnx.reading.table.reads",
                )
            self._check_operands(proto, where)
            node = OnnxNode(self, proto, where)
            try:
                outputs = self._convert(node)
            except (FormatError, RecursionError):
                raise
            except Exception as error:  # unsuitable operands can break a rule anywhere; the cause stays attached
                raise FormatError(f"{where} does not fit its operands: {error}", UNSUPPORTED) from error
            for k, name in enumerate(proto.output):
                if name:
                    self.tensors[name] = outputs[k] if k < len(outputs) else _unreadable(node, len(outputs))
                    self.producers[name] = node

    def _check_operands(self, proto: NodeProto, where: str) -> None:
        """Errors: FormatError if the number of operands is not that of the operation in the standard."""
        defs = onnx().defs
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if not defs.has(proto.op_type, self.opset if not domain else 1, domain):
            return  # no longer part of the standard, or not yet
        schema = defs.get_schema(proto.op_type, self.opset if not domain else 1, domain)
        if not schema.min_input <= len(proto.input) <= schema.max_input:
            least, most = schema.min_input, schema.max_input
            expected = f"{least}" if least == most else f"{least} to {most if most < 2**30 else 'many'}"
            raise FormatError(f"{where}: it has {len(proto.input)} operands; the operation takes {expected}")

    def _convert(self, node: OnnxNode) -> list[OnnxTensor]:
        operands = [node.tensor(i) for i in range(len(node)) if node.has(i)]
        is_open = node.op in NEEDS_SIZES and any(t.has_open_sizes for t in operands)
        fold = None if is_open else FOLDED.get(node.op)
        if fold is not None and operands and all(t.is_known for t in operands):
            if all(t.kind != FLOAT for t in operands):
                return [self.constant(plain(a), node.name) for a in array_list(fold(node))]
            return self._lazy_tensors(node, fold)
        return self._tensors(node)

    def _lazy_tensors(self, node: OnnxNode, fold: Fold) -> list[OnnxTensor]:
        """Outputs of a node that only rearranges weights: folded where an array is needed, otherwise in the graph."""
        variables: list[OnnxTensor] = []
        arrays: list[np.ndarray] = []

        def variable(i: int) -> Operand:
            if not variables:
                variables.extend(self._tensors(node))
            return variables[i].variable

        def array(i: int) -> np.ndarray:
            if not arrays:
                arrays.extend(array_list(fold(node)))
            return arrays[i]

        return [
            OnnxTensor(FLOAT, make_variable=partial(variable, i), make_array=partial(array, i))
            for i in range(len(node.proto.output))
        ]

    def _tensors(self, node: OnnxNode) -> list[OnnxTensor]:
        """The outputs of a node, converted by the row of its operation; the first one gets the node's name."""
        if node.op not in OPERATIONS:
            raise node.error("its operands have to be constants, as sizes that depend on data cannot be read")
        conversion = OPERATIONS[node.op]
        result = []
        for i, value in enumerate(output_list(conversion.convert(node))):
            if isinstance(value, OnnxTensor):
                if value.has_variable and i == 0:
                    value = OnnxTensor(value.kind, self._named(node, value.variable), uniform=value.uniform)
                if conversion.same_elements:
                    value.uniform = node.tensor(0).uniform
                result.append(value)
            elif isinstance(value, np.ndarray):
                check_size(value.size, node.where)
                result.append(self.constant(value, node.name))
            else:
                result.append(OnnxTensor(FLOAT, self._named(node, value) if i == 0 else output_of(value)))
        return result

    def _named(self, node: OnnxNode, value: Operand) -> Edge:
        """The variable; the function that computes it gets the name of the node."""
        variable = output_of(value)
        if not node.name:
            return variable
        owner = producer(variable)
        if owner is None or owner.name or variable in self.named:
            variable = ops.alias(variable, name=node.name).output
            self.named.add(variable)
            return variable
        self.named.add(variable)
        composite = [value] if isinstance(value, Function) else []
        for named in (owner, *composite, *(owner.outputs if len(owner.outputs) == 1 else ())):
            rename(named, node.name)
        return variable

    def body(self, graph: GraphProto, tensors: dict[str, OnnxTensor]) -> GraphReader:
        """The reader of a graph inside a node, which has been read; it sees the tensors of the graph around it."""
        inner = self.inside()
        inner.initializers(graph)
        inner.tensors.update(tensors)
        inner.nodes(graph.node)
        return inner

    def inside(self) -> GraphReader:
        """A reader that sees the tensors of this one."""
        return GraphReader(self.opset, self.name, self.folder, self.from_cntk, self)

    def count_unrolled(self, nodes: int, where: str) -> None:
        """Count one iteration of a loop of this many nodes. Errors: FormatError for too many in the file."""
        self.outermost.unrolled += max(nodes, 1)
        if self.outermost.unrolled > MAX_UNROLLED:
            raise FormatError(f"{where}: loops of more than {MAX_UNROLLED} nodes in all their iterations", UNSUPPORTED)


def _shape_of(tensor: TypeProto.Tensor, where: str) -> Shape:
    """The shape of an input; open dimensions are free axes."""
    if not tensor.HasField("shape"):
        raise FormatError(f"{where} has no shape: not even its rank is known", fix=UNSUPPORTED)
    shape = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else FREE for d in tensor.shape.dim]
    shape = [d or FREE for d in shape]  # some exporters write an open dimension as 0
    if len(shape) > 32 or any(d > 2**31 for d in shape):
        raise FormatError(f"{where} has the shape {shape}")
    return tuple(shape)
