"""Convolution, pooling and normalization: operations of ONNX on [samples, channels, *spatial]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.function import Node, nodes_inside
from ....graph.shape import is_unknown
from ....graph.variable import Edge, Leaf, outside, producer, value_of
from ....primitives._window import Window
from ....primitives.pooling import windows_of
from .._onnx import momentum
from .graph import ExportError, GraphWriter
from .table import writes, writes_block


def _pads(node: Node, windows: Sequence[Window], auto: Sequence[bool] = ()) -> dict[str, Any]:
    """The attribute `pads`; along axes of free size, or `auto_pad` if CNTK pads automatically."""
    if all(w.count >= 0 for w in windows):  # surplus elements at the end need not be removed
        after = [0 if -w.stride < w.after < 0 else w.after for w in windows]
        return {"pads": [w.before for w in windows] + after}
    if any(auto):
        if not all(auto) or any(w.stride > 1 for w in windows):
            raise ExportError(f"{node!r}: the padding of free axes can only be written for strides of 1")
        return {"auto_pad": "SAME_UPPER" if any(w.size % 2 == 0 for w in windows) else "SAME_LOWER"}
    return {"pads": [w.before for w in windows] + [w.after for w in windows]}


@writes("Convolution")
def _convolution(w: GraphWriter, node: Node, kernel: str, x: str) -> str:
    filters, source = w.inputs(node)
    a, lead, rank = node.node_attributes, w.lead(source), len(source.shape)
    missing = rank + 1 - len(filters.shape)
    if missing:
        kernel = w.unsqueeze(kernel, [0])
    shape = (1,) * missing + filters.shape
    windows = (
        node.primitive.windows(a, shape[1:], node.node_outputs[0].shape) if a["transpose"]
        else node.primitive.windows(a, shape[1:], source.shape)
    )
    auto = a["autoPadding"][::-1]
    groups = int(a["groups"])
    spatial_only = a["transpose"] or groups > 1 or windows[0].is_whole
    samples, per_sample = w.flatten_lead(x, lead, source.shape), source.shape
    if not spatial_only:  # the window moves along the channels too, which become another spatial axis
        samples, kernel = w.unsqueeze(samples, [1]), w.unsqueeze(kernel, [1])
        per_sample, spatial_windows, auto_padded = (1, *per_sample), windows, auto
    else:
        spatial_windows, auto_padded = windows[1:], auto[1:]
    spatial: dict[str, Any] = {
        "kernel_shape": [v.size for v in spatial_windows], "strides": [v.stride for v in spatial_windows],
        "dilations": [v.dilation for v in spatial_windows],
    }
    spatial |= _pads(node, spatial_windows, auto_padded)
    if any(p < 0 for p in spatial.get("pads", ())) and not a["transpose"]:
        samples, spatial["pads"] = _trimmed(w, samples, spatial["pads"])
    output = _transposed(w, node, samples, kernel, spatial, spatial_windows) if a["transpose"] else w.node(
        "Conv", [samples, kernel], group=groups, **spatial
    )
    if not spatial_only:
        out = node.node_outputs[0].shape
        output = w.reshape_samples(output, 1, out)
    return w.unflatten_lead(output, lead, x)


def _trimmed(w: GraphWriter, x: str, pads: list[int]) -> tuple[str, list[int]]:
    """x without the elements that negative padding, which ONNX does not have, removes; and the other padding."""
    n = len(pads) // 2
    cropped = [(i + 2, max(-pads[i], 0), max(-pads[n + i], 0)) for i in range(n) if min(pads[i], pads[n + i]) < 0]
    ends = [-after if after else np.iinfo(np.int32).max for _, _, after in cropped]
    x = w.slice(x, [before for _, before, _ in cropped], ends, [axis for axis, _, _ in cropped])
    return x, [max(p, 0) for p in pads]


def _transposed(
    w: GraphWriter, node: Node, x: str, kernel: str, spatial: dict[str, Any], windows: Sequence[Window]
) -> str:
    source = w.inputs(node)[1].shape[1:]
    out = node.node_outputs[0].shape[1:]
    if any(d < 0 for d in (*source, *out)):
        raise ExportError(f"{node!r}: a transposed convolution of free size cannot be written")
    spans = [(n - 1) * v.stride + v.extent for n, v in zip(source, windows, strict=True)]
    before = [v.before for v in windows]
    pads = before + [s - d - b for s, d, b in zip(spans, out, before, strict=True)]
    extra = [max(-p, 0) for p in pads[len(before) :]]
    pads = before + [max(p, 0) for p in pads[len(before) :]]
    options = {k: v for k, v in spatial.items() if k not in ("pads", "auto_pad")}
    return w.node("ConvTranspose", [x, kernel], pads=pads, output_padding=extra if any(extra) else None, **options)


@writes("ConvolutionSequenceShape")
def _lengths(w: GraphWriter, node: Node, kernel: str, x: str) -> str:
    """In ONNX all sequences of a batch have the length of the tensor."""
    return w.dimensions(x, 0, 1)


@writes("Pooling")
def _pooling(w: GraphWriter, node: Node, x: str) -> str:
    (source,) = w.inputs(node)
    a, lead = node.node_attributes, w.lead(source)
    largest = a["poolingType"] == 0
    samples = w.flatten_lead(x, lead, source.shape)
    sizes = a["poolingWindowShape"]
    if is_unknown(sizes) or (sizes == source.shape[1:] and not any(a["autoPadding"]) and len(source.shape) > 1):
        output = w.node("GlobalMaxPool" if largest else "GlobalAveragePool", [samples])
        return w.unflatten_lead(output, lead, x)
    windows = windows_of(a, sizes, source.shape)
    along_channels = len(source.shape) == 1 or windows[0].size > 1 or windows[0].stride > 1
    if along_channels:  # the first axis is pooled too, and becomes a spatial axis
        samples = w.unsqueeze(samples, [1])
    else:
        windows = windows[1:]
    options = _pool_options(node, a, windows, [*([0] * (len(source.shape) - len(windows))), *a["autoPadding"][::-1]])
    if any(p < 0 for p in options.get("pads", ())):
        samples, options["pads"] = _trimmed(w, samples, options["pads"])
    if largest:
        output = w.node("MaxPool", [samples], **options)
    elif any(p >= v.size for v, p in zip(windows, options.get("pads", ()), strict=False)):
        raise ExportError(f"{node!r}: means of windows that lie outside the operand cannot be written")
    else:
        output = w.node("AveragePool", [samples], count_include_pad=int(a["includePad"]), **options)
    if along_channels:
        output = w.squeeze(output, [1])
    return w.unflatten_lead(output, lead, x)


def _pool_options(node: Node, a: dict[str, Any], windows: Sequence[Window], auto: Sequence[Any]) -> dict[str, Any]:
    options = {"kernel_shape": [v.size for v in windows], "strides": [v.stride for v in windows]}
    return options | _pads(node, windows, [bool(v) for v in auto[-len(windows) :]])


@writes("Unpooling")
def _unpooling(w: GraphWriter, node: Node, x: str, pooled: str) -> str:
    """The positions of the maxima are computed again from the operand of the pooling, as in CNTK."""
    values, source = w.inputs(node)
    a, lead = node.node_attributes, w.lead(source)
    windows = windows_of(a, a["unpoolingWindowShape"], source.shape)[1:]
    options = _pool_options(node, a, windows, a["autoPadding"][::-1])
    if any(p < 0 for p in options["pads"]):
        raise ExportError(f"{node!r}: ONNX has no unpooling of windows that skip elements")
    samples = w.flatten_lead(pooled, lead, source.shape)
    _, places = w.multi_node("MaxPool", [samples], 2, **options)
    small = w.flatten_lead(x, w.lead(values), values.shape)
    return w.unflatten_lead(w.node("MaxUnpool", [small, places, w.node("Shape", [samples])], **options), lead, pooled)


@writes("ROIPooling")
def _roi_pooling(w: GraphWriter, node: Node, x: str, rois: str) -> str:
    source, regions = w.inputs(node)
    if w.lead(source) != 1 or w.lead(regions) != 1:
        raise ExportError(f"{node!r}: regions of interest can be written with the batch axis alone")
    n = regions.shape[0]
    out = node.node_outputs[0]
    one = w.constant_of_shape(w.dimensions(x, 0, 1), np.float32(1))
    number = w.node("Transpose", [w.node("NonZero", [one])], perm=[1, 0])  # [N, 1]: 0, 1, 2, ...
    number = w.cast(w.unsqueeze(number, [1]), regions.dtype)
    number = w.node("Expand", [number, w.ints(1, n, 1)])
    flat = w.reshape(w.node("Concat", [number, rois], axis=2), -1, 5)
    regions_pooled = w.node("MaxRoiPool", [x, flat], pooled_shape=list(node.node_attributes["roiOutputShape"]),
                  spatial_scale=float(node.node_attributes["spatialScale"]))
    return w.reshape(regions_pooled, -1, *out.shape)


@writes("BatchNormalization")
def _batch_normalization(w: GraphWriter, node: Node, *x: str) -> str:
    source, *statistics = w.inputs(node)[:5]
    a, lead = node.node_attributes, w.lead(source)
    samples, dtype = w.flatten_lead(x[0], lead, source.shape), source.dtype
    flat = not a["spatial"] and len(source.shape) != 1
    if flat:
        samples = w.reshape_samples(samples, 1, (-1,))
    operands = [_vector(w, v, dtype) for v in statistics]
    output = w.node("BatchNormalization", [samples, *operands], epsilon=float(a["epsilon"]),
                    momentum=momentum(a["normalizationTimeConstant"]))
    if flat:
        output = w.reshape_samples(output, 1, source.shape)
    return w.unflatten_lead(output, lead, x[0])


def _vector(w: GraphWriter, variable: Edge, dtype: Any) -> str:
    """A vector of the operand's type: CNTK keeps statistics of half precision in float32."""
    if isinstance(variable, Leaf) and (len(variable.shape) != 1 or variable.dtype is not dtype):
        return w.array(np.asarray(value_of(variable), dtype).reshape(-1), variable.name or variable.uid)
    return w.tensor(variable) if len(variable.shape) == 1 else w.reshape(w.tensor(variable), -1)


