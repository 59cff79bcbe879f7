"""Resized images: along each axis, a product with a matrix of the weights of the elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .... import ops
from ....variables import Constant
from .checks import check_size
from .table import OnnxNode, reads
from .values import Dim, Operand, Outputs

MOST_REPEATS = 64  # along one axis, as nodes of the graph
_PROBE = 12  # elements of an axis that stand for one of open size


@dataclass(frozen=True)
class _Axis:
    """One axis of `size` elements (below 0: open) that is resized by `scale`, to `resized` elements."""

    size: int
    scale: float
    resized: int
    region: tuple[float, float] = (0.0, 1.0)


@reads("Upsample", "Resize")
def _resize(node: OnnxNode) -> Outputs:
    x = node.operand()
    rank = len(x.shape)
    if node.op == "Resize" and node.opset >= 18 and node.ints("axes") is not None:
        axes = [node.axis(a, rank) for a in node.ints("axes") or ()]
    else:
        axes = list(range(rank))
    resized = dict(zip(axes, _axes(node, [x.shape[i] for i in axes]), strict=True))
    resized = {i: a for i, a in resized.items() if a.scale != 1 or a.resized != a.size}
    check_size(prod(max(resized[i].resized if i in resized else d, 1) for i, d in enumerate(x.shape)), node.where)
    output = x
    for i, axis in resized.items():
        output = _along(node, output, i, axis)
    return node.of_kind(output if output is not x else ops.alias(x), node.tensor(0).kind)


def _axes(node: OnnxNode, shape: list[int]) -> list[_Axis]:
    """How the axes that a node lists are resized, from its scales or sizes."""
    is_resize, n = node.op == "Resize" and node.opset >= 11, len(shape)
    place = 2 if is_resize else 1
    sizes: list[Any] | None = None
    if node.op == "Upsample" and node.opset < 7:
        scales = [1.0, 1.0, node.number("height_scale", 0.0), node.number("width_scale", 0.0)]
    elif node.op == "Upsample" and node.opset < 9:
        scales = [float(s) for s in node.attribute("scales", [])]
    elif node.has(place) and node.array(place, "scales").size:
        scales = [float(s) for s in node.array(place, "scales").reshape(-1).tolist()]
    elif node.has(3):
        sizes = node.array(3, "sizes").reshape(-1).tolist()
        scales = [1.0 if isinstance(s, Dim) else s / d if d > 0 else 0.0 for s, d in zip(sizes, shape, strict=False)]
    else:
        raise node.error("it has neither scales nor sizes")
    if len(scales) != n or not all(0 < s < 2**16 for s in scales):
        raise node.error(f"its sizes {sizes} do not fit the shape {shape}" if sizes else
                         f"its scales {scales} do not fit the shape {shape}")
    policy = node.string("keep_aspect_ratio_policy", "stretch")
    if sizes is not None and policy != "stretch":
        scales = [(min if policy == "not_larger" else max)(scales)] * n
        sizes = [int(np.floor(s * d + 0.5)) for s, d in zip(scales, shape, strict=True)]
    if sizes is None:
        sizes = [int(np.floor(d * s)) if d >= 0 else d for s, d in zip(scales, shape, strict=True)]
    sizes = [d if isinstance(s, Dim) else s for s, d in zip(sizes, shape, strict=True)]
    regions = [(0.0, 1.0)] * n
    if node.string("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        limits = node.array(1, "the region").reshape(-1).tolist()
        regions = list(zip(limits[:n], limits[n:], strict=True))
    return [_Axis(*values) for values in zip(shape, scales, sizes, regions, strict=True)]


def _along(node: OnnxNode, x: Operand, i: int, axis: _Axis) -> Operand:
    """x resized along its i-th axis."""
    times = int(axis.scale)
    probe = _Axis(_PROBE, axis.scale, int(_PROBE * axis.scale)) if axis.size < 0 else axis
    weights = _weights(node, probe)
    is_repeat = times == axis.scale <= MOST_REPEATS and probe.resized == times * probe.size
    if is_repeat and np.array_equal(weights, np.repeat(np.eye(probe.size), times, axis=1)):
        return _repeated(x, i, times)
    if axis.size < 0:
        raise node.error(
            f"axis {i} of open size can only be resized by repeating each element; its scale is {axis.scale}",
            "export the model with images of a fixed size",
        )
    last = len(x.shape) - 1
    order = [*(a for a in range(last + 1) if a != i), i]
    moved = ops.transpose(x, order) if i != last else x
    product: Operand = ops.times(moved, Constant(weights.astype(x.dtype), dtype=x.dtype))
    outside = _is_outside(node, axis, _positions(node, axis)) * node.number("extrapolation_value", 0.0)
    product = ops.plus(product, Constant(outside.astype(x.dtype), dtype=x.dtype)) if outside.any() else product
    return ops.transpose(product, np.argsort(order).tolist()) if i != last else product


def _repeated(x: Operand, axis: int, times: int) -> Operand:
    """Each element along an axis several times; the axis may be open."""
    expanded = ops.expand_dims(x, axis - len(x.shape))
    return ops.reshape(ops.splice(*[expanded] * times, axis=axis + 1), (-1,), axis, axis + 2)


def _positions(node: OnnxNode, axis: _Axis) -> np.ndarray:
    """Where the elements of the resized axis lie on the original axis."""
    size, scale, resized = axis.size, axis.scale, axis.resized
    at = np.arange(resized, dtype=np.float64)
    is_old = node.op == "Upsample" or node.opset < 11
    mode = "asymmetric" if is_old else node.string("coordinate_transformation_mode", "half_pixel")
    center = (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - resized / (scale * size)) + center
    if mode == "pytorch_half_pixel":
        return center if resized > 1 else np.zeros(1)
    if mode == "tf_crop_and_resize":
        begin, end = (limit * (size - 1) for limit in axis.region)
        return begin + at * (end - begin) / (resized - 1) if resized > 1 else np.array([(begin + end) / 2])
    modes: dict[str, Callable[[], np.ndarray]] = {
        "half_pixel": lambda: center, "asymmetric": lambda: at / scale,
        "tf_half_pixel_for_nn": lambda: (at + 0.5) / scale,
        "align_corners": lambda: at * (size - 1) / max(resized - 1, 1),
    }
    if mode not in modes:
        raise node.error(f"the coordinate transformation {mode!r} cannot be read")
    return modes[mode]()


def _weights(node: OnnxNode, axis: _Axis) -> np.ndarray:
    """The weight [size, resized] of each element of the axis in each element of the resized axis."""
    mode, position = node.string("mode", "nearest"), _positions(node, axis)
    check_size(axis.size * axis.resized, node.where)
    weights = np.zeros((axis.size, axis.resized))
    if mode == "nearest":
        np.put_along_axis(weights, np.clip(_nearest(node, position, axis.scale), 0, axis.size - 1)[None], 1, axis=0)
    elif mode in ("linear", "bilinear", "trilinear", "cubic", "bicubic"):
        is_cubic = mode.endswith("cubic")
        stretch = min(axis.scale, 1.0) if node.integer("antialias", 0) else 1.0
        reach = int(np.ceil((2 if is_cubic else 1) / stretch))
        kernel = _cubic(node.number("cubic_coeff_a", -0.75)) if is_cubic else _triangle
        near = np.floor(position)[:, None] + np.arange(1 - reach, reach + 1)  # [resized, elements nearby]
        nearby = kernel(np.abs(near - position[:, None]) * stretch)
        if node.integer("exclude_outside", 0):
            nearby = np.where((near >= 0) & (near < axis.size), nearby, 0)
        nearby /= nearby.sum(1, keepdims=True)
        columns = np.broadcast_to(np.arange(axis.resized)[:, None], near.shape)
        np.add.at(weights, (np.clip(near, 0, axis.size - 1).astype(int), columns), nearby)
    else:
        raise node.error(f"the mode {mode!r} is not known")
    return np.where(_is_outside(node, axis, position), 0, weights)


def _is_outside(node: OnnxNode, axis: _Axis, position: np.ndarray) -> np.ndarray:
    """Which elements have the extrapolation value, because they lie outside of a cropped image."""
    is_cropped = node.string("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    return is_cropped & ((position < 0) | (position > axis.size - 1))


def _nearest(node: OnnxNode, position: np.ndarray, scale: float) -> np.ndarray:
    if node.op == "Upsample" or node.opset < 11:
        rounding = "floor" if scale >= 1 else "ceil"  # as ONNX Runtime does; the standard does not say it
    else:
        rounding = node.string("nearest_mode", "round_prefer_floor")
    modes: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "floor": np.floor, "ceil": np.ceil, "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
    }
    if rounding not in modes:
        raise node.error(f"the rounding {rounding!r} is not known")
    return modes[rounding](np.round(position, 6)).astype(int)


def _triangle(distance: np.ndarray) -> np.ndarray:
    return np.maximum(1 - distance, 0)


def _cubic(a: float) -> Callable[[np.ndarray], np.ndarray]:
    """The cubic kernel of Keys with the parameter a."""

    def kernel(d: np.ndarray) -> np.ndarray:
        inner = ((a + 2) * d - (a + 3)) * d * d + 1
        outer = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, inner, np.where(d < 2, outer, 0))

    return kernel
