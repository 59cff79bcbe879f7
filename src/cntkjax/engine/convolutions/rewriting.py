"""Programs whose convolutions are calls of a library: written into StableHLO before XLA compiles it.

A gradient of a convolution is a convolution too, in which samples and channels have changed places, or whose operand is
spread by the strides and whose window is reversed. That is how it is known which of a library's computations it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from itertools import product
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import numpy as np

from ..onednn import registration as onednn
from ..onednn.plans import Layout, Task, scratch_of
from . import library as native

if TYPE_CHECKING:
    Operation: TypeAlias = Any  # of MLIR's bindings, which have no types
    Value: TypeAlias = Any

_VIEWS = {"stablehlo.transpose", "stablehlo.optimization_barrier"}
LARGEST_FILTERS = 1 << 19  # numbers: the library in C, which has them in a core's cache, gains nothing by larger ones
_FEWEST_OUTPUTS = 12  # of convolutions of images with gaps: of 16 numbers that a vector holds
_FEWEST_COLUMNS = 7  # of images in a product: half a tile's


class _Array(NamedTuple):
    """An operand or result of a convolution as it lies in memory, before or after it is transposed.

    `strides`: how far apart neighbours are there, along the axes that the convolution knows.
    """

    value: Value
    sizes: list[int]
    strides: list[int]

    @classmethod
    def of(cls, value: Value, order: Sequence[int], sizes: list[int]) -> _Array:
        """`order`: where in memory each axis is."""
        shape = value.type.shape
        return cls(value, sizes, [prod(shape[place + 1 :]) for place in order])

    def reversed(self, axes: Sequence[int]) -> _Array:
        """Along these axes from the last number to the first."""
        return self._replace(strides=[-n if axis in axes else n for axis, n in enumerate(self.strides)])

    def layout(self, first: int, second: int, spatial: Sequence[int]) -> Layout:
        """With these axes in this order."""
        order = [first, second, *spatial]
        return Layout([self.sizes[axis] for axis in order], [self.strides[axis] for axis in order])


class _Call(NamedTuple):
    """A call of a library: the name of its function, how many bytes of scratch memory it takes, and its attributes."""

    target: str
    scratch: int
    attributes: dict[str, Any]


def rewrite(lowered: jax.stages.Lowered, by: str) -> None:
    """Put calls of a library, "native" or "onednn", in place of the convolutions that it computes."""
    module: Any = lowered.compiler_ir("stablehlo")
    readers: dict[str, Callable[[Operation], tuple[Task, list[_Array], _Array] | None]] = {
        "stablehlo.convolution": partial(_task, is_general=by == "native")
    }
    if by == "native":
        readers["stablehlo.dot_general"] = _task_of_product
    with module.context:
        for operation in list(_operations(module.operation, set(readers))):
            found = readers[operation.name](operation)
            call = None if found is None else _CALLS[by](found[0])
            if found is not None and call is not None:
                _replace(operation, *found[1:], call)


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

    if prod(task.weights.sizes) > LARGEST_FILTERS:
        return None
    native.register()

    def of_axes(numbers: Sequence[int], missing: int) -> list[int]:
        return [*[missing] * (3 - len(numbers)), *numbers]

    numbers: list[int] = []
    for (x, w, y), before, begins in _phases(task):
        numbers += [int(task.kind == "weights"), x.sizes[0], x.sizes[1], y.sizes[1]]  # as the struct in convolution.c
        dilations = [n + 1 for n in task.dilations]
        for each in (x.sizes[2:], y.sizes[2:], w.sizes[2:], task.strides, dilations):
            numbers += of_axes(each, 1)
        numbers += of_axes(before, 0)
        for layout in (x, w, y):
            numbers += [*layout.strides[:2], *of_axes(layout.strides[2:], 0)]
        numbers += begins
    return _Call(native.TARGET, 0, {"tasks": ir.DenseI64ArrayAttr.get(numbers)})


def _phases(task: Task) -> Iterator[tuple[tuple[Layout, Layout, Layout], list[int], list[int]]]:
    """The convolutions without gaps that a task is: layouts, the padding before, and where filters and results begin.

    Along each axis the results at gap * i + phase, for all i, read every gap-th cell of the window. If there is none,
    they are 0, as with a window of size 0. A reversed window begins at the last place in memory.
    """
    x, w, y = task.source, task.weights, task.result
    first = sum(-stride * (size - 1) for size, stride in zip(*w, strict=True) if stride < 0)
    gaps = task.gaps or [1] * len(task.before)
    for phases in product(*map(range, gaps)):
        axes = list(zip(gaps, phases, task.before, w.sizes[2:], y.sizes[2:], strict=True))
        cells = [(before - phase) % gap for gap, phase, before, *_ in axes]
        windows = [-(-(axis[3] - cell) // axis[0]) for axis, cell in zip(axes, cells, strict=True)]
        counts = [-(-(positions - phase) // gap) for gap, phase, _, _, positions in axes]
        padding = [(axis[2] - axis[1] - cell) // axis[0] for axis, cell in zip(axes, cells, strict=True)]
        if min(counts) > 0:
            windows = windows if min(windows) > 0 else [0] * len(windows)
            layouts = x, _every(w, windows, gaps), _every(y, counts, gaps)
            begins = [first + sum(map(mul, cells, w.strides[2:])), sum(map(mul, phases, y.strides[2:]))]
            yield layouts, padding, begins


def _every(layout: Layout, sizes: Sequence[int], gaps: Sequence[int]) -> Layout:
    """Of so many places that are as far apart as the gaps."""
    strides = [stride * gap for stride, gap in zip(layout.strides[2:], gaps, strict=True)]
    return Layout([*layout.sizes[:2], *sizes], [*layout.strides[:2], *strides])


_CALLS: dict[str, Callable[[Task], _Call | None]] = {"onednn": _onednn_call, "native": _native_call}


def _operations(operation: Operation, names: Set[str]) -> Iterator[Operation]:
    for region in operation.regions:
        for block in region:
            for inner in block:
                if inner.operation.name in names:
                    yield inner.operation
                yield from _operations(inner.operation, names)


def _operand(value: Value, is_general: bool) -> _Array:
    """`is_general`: whether any order of axes will do, so that it need not be transposed."""
    sizes, order = list(value.type.shape), list(range(len(value.type.shape)))
    while is_general and (owner := getattr(value.owner, "name", None)) in _VIEWS:
        if owner == "stablehlo.transpose":
            permutation = np.asarray(value.owner.attributes["permutation"]).tolist()
            order, value = [permutation[axis] for axis in order], value.owner.operands[0]
        else:
            value = value.owner.operands[value.result_number]
    return _Array.of(value, order, sizes)


def _result(value: Value, is_general: bool) -> _Array:
    """See `_operand`."""
    sizes, order = list(value.type.shape), list(range(len(value.type.shape)))
    uses = list(value.uses)
    if is_general and len(uses) == 1 and uses[0].owner.name == "stablehlo.transpose":
        permutation = np.asarray(uses[0].owner.attributes["permutation"]).tolist()
        order, value = [permutation.index(axis) for axis in order], uses[0].owner.results[0]
    return _Array.of(value, order, sizes)


def _replace(operation: Operation, operands: Sequence[_Array], to: _Array, call: _Call) -> None:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    result, arguments = to.value, [operand.value for operand in operands]

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
            types, arguments, call_target_name=call.target, has_side_effect=False,
            api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
            backend_config=ir.DictAttr.get(call.attributes),
            operand_layouts=row_major([each.type for each in arguments]), result_layouts=row_major(types),
        )
    result.replace_all_uses_with(replacement.results[0])
    if result.owner != operation:
        result.owner.erase()
    operation.erase()


def _task(operation: Operation, is_general: bool) -> tuple[Task, list[_Array], _Array] | None:
    """What a convolution is for a library, its operands there and its result; None for what neither computes.

    `is_general`: whether any order of axes will do, reversed windows too, and gradients for the source are convolutions
    with these instead of tasks of their own.
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
    of_x, of_w = _operand(data, is_general), _operand(kernel, is_general)
    of_y = _result(operation.results[0], is_general)
    unreversed = _unreversed(kernel, axes.kernel_spatial_dimensions)
    if unreversed is not None and is_general and axes.input_feature_dimension != 0:
        of_w = _operand(unreversed, is_general).reversed(axes.kernel_spatial_dimensions)
    x = of_x.layout(axes.input_batch_dimension, axes.input_feature_dimension, axes.input_spatial_dimensions)
    w = of_w.layout(
        axes.kernel_output_feature_dimension, axes.kernel_input_feature_dimension, axes.kernel_spatial_dimensions
    )
    y = of_y.layout(axes.output_batch_dimension, axes.output_feature_dimension, axes.output_spatial_dimensions)
    strides, spread, dilations = (numbers(f"{name}", 1) for name in ("window_strides", "lhs_dilation", "rhs_dilation"))
    before = [pair[0] for pair in numbers("padding", (0, 0))]
    if unreversed is not None and not is_general and strides == [1] * rank:
        extents = [(size - 1) * dilation for size, dilation in zip(w.sizes[2:], dilations, strict=True)]
        before = [extent - n for extent, n in zip(extents, before, strict=True)]
        task = _convolution("source", y, _exchanged(w), x, spread, dilations, before)
        return task, [_operand(unreversed, is_general), of_x], of_y
    if spread != [1] * rank:
        is_dense = {*strides, *dilations} == {1} and axes.input_feature_dimension != 0
        if not is_general or not is_dense or (y.sizes[1] < _FEWEST_OUTPUTS and rank < 3):
            return None
        task = _convolution("forward", x, w, y, strides, dilations, before)._replace(gaps=spread)
    elif axes.input_feature_dimension == 0:  # sums over samples, which come first in memory
        task = _convolution("weights", _exchanged(x), _exchanged(y), _exchanged(w), dilations, strides, before)
    else:
        task = _convolution("forward", x, w, y, strides, dilations, before)
    return task, [of_x, of_w], of_y