# ---- blocks
def _scales(block: Node) -> bool:
    return bool(block.node_attributes.get("doVarianceScaling", False))


@writes_block("MeanVarianceNormalization", matches=_scales)
def _mean_variance(w: GraphWriter, node: Node, x: str) -> str:
    source = w.block_operand(node)
    lead, rank = w.lead(source), len(source.shape)
    across_channels = node.node_attributes["useStatsAcrossChannels"] or rank < 2
    axes = list(range(lead + (0 if across_channels else 1), lead + rank))
    return _normalized(w, x, source, axes, float(node.node_attributes["epsilon"]))


@writes_block("LayerNormalization", matches=lambda b: _epsilon(b) is not None)
def _layer_normalization(w: GraphWriter, node: Node, x: str) -> str:
    source = w.block_operand(node)
    lead, rank = w.lead(source), len(source.shape)
    normalized = _normalized(w, x, source, list(range(lead, lead + rank)), _epsilon(node) or 0.0)
    scale, bias = (w.tensor(w.resolve(outside(v))) for v in _affine(node))
    return w.node("Add", [w.node("Mul", [normalized, scale]), bias])


def _normalized(w: GraphWriter, x: str, source: Edge, axes: list[int], epsilon: float) -> str:
    """(x - mean) / (standard deviation + epsilon). In opset 9 by ONNX's MeanVarianceNormalization, as CNTK writes it,
    which has an epsilon of 1e-9 under the root: practically the same for CNTK's defaults, 0 and 1e-5.
    """
    if w.opset == 9 and epsilon <= 1.1e-5 and not w.in_scan:
        return w.node("MeanVarianceNormalization", [x], axes=axes)
    centered = w.node("Sub", [x, w.reduce("ReduceMean", x, axes, True)])
    deviation = w.node("Sqrt", [w.reduce("ReduceMean", w.node("Mul", [centered, centered]), axes, True)])
    return w.node("Div", [centered, w.node("Add", [deviation, w.scalar(epsilon, source)])])


