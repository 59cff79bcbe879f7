"""The ONNX graph that is being written: its nodes and tensors, and the variables in CNTK that they represent."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...._typing import ArrayLike, DTypeLike
from ....graph.errors import explain
from ....graph.function import Node
from ....graph.shape import FREE, is_known
from ....graph.variable import Edge, Leaf, value_of
from .._onnx import ELEMENT, element_type, onnx

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto, ValueInfoProto

    from .order import Order

END = np.iinfo(np.int32).max  # a slice to the end, as CNTK writes it
OPEN = -1  # in the shape of a Reshape: the dimension that is inferred

Dimension: TypeAlias = int | str | None  # a size, the name of a free dimension, or unknown


class ExportError(ValueError, RuntimeError):
    """A function that has no counterpart in ONNX."""

    def __init__(self, message: str, fix: str = "save a part of the model without this node") -> None:
        super().__init__(explain(message, fix=fix))


class GraphWriter:
    """The nodes of one graph. A variable is a tensor [T, N, *shape] with a sequence axis, [N, *shape] with the batch
    axis alone, and [*shape] without; in the body of a Scan (`in_scan`) sequences lack T, as it computes one step.

    Converters call `node` for each ONNX node, and the methods below for what differs between opsets.
    """

    def __init__(self, opset: int, order: Order, outer: GraphWriter | None = None) -> None:
        self.opset = opset
        self.resolve, self.inputs, self.block_names = order.resolve, order.inputs, order.block_names
        self.outer = outer
        self.in_scan = outer is not None
        self.nodes: list[NodeProto] = []
        self.tensors: dict[Edge, str] = {}
        self.initializers: dict[str, TensorProto] = outer.initializers if outer else {}
        self.used_names: set[str] = outer.used_names if outer else set()
        self.results: set[str] = set()  # tensors that are outputs of the graph
        self.label = ""  # of the node that is being written: the beginning of its tensors' names
        self.dimension_names: dict[Hashable, str] = {}
        self.uids: dict[str, str] = outer.uids if outer else {}  # uid in CNTK -> name in the file

    # ---- names
    def unique(self, name: str) -> str:
        """The name, with a number appended if it is used already; as in CNTK the numbers begin at 0."""
        candidate, i = name, 0
        while candidate in self.used_names:
            candidate, i = f"{name}_{i}", i + 1
        self.used_names.add(candidate)
        return candidate

    def dimension(self, key: Hashable) -> str:
        """The name of a free dimension. Dimensions of one name are of one size, so each sequence axis has its own."""
        count = len(self.dimension_names)
        return self.dimension_names.setdefault(key, f"Sequence_{count}" if count else "Sequence")

    def find(self, variable: Edge) -> str | None:
        """The tensor of a variable, if it has one already, in this graph or one around it."""
        name = self.tensors.get(variable)
        return name if name is not None or self.outer is None else self.outer.find(variable)

    def tensor(self, variable: Edge) -> str:
        """The tensor of a variable; parameters and constants become initializers when they are first used."""
        name = self.find(variable)
        if name is None:
            if not isinstance(variable, Leaf):
                raise ExportError(f"{variable!r} is used before it is computed")
            name = self.array(np.asarray(value_of(variable)), variable.name or variable.uid)
            self.root.tensors[variable] = name
            self.uids[variable.uid] = name
        return name

    def block_operand(self, block: Node, i: int = 0) -> Edge:
        """The variable that is the i-th operand of a block."""
        return self.resolve(block.block_map[i][1])

    @property
    def root(self) -> GraphWriter:
        """The writer of the outermost graph."""
        return self if self.outer is None else self.outer.root

    # ---- nodes
    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node of one output; returns the name of its tensor. Attributes that are None are left out."""
        return self.multi_node(op, inputs, 1, **attributes)[0]

    def multi_node(self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """Add a node of several outputs; returns the names of their tensors."""
        names = [self.unique(f"{self.label}_{op.lower()}") for _ in range(outputs)]
        attributes = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(onnx().helper.make_node(op, list(inputs), names, name=names[0], domain="", **attributes))
        return names

    def array(self, value: ArrayLike, name: str = "") -> str:
        """Add an initializer."""
        name = self.unique(name or f"{self.label}_constant")
        self.initializers[name] = onnx().numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)),
                                                                 name)
        return name

    def ints(self, *values: int) -> str:
        """Add an initializer that is a list of integers: shapes, axes, indices."""
        return self.array(np.asarray(values, np.int64))

    def scalar(self, value: float, like: Edge) -> str:
        """Add an initializer that is a scalar of the type of a variable."""
        return self.array(np.asarray(value, like.dtype))

    def name_outputs(
        self, function: Node, variables: Sequence[Edge], tensors: Sequence[str], first_node: int,
        block_name: str = "",
    ) -> None:
        """Name the output tensors of a function, which the nodes from number `first_node` on compute.

        `block_name`: the name of an expanded block around the function with the same output.
        """
        name = function.name
        if block_name and name and block_name != name and len(tensors) == 1:  # both names have to be in the file
            for node in self.nodes[first_node:]:
                if tensors[0] in node.output:
                    node.name = self.unique(name)
            tensors, name = [self.node("Identity", [tensors[0]])], block_name
        name = name or block_name
        renamed: set[str] = set()
        for i, (variable, tensor) in enumerate(zip(variables, tensors, strict=True)):
            producer = next((n for n in self.nodes[first_node:] if tensor in n.output), None)
            if producer is None and not name:
                self.tensors[variable] = tensor
                self.uids[variable.uid] = tensor
                continue
            if producer is None or tensor in renamed:
                tensor = self.node("Identity", [tensor])
                producer = self.nodes[-1]
            final = variable.uid if not name else f"{name}_Output" + (f"_{i}" if len(tensors) > 1 else "")
            final = self.unique(final)
            renamed.add(final)
            self._rename_tensor(tensor, final, first_node)
            if i == 0:
                producer.name = self.uids[function.uid] = self.unique(name or function.uid)
            self.tensors[variable] = self.uids[variable.uid] = final

    def _rename_tensor(self, old: str, new: str, first_node: int) -> None:
        for node in self.nodes[first_node:]:
            for names in (node.input, node.output):
                for k, name in enumerate(names):
                    if name == old:
                        names[k] = new

    # ---- shapes
    def lead(self, variable: Edge) -> int:
        """The number of dimensions before those of a sample."""
        axes = variable.dynamic_axes
        return len(axes) - (self.in_scan and variable.sequence_axis is not None)

    def reshape(self, x: str, *shape: int) -> str:
        """Reshape; dimensions are as in ONNX: 0 keeps the operand's dimension at this position, -1 is inferred."""
        return self.node("Reshape", [x, self.ints(*shape)])

    def reshape_samples(self, x: str, lead: int, shape: Sequence[int], old: Sequence[int] | None = None) -> str:
        """Reshape samples from `old`, if it is known; at most one free dimension may have moved."""
        new = []
        for i, d in enumerate(shape):
            stays = old is not None and i < len(old) and old[i] == d == FREE and all(
                a == b for a, b in zip(old[:i], shape[:i], strict=False)
            )
            new.append(0 if stays else OPEN if d < 0 else d)
        if new.count(OPEN) > 1:
            raise ExportError(f"{self.label}: a shape with several free dimensions {tuple(shape)} cannot be written",
                              fix="give the inputs fixed sizes")
        return self.reshape(x, *(0,) * lead, *new)

    def dimensions(self, x: str, begin: int, end: int) -> str:
        """The sizes of the dimensions from `begin` to `end` as a tensor."""
        return self.slice(self.node("Shape", [x]), [begin], [end], [0])

    def flatten_lead(self, x: str, lead: int, shape: Sequence[int]) -> str:
        """[T, N, *shape], [N, *shape] or [*shape] as [samples, *shape], a batch in ONNX."""
        if lead == 1:
            return x
        if lead == 0:
            return self.unsqueeze(x, [0])
        if is_known(tuple(shape)):
            return self.reshape(x, OPEN, *shape)
        target = self.node("Concat", [self.ints(OPEN), self.dimensions(x, lead, END)], axis=0)
        return self.node("Reshape", [x, target])

    def unflatten_lead(self, y: str, lead: int, like: str) -> str:
        """The inverse of `flatten_lead`; `like` is a tensor with the leading dimensions."""
        if lead == 1:
            return y
        if lead == 0:
            return self.squeeze(y, [0])
        target = self.node("Concat", [self.dimensions(like, 0, lead), self.dimensions(y, 1, END)], axis=0)
        return self.node("Reshape", [y, target])

    def expand(self, x: str, lead_of: str, lead: int, rank: int) -> str:
        """x, a tensor of this rank, repeated along the leading dimensions of another tensor."""
        target = self.node("Concat", [self.dimensions(lead_of, 0, lead), self.ints(*(1,) * rank)], axis=0)
        return self.node("Expand", [x, target])

    def broadcastable(self, variables: Sequence[Edge]) -> list[str]:
        """The tensors of operands whose samples broadcast, with ranks for which ONNX broadcasts the whole tensors."""
        rank = max(len(v.shape) for v in variables)
        return [self.with_rank(self.tensor(v), v, rank) for v in variables]

    def with_rank(self, x: str, variable: Edge, rank: int) -> str:
        """x with dimensions of size 1 before those of a sample, up to a rank."""
        lead, missing = self.lead(variable), rank - len(variable.shape)
        return x if not lead or not missing else self.unsqueeze(x, [lead + i for i in range(missing)])

    # ---- operations that differ between opsets
    def squeeze(self, x: str, axes: Sequence[int]) -> str:
        """Remove dimensions of size 1."""
        return self._with_axes("Squeeze", x, axes, 13)

    def unsqueeze(self, x: str, axes: Sequence[int]) -> str:
        """Insert dimensions of size 1; `axes` are their positions in the result."""
        return self._with_axes("Unsqueeze", x, axes, 13)

    def reduce(self, op: str, x: str, axes: Sequence[int], keepdims: bool) -> str:
        """Reduce along axes, with the operation `op`."""
        since = 13 if op == "ReduceSum" else 18
        return self._with_axes(op, x, axes, since, keepdims=int(keepdims))

    def _with_axes(self, op: str, x: str, axes: Sequence[int], since: int, **attributes: Any) -> str:
        if not axes and op != "ReduceSum":
            return x
        if self.opset >= since:
            return self.node(op, [x, self.ints(*axes)], **attributes)
        return self.node(op, [x], axes=list(axes), **attributes)

    def slice(
        self, x: str, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> str:
        """Slice along axes; ends are as in Python, END for the end. Steps need opset 10."""
        if self.opset < 10:
            return self.node("Slice", [x], starts=list(starts), ends=list(ends), axes=list(axes))
        operands = [starts, ends, axes] + ([steps] if steps else [])
        return self.node("Slice", [x, *(self.ints(*values) for values in operands)])

    def cast(self, x: str, dtype: DTypeLike | int | None) -> str:
        """Cast to a NumPy type, or to the number of an element type of ONNX."""
        return self.node("Cast", [x], to=dtype if isinstance(dtype, int) else element_type(dtype))

    def from_bool(self, x: str, like: Edge) -> str:
        """A boolean tensor in CNTK's form: 1 or 0, of the type of a variable."""
        return self.cast(x, like.dtype)

    def constant_of_shape(self, shape: str, value: ArrayLike) -> str:
        """A tensor filled with a value; its shape is the tensor `shape`."""
        tensor = onnx().numpy_helper.from_array(np.asarray(value).reshape(1), "value")
        return self.node("ConstantOfShape", [shape], value=tensor)

    def value_info(self, name: str, variable: Edge, dimensions: Sequence[Dimension]) -> ValueInfoProto:
        """The declaration of an input or output of a graph."""
        if np.dtype(variable.dtype).type not in ELEMENT:
            raise ExportError(f"{variable!r}: ONNX has no type for its elements", fix="cast the model to float32")
        return onnx().helper.make_tensor_value_info(name, element_type(variable.dtype), list(dimensions))


__all__ = ["END", "OPEN", "ExportError", "GraphWriter"]
