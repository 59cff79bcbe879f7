"""Programs whose convolutions are calls of oneDNN: written into StableHLO before XLA compiles it.

A gradient of a convolution is a convolution too, in which samples and channels have changed places, or whose operand is
spread by the strides and whose window is reversed. That is how it is known which of oneDNN's computations it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np

from .library import Library
from .plans import Layout, Task, scratch_of
from .registration import TARGET, library

if TYPE_CHECKING:
    Operation: TypeAlias = Any  # of MLIR's bindings, which have no types
    Value: TypeAlias = Any


def rewrite(lowered: jax.stages.Lowered) -> None:
    """Put calls of oneDNN in place of the convolutions that it computes."""
    module: Any = lowered.compiler_ir("stablehlo")
    if module.operation.attributes["mhlo.num_partitions"].value > 1:
        return  # each device would compute the whole
    with module.context:
        convolutions = list(_convolutions(module.operation))
        loaded = library() if convolutions else None  # which takes most of a second
        if loaded is not None:
            for operation in convolutions:
                _replace(loaded, operation)


def _convolutions(operation: Operation) -> Iterator[Operation]:
    for region in operation.regions:
        for block in region:
            for inner in block:
                if inner.operation.name == "stablehlo.convolution":
                    yield inner.operation
                yield from _convolutions(inner.operation)


def _replace(loaded: Library, operation: Operation) -> None:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    found = _task(operation)
    scratch = None if found is None else scratch_of(loaded, found[0])
    if found is None or scratch is None:
        return
    task, operands = found
    result = operation.results[0]

    def row_major(types: Sequence[Value]) -> Value:
        index, layouts = ir.IndexType.get(), []
        for each in types:
            axes = [ir.IntegerAttr.get(index, axis) for axis in reversed(range(len(each.shape)))]
            layouts.append(ir.DenseIntElementsAttr.get(axes, type=ir.RankedTensorType.get([len(axes)], index)))
        return ir.ArrayAttr.get(layouts)

    with operation.location, ir.InsertionPoint(operation):
        types = [result.type, ir.RankedTensorType.get([scratch], ir.IntegerType.get_unsigned(8))]
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), task.number)
        call = stablehlo.CustomCallOp(
            types, operands, call_target_name=TARGET, has_side_effect=False,
            api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
            backend_config=ir.DictAttr.get({"key": number, "spec": ir.StringAttr.get(task.text)}),
            operand_layouts=row_major([operand.type for operand in operands]), result_layouts=row_major(types),
        )
    result.replace_all_uses_with(call.results[0])
    operation.erase()


def _task(operation: Operation) -> tuple[Task, list[Value]] | None:
    """What a convolution is for oneDNN, and its operands there; None for what it does not compute."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    data, kernel = operation.operands
    attributes = operation.attributes
    axes = stablehlo.ConvDimensionNumbers(attributes["dimension_numbers"])
    rank = len(axes.input_spatial_dimensions)

    def numbers(name: str, default: object) -> list[Any]:
        return np.asarray(attributes[name]).tolist() if name in attributes else [default] * rank

    groups = attributes["batch_group_count"].value * attributes["feature_group_count"].value
    shapes = [value.type for value in (data, kernel, operation.results[0])]
    is_usual = groups == 1 and 1 <= rank <= 3 and not any(numbers("window_reversal", False))
    if not is_usual or any(each.element_type != ir.F32Type.get() or 0 in each.shape for each in shapes):
        return None
    x = _layout(data, axes.input_batch_dimension, axes.input_feature_dimension, axes.input_spatial_dimensions)
    w = _layout(
        kernel, axes.kernel_output_feature_dimension, axes.kernel_input_feature_dimension,
        axes.kernel_spatial_dimensions,
    )
    y = _layout(
        operation.results[0], axes.output_batch_dimension, axes.output_feature_dimension, axes.output_spatial_dimensions
    )
    strides, spread, dilations = (numbers(f"{name}", 1) for name in ("window_strides", "lhs_dilation", "rhs_dilation"))
    before = [pair[0] for pair in numbers("padding", (0, 0))]
    unreversed = _unreversed(kernel, axes.kernel_spatial_dimensions)
    if unreversed is not None and strides == [1] * rank:
        extents = [(size - 1) * dilation for size, dilation in zip(w.sizes[2:], dilations, strict=True)]
        before = [extent - n for extent, n in zip(extents, before, strict=True)]
        return _convolution("source", y, _exchanged(w), x, spread, dilations, before), [unreversed, data]
    if spread != [1] * rank:
        return None
    if axes.input_feature_dimension == 0:  # sums over samples, which come first in memory
        task = _convolution("weights", _exchanged(x), _exchanged(y), _exchanged(w), dilations, strides, before)
    else:
        task = _convolution("forward", x, w, y, strides, dilations, before)
    return task, [data, kernel]


def _convolution(
    kind: str, x: Layout, w: Layout, y: Layout, strides: Sequence[int], dilations: Sequence[int], before: Sequence[int]
) -> Task:
    axes = zip(x.sizes[2:], w.sizes[2:], y.sizes[2:], strides, dilations, before, strict=True)
    missing = [
        (stride, (results - 1) * stride + (window - 1) * dilation + 1 - size - cells)
        for size, window, results, stride, dilation, cells in axes
    ]
    after = [max(cells, 0) if cells > -stride else cells for stride, cells in missing]  # the last ones may be unused
    return Task(kind, x, w, y, strides, [dilation - 1 for dilation in dilations], before, after)


def _unreversed(kernel: Value, spatial: Sequence[int]) -> Value | None:
    """The kernel before its window was reversed; None if it was not."""
    operation = kernel.owner
    if getattr(operation, "name", None) != "stablehlo.reverse":
        return None
    return operation.operands[0] if sorted(operation.attributes["dimensions"]) == sorted(spatial) else None


def _layout(value: Value, first: int, second: int, spatial: Sequence[int]) -> Layout:
    """How an array lies in memory, with these axes in this order."""
    sizes = list(value.type.shape)
    strides = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    order = [first, second, *spatial]
    return Layout([sizes[axis] for axis in order], [strides[axis] for axis in order])


def _exchanged(layout: Layout) -> Layout:
    """With the first two axes in the other order."""
    return Layout(*([each[1], each[0], *each[2:]] for each in layout))


__all__ = ["rewrite"]
