"""Reshaping, slicing, concatenating and filling tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.function import Node
from ....graph.shape import is_known
from ....primitives.reshape import transposition
from .._onnx import INT64, element_type
from .graph import END, ExportError, GraphWriter
from .table import writes, writes_block


@writes("Reshape")
def _reshape(w: GraphWriter, node: Node, x: str) -> str:
    (source,) = w.inputs(node)
    return w.reshape_samples(x, w.lead(source), node.node_outputs[0].shape, source.shape)


@writes_block("Flatten", "ExpandDims")
def _flatten(w: GraphWriter, node: Node, x: str) -> str:
    source = w.block_operand(node)
    return w.reshape_samples(x, w.lead(source), node.node_outputs[0].shape, source.shape)


@writes("Squeeze")
def _squeeze(w: GraphWriter, node: Node, x: str) -> str:
    (source,) = w.inputs(node)
    return w.reshape_samples(x, w.lead(source), node.node_outputs[0].shape)


@writes("TransposeAxes")
def _transpose(w: GraphWriter, node: Node, x: str) -> str:
    (source,) = w.inputs(node)
    lead, order = w.lead(source), transposition(node.node_attributes, len(source.shape))
    if new := len(order) - len(source.shape):
        x = w.unsqueeze(x, list(range(lead, lead + new)))
    return w.node("Transpose", [x], perm=[*range(lead), *(lead + i for i in order)])


@writes("UnpackBatchAxis")
def _unpack_batch(w: GraphWriter, node: Node, x: str) -> str:
    return x if w.inputs(node)[0].dynamic_axes else w.unsqueeze(x, [0])


@writes("ToBatchAxis")
def _to_batch(w: GraphWriter, node: Node, x: str) -> str:
    return x


@writes("Slice")
def _slice(w: GraphWriter, node: Node, x: str) -> str:
    (source,) = w.inputs(node)
    a, lead, rank = node.node_attributes, w.lead(source), len(source.shape)
    several = "axisVec" in a
    axes = [v.static_axis_index() % rank for v in (a["axisVec"] if several else [a["axis"]])]
    begins, ends = (list(a[k + "Vec"]) if several else [a[k]] for k in ("beginIndex", "endIndex"))
    strides = list((a.get("sliceStridesVec") if several else [a.get("sliceStrides", 1)]) or [1] * len(axes))
    ends = [END if e == 0 else int(e) for e in ends]
    begins = [int(b) for b in begins]
    if any(s < 0 or (s != 1 and w.opset < 10) for s in strides):
        return _gathered_slice(w, node, x, axes, begins, ends, strides)
    steps = [int(s) for s in strides]
    return w.slice(x, begins, ends, [lead + i for i in axes], steps if set(steps) != {1} else None)


def _gathered_slice(
    w: GraphWriter, node: Node, x: str, axes: Sequence[int], begins: Sequence[int], ends: Sequence[int],
    strides: Sequence[int],
) -> str:
    """A slice by Gather: with a negative stride the range is that of CNTK, in reverse order."""
    (source,) = w.inputs(node)
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        if source.shape[axis] < 0:
            raise ExportError(f"{node!r}: this stride along a free axis cannot be written",
                              fix="give the input a fixed size, or save with opset=10 or later")
        indices = np.arange(source.shape[axis])[begin : None if end == END else end][::stride]
        x = w.node("Gather", [x, w.ints(*indices.tolist())], axis=w.lead(source) + axis)
    return x


@writes("Splice")
def _splice(w: GraphWriter, node: Node, *x: str) -> str:
    out = node.node_outputs[0]
    lead, rank = w.lead(out), len(out.shape)
    axis = node.node_attributes["axis"].static_axis_index() % rank
    sources = w.inputs(node)
    like = next((w.tensor(v) for v in sources if w.lead(v) == lead), "")
    tensors = []
    for tensor, variable in zip(x, sources, strict=True):
        if len(variable.shape) < rank:
            tensor = w.reshape_samples(tensor, w.lead(variable), (1,) * (rank - len(variable.shape)) + variable.shape)
        shape = (1,) * (rank - len(variable.shape)) + variable.shape
        repeats = [out.shape[i] if i != axis and d == 1 and out.shape[i] > 1 else 1 for i, d in enumerate(shape)]
        if w.lead(variable) < lead:
            target = w.node("Concat", [w.dimensions(like, 0, lead), w.ints(*repeats)], axis=0)
            tensor = w.node("Expand", [tensor, target])
        elif any(d > 1 for d in repeats):
            tensor = w.node("Expand", [tensor, w.ints(*(1,) * lead, *repeats)])
        tensors.append(tensor)
    return w.node("Concat", tensors, axis=lead + axis)


@writes("Pad")
def _pad(w: GraphWriter, node: Node, x: str) -> str:
    (source,) = w.inputs(node)
    a, lead = node.node_attributes, w.lead(source)
    head, foot = (list(map(int, a[k]))[::-1] for k in ("paddingHead", "paddingFoot"))
    mode, value = int(a["paddingMode"]), float(a["paddingConstantValue"])
    if mode == 2:
        return _symmetric_pad(w, node, x, head, foot)
    widths = [0] * lead + head + [0] * lead + foot
    name = ("constant", "reflect")[mode]
    if w.opset < 11:
        return w.node("Pad", [x], pads=widths, mode=name, value=value if mode == 0 else None)
    return w.node("Pad", [x, w.ints(*widths), *([w.scalar(value, source)] if mode == 0 else [])], mode=name)


def _symmetric_pad(w: GraphWriter, node: Node, x: str, head: list[int], foot: list[int]) -> str:
    """Symmetric padding by Gather along each axis: ONNX has none that repeats the outermost element."""
    (source,) = w.inputs(node)
    for axis, n in enumerate(source.shape):
        if head[axis] or foot[axis]:
            if n < 0:
                raise ExportError(f"{node!r}: symmetric padding along a free axis cannot be written",
                                  fix="give the input a fixed size, or pad by reflection")
            indices = np.pad(np.arange(n), (head[axis], foot[axis]), mode="symmetric")
            x = w.node("Gather", [x, w.ints(*indices.tolist())], axis=w.lead(source) + axis)
    return x


@writes("Crop")
def _crop(w: GraphWriter, node: Node, *x: str) -> str:
    source = w.inputs(node)[0]
    shape, lead = node.node_outputs[0].shape, w.lead(source)
    if not is_known(shape[-2:]):
        raise ExportError(f"{node!r}: a crop to free axes cannot be written")
    column, row = map(int, node.node_attributes.get("offset") or node.primitive.offset(node.node_inputs))
    begins, axis = [row, column], lead + len(shape) - 2
    output = w.slice(x[0], begins, [b + n for b, n in zip(begins, shape[-2:], strict=True)], [axis, axis + 1])
    w.nodes[-1].doc_string = "Crop"
    return output


@writes("ConstantOp")
def _constant(w: GraphWriter, node: Node, x: str) -> str:
    value = np.asarray(node.node_attributes["fillValue"], node.node_outputs[0].dtype)
    return w.constant_of_shape(w.node("Shape", [x]), value)


@writes("EyeLikeOp")
def _eye(w: GraphWriter, node: Node, x: str) -> str:
    (source,) = w.inputs(node)
    if not w.lead(source) + len(source.shape) == 2:
        raise ExportError(f"{node!r}: ONNX has unit matrices of two dimensions only")
    return w.node("EyeLike", [x], dtype=element_type(node.node_outputs[0].dtype))


@writes("OneHotOp")
def _one_hot(w: GraphWriter, node: Node, x: str) -> str:
    (source,) = w.inputs(node)
    a, out = node.node_attributes, node.node_outputs[0]
    axis = w.lead(source) + a["onehotAxis"].static_axis_index() % len(out.shape)
    values = w.array(np.asarray([0, 1], out.dtype))
    is_number = not w.lead(source) and not source.shape  # ONNX has vectors of indices, and more axes
    indices = w.unsqueeze(x, [0]) if is_number else x
    y = w.node("OneHot", [w.cast(indices, INT64), w.ints(int(a["numClass"])), values], axis=axis + is_number)
    return w.squeeze(y, [0]) if is_number else y


@writes_block("DepthToSpace", matches=lambda b: "blockSize" in b.node_attributes)
def _depth_to_space(w: GraphWriter, node: Node, x: str) -> str:
    return _on_batch(w, node, x, "DepthToSpace", blocksize=int(node.node_attributes["blockSize"]))


@writes_block("SpaceToDepth", matches=lambda b: "blockSize" in b.node_attributes)
def _space_to_depth(w: GraphWriter, node: Node, x: str) -> str:
    return _on_batch(w, node, x, "SpaceToDepth", blocksize=int(node.node_attributes["blockSize"]))


def _on_batch(w: GraphWriter, node: Node, x: str, op: str, **attributes: Any) -> str:
    """A block of one operand, as an operation on [samples, channels, ...]."""
    source = w.block_operand(node)
    lead = w.lead(source)
    return w.unflatten_lead(w.node(op, [w.flatten_lead(x, lead, source.shape)], **attributes), lead, x)


