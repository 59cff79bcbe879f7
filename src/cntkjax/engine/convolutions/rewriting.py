"""Programs whose convolutions are calls of a library: written into StableHLO before XLA compiles it.

A gradient of a convolution is a convolution too, in which samples and channels have changed places, or whose operand is
spread by the strides and whose window is reversed. That is how it is known which of a library's computations it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import numpy as np

from ..onednn import registration as onednn
from ..onednn.plans import Layout, Task, scratch_of
from . import library as native

if TYPE_CHECKING:
    Operation: TypeAlias = Any  # of MLIR's bindings, which have no types
    Value: TypeAlias = Any

_LARGEST_FILTERS = 1 << 19  # numbers: the library in C, which has them in a core's cache, gains nothing by larger ones


class _Call(NamedTuple):
    """A call of a library: the name of its function, how many bytes of scratch memory it takes, and its attributes."""

    target: str
    scratch: int
    attributes: dict[str, Any]


def rewrite(lowered: jax.stages.Lowered, by: str) -> None:
    """Put calls of a library, "native" or "onednn", in place of the convolutions that it computes."""
    module: Any = lowered.compiler_ir("stablehlo")
    if module.operation.attributes["mhlo.num_partitions"].value > 1:
        return  # each device would compute the whole
    readers: dict[str, Callable[[Operation], tuple[Task, list[Value]] | None]] = {
        "stablehlo.convolution": partial(_task, of_source=by == "onednn")
    }
    if by == "native":
        readers["stablehlo.dot_general"] = _task_of_product
    with module.context:
        for operation in list(_operations(module.operation, set(readers))):
            found = readers[operation.name](operation)
            call = None if found is None else _CALLS[by](found[0])
            if found is not None and call is not None:
                _replace(operation, found[1], call)


def _onednn_call(task: Task) -> _Call | None:
    from jaxlib.mlir import ir

    loaded = onednn.library()
    scratch = None if loaded is None else scratch_of(loaded, task)
    if scratch is None:
        return None
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), task.number)
    return _Call(onednn.TARGET, scratch, {"key": number, "spec": ir.StringAttr.get(task.text)})


def _native_call(task: Task) -> _Call | None:
    from jaxlib.mlir import ir

    if prod(task.weights.sizes) > _LARGEST_FILTERS:
        return None
    native.register()

    def of_axes(numbers: Sequence[int], missing: int) -> list[int]:
        return [*[missing] * (3 - len(numbers)), *numbers]

    x, w, y = task.source, task.weights, task.result
    numbers = [int(task.kind == "weights"), x.sizes[0], x.sizes[1], y.sizes[1]]  # as the struct in convolution.c
    for each, missing in (
        (x.sizes[2:], 1), (y.sizes[2:], 1), (w.sizes[2:], 1), (task.strides, 1), ([n + 1 for n in task.dilations], 1),
        (task.before, 0),
    ):
        numbers += of_axes(each, missing)
    for layout in (x, w, y):
        numbers += [*layout.strides[:2], *of_axes(layout.strides[2:], 0)]
    return _Call(native.TARGET, 0, {"task": ir.DenseI64ArrayAttr.get(numbers)})


_CALLS: dict[str, Callable[[Task], _Call | None]] = {"onednn": _onednn_call, "native": _native_call}


def _operations(operation: Operation, names: Set[str]) -> Iterator[Operation]:
    for region in operation.regions:
        for block in region:
            for inner in block:
                if inner.operation.name in names:
                    yield inner.operation
                yield from _operations(inner.operation, names)


def _replace(operation: Operation, operands: Sequence[Value], call: _Call) -> None:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    result = operation.results[0]

    def row_major(types: Sequence[Value]) -> Value:
        index, layouts = ir.IndexType.get(), []
        for each in types:
            axes = [ir.IntegerAttr.get(index, axis) for axis in reversed(range(len(each.shape)))]
            layouts.append(ir.DenseIntElementsAttr.get(axes, type=ir.RankedTensorType.get([len(axes)], index)))
        return ir.ArrayAttr.get(layouts)

    with operation.location, ir.InsertionPoint(operation):
        scratch = ir.RankedTensorType.get([call.scratch], ir.IntegerType.get_unsigned(8))
        types = [result.type, *([scratch] if call.scratch else ())]
        replacement = stablehlo.CustomCallOp(
            types, operands, call_target_name=call.target, has_side_effect=False,
            api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
            backend_config=ir.DictAttr.get(call.attributes),
            operand_layouts=row_major([operand.type for operand in operands]), result_layouts=row_major(types),
        )
    result.replace_all_uses_with(replacement.results[0])
    operation.erase()


def _task(operation: Operation, of_source: bool) -> tuple[Task, list[Value]] | None:
    """What a convolution is for a library, and its operands there; None for what neither computes.

    `of_source`: whether gradients for the source are tasks of their own, and not convolutions with reversed windows.
    """
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
    unreversed = _unreversed(kernel, axes.kernel_spatial_dimensions) if of_source else None
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


def _task_of_product(operation: Operation) -> tuple[Task, list[Value]] | None:
    """A product that sums over samples and places of images is the gradient of filters of 1x1; None for others."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    values = [*operation.operands, operation.results[0]]
    y, x, w = (value.type for value in values)
    axes = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
    summed = [list(each) for each in (axes.lhs_contracting_dimensions, axes.rhs_contracting_dimensions)]
    is_gradient = summed[0] == summed[1] == list(range(len(x.shape) - 1)) and len(w.shape) == 2
    if not is_gradient or not 4 <= len(x.shape) <= 5 or any(
        each.element_type != ir.F32Type.get() or 0 in each.shape for each in (x, y, w)
    ):
        return None
    places = range(1, len(x.shape) - 1)
    of_x, of_y = (_layout(value, 0, len(x.shape) - 1, places) for value in (values[1], values[0]))
    ones = [1] * len(places)
    of_w = Layout([*w.shape, *ones], [w.shape[1], 1, *ones])
    return _convolution("weights", of_x, of_w, of_y, ones, ones, [0] * len(places)), [values[1], values[0]]


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