def _affine(block: Node) -> tuple[Edge, Edge]:
    """Scale and bias of a layer normalization, which ends with x * scale + bias."""
    root = block.block_composite.root_function  # type: ignore[union-attr]
    product, bias = root.node_inputs
    scale = next(v for v in producer(product).node_inputs if isinstance(outside(v), Leaf))  # type: ignore[union-attr]
    return scale, bias


def _epsilon(block: Node) -> float | None:
    """The number added to the standard deviation of a layer normalization; None if it is another composition."""
    inner = nodes_inside(block)
    root = inner[-1]
    product = producer(root.node_inputs[0])
    if root.op_name != "Plus" or product is None or product.op_name != "ElementTimes":
        return None
    if not isinstance(outside(root.node_inputs[1]), Leaf):
        return None
    sums = [
        n for n in inner if n.op_name == "Plus" and n is not root
        and (source := producer(n.node_inputs[0])) is not None and source.op_name == "Sqrt"
    ]
    if not sums:
        return 0.0
    added = outside(sums[0].node_inputs[1])
    return float(np.asarray(value_of(added))) if isinstance(added, Leaf) and np.size(value_of(added)) == 1 else None


def _has_whole_windows(block: Node) -> bool:
    """Not of fewer channels than the window: CNTK then sums over fewer than ONNX does."""
    channels, radius = block.node_outputs[0].shape[0], int(block.node_attributes.get("depthRadius", -1))
    return radius >= 0 and not 1 < channels < 2 * radius + 1


@writes_block("LocalResponseNormalization", matches=_has_whole_windows)
def _local_response(w: GraphWriter, node: Node, x: str) -> str:
    source, a = w.block_operand(node), node.node_attributes
    lead, window = w.lead(source), 2 * int(a["depthRadius"]) + 1
    samples = w.flatten_lead(x, lead, source.shape)
    alpha, beta, bias = (float(a[k]) for k in ("alpha", "beta", "bias"))
    output = w.node("LRN", [samples], size=window, alpha=alpha, beta=beta, bias=bias)
    return w.unflatten_lead(output, lead, x)


@writes_block("ImageScaler", matches=lambda b: {"Scaler", "Biases"} <= set(b.node_attributes), batch_of_one=True)
def _image_scaler(w: GraphWriter, node: Node, x: str) -> str:
    source, a = w.block_operand(node), node.node_attributes
    lead, n = w.lead(source), source.shape[0]
    operands = [w.array(np.asarray(v, source.dtype)) for v in (
        np.full(n, float(a["Scaler"])), a["Biases"], np.zeros(n), np.ones(n)
    )]
    output = w.node("BatchNormalization", [w.flatten_lead(x, lead, source.shape), *operands], epsilon=0.0)
    return w.unflatten_lead(output, lead, x)
