"""The ONNX graph that is being written: nodes, tensors, and the CNTK variables that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....graph.function import Function
from ....graph.shape import FREE, is_known
from ....graph.variable import Leaf, Variable
from .._onnx import ELEMENT, element_type, onnx

if TYPE_CHECKING:
    from .order import Order

END = np.iinfo(np.int32).max  # a slice to the end, as CNTK writes it
OPEN = -1  # in the shape of a Reshape: the dimension that is left over


class ExportError(ValueError, RuntimeError):
    """A function that has no counterpart in ONNX."""


class Writer:
    """Nodes of one graph. A variable is a tensor [T, N, *shape] with a sequence axis, [N, *shape] with the batch axis
    alone, and [*shape] without; in the body of a Scan (`step`) sequences lack T, as it computes one step.

    Emitters call `node` for each ONNX node, and the methods below for what differs between opsets.
    """

    def __init__(self, opset: int, order: Order, outer: Writer | None = None) -> None:
        self.opset = opset
        self.resolved, self.inputs, self.titles = order.resolve, order.inputs, order.titles
        self.outer = outer
        self.step = outer is not None
        self.nodes: list[Any] = []
        self.tensors: dict[Variable, str] = {}
        self.initializers: dict[str, Any] = outer.initializers if outer else {}
        self.taken: set[str] = outer.taken if outer else set()
        self.results: set[str] = set()  # tensors that are outputs of the graph
        self.label = ""
        self.dimensions_named: dict[Any, str] = {}
        self.uids: dict[str, str] = outer.uids if outer else {}  # of CNTK: the name here

    # ---- names
    def unique(self, name: str) -> str:
        """The name, or the name and a number if it is taken; as in CNTK the numbers begin at 0."""
        candidate, i = name, 0
        while candidate in self.taken:
            candidate, i = f"{name}_{i}", i + 1
        self.taken.add(candidate)
        return candidate

    def dimension(self, what: Any) -> str:
        """The name of an open dimension. Those of one name are of one size, so each sequence axis has its own."""
        count = len(self.dimensions_named)
        return self.dimensions_named.setdefault(what, f"Sequence_{count}" if count else "Sequence")

    def known(self, variable: Variable) -> str | None:
        """The tensor of a variable that has one already, here or in the graph around."""
        found = self.tensors.get(variable)
        return found if found is not None or self.outer is None else self.outer.known(variable)

    def of(self, variable: Variable) -> str:
        """The tensor of a variable; parameters and constants are put into the file at their first use."""
        name = self.known(variable)
        if name is None:
            if not isinstance(variable, Leaf):
                raise ExportError(f"{variable!r} is used before it is computed")
            name = self.array(np.asarray(variable._value), variable.name or variable.uid)
            self.root.tensors[variable] = name
            self.uids[variable.uid] = name
        return name

    @property
    def root(self) -> Writer:
        """The writer of the graph around all others."""
        return self if self.outer is None else self.outer.root

    # ---- nodes
    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """A node; returns the name of its output, or a list if there are several."""
        made = [self.unique(f"{self.label}_{op.lower()}") for _ in range(outputs)]
        given = {k: v for k, v in attributes.items() if v is not None}
        node = onnx().helper.make_node(op, list(inputs), made, name=made[0], domain=domain, **given)
        self.nodes.append(node)
        return made[0] if outputs == 1 else made

    def array(self, value: Any, name: str = "") -> str:
        """An initializer."""
        name = self.unique(name or f"{self.label}_constant")
        self.initializers[name] = onnx().numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)),
                                                                 name)
        return name

    def ints(self, *values: int) -> str:
        """An initializer that is a list of integers: shapes, axes, indices."""
        return self.array(np.asarray(values, np.int64))

    def number(self, value: float, like: Variable) -> str:
        """A scalar of the type of a variable."""
        return self.array(np.asarray(value, like.dtype))

    def finish(self, function: Function, tensors: Sequence[str], begun: int) -> None:
        """Give the outputs of a function their names: `tensors` were made by the nodes from number `begun` on."""
        name, title = function._name, self.titles.get(function, "")
        if title and name and title != name and len(tensors) == 1:  # the name of a block around it has to stay too
            for node in self.nodes[begun:]:
                if tensors[0] in node.output:
                    node.name = self.unique(name)
            tensors, name = [self.node("Identity", [tensors[0]])], title
        name = name or title
        done: set[str] = set()
        for i, (variable, tensor) in enumerate(zip(function.node_outputs, tensors, strict=True)):
            made = [n for n in self.nodes[begun:] if tensor in n.output]
            if not made and not name:
                self.tensors[variable] = tensor
                self.uids[variable.uid] = tensor
                continue
            if not made or tensor in done:
                tensor = self.node("Identity", [tensor])
                made = [self.nodes[-1]]
            final = variable.uid if not name else f"{name}_Output" + (f"_{i}" if len(tensors) > 1 else "")
            final = self.unique(final)
            done.add(final)
            for node in self.nodes[begun:]:
                for side in (node.input, node.output):
                    for k, n in enumerate(side):
                        if n == tensor:
                            side[k] = final
            if i == 0:
                made[0].name = self.uids[function.uid] = self.unique(name or function.uid)
            self.tensors[variable] = self.uids[variable.uid] = final

    # ---- shapes
    def lead(self, variable: Variable) -> int:
        """Number of dimensions in front of those of a sample."""
        axes = variable.dynamic_axes
        return len(axes) - (self.step and variable.sequence_axis is not None)

    def time(self, variable: Variable) -> bool:
        """True if the first dimension is time."""
        return variable.sequence_axis is not None and not self.step

    def reshape(self, x: str, *shape: int) -> str:
        """Dimensions as in ONNX: 0 keeps that of the operand at this place, -1 is what is left over."""
        return self.node("Reshape", [x, self.ints(*shape)])

    def sample(self, x: str, lead: int, shape: Sequence[int], old: Sequence[int] | None = None) -> str:
        """The same elements of each sample in another shape; at most one free dimension that is not where it was."""
        new = []
        for i, d in enumerate(shape):
            stays = old is not None and i < len(old) and old[i] == d == FREE and all(
                a == b for a, b in zip(old[:i], shape[:i], strict=False)
            )
            new.append(0 if stays else OPEN if d < 0 else d)
        if new.count(OPEN) > 1:
            raise ExportError(f"{self.label}: a shape with several free dimensions {tuple(shape)} cannot be written")
        return self.reshape(x, *(0,) * lead, *new)

    def dimensions(self, x: str, begin: int, end: int) -> str:
        """The sizes of some leading dimensions as a tensor."""
        return self.slice(self.node("Shape", [x]), [begin], [end], [0])

    def flatten_lead(self, x: str, lead: int, shape: Sequence[int]) -> str:
        """[T, N, *shape] or [*shape] as [samples, *shape]: what ONNX calls a batch."""
        if lead == 1:
            return x
        if lead == 0:
            return self.unsqueeze(x, [0])
        if is_known(tuple(shape)):
            return self.reshape(x, OPEN, *shape)
        target = self.node("Concat", [self.ints(OPEN), self.dimensions(x, lead, END)], axis=0)
        return self.node("Reshape", [x, target])

    def unflatten_lead(self, y: str, lead: int, like: str) -> str:
        """The inverse; `like` has the leading dimensions."""
        if lead == 1:
            return y
        if lead == 0:
            return self.squeeze(y, [0])
        target = self.node("Concat", [self.dimensions(like, 0, lead), self.dimensions(y, 1, END)], axis=0)
        return self.node("Reshape", [y, target])

    def expand(self, x: str, lead_of: str, lead: int, rank: int) -> str:
        """x [*shape of this rank] for each cell of the leading dimensions of another tensor."""
        target = self.node("Concat", [self.dimensions(lead_of, 0, lead), self.ints(*(1,) * rank)], axis=0)
        return self.node("Expand", [x, target])

    def aligned(self, variables: Sequence[Variable]) -> list[str]:
        """Operands whose samples broadcast from the last dimension on, ready for ONNX, which broadcasts all of them."""
        rank = max(len(v.shape) for v in variables)
        return [self.raised(self.of(v), v, rank) for v in variables]

    def raised(self, x: str, variable: Variable, rank: int) -> str:
        """With dimensions of size 1 in front of those of a sample, up to a rank."""
        lead, missing = self.lead(variable), rank - len(variable.shape)
        return x if not lead or not missing else self.unsqueeze(x, [lead + i for i in range(missing)])

    # ---- what opsets write differently
    def squeeze(self, x: str, axes: Sequence[int]) -> str:
        """Without dimensions of size 1."""
        return self._with_axes("Squeeze", x, axes, 13)

    def unsqueeze(self, x: str, axes: Sequence[int]) -> str:
        """With dimensions of size 1 at these places of the result."""
        return self._with_axes("Unsqueeze", x, axes, 13)

    def reduce(self, op: str, x: str, axes: Sequence[int], keep: bool) -> str:
        """A reduction."""
        since = 13 if op == "ReduceSum" else 18
        return self._with_axes(op, x, axes, since, keepdims=int(keep))

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
        """Ranges along axes; ends as in Python, END to the end. Steps need opset 10."""
        if self.opset < 10:
            return self.node("Slice", [x], starts=list(starts), ends=list(ends), axes=list(axes))
        given = [starts, ends, axes] + ([steps] if steps else [])
        return self.node("Slice", [x, *(self.ints(*g) for g in given)])

    def cast(self, x: str, dtype: Any) -> str:
        """Another element type: one of NumPy's, or the number of one of ONNX's."""
        return self.node("Cast", [x], to=dtype if isinstance(dtype, int) else element_type(dtype))

    def truth(self, x: str, like: Variable) -> str:
        """A boolean tensor as CNTK has it: 1 or 0 of the type of a variable."""
        return self.cast(x, like.dtype)

    def filled(self, shape: str, value: Any) -> str:
        """A tensor of one value, whose shape is a tensor."""
        tensor = onnx().numpy_helper.from_array(np.asarray(value).reshape(1), "value")
        return self.node("ConstantOfShape", [shape], value=tensor)

    def info(self, name: str, variable: Variable, dimensions: Sequence[Any]) -> Any:
        """What a graph says of one of its inputs or outputs."""
        if np.dtype(variable.dtype).type not in ELEMENT:
            raise ExportError(f"{variable!r}: ONNX has no type for its elements")
        return onnx().helper.make_tensor_value_info(name, element_type(variable.dtype), list(dimensions))


__all__ = ["END", "OPEN", "ExportError", "Writer"]
