"""The same elements in another arrangement, parts of tensors, tensors joined and filled."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.function import Function
from ....graph.shape import is_known
from .._onnx import INT64, element_type
from .graph import END, ExportError, Writer
from .table import operands, writes, writes_block


@writes("Reshape")
def _reshape(w: Writer, node: Function, x: str) -> str:
    (source,) = w.inputs(node)
    return w.sample(x, w.lead(source), node.node_outputs[0].shape, source.shape)


@writes_block("Flatten", "ExpandDims")
def _flatten(w: Writer, node: Function, x: str) -> str:
    source = w.resolved(operands(node)[0])
    return w.sample(x, w.lead(source), node.node_outputs[0].shape, source.shape)


@writes("Squeeze")
def _squeeze(w: Writer, node: Function, x: str) -> str:
    (source,) = w.inputs(node)
    return w.sample(x, w.lead(source), node.node_outputs[0].shape)


@writes("TransposeAxes")
def _transpose(w: Writer, node: Function, x: str) -> str:
    (source,) = w.inputs(node)
    lead, rank, attributes = w.lead(source), len(source.shape), node.node_attributes
    order = list(range(rank))
    if "axisVec" in attributes:
        moved = [rank + a.static_axis_index() for a in reversed(attributes["axisVec"])]
        order[rank - len(moved) :] = moved
    else:
        one, two = (attributes[k].static_axis_index() for k in ("axis1", "axis2"))
        order[one], order[two] = order[two], order[one]
    return w.node("Transpose", [x], perm=[*range(lead), *(lead + i for i in order)])


@writes("UnpackBatchAxis", "ToBatchAxis")
def _batch_axis(w: Writer, node: Function, x: str) -> str:
    return x if w.inputs(node)[0].dynamic_axes or node.op_name == "ToBatchAxis" else w.unsqueeze(x, [0])


@writes("Slice")
def _slice(w: Writer, node: Function, x: str) -> str:
    (source,) = w.inputs(node)
    a, lead, rank = node.node_attributes, w.lead(source), len(source.shape)
    several = "axisVec" in a
    axes = [v.static_axis_index() % rank for v in (a["axisVec"] if several else [a["axis"]])]
    begins, ends = (list(a[k + "Vec"]) if several else [a[k]] for k in ("beginIndex", "endIndex"))
    strides = list((a.get("sliceStridesVec") if several else [a.get("sliceStrides", 1)]) or [1] * len(axes))
    ends = [END if e == 0 else int(e) for e in ends]
    begins = [int(b) for b in begins]
    if any(s < 0 or (s != 1 and w.opset < 10) for s in strides):
        return _picked(w, node, x, axes, begins, ends, strides)
    steps = [int(s) for s in strides]
    return w.slice(x, begins, ends, [lead + i for i in axes], steps if set(steps) != {1} else None)


def _picked(w: Writer, node: Function, x: str, axes: Any, begins: Any, ends: Any, strides: Any) -> str:
    """A slice as a choice of indices: with a stride below 0 the range is that of CNTK, taken backwards."""
    (source,) = w.inputs(node)
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        if source.shape[axis] < 0:
            raise ExportError(f"{node!r}: this stride along a free axis cannot be written")
        chosen = np.arange(source.shape[axis])[begin : None if end == END else end][::stride]
        x = w.node("Gather", [x, w.ints(*chosen.tolist())], axis=w.lead(source) + axis)
    return x


@writes("Splice")
def _splice(w: Writer, node: Function, *x: str) -> str:
    out = node.node_outputs[0]
    lead, rank = w.lead(out), len(out.shape)
    axis = node.node_attributes["axis"].static_axis_index() % rank
    sources = w.inputs(node)
    like = next((w.of(v) for v in sources if w.lead(v) == lead), "")
    made = []
    for tensor, variable in zip(x, sources, strict=True):
        if len(variable.shape) < rank:
            tensor = w.sample(tensor, w.lead(variable), (1,) * (rank - len(variable.shape)) + variable.shape)
        shape = (1,) * (rank - len(variable.shape)) + variable.shape
        wanted = [out.shape[i] if i != axis and d == 1 and out.shape[i] > 1 else 1 for i, d in enumerate(shape)]
        if w.lead(variable) < lead:
            target = w.node("Concat", [w.dimensions(like, 0, lead), w.ints(*wanted)], axis=0)
            tensor = w.node("Expand", [tensor, target])
        elif any(d > 1 for d in wanted):
            tensor = w.node("Expand", [tensor, w.ints(*(1,) * lead, *wanted)])
        made.append(tensor)
    return w.node("Concat", made, axis=lead + axis)


@writes("Pad")
def _pad(w: Writer, node: Function, x: str) -> str:
    (source,) = w.inputs(node)
    a, lead = node.node_attributes, w.lead(source)
    head, foot = (list(map(int, a[k]))[::-1] for k in ("paddingHead", "paddingFoot"))
    mode, value = int(a["paddingMode"]), float(a["paddingConstantValue"])
    if mode == 2:
        return _mirrored(w, node, x, head, foot)
    widths = [0] * lead + head + [0] * lead + foot
    name = ("constant", "reflect")[mode]
    if w.opset < 11:
        return w.node("Pad", [x], pads=widths, mode=name, value=value if mode == 0 else None)
    return w.node("Pad", [x, w.ints(*widths), *([w.number(value, source)] if mode == 0 else [])], mode=name)


def _mirrored(w: Writer, node: Function, x: str, head: list[int], foot: list[int]) -> str:
    """ONNX has no border that repeats the outermost element too: a choice of indices along each axis."""
    (source,) = w.inputs(node)
    for axis, n in enumerate(source.shape):
        if head[axis] or foot[axis]:
            if n < 0:
                raise ExportError(f"{node!r}: a symmetric border along a free axis cannot be written")
            chosen = np.pad(np.arange(n), (head[axis], foot[axis]), mode="symmetric")
            x = w.node("Gather", [x, w.ints(*chosen.tolist())], axis=w.lead(source) + axis)
    return x


@writes("Crop")
def _crop(w: Writer, node: Function, *x: str) -> str:
    source = w.inputs(node)[0]
    shape, lead = node.node_outputs[0].shape, w.lead(source)
    if not is_known(shape[-2:]):
        raise ExportError(f"{node!r}: a crop to free axes cannot be written")
    column, row = map(int, node.node_attributes.get("offset") or node.primitive.offset(node.node_inputs))
    begins, axis = [row, column], lead + len(shape) - 2
    made = w.slice(x[0], begins, [b + n for b, n in zip(begins, shape[-2:], strict=True)], [axis, axis + 1])
    w.nodes[-1].doc_string = "Crop"
    return made


@writes("ConstantOp")
def _constant(w: Writer, node: Function, x: str) -> str:
    value = np.asarray(node.node_attributes["fillValue"], node.node_outputs[0].dtype)
    return w.filled(w.node("Shape", [x]), value)


@writes("EyeLikeOp")
def _eye(w: Writer, node: Function, x: str) -> str:
    (source,) = w.inputs(node)
    if not w.lead(source) + len(source.shape) == 2:
        raise ExportError(f"{node!r}: ONNX has unit matrices of two dimensions only")
    return w.node("EyeLike", [x], dtype=element_type(node.node_outputs[0].dtype))


@writes("OneHotOp")
def _one_hot(w: Writer, node: Function, x: str) -> str:
    (source,) = w.inputs(node)
    a, out = node.node_attributes, node.node_outputs[0]
    axis = w.lead(source) + a["onehotAxis"].static_axis_index() % len(out.shape)
    values = w.array(np.asarray([0, 1], out.dtype))
    return w.node("OneHot", [w.cast(x, INT64), w.ints(int(a["numClass"])), values], axis=axis)


@writes_block("DepthToSpace", fits=lambda b: "blockSize" in b.node_attributes)
def _depth_to_space(w: Writer, node: Function, x: str) -> str:
    return _of_batch(w, node, x, "DepthToSpace", blocksize=int(node.node_attributes["blockSize"]))


@writes_block("SpaceToDepth", fits=lambda b: "blockSize" in b.node_attributes)
def _space_to_depth(w: Writer, node: Function, x: str) -> str:
    return _of_batch(w, node, x, "SpaceToDepth", blocksize=int(node.node_attributes["blockSize"]))


def _of_batch(w: Writer, node: Function, x: str, op: str, **attributes: Any) -> str:
    """A block of one operand as an operation on [samples, channels, ...]."""
    source = w.resolved(operands(node)[0])
    lead = w.lead(source)
    return w.unflatten_lead(w.node(op, [w.flatten_lead(x, lead, source.shape)], **attributes), lead, x)


