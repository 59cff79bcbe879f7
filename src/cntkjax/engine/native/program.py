"""Writes the steps of `steps.c` for some operations, with the values of their constants."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...graph.shape import Shape
from .library import COPY, LARGEST, LOOP, MEAN, NONE, POINTWISE, PRODUCT, STEP, Library, threads
from .memory import ARENA, ARENAS, CONSTANTS, INPUT, NO_BORDER, Array, Place, Samples, aligned, allocate, coordinates

Packed: TypeAlias = MutableMapping[Hashable, Samples]  # weights in the order in which they are read
_FEWEST_TRANSFORMED = 16  # positions: with fewer, the time is that of reading the weights, which are more
_MOST_PRODUCTS = 0.6  # of those of the windows: transforms themselves take some of the time that fewer save


@dataclass(eq=False)
class Value:
    """Samples [rows, columns, channels]; a vector has one row and one column, a sequence one row of its steps.

    `step` computes it, until it is written: operations that follow may become part of it unless the value is shared,
    which is to say that others read it too. `border`: cells of 0 above, below, left and right of each image.
    """

    rows: int
    columns: int
    channels: int
    step: dict[str, Any] = field(default_factory=dict)
    place: Place | None = None
    border: tuple[int, ...] = NO_BORDER
    is_shared: bool = False
    is_sequence: bool = False

    @property
    def extents(self) -> tuple[int, int, int]:
        """Rows, columns and channels."""
        return self.rows, self.columns, self.channels

    @property
    def is_vector(self) -> bool:
        """True if the order of axes does not matter."""
        return self.rows == self.columns == 1

    def takes(self, *kinds: int) -> bool:
        """Whether the step that computes it, of one of these kinds, may go on after its sum."""
        step = self.step
        return bool(step) and not self.is_shared and not step["activation"] and step["kind"] in kinds


class Writer:
    """The steps for a number of samples, or of sequences of one length, in the order of computation.

    `transforms`: whether convolutions may be computed by them, which takes less time.
    """

    def __init__(
        self, native: Library, samples: int, packed: Packed, length: int | None = None, transforms: bool = True
    ) -> None:
        self._native, self._samples, self._packed, self._length = native, samples, packed, length
        self._transforms = transforms
        self._input_sizes: list[int] = []
        self._loop: dict[str, Any] | None = None
        self._steps: list[dict[str, Any]] = []
        self._constants: list[Samples] = []
        self._kept: list[Samples] = []
        self._constants_size = 0
        self._scratch = Array(ARENA, 0, "scratch")  # of the threads, for one step at a time

    # ---- values
    def input(self, size: int, is_sequence: bool = False) -> Value:
        """The next argument that is fed: samples, each as a vector, or sequences of vectors."""
        length = (self._length or 1) if is_sequence else 1
        array = Array(INPUT + len(self._input_sizes), self._samples * length * size)
        self._input_sizes.append(array.size)
        place = Place(array, 0, length * size, length * size, size)
        return Value(1, length, size, place=place, is_shared=True, is_sequence=is_sequence)

    def read(self, value: Value) -> Place:
        """Where a value lies, after the step that computes it is written."""
        if value.place is None:
            value.place = self._new_place(value)
            self._write(value)
        return value.place

    def _read_with_border(self, value: Value, border: tuple[int, ...]) -> Place:
        """The same for those that read cells around it, which must not be another array's."""
        if any(a < b for a, b in zip(value.border, border, strict=True)):
            raise RuntimeError(f"an image with the border {value.border} is read with one of {border}")
        return self.read(value)

    def _new_place(self, value: Value) -> Place:
        above, below, left, right = value.border
        height, width = value.rows + above + below, value.columns + left + right
        row, image = width * value.channels, height * width * value.channels
        array = Array(ARENA, self._samples * image, (height, width, value.channels, value.border))
        array.border = value.border
        return Place(array, above * row + left * value.channels, image, row, value.channels)

    def _write(self, value: Value) -> None:
        assert value.place is not None
        step = {
            "images": self._samples, "rows": value.rows, "columns": value.columns, "channels": value.channels,
            "to": value.place, **value.step,
        }
        if "to_row" in step:  # a copy in CNTK's order
            step["to"] = replace(value.place, row=step.pop("to_row"), column=1)
        places = {name: step[name] for name in ("to", "from", "other") if name in step}
        if self._loop is not None:
            is_reverse = self._loop["is_reverse"]
            step |= {name: place.in_loop(value.columns, is_reverse) for name, place in places.items()}
        elif value.is_vector and step["kind"] in (PRODUCT, POINTWISE):
            step |= {name: place.as_columns() for name, place in places.items()}
        if self._loop is not None or (value.is_vector and step["kind"] in (PRODUCT, POINTWISE)):
            step |= {"images": 1, "columns": self._samples}
        if step["kind"] == PRODUCT:
            self._pack(step)
        self._steps.append(step)
        value.step = {}

    def _pack(self, step: dict[str, Any]) -> None:
        """The weights of a product in panels of some vectors of outputs."""
        channels = step["channels"]
        vectors = _vectors(step["columns"], -(-channels // self._native.width))
        wide = vectors * self._native.width
        size = -(-channels // wide) * wide
        key = (*step.pop("key"), vectors)
        matrix, scale = step.pop("matrix"), step.pop("scale")
        if key not in self._packed:
            weights = matrix() if scale is None else matrix() * scale
            panels = np.zeros((len(weights), size), np.float32)
            panels[:, :channels] = weights
            self._packed[key] = aligned(panels.reshape(len(weights), -1, wide).transpose(1, 0, 2))
        bias = np.zeros(size, np.float32)
        bias[:channels] = step["bias"]
        if "scratch" in step:
            size = 16 * (16 * (step["span"] + wide) + 2 * self._native.width)  # as in `transform` of steps.c
            step["scratch"] = replace(step["scratch"], image=size)
            self._scratch.size = max(self._scratch.size, size * threads())
        self._kept += [self._packed[key], bias]
        step |= {"vectors": vectors, "weights": self._packed[key].ctypes.data, "bias": bias.ctypes.data}

    def finished(self, value: Value, border: tuple[int, ...], is_shared: bool) -> Value:
        """The result of an operation, for those that read it."""
        if value.place is not None and any(a < b for a, b in zip(value.border, border, strict=True)):
            value = self._pointwise(value)
        if value.place is None:
            value.border, value.is_shared = border, is_shared
        return value

    def image(self, value: Value, shape: Shape) -> Value:
        """A value of this shape [channels, *positions], of one or two axes of positions, with channels last."""
        channels, rows, columns = _extents(shape)
        if not value.is_vector or rows == columns == 1:
            return value
        cells, place = rows * columns, self.read(value)
        return Value(rows, columns, channels, border=value.border, is_shared=True, step={
            "kind": COPY, "activation": NONE, "from": replace(place, row=columns, column=1),
            "from_channel": cells, "to_channel": 1,
        })

    def vector(self, value: Value) -> Value:
        """A value with its elements in CNTK's order."""
        if value.is_vector:
            return value
        cells = value.rows * value.columns
        return Value(1, 1, cells * value.channels, {
            "kind": COPY, "activation": NONE, "rows": value.rows, "columns": value.columns, "channels": value.channels,
            "from": self.read(value), "from_channel": 1, "to_row": value.columns, "to_channel": cells,
        })

    # ---- operations
    def product(self, key: Hashable, value: Value, weight: Samples) -> Value:
        """Of all elements of each sample. Shapes: weight [*shape of the sample, channels]. `key`: of that weight."""
        rows, columns, channels = (1, 1, value.channels) if value.is_sequence else value.extents
        place, outputs = self.read(value), weight.shape[-1]

        def matrix() -> Samples:
            cells = weight.reshape(-1, rows, columns, outputs) if rows * columns > 1 else weight
            return (cells.transpose(1, 2, 0, 3) if rows * columns > 1 else cells).reshape(-1, outputs)

        positions = value.columns if value.is_sequence else 1
        return Value(1, positions, outputs, is_sequence=value.is_sequence, step={
            "kind": PRODUCT, "activation": NONE, "from": place, "key": (key, rows, columns), "matrix": matrix,
            "scale": None, "bias": np.zeros(outputs, np.float32), "taps": rows, "tap_step": place.row,
            "span": columns * channels,
        })

    def convolution(self, key: Hashable, value: Value, kernel: Samples, windows: Sequence[Any]) -> Value:
        """Shapes: kernel [outputs, channels, *window]; `windows` along one or two axes."""
        window_rows, window_columns = _two(windows)
        outputs, height, width = len(kernel), window_rows.size, window_columns.size
        place = self._read_with_border(value, border_of(windows))
        first = place.first - window_rows.before * place.row - window_columns.before * value.channels
        moved = replace(
            place, first=first, row=window_rows.stride * place.row, column=window_columns.stride * place.column
        )

        cells = kernel.reshape(outputs, value.channels, height, width).transpose(2, 3, 1, 0)
        step: dict[str, Any] = {
            "kind": PRODUCT, "activation": NONE, "from": moved, "key": (key, height, width), "scale": None,
            "bias": np.zeros(outputs, np.float32),
        }
        if self._transforms and value.channels % self._native.width == 0 and _may_be_transformed(windows):
            step |= {
                "taps": 1, "span": value.channels, "key": (key, "transformed"),
                "matrix": lambda: _transformed(cells).reshape(-1, outputs),
                "scratch": Place(self._scratch, 0, 0, 0, 0),
            }
        else:
            step |= {
                "taps": height, "tap_step": window_rows.dilation * place.row, "span": width * value.channels,
                "matrix": lambda: cells.reshape(-1, outputs),
            }
        return Value(window_rows.count, window_columns.count, outputs, step)

    def pool(self, value: Value, windows: Sequence[Any], is_mean: bool, counts_padding: bool) -> Value:
        """The largest elements or the means of windows along one or two axes."""
        two = _two(windows)
        return Value(two[0].count, two[1].count, value.channels, {
            "kind": MEAN if is_mean else LARGEST, "activation": NONE, "from": self.read(value),
            "window": [w.size for w in two], "stride": [w.stride for w in two], "before": [w.before for w in two],
            "size": [value.rows, value.columns], "counts_padding": counts_padding,
        })

    def activated(self, value: Value, activation: int) -> Value:
        """An element-wise function of a value."""
        if value.takes(*_ALL):
            return self._continued(value, activation=activation)
        return self._pointwise(value, activation=activation)

    def same(self, value: Value) -> Value:
        """A value itself, as the result of an operation."""
        return self._pointwise(value) if value.is_shared else self._continued(value)

    def combined(self, a: Value, b: Value, shape: Shape, multiplies: bool) -> Value:
        """The sum or the product of two values of this shape."""
        if a.is_vector != b.is_vector:
            a, b = self.image(a, shape), self.image(b, shape)
        for one, other in ((a, b), (b, a)):
            if one.takes(PRODUCT) and not multiplies and "other" not in one.step:
                return self._continued(one, other=self.read(other))
        return self._pointwise(a, other=self.read(b), multiplies=multiplies)

    def shifted(self, value: Value, constant: Samples, shape: Shape) -> Value:
        """The sum of a value of this shape and a constant, which broadcasts to it."""
        constant = _as_laid_out(value, constant, shape)
        if constant.ndim == 1 and value.takes(PRODUCT):
            return self._continued(value, bias=value.step["bias"] + constant)
        return self._pointwise(value, other=self._constant(constant), multiplies=False)

    def scaled(self, key: Hashable, value: Value, constant: Samples, shape: Shape) -> Value:
        """The product of a value of this shape and a constant, which broadcasts to it. `key`: of that constant."""
        constant, step = _as_laid_out(value, constant, shape), value.step
        if constant.ndim == 1 and value.takes(PRODUCT) and "other" not in step:
            scale = constant if step["scale"] is None else step["scale"] * constant
            return self._continued(value, key=(*step["key"], key), bias=step["bias"] * constant, scale=scale)
        return self._pointwise(value, other=self._constant(constant), multiplies=True)

    def _pointwise(self, value: Value, **more: Any) -> Value:
        step = {"kind": POINTWISE, "activation": NONE, "from": self.read(value), **more}
        return Value(*value.extents, step, is_sequence=value.is_sequence)

    def _constant(self, constant: Samples) -> Place:
        """Shapes: [channels], or [rows, columns, channels]."""
        row, column = (constant.shape[1] * constant.shape[2], constant.shape[2]) if constant.ndim == 3 else (0, 0)
        place = Place(Array(CONSTANTS, constant.size), self._constants_size, 0, row, column)
        self._constants.append(np.asarray(constant, np.float32).ravel())
        self._constants_size += constant.size
        return place

    def _continued(self, value: Value, **more: Any) -> Value:
        return Value(*value.extents, value.step | more, is_sequence=value.is_sequence)

    # ---- vectors, and the steps of sequences
    def part(self, value: Value, begin: int, channels: int) -> Value:
        """Some channels of vectors or of sequences of them."""
        place = self.read(value)
        return self._view(value, replace(place, first=place.first + begin), channels)

    def _view(self, value: Value, place: Place, channels: int) -> Value:
        return Value(
            value.rows, value.columns, channels, place=place, is_shared=True, is_sequence=value.is_sequence
        )

    def joined(self, values: Sequence[Value]) -> Value:
        """The channels of several vectors, or of sequences of them, one after the other."""
        first = values[0]
        result = Value(1, first.columns, sum(v.channels for v in values), is_shared=True, is_sequence=first.is_sequence)
        result.place, begin = self._new_place(result), 0
        for value in values:
            part = self._pointwise(value)
            part.place = replace(result.place, first=result.place.first + begin)
            self._write(part)
            begin += value.channels
        return result

    def at_step(self, value: Value, step: int) -> Value:
        """One step of sequences; counted from the last one if it is negative."""
        place = self.read(value)
        first = place.first + (step + value.columns if step < 0 else step) * place.column
        return Value(1, 1, value.channels, place=replace(place, first=first), is_shared=True)

    def reserved(self, channels: int, border: tuple[int, ...]) -> Value:
        """Sequences that a loop is to compute, so that it can read steps of them before."""
        assert self._length is not None
        value = Value(1, self._length, channels, border=border, is_shared=True, is_sequence=True)
        value.place = self._new_place(value)
        return value

    def put(self, value: Value, reserved: Value) -> Value:
        """Write a value where it was reserved."""
        computed = value if value.place is None else self._pointwise(value)
        computed.place = reserved.place
        self._write(computed)
        return reserved

    def delayed(self, value: Value, offset: int, initial: Samples) -> Value:
        """The steps `offset` before; `initial` where there are none, for which the value has a border."""
        place = self._read_with_border(value, (0, 0, max(offset, 0), max(-offset, 0)))
        state = [offset, *initial.ravel().tolist()] if initial.any() else []
        if place.array.initial not in (None, state):  # another delay needs another border
            copy = self._pointwise(value)
            copy.border = value.border
            return self.delayed(copy, offset, initial)
        if initial.any() and place.array.initial is None:
            place.array.kind = (*place.array.kind, object())  # its border is not 0
            cells = Value(1, abs(offset), value.channels, is_sequence=True)
            begin = -offset if offset > 0 else value.columns
            cells.place = replace(place, first=place.first + begin * place.column)
            constant = np.broadcast_to(initial.ravel(), value.channels)
            cells.step = {"kind": POINTWISE, "activation": NONE, "from": self._constant(constant)}
            self._write(cells)
        place.array.initial = state
        return self._view(value, replace(place, first=place.first - offset * place.column), value.channels)

    def begin_loop(self, is_reverse: bool) -> None:
        """What is written until `end_loop` is computed step by step, from the last one on if `is_reverse`."""
        self._loop = {"kind": LOOP, "steps": self._length, "body": len(self._steps) + 1, "is_reverse": is_reverse}
        self._steps.append(self._loop)

    def end_loop(self) -> None:
        """See `begin_loop`."""
        assert self._loop is not None
        self._loop["body"] = len(self._steps) - self._loop["body"]
        del self._loop["is_reverse"]
        self._loop = None

    # ---- the program
    def program(
        self, outputs: Sequence[tuple[Value, Shape]], without_transforms: Callable[[], Program] | None = None
    ) -> Program:
        """The written steps and those that the outputs need. `without_transforms`: see `Program`."""
        places = [self.read(self._contiguous(value)) for value, _ in outputs]
        size = allocate(self._steps, [place.array for place in places])
        written = [*self._cleared_borders(), *self._steps]
        steps = np.zeros(len(written), STEP)
        steps["other"]["buffer"] = steps["scratch"]["buffer"] = -1
        for record, step in zip(steps, written, strict=True):
            for name, item in step.items():
                record[name] = coordinates(item) if isinstance(item, Place) else item
        constants = aligned(np.concatenate([np.zeros(1, np.float32), *self._constants])[1:])
        shapes = [(self._samples, *([v.columns] if v.is_sequence else []), *shape) for v, shape in outputs]
        firsts = [place.array.first + place.first for place in places]
        outputs_in_arena = list(zip(firsts, shapes, strict=True))
        return Program(
            self._native, steps, constants, self._input_sizes, size, outputs_in_arena, self._kept, without_transforms
        )

    def _cleared_borders(self) -> list[dict[str, Any]]:
        """Steps that set the borders of arrays to 0, once for those that lie in one place."""
        arrays = (v.array for step in self._steps for v in step.values() if isinstance(v, Place))
        steps = []
        for array in {(array.first, array.kind): array for array in arrays}.values():
            if array.buffer != ARENA or not any(array.border):
                continue
            above, below, left, right = array.border
            height, width, channels = array.kind[:3]
            row, zero = width * channels, self._constant(np.zeros(channels, np.float32))
            for first_row, rows, first_column, columns in (
                (0, above, 0, width), (height - below, below, 0, width),
                (above, height - above - below, 0, left), (above, height - above - below, width - right, right),
            ):
                place = Place(array, first_row * row + first_column * channels, height * row, row, channels)
                steps.append({
                    "kind": POINTWISE, "images": self._samples, "rows": rows, "columns": columns, "channels": channels,
                    "from": zero, "to": place,
                })
        return [step for step in steps if step["rows"] and step["columns"]]

    def _contiguous(self, value: Value) -> Value:
        """A value that lies as its array is returned."""
        if not (value.is_vector or value.is_sequence):
            return self.vector(value)
        place, size = self.read(value), value.columns * value.channels
        is_whole = place.array.size == self._samples * size and place.array.buffer == ARENA
        return value if is_whole else self._pointwise(value)


class Program:
    """Steps that compute the outputs of some samples. Threads may share it.

    `without_transforms` writes others for the same, which are needed if numbers that are not finite come.
    """

    def __init__(
        self, native: Library, steps: Samples, constants: Samples, input_sizes: Sequence[int], arena_size: int,
        outputs: Sequence[tuple[int, Shape]], kept: Sequence[Samples],
        without_transforms: Callable[[], Program] | None,
    ) -> None:
        self._steps, self._constants, self._kept = steps, constants, kept
        self._input_bytes, self._arena_size = [4 * size for size in input_sizes], arena_size
        self._buffers = ctypes.c_void_p * (2 + len(input_sizes))
        self._outputs = [(first, prod(shape), shape) for first, shape in outputs]
        self._run, self._address, self._number, self._threads = native.run, steps.ctypes.data, len(steps), threads()
        self._without_transforms = without_transforms and cache(without_transforms)

    def __call__(self, arrays: Sequence[Samples]) -> list[Samples]:
        """Shapes: float32 arrays [batch, *shape], contiguous -> arrays [batch, *shape of the output] of their own."""
        for array, size in zip(arrays, self._input_bytes, strict=True):
            if array.nbytes != size or not array.flags.c_contiguous:
                raise ValueError(f"these steps are for {size} contiguous bytes, not for {array.shape}")
        arena = ARENAS.of_size(self._arena_size)
        inputs = [array.ctypes.data for array in arrays]
        buffers = self._buffers(arena.ctypes.data, self._constants.ctypes.data, *inputs)
        is_not_finite = self._run(self._address, self._number, buffers, self._threads)
        if is_not_finite and self._without_transforms:
            return self._without_transforms()(arrays)
        return [arena[first : first + size].reshape(shape).copy() for first, size, shape in self._outputs]


_ALL = (PRODUCT, LARGEST, MEAN, POINTWISE)


class Operation(NamedTuple):
    """How a node is written. `write` takes a writer, and of each operand the value or the array of a constant.

    `border`: how many cells above, below, left and right of its operand it reads. `of_steps`: of sequences, it computes
    each step from that step of its operands.
    """

    write: Callable[..., Value]
    border: tuple[int, ...] = NO_BORDER
    of_steps: bool = False


def _vectors(columns: int, number: int) -> int:
    """Of how many vectors a panel of weights consists, if there are so many in all."""
    if number >= 4 and (columns <= 2 or number % 4 == 0):
        return 4
    return 2 if number >= 2 else 1


def _may_be_transformed(windows: Sequence[Any]) -> bool:
    """Whether `transform` of steps.c computes such convolutions, in less time than products of their windows."""
    if len(windows) != 2 or any((w.size, w.stride, w.dilation) != (3, 1, 1) for w in windows):
        return False
    positions, squares = (prod(-(-w.count // step) for w in windows) for step in (1, 2))
    return positions >= _FEWEST_TRANSFORMED and 16 * squares <= _MOST_PRODUCTS * 9 * positions


def _transformed(cells: Samples) -> Samples:
    """The weights of windows of 3x3 cells for `transform` of steps.c. Shapes: [3, 3, *others] -> [4, 4, *others]."""
    terms = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    return np.einsum("yi,xj,ij...->yx...", terms, terms, cells.astype(float), optimize=True).astype(np.float32)


def _extents(shape: Shape) -> tuple[int, int, int]:
    """Channels, rows and columns."""
    channels, *positions = shape
    rows, columns = (1, *positions)[-2:] if len(positions) < 2 else positions
    return channels, rows, columns


def _as_laid_out(value: Value, constant: Samples, shape: Shape) -> Samples:
    """A constant that broadcasts to a shape, as the elements of a value lie.

    Shapes: returns [channels], or [rows, columns, channels].
    """
    if value.is_vector:
        return np.broadcast_to(constant, shape).ravel()
    constant = constant.reshape((1,) * (len(shape) - constant.ndim) + constant.shape)
    if constant.shape[1:] == (1,) * (len(shape) - 1):
        return np.broadcast_to(constant.ravel(), shape[:1])
    return np.broadcast_to(constant, shape).reshape(_extents(shape)).transpose(1, 2, 0)


def border_of(windows: Sequence[Any]) -> tuple[int, ...]:
    """How many cells windows along one or two axes cover above, below, left and right of an image."""
    rows, columns = _two(windows)
    return tuple(max(n, 0) for n in (rows.before, rows.after, columns.before, columns.after))


def _two(windows: Sequence[Any]) -> Sequence[Any]:
    """Windows along rows and columns."""
    if len(windows) == 2:
        return windows
    (columns,) = windows
    return replace(columns, size=1, stride=1, dilation=1, before=0, after=0, count=1), columns


__all__ = ["Operation", "Packed", "Program", "Value", "Writer", "border_of"]
