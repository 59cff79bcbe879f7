"""Cropping an image to the size of another one, aligned with its pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from jax import lax

from ..engine.lower.values import Context, Traced
from ..engine.plan.parts import resolve
from ..graph.errors import ShapeError, explain
from ..graph.function import Node
from ..graph.shape import Shape
from ..graph.variable import Edge, producer
from .base import Attrs, Primitive, Size, primitive

T = TypeVar("T")
Grid = tuple[tuple[float, float], ...]  # for rows and columns: scale and shift to the pixels of an ancestor


@primitive("Crop", 84)
class Crop(Primitive):
    """The part of an image with the height and width of a second operand.

    `offset`: the first column and row. By default they are computed from the convolutions and poolings between both
    images and their common ancestor, or, with a third and fourth operand, these ancestors.
    Shapes: x [*front, H, W], referent [..., h, w] -> [*front, h, w].
    Source: CNTK 2.7.
    """

    attributes = {"offset": Size(None).vector}
    packed = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """[*front, h, w]."""
        x, referent = inputs[:2]
        if min(len(x.shape), len(referent.shape)) < 2:
            raise ShapeError(explain(
                f"{self.name}: the operands need at least two static axes", {"input": x, "referent": referent}
            ))
        if "offset" in attrs:
            self._check(x.shape, referent.shape, attrs["offset"], inputs)
        return (*x.shape[:-2], *referent.shape[-2:])

    def _check(self, whole: Shape, part: Shape, offset: Sequence[int], inputs: Sequence[Edge]) -> None:
        for axis, first in zip((-1, -2), offset, strict=True):
            if whole[axis] >= 0 and part[axis] >= 0 and not 0 <= first <= whole[axis] - part[axis]:
                raise ShapeError(explain(
                    f"{self.name}: {part[axis]} rows or columns from {first} on are more than there are",
                    {"input": inputs[0], "referent": inputs[1]}, "give a smaller offset or referent",
                ))

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced, referent: Traced, *ancestors: Traced) -> Traced:
        """Two slices."""
        assert ctx.node is not None
        data, part, inputs = ctx.array(x), ctx.array(referent).shape, ctx.node.node_inputs
        offset = attrs.get("offset") or self.offset(inputs)
        self._check(data.shape, part, offset, inputs)
        for axis, first in zip((-1, -2), offset, strict=True):
            data = lax.slice_in_dim(data, first, first + part[axis], axis=data.ndim + axis)
        return Traced(data, x.axes)

    def offset(self, inputs: Sequence[Edge]) -> list[int]:
        """The first column and row, from the alignment of the other operands."""
        x, referent, *ancestors = (resolve(v, _opened) for v in inputs)
        grids, other_grids = dict(_ancestors(x)), dict(_ancestors(referent))
        pairs = [ancestors] if ancestors else [[v, v] for v in grids]
        match = next(((grids[a], other_grids[b]) for a, b in pairs if a in grids and b in other_grids), None)
        operands = {"input": inputs[0], "referent": inputs[1]}
        if match is None:
            raise ShapeError(explain(
                f"{self.name}: the operands have no common ancestor that only convolutions, poolings and elementwise "
                "operations lead to", operands, "use crop_manual, or crop_automatic_with_ancestors",
            ))
        offset = []
        for (scale, shift), (other_scale, other_shift) in zip(*match, strict=True):
            if scale != other_scale:
                raise ShapeError(explain(
                    f"{self.name}: the pixels of the operands are not of the same size ({scale} and {other_scale})",
                    operands, "make the strides from the common ancestor to both operands equal",
                ))
            offset.append(int((other_shift - shift) / scale))
        return offset[::-1]


def _ancestors(image: Edge) -> Iterator[tuple[Edge, Grid]]:
    """What an image is computed from by pixels or windows, nearest first, each with the grid of its pixels there."""
    waiting: list[tuple[Edge, Grid]] = [(image, ((1.0, 0.0), (1.0, 0.0)))]
    visited = set()
    while waiting:
        variable, grid = waiting.pop(0)
        if variable in visited:
            continue
        visited.add(variable)
        yield variable, grid
        node = producer(variable)
        if node is None:
            continue
        operands = node.node_inputs
        step = _windows(node)
        if step is not None:
            operands = operands[-1:]
            grid = tuple((s * t[0], shift * t[0] + t[1]) for (s, shift), t in zip(grid, step, strict=True))
        elif not (node.primitive.elementwise or node.primitive.name in ("Dropout", "BatchNormalization")):
            continue
        waiting += [(resolve(v, _opened), grid) for v in operands if len(v.shape) >= 2]


def _opened(node: Node) -> Node:
    """The root of the graph inside a block; any other node itself, whatever it is fused with."""
    return node if node.block_composite is None else node.block_composite.root_function


def _windows(node: Node) -> Grid | None:
    """The grid of the centers of a convolution's or pooling's windows in its operand; None for other operations."""
    attrs = node.node_attributes
    if node.primitive.name == "Convolution":
        sizes, dilation = attrs["kernelShape"], attrs["dilation"]
    elif node.primitive.name == "Pooling":
        sizes, dilation = attrs["poolingWindowShape"], (1,)
    else:
        return None
    grid = []
    for axis in (-2, -1):
        size, stride, step, lower = (_last(v, axis) for v in (sizes, attrs["strides"], dilation, attrs["lowerPad"]))
        reach = (size - 1) * step
        shift = reach / 2 - (reach // 2 if _last(attrs["autoPadding"][::-1], axis) else lower)
        grid.append((1 / stride, -shift / stride) if attrs.get("transpose") else (float(stride), shift))
    return tuple(grid)


def _last(values: Sequence[T], axis: int) -> T:
    """The value for one of the last two axes; a single value holds for all."""
    return values[axis] if len(values) >= -axis else values[0]
