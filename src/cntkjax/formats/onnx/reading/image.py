"""Convolution, normalization and rearranged channels: operations on [samples, channels, *spatial]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .... import ops
from ....ops._blocks import as_one_block
from ....variables import Constant
from .._onnx import time_constant
from .table import OnnxNode, reads
from .values import Operand, Outputs, apply_primitive, output_of


def batched(f: Callable[[Operand], Operand], x: Operand) -> Operand:
    """Apply a function of samples, with the first axis of x as the batch axis."""
    return ops.unpack_batch(f(ops.to_batch(x)))


def image_operand(node: OnnxNode, least: int = 3) -> Operand:
    """The first operand. Errors: FormatError if it has fewer axes than `least`."""
    x = node.operand()
    if len(x.shape) < least:
        raise node.error(f"an operand of shape {x.shape} has no samples, channels and space")
    return x


def borders(
    node: OnnxNode, spatial: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The padding before and after the elements along each axis."""
    n, auto = len(kernel), node.string("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = integers(node, "pads", [0] * (2 * n))
        return pads[:n], pads[n:]
    if auto == "VALID":
        return [0] * n, [0] * n
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.error(f"auto_pad {auto!r} is not known")
    low, high = [], []
    for size, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
        if size < 0 and s != 1:
            raise node.error("auto_pad along an open axis with strides cannot be read")
        extent = (k - 1) * d + 1
        total = extent - 1 if size < 0 else max((-(-size // s) - 1) * s + extent - size, 0)
        smaller, larger = total // 2, total - total // 2
        low.append(smaller if auto == "SAME_UPPER" else larger)
        high.append(larger if auto == "SAME_UPPER" else smaller)
    return low, high


def integers(node: OnnxNode, name: str, default: Sequence[int]) -> list[int]:
    """An attribute with as many numbers as `default`. Errors: FormatError for others, or numbers it cannot have."""
    values = node.ints(name, default)
    assert values is not None
    if len(values) != len(default) or any(abs(v) > 2**16 for v in values):
        raise node.error(f"attribute {name} {values}: {len(default)} values are needed")
    if name != "pads" and any(v < 1 for v in values) and name not in ("output_padding", "output_shape"):
        raise node.error(f"attribute {name} {values}: values have to be above 0")
    if name in ("pads", "output_padding") and any(v < 0 for v in values):
        raise node.error(f"attribute {name} {values}: values below 0 cannot be read")
    return values


@dataclass(frozen=True)
class _Window:
    """How a kernel moves over an operand: one number for each spatial axis; `output` is for transposed convolutions."""

    strides: Sequence[int]
    dilations: Sequence[int]
    low: Sequence[int]
    high: Sequence[int]
    output: tuple[int, ...] = ()


@reads("Conv")
def _conv(node: OnnxNode) -> Outputs:
    x = image_operand(node)
    return biased(node, convolution(node, x, node.operand(1)), 2)


def convolution(node: OnnxNode, x: Operand, kernel: Operand) -> Operand:
    """The convolution of x `[samples, channels, *spatial]` with the attributes of the node, without a bias."""
    n = len(x.shape) - 2
    if len(kernel.shape) != n + 2:
        raise node.error(f"a kernel of shape {kernel.shape} for an operand of shape {x.shape}")
    size = integers(node, "kernel_shape", kernel.shape[2:])
    strides, dilations = (integers(node, k, [1] * n) for k in ("strides", "dilations"))
    window = _Window(strides, dilations, *borders(node, x.shape[2:], size, strides, dilations))
    groups = node.integer("group", 1)
    return _block("Convolution", lambda v, weights: _convolved(weights, v, window, groups), x, kernel)


def _block(name: str, f: Callable[[Operand, Operand], Operand], x: Operand, kernel: Operand) -> Operand:
    """A function of samples and a kernel as a block: as in CNTK, x comes before the kernel among the arguments."""
    operands = [output_of(x), output_of(kernel)]
    return as_one_block(name, lambda v, weights: batched(lambda samples: f(samples, weights), v), operands)


def _convolved(kernel: Operand, x: Operand, window: _Window, groups: int, channels: int = 0) -> Operand:
    """A convolution; with `channels`, the number of output channels, a transposed one."""
    attributes = {
        "strides": (max(x.shape[0], 1), *window.strides), "dilation": (1, *window.dilations), "groups": groups,
        "autoPadding": [False], "lowerPad": (0, *window.low), "upperPad": (0, *window.high), "sharing": [True],
        "transpose": bool(channels), "outputShape": (channels, *window.output) if channels else (0,),
    }
    return apply_primitive("Convolution", [kernel, x], attributes)


def biased(node: OnnxNode, convolved: Operand, operand: int) -> Operand:
    """With the bias of each channel, if the node has this operand."""
    if not node.has(operand):
        return convolved
    return ops.plus(convolved, for_each_channel(node.operand(operand), convolved))


def for_each_channel(values: Operand, x: Operand) -> Operand:
    """A vector of one value for each channel, in a shape that broadcasts to x `[samples, channels, *spatial]`."""
    return ops.reshape(values, (values.shape[0], *(1,) * (len(x.shape) - 2)))


@reads("ConvTranspose")
def _conv_transpose(node: OnnxNode) -> Outputs:
    x, kernel = image_operand(node), node.operand(1)
    n, groups = len(x.shape) - 2, node.integer("group", 1)
    if len(kernel.shape) != n + 2 or any(d < 0 for d in x.shape[1:]) or kernel.shape[0] != x.shape[1]:
        raise node.error(f"a kernel of shape {kernel.shape} for an operand of shape {x.shape}")
    window = _transposed_window(node, x.shape[2:], kernel.shape[2:])
    if not 1 <= groups <= 1024 or kernel.shape[0] % groups:
        raise node.error(f"{groups} groups of {kernel.shape[0]} channels")

    def transposed(v: Operand, weights: Operand) -> Operand:
        channels, per_group = kernel.shape[0] // groups, kernel.shape[1]
        if groups == 1:
            return _convolved(weights, v, window, 1, per_group)
        parts = []
        for g in range(groups):
            begin, end = g * channels, (g + 1) * channels if g + 1 < groups else 0
            part = ops.slice(v, 0, begin, end)
            parts.append(_convolved(ops.slice(weights, 0, begin, end), part, window, 1, per_group))
        return ops.splice(*parts, axis=0)

    return biased(node, _block("ConvolutionTranspose", transposed, x, kernel), 2)


def _transposed_window(node: OnnxNode, spatial: Sequence[int], kernel: Sequence[int]) -> _Window:
    """The window of a transposed convolution; its padding follows from the output's shape, or the other way round."""
    n, auto = len(spatial), node.string("auto_pad", "NOTSET")
    size = integers(node, "kernel_shape", kernel)
    strides, dilations = (integers(node, k, [1] * n) for k in ("strides", "dilations"))
    extra = integers(node, "output_padding", [0] * n)
    extents = zip(spatial, strides, size, dilations, strict=True)
    unpadded = [(d - 1) * s + (k - 1) * dilation + 1 for d, s, k, dilation in extents]
    output: list[int] | None = None
    if node.attribute("output_shape") is not None:
        has_channels = len(node.ints("output_shape") or ()) == n + 2  # [samples, channels, *spatial], of ONNX 1.3
        output = integers(node, "output_shape", [0] * (n + 2 * has_channels))[-n:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        output = [d * s for d, s in zip(spatial, strides, strict=True)]
    if output is None:
        pads = integers(node, "pads", [0] * (2 * n)) if auto == "NOTSET" else [0] * (2 * n)
        low, high = pads[:n], pads[n:]
        output = [u + e - a - b for u, e, a, b in zip(unpadded, extra, low, high, strict=True)]
    else:
        total = [u + e - o for u, e, o in zip(unpadded, extra, output, strict=True)]
        low = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total]
        high = [t - a for t, a in zip(total, low, strict=True)]
    if any(o < 1 or o > 2**16 for o in output):
        raise node.error(f"an output of shape {output}")
    return _Window(strides, dilations, low, high, tuple(output))


# ---- normalization
@reads("BatchNormalization")
def _batch_normalization(node: OnnxNode) -> Outputs:
    x = image_operand(node, 2)
    if node.integer("training_mode", 0):
        raise node.error("training mode cannot be read")
    dtype = np.float32 if x.dtype is np.float16 else x.dtype
    spatial = bool(node.integer("spatial", 1)) if node.opset < 9 else True
    scale, bias, mean, variance = (_statistics(node, i, dtype, fixed=i > 2) for i in range(1, 5))

    def normalized(v: Operand) -> Operand:
        return ops.batch_normalization(
            v, scale, bias, mean, variance, spatial, time_constant(node.number("momentum", 0.9)),
            epsilon=node.number("epsilon", 1e-5), use_cudnn_engine=False, running_count=Constant(0, dtype=dtype),
        )

    return batched(normalized, x)


def _statistics(node: OnnxNode, i: int, dtype: type | None, fixed: bool) -> Operand:
    """Scale and bias are trained; mean and variance (`fixed`) are statistics of the data, and constants as in CNTK."""
    value, name = node.known_array(i), node.proto.input[i]
    if value is None:
        return node.operand(i)
    if fixed or node.operand(i).dtype is not dtype:
        return Constant(value.astype(dtype).reshape(-1), dtype=dtype, name=name)
    return node.operand(i) if value.ndim == 1 else ops.reshape(node.operand(i), (-1,))


@reads("LRN")
def _lrn(node: OnnxNode) -> Outputs:
    x, size = image_operand(node), node.integer("size", 0)
    if not 1 <= size <= 4096 or size % 2 == 0:
        raise node.error(f"a window of {size} channels; it has to be odd")
    options = node.number("bias", 1.0), node.number("alpha", 1e-4), node.number("beta", 0.75)

    def normalized(v: Operand) -> Operand:
        """Of fewer channels CNTK's window has only as many; with zeros behind them it sums as in ONNX."""
        channels = v.shape[0]
        if not 1 < channels < size or node.reader.from_cntk:
            return ops.local_response_normalization(v, size // 2, *options)
        padded = ops.pad(v, [(0, size - channels), *[(0, 0)] * (len(v.shape) - 1)])
        return ops.slice(ops.local_response_normalization(padded, size // 2, *options), 0, 0, channels)

    return batched(normalized, x)


@reads("MeanVarianceNormalization")
def _mean_variance(node: OnnxNode) -> Outputs:
    """Within each sample if possible; CNTK lists the batch axis among the axes, because it is of size 1."""
    x = node.operand()
    rank = len(x.shape)
    axes = node.ints("axes", (0, 2, 3))
    assert axes is not None
    axes_reduced = sorted({node.axis(a, rank) for a in axes})
    epsilon = 1e-5 if node.reader.from_cntk else 1e-9
    sample_axes = [a for a in axes_reduced if a]
    all_axes = sample_axes == list(range(1, rank))
    single = axes_reduced[:1] != [0] or x.shape[0] == 1 or node.reader.from_cntk
    if single and sample_axes and (all_axes or sample_axes == list(range(2, rank))):
        return batched(lambda v: ops.mean_variance_normalization(v, epsilon, all_axes, True), x)
    centered = ops.minus(x, ops.reduce_mean(x, axes_reduced))
    deviation = ops.sqrt(ops.reduce_mean(ops.square(centered), axes_reduced))
    return ops.element_divide(centered, ops.plus(deviation, Constant(epsilon, dtype=x.dtype)))


@reads("LayerNormalization")
def _layer_normalization(node: OnnxNode) -> Outputs:
    """The scaled values; the second and third output are the means and the inverse deviations."""
    x = node.operand()
    axes = list(range(node.axis(node.integer("axis", -1), len(x.shape)), len(x.shape)))
    mean = ops.reduce_mean(x, axes)
    centered = ops.minus(x, mean)
    variance = ops.reduce_mean(ops.square(centered), axes)
    deviation = ops.sqrt(ops.plus(variance, Constant(node.number("epsilon", 1e-5), dtype=x.dtype)))
    output = ops.element_times(ops.element_divide(centered, deviation), node.operand(1))
    output = ops.plus(output, node.operand(2)) if node.has(2) else output
    return [output, mean, ops.reciprocal(deviation)][: len(node.proto.output)]


@reads("RMSNormalization")
def _rms(node: OnnxNode) -> Outputs:
    x = node.operand()
    axes = list(range(node.axis(node.integer("axis", -1), len(x.shape)), len(x.shape)))
    mean = ops.reduce_mean(ops.square(x), axes)
    root = ops.sqrt(ops.plus(mean, Constant(node.number("epsilon", 1e-5), dtype=x.dtype)))
    return ops.element_times(ops.element_divide(x, root), node.operand(1))


@reads("InstanceNormalization")
def _instance_normalization(node: OnnxNode) -> Outputs:
    x = image_operand(node)
    normalized = _standardized(x, list(range(2, len(x.shape))), node.number("epsilon", 1e-5))
    return _scaled(x, normalized, node.operand(1), node.operand(2))


@reads("GroupNormalization")
def _group_normalization(node: OnnxNode) -> Outputs:
    x, groups = image_operand(node), node.integer("num_groups", 1)
    if groups < 1 or any(d < 0 for d in x.shape[1:]) or x.shape[1] % groups:
        raise node.error(f"{groups} groups of an operand of shape {x.shape}")
    grouped = ops.reshape(x, (groups, x.shape[1] // groups, *x.shape[2:]), begin_axis=1)
    normalized = _standardized(grouped, list(range(2, len(grouped.shape))), node.number("epsilon", 1e-5))
    normalized = ops.reshape(normalized, x.shape[1:], begin_axis=1)
    scale, bias = node.operand(1), node.operand(2)
    if scale.shape != (x.shape[1],):  # one for each group, as before opset 21
        scale, bias = (ops.reshape(ops.splice(*[ops.reshape(v, (-1, 1))] * (x.shape[1] // groups), axis=1), (-1,))
                       for v in (scale, bias))
    return _scaled(x, normalized, scale, bias)


def _standardized(x: Operand, axes: list[int], epsilon: float) -> Operand:
    centered = ops.minus(x, ops.reduce_mean(x, axes))
    variance = ops.reduce_mean(ops.square(centered), axes)
    return ops.element_divide(centered, ops.sqrt(ops.plus(variance, Constant(epsilon, dtype=x.dtype))))


def _scaled(x: Operand, normalized: Operand, scale: Operand, bias: Operand) -> Operand:
    shape = (x.shape[1], *(1,) * (len(x.shape) - 2))
    return ops.plus(ops.element_times(normalized, ops.reshape(scale, shape)), ops.reshape(bias, shape))


@reads("LpNormalization")
def _lp_normalization(node: OnnxNode) -> Outputs:
    x = node.operand()
    axis = node.axis(node.integer("axis", -1), len(x.shape))
    norm = (ops.reduce_l1 if node.integer("p", 2) == 1 else ops.reduce_l2)(x, axis)
    return ops.element_divide(x, norm)


@reads("Dropout")
def _dropout(node: OnnxNode) -> Outputs:
    ratio = node.number("ratio", 0.5) if node.opset < 12 else float(node.array(1).reshape(())) if node.has(1) else 0.5
    if not 0 <= ratio < 1:
        raise node.error(f"a ratio of {ratio}")
    output = ops.dropout(node.operand(), ratio)
    return [output, ops.ones_like(node.operand())][: max(len(node.proto.output), 1)]


# ---- channels and space
@reads("Crop")
def _crop(node: OnnxNode) -> Outputs:
    """Without borders of these widths: left, top, right, bottom. The standard had it before opset 10."""
    x, border = image_operand(node, 4), node.ints("border", ()) or []
    if len(border) != 4 or min(border) < 0 or node.ints("scale"):
        raise node.error("only four borders, of a width of at least 0, can be cut off")
    left, top, right, bottom = border
    return ops.slice(x, [2, 3], [top, left], [-bottom, -right])


@reads("ImageScaler")
def _image_scaler(node: OnnxNode) -> Outputs:
    bias = node.attribute("bias", [])
    return batched(lambda v: ops.image_scaler(v, node.number("scale", 1.0), list(bias)), image_operand(node, 4))


@reads("DepthToSpace")
def _depth_to_space(node: OnnxNode) -> Outputs:
    x, b = image_operand(node, 4), node.integer("blocksize", 0)
    if not 1 <= b <= 1024:
        raise node.error(f"blocks of {b}")
    if node.string("mode", "DCR") == "DCR":
        return batched(lambda v: ops.depth_to_space(v, b), x)
    _, c, h, wide = x.shape
    blocks = ops.reshape(x, (c // (b * b), b, b, h, wide), begin_axis=1)
    return ops.reshape(ops.transpose(blocks, (0, 1, 4, 2, 5, 3)), (c // (b * b), h * b, wide * b), begin_axis=1)


@reads("SpaceToDepth")
def _space_to_depth(node: OnnxNode) -> Outputs:
    x, b = image_operand(node, 4), node.integer("blocksize", 0)
    if not 1 <= b <= 1024:
        raise node.error(f"blocks of {b}")
    if node.string("mode", "DCR") == "DCR":
        return batched(lambda v: ops.space_to_depth(v, b), x)
    _, c, h, wide = x.shape
    blocks = ops.reshape(x, (c, h // b, b, wide // b, b), begin_axis=1)
    return ops.reshape(ops.transpose(blocks, (0, 1, 3, 5, 2, 4)), (c * b * b, h // b, wide // b), begin_axis=1)


@reads("MaxRoiPool")
def _roi_pool(node: OnnxNode) -> Outputs:
    """Regions [n, 5] of one image: the number of the image, which has to be 0, and the corners."""
    x, rois = image_operand(node, 4), node.operand(1)
    shape = integers(node, "pooled_shape", [1, 1])
    if x.shape[0] != 1 or rois.shape[1:] != (5,):
        raise node.error("regions of one image can be read, not of a batch")
    corners = ops.expand_dims(ops.slice(rois, 1, 1, 0), -3)
    pooled = ops.roipooling(ops.to_batch(x), ops.to_batch(corners), ops.MAX_POOLING, shape,
                          node.number("spatial_scale", 1.0))
    return ops.squeeze(ops.slice(ops.unpack_batch(pooled), 0, 0, 1), [0])