def _task_of_product(operation: Operation) -> tuple[Task, list[_Array], _Array] | None:
    """A product of images with a matrix is a convolution of 1x1, and one of two images the gradient of such filters.

    Shapes: [n, *spatial, C] with a matrix [C, O] or [O, C], where a side is transposed; or [n, *spatial, O] and
    [n, *spatial, C] to [O, C]. None for other products, and for images so narrow that their rows do not fill a tile.
    """
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    one, other = operation.operands
    result = operation.results[0]
    rank, shapes = len(one.type.shape), [value.type for value in (one, other, result)]
    axes = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
    summed = list(axes.lhs_contracting_dimensions), list(axes.rhs_contracting_dimensions)
    if not 4 <= rank <= 5 or any(each.element_type != ir.F32Type.get() or 0 in each.shape for each in shapes):
        return None

    def image(array: _Array) -> Layout:
        return array.layout(0, rank - 1, range(1, rank - 1))

    def filters(array: _Array, outputs: int) -> Layout:
        order = [outputs, 1 - outputs]
        sizes, strides = ([each[axis] for axis in order] for each in (array.sizes, array.strides))
        return Layout([*sizes, *ones], [*strides, *ones])

    ones = [1] * (rank - 2)
    if summed == (list(range(rank - 1)),) * 2 and len(result.type.shape) == 2:
        of_x, of_w, of_y = _operand(other, True), _result(result, True), _operand(one, True)
        task = _convolution("weights", image(of_x), filters(of_w, 0), image(of_y), ones, ones, [0] * len(ones))
        return task, [of_x, of_y], of_w
    if summed[0] == [rank - 1] and len(other.type.shape) == 2 and one.type.shape[-2] >= _FEWEST_COLUMNS:
        of_x, of_w, of_y = _operand(one, True), _operand(other, True), _result(result, True)
        if of_x.strides[-1] == of_y.strides[-1] == 1:
            return None  # XLA's product is as fast where nothing is transposed
        w = filters(of_w, 1 - summed[1][0])
        task = _convolution("forward", image(of_x), w, image(of_y), ones, ones, [0] * len(ones))
        return task, [of_x, of_w], of_y
    return None


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


def _exchanged(layout: Layout) -> Layout:
    """With the first two axes in the other order."""
    return Layout(*([each[1], each[0], *each[2:]] for each in layout))


__all__ = ["LARGEST_FILTERS", "rewrite"]
