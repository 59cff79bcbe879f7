"""Products, convolutions, pooling and normalization."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .table import filled, integers, operation


@operation("Times")
def times(
    C: Any, a: Any, b: Any, *, outputRank: float = 1, inferInputRankToMap: float = -1, resultShape: Any = None,
    name: str,
) -> Any:
    """The product of a matrix or tensor and a column, or columns; a matrix as wide as all of b flattens it.

    `resultShape`: what is known of it where a loop looks back at it.
    """
    if len(a.shape) == 2 and len(b.shape) > 1 and a.shape[0] == math.prod(b.shape) != b.shape[-1]:
        b = C.reshape(b, (a.shape[0],))
    if b.shape == (1, 1):  # a is a column, whose number of axes may be unknown yet
        return C.element_times(a, b, name=name)
    if outputRank == 0:
        return C.squeeze(C.times(b, C.reshape(a, (*a.shape, 1))), -1, name=name)
    return C.times(b, a, output_rank=int(outputRank), infer_input_rank_to_map=int(inferInputRankToMap), name=name)


@operation("TransposeTimes")
def transpose_times(C: Any, a: Any, b: Any, *, outputRank: float = 1, name: str) -> Any:
    """The product with the transpose of the first operand."""
    if len(a.shape) == 1:
        return C.times(b, C.reshape(a, (*a.shape, 1)), name=name)
    if len(a.shape) == 2 and outputRank == 1:
        return C.times_transpose(b, a, name=name)
    return C.times(b, C.swapaxes(a, -1, -2), output_rank=int(outputRank), name=name)


@operation("LookupTable")
def lookup_table(C: Any, a: Any, b: Any, *, name: str) -> Any:
    """The product of a matrix with each part of a column that is as long as the matrix is wide, one after the other."""
    parts = b.shape[-1] // a.shape[0] if b.shape and min(a.shape[0], b.shape[-1]) > 0 else 1
    if parts == 1:
        return C.times(b, a, name=name)
    return C.reshape(C.times(C.reshape(b, (parts, a.shape[0])), a), (parts * a.shape[1],), name=name)


@operation("KhatriRaoProduct")
def khatri_rao(C: Any, a: Any, b: Any, *, name: str) -> Any:
    """All products of an element of one column and an element of the other."""
    (m,), (n,) = a.shape[-1:], b.shape[-1:]
    outer = C.element_times(C.reshape(b, (n, 1)), C.reshape(a, (1, m)))
    return C.reshape(outer, (n * m,), name=name)


@operation("Convolution")
def convolution(
    C: Any, kernel: Any, x: Any, *, kernelShape: Any = 0.0, mapDims: Any = 0.0, stride: Any = 1.0,
    sharing: Any = True, autoPadding: Any = True, lowerPad: Any = 0.0, upperPad: Any = 0.0, dilation: Any = 1.0,
    groups: Any = 1.0, transpose: Any = False, dimOutput: Any = 0.0, imageLayout: str = "CHW", name: str,
) -> Any:
    """A convolution, or with `transpose` its adjoint; a matrix of weights is the same buffer in the kernel's shape."""
    window, groups = integers(kernelShape), int(groups)
    if _is_legacy(imageLayout):
        kernel = _planes_of_kernel(C, kernel, window, x, imageLayout)

    def build(x: Any, name: str) -> Any:
        sizes = [*window, x.shape[0] // groups] if len(window) + 1 == len(x.shape) else window
        rank = len(sizes)
        padding = [bool(each) for each in _spatial(autoPadding, rank, False)]
        margins = _margins(padding, _spatial(lowerPad, rank, 0), _spatial(upperPad, rank, 0))
        steps, dilations = (tuple(int(each) for each in _spatial(value, rank, 1)) for value in (stride, dilation))
        if not all(_spatial(sharing, rank, True)[1:]):  # there is one position along the channels
            return _local(C, kernel, x, sizes, steps, padding, name)
        weights = _kernel(C, kernel, sizes, integers(mapDims))
        common = {"strides": steps, "auto_padding": padding, "dilation": dilations}
        if not transpose:
            return C.convolution(weights, _with_margins(C, x, margins, 0.0), **common, groups=groups, name=name)
        size = list(reversed(integers(dimOutput)))
        wide = tuple(each + sum(margin) for each, margin in zip(size, margins, strict=False)) if any(size) else None
        return _inside(C, margins, name, lambda name: C.convolution_transpose(
            weights, x, **common, output_shape=wide, name=name
        ))

    return _by_planes(C, x, imageLayout, build, name)


def _is_legacy(layout: str) -> bool:
    """Whether images are [channels x width x height], as in NDL unless imageLayout is cudnn."""
    return layout.lower() in ("hwc", "legacy")


def _by_planes(C: Any, x: Any, layout: str, build: Callable[[Any, str], Any], name: str) -> Any:
    """What `build` makes of an image and a name; one in the legacy layout is put into planes, and its result back."""
    if not _is_legacy(layout) or len(x.shape) != 3:
        return build(x, name)
    return C.transpose(build(C.transpose(x, (2, 0, 1)), ""), (1, 2, 0), name=name)


def _planes_of_kernel(C: Any, kernel: Any, window: list[int], x: Any, layout: str) -> Any:
    """Weights [maps x elements of a window, in the order of a legacy image] as [maps, channels, ...]."""
    if len(window) != 2 or len(kernel.shape) != 2 or -1 in kernel.shape:
        raise ValueError(f"convolutions of images in the layout '{layout}' need weights [maps x channels * width * "
                         "height], the width and height of a window, and mapCount: or set imageLayout to cudnn")
    return C.transpose(C.reshape(kernel, (*reversed(window), x.shape[-1], kernel.shape[-1])), (3, 2, 0, 1))


def _local(
    C: Any, kernel: Any, x: Any, window: list[int], steps: tuple[int, ...], padding: list[bool], name: str,
) -> Any:
    """Each position with weights of its own, [positions * maps x elements of a window]."""
    size = math.prod(window)
    select = C.Constant(np.eye(size, dtype=np.float32).reshape(size, *reversed(window)))
    patches = C.convolution(select, x, strides=steps, auto_padding=padding)
    positions = patches.shape[1:]
    maps = kernel.shape[-1] // math.prod(positions)
    weights = C.reshape(kernel, (size, maps, *positions))
    products = C.element_times(weights, C.reshape(patches, (size, 1, *positions)))
    return C.reshape(C.reduce_sum(products, axis=0), (maps, *positions), name=name)


def _spatial(value: Any, rank: int, of_channels: Any) -> list[Any]:
    """One value for each axis, the channels first; a single value is meant for the others."""
    if isinstance(value, list) and len(value) > 1:
        return filled(value, rank, of_channels)
    single = value[0] if isinstance(value, list) else value
    return [of_channels] + [single] * (rank - 1)


def _kernel(C: Any, kernel: Any, window: list[int], maps: list[int]) -> Any:
    """The weights as [maps, channels, ...]."""
    if len(kernel.shape) > len(window):
        return kernel
    outputs = maps[-1] or kernel.shape[-1]
    if -1 in kernel.shape:
        raise ValueError(f"the weights of a convolution need both dimensions, [{outputs} x {math.prod(window)}]")
    return C.reshape(kernel, (outputs, *reversed(window)))


def _margins(padding: list[bool], lower: list[Any], upper: list[Any]) -> list[tuple[int, int]]:
    """Explicit margins, on axes without automatic ones."""
    pairs = zip(padding, lower, upper, strict=True)
    return [(0, 0) if automatic else (int(low), int(high)) for automatic, low, high in pairs]


def _with_margins(C: Any, x: Any, margins: list[tuple[int, int]], value: float) -> Any:
    return C.pad(x, margins, constant_value=value) if any(map(any, margins)) else x


def _inside(C: Any, margins: list[tuple[int, int]], name: str, build: Callable[[str], Any]) -> Any:
    """What `build` makes of a name, without the margins that it has."""
    axes = [axis for axis, margin in enumerate(margins) if any(margin)]
    if not axes:
        return build(name)
    lower, upper = zip(*(margins[axis] for axis in axes), strict=True)
    return C.slice(build(""), axes, lower, [-each for each in upper], name=name)


@operation("Pooling")
def pooling(
    C: Any, x: Any, *, pool: str = "max", kernelShape: Any = 1.0, stride: Any = 1.0, autoPadding: Any = True,
    lowerPad: Any = 0.0, upperPad: Any = 0.0, ceilOut: Any = False, includePad: Any = False, imageLayout: str = "CHW",
    name: str,
) -> Any:
    """The largest or mean value of each window."""
    kind = C.MAX_POOLING if pool == "max" else C.AVG_POOLING
    window, steps, padding, margins = _windows(x, kernelShape, stride, autoPadding, lowerPad, upperPad)
    wide = _with_margins(C, x, margins, -1e30 if pool == "max" else 0.0)

    def pooled(each: Any, name: str = "") -> Any:
        return C.pooling(
            each, kind, window, strides=steps, auto_padding=padding, ceil_out_dim=bool(ceilOut),
            include_pad=bool(includePad), name=name,
        )

    if wide is x or pool == "max" or includePad:
        return pooled(wide, name)
    inside = _with_margins(C, C.Constant(np.ones(x.shape, np.float32)), margins, 0.0)
    return C.element_divide(pooled(wide), pooled(inside), name=name)  # means do not count the margins


def _windows(
    x: Any, shape: Any, stride: Any, padding: Any, lower: Any, upper: Any
) -> tuple[tuple[int, ...], tuple[int, ...], list[bool], list[tuple[int, int]]]:
    """Window, steps, padding and margins for all axes of x; those that the window does not mention are not pooled."""
    sizes = integers(shape)
    rank = max(len(x.shape), len(sizes))
    steps, flags, low, high = (
        [int(each) for each in filled(filled(value, len(sizes), none)[::-1], rank, none)]
        for value, none in ((stride, 1), (padding, 0), (lower, 0), (upper, 0))
    )
    padded = [bool(flag) for flag in flags]
    return tuple(filled(sizes, rank, 1)), tuple(steps), padded, _margins(padded, low, high)


@operation("MaxPooling", "AveragePooling")
def pooling_2d(
    C: Any, x: Any, *, windowWidth: float, windowHeight: float, horizontalSubsample: float, verticalSubsample: float,
    average: bool = False, imageLayout: str = "CHW", name: str,
) -> Any:
    """Pooling of windows of an image."""
    kind = C.AVG_POOLING if average else C.MAX_POOLING
    window = (1, int(windowHeight), int(windowWidth))
    steps = (1, int(verticalSubsample), int(horizontalSubsample))
    return _by_planes(C, x, imageLayout, lambda x, name: C.pooling(
        x, kind, window, strides=steps, auto_padding=[False, False, False], name=name
    ), name)


@operation("MaxUnpooling")
def unpooling(
    C: Any, x: Any, pooled_from: Any, *, kernelShape: Any, stride: Any = 1.0, autoPadding: Any = True,
    lowerPad: Any = 0.0, upperPad: Any = 0.0, imageLayout: str = "CHW", name: str,
) -> Any:
    """Values back at the positions of the maxima."""
    window, steps, padding, margins = _windows(x, kernelShape, stride, autoPadding, lowerPad, upperPad)
    wide = _with_margins(C, pooled_from, margins, -1e30)
    return _inside(C, margins, name, lambda name: C.unpooling(
        x, wide, C.MAX_UNPOOLING, window, strides=steps, auto_padding=padding, name=name
    ))


@operation("ROIPooling", "MaxROIPooling")
def roi_pooling(C: Any, x: Any, rois: Any, *, roiOutputShape: Any, spatialScale: float = 1 / 16, name: str) -> Any:
    """The largest values of parts of regions of an image."""
    size = tuple(reversed(integers(roiOutputShape)))
    return C.roipooling(x, rois, C.MAX_POOLING, size, float(spatialScale), name=name)


@operation("BatchNormalization")
def batch_normalization(
    C: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *counts: Any, spatial: bool = False,
    normalizationTimeConstant: float = 0.0, blendTimeConstant: float = 0.0, epsilon: float = 1e-5,
    useCntkEngine: bool = True, imageLayout: str = "CHW", frozen: bool = False, name: str,
) -> Any:
    """Normalization with the mean and variance of the minibatch, or running ones; `frozen`: always with these."""
    if frozen:
        sizes = (-1, *[1] * (len(x.shape) - 1)) if spatial else x.shape
        scale, bias, mean, variance = (C.reshape(each, sizes) for each in (scale, bias, mean, variance))
        factor = C.element_times(scale, C.reciprocal(C.sqrt(C.plus(variance, float(epsilon)))))
        return C.plus(C.element_times(C.minus(x, mean), factor), bias, name=name)
    count = counts[0] if counts else C.Constant(0.0, ())
    return _by_planes(C, x, imageLayout if spatial else "CHW", lambda x, name: C.batch_normalization(
        x, scale, bias, mean, variance, bool(spatial), normalization_time_constant=float(normalizationTimeConstant),
        blend_time_constant=float(blendTimeConstant), epsilon=float(epsilon), use_cudnn_engine=not useCntkEngine,
        running_count=count, name=name,
    ), name)


@operation("LocalResponseNormalization")
def lrn(C: Any, x: Any, *, depthRadius: float, bias: float, alpha: float, beta: float, name: str) -> Any:
    """Normalization over neighbouring channels."""
    return C.local_response_normalization(x, int(depthRadius), float(bias), float(alpha), float(beta), name=name)


@operation("OptimizedRNNStack", sequences=True)
def optimized_rnn_stack(
    C: Any, weights: Any, x: Any, *, hiddenDims: float, numLayers: float = 1.0, bidirectional: bool = False,
    recurrentOp: str = "lstm", axis: float = -1.0, name: str,
) -> Any:
    """Recurrent layers with all weights in one matrix."""
    sizes = int(hiddenDims), int(numLayers)
    return C.optimized_rnnstack(x, weights, *sizes, bool(bidirectional), recurrentOp, name=name)


@operation("Dropout")
def dropout(C: Any, x: Any, *, name: str) -> Any:
    """Elements set to zero at random; the rate is that of the training."""
    return C.dropout(x, 0.0, name=name)


@operation("Crop")
def crop(
    C: Any, x: Any, reference: Any, *nodes: Any, yOffset: Any = None, xOffset: Any = None, name: str,
) -> Any:
    """The part of x that has the size of another image; at offsets, or where both come from."""
    if nodes:
        return C.crop_automatic_with_ancestors(x, reference, nodes[0], nodes[1], name=name)
    if xOffset is None or yOffset is None:
        return C.crop_automatic(x, reference, name=name)
    return C.crop_manual(x, reference, int(xOffset), int(yOffset), name=name)
