"""Plans: what the handler runs for one convolution of given sizes, made of primitives of oneDNN.

Weights are put into the order that an implementation reads, and their gradients back, where that is faster than an
implementation for the order that they have.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from hashlib import sha256
from math import prod
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .library import TABLE_BITS, Library, OneDnnError, words

# Numbers of oneDNN's interface.
_FLOAT32, _ANY, _FORWARD, _DIRECT = 3, 1, 64, 1
_SOURCE, _RESULT, _WEIGHTS, _SCRATCH = 1, 17, 33, 80  # arguments of primitives
_OF_GRADIENT = 128  # what the number of a gradient is more than its argument's
_DESCRIPTIONS = {1: 129, 17: 133, 33: 131, 129: 130, 145: 134, 161: 132, 80: 136}  # what is asked for each of these
_ALIGNMENT = 64  # bytes
_SCRATCH_BUFFER = 3  # after the operands and the result

_End: TypeAlias = tuple[c_void_p, int, int]  # memory, a buffer of the call, and where in it

# Below so many multiplications, a third of a millisecond, another thread is woken in as much time as it would save.
_FEW = 1 << 24

_making = Lock()  # programs are compiled in several threads
_kept: dict[int, np.ndarray] = {}  # plans by their numbers, which are read by address


class Layout(NamedTuple):
    """Sizes of an array's axes, in oneDNN's order, and how many numbers lie between neighbours on each."""

    sizes: Sequence[int]
    strides: Sequence[int]


class Task(NamedTuple):
    """A convolution, or its gradient for the source or for the weights.

    `kind`: "forward", "source" or "weights". Layouts: source and result [n, channels, *spatial], weights [outputs,
    inputs, *window]. The operands of a call are the two of these that are not computed, in this order. `dilations`: how
    many cells are left out between two of a window. `gaps`: how far apart the operand's cells are in what is convolved,
    with zeros between them; none if it is empty, as for oneDNN.
    """

    kind: str
    source: Layout
    weights: Layout
    result: Layout
    strides: Sequence[int]
    dilations: Sequence[int]
    before: Sequence[int]
    after: Sequence[int]
    gaps: Sequence[int] = ()

    @property
    def multiplications(self) -> int:
        """How many pairs of numbers are multiplied."""
        return prod(self.result.sizes) * prod(self.weights.sizes[1:])

    @property
    def text(self) -> str:
        """As it stands in a program."""
        return json.dumps(self)

    @property
    def number(self) -> int:
        """The same for equal tasks in all processes, and never 0."""
        return int.from_bytes(sha256(self.text.encode()).digest()[:7], "little") | 1 << 60


def scratch_of(loaded: Library, task: Task) -> int | None:
    """How much scratch memory a call needs, and None if oneDNN has no fast implementation. Units: bytes."""
    try:
        return int(_plan(loaded, task)[0])
    except OneDnnError:
        return None


def plan_of_call(loaded: Library, frame: int) -> int:
    """The address of the plan for a call of XLA, which is made if this process has not made it.

    Errors: OneDnnError if there is none that needs no more scratch memory than the call has.
    """
    attributes, results = words(words(frame, 21)[20], 2), words(words(frame, 15)[14], 2)
    text = words(attributes[1], 2)
    kind, source, weights, result, *window = json.loads(ctypes.string_at(text[0], text[1]))
    task = Task(kind, Layout(*source), Layout(*weights), Layout(*result), *window)
    plan = _plan(loaded, task)
    if plan[0] > words(words(results[1], 6)[5], 1)[0]:
        raise OneDnnError("the program has less scratch memory than oneDNN needs in this process")
    return plan.ctypes.data + 8


def _plan(loaded: Library, task: Task) -> np.ndarray:
    """Bytes of scratch memory, and what the handler reads."""
    with _making:
        if task.number not in _kept:
            if 4 * len(_kept) > 3 << TABLE_BITS:
                raise OneDnnError("the table of plans is full")
            with loaded.threads(1 if task.multiplications < _FEW else None):
                _kept[task.number] = plan = _Builder(loaded, task).plan()
            place = task.number & ((1 << TABLE_BITS) - 1)
            while loaded.table[2 * place]:
                place = (place + 1) & ((1 << TABLE_BITS) - 1)
            loaded.table[2 * place + 1] = plan.ctypes.data + 8  # before the number, which the handler looks for
            loaded.table[2 * place] = task.number
        return _kept[task.number]


class _Builder:
    """Writes the plan of a task."""

    def __init__(self, loaded: Library, task: Task) -> None:
        self.library, self.task = loaded, task
        self.scratch = 0
        computed = {"source": _SOURCE, "weights": _WEIGHTS}.get(task.kind, _RESULT)
        operands = [argument for argument in (_SOURCE, _WEIGHTS, _RESULT) if argument != computed]
        self.buffers = {operands[0]: 0, operands[1]: 1, computed: 2}  # of the call
        self.gradients = () if task.kind == "forward" else (computed, _RESULT)

    def plan(self) -> np.ndarray:
        """Errors: OneDnnError if there is no fast implementation."""
        primitive = self._chosen()
        given, memory = self._memory(self.task.weights), self._memory_of(primitive, _WEIGHTS)
        ends = {argument: (buffer, 0) for argument, buffer in self.buffers.items()}
        copies = []  # of weights or their gradient, at most one
        if not self.library.are_equal(memory, given):
            outside, inside = (given, *ends[_WEIGHTS]), (memory, _SCRATCH_BUFFER, self._reserve(memory))
            ends[_WEIGHTS] = inside[1:]
            copies = [self._copy(inside, outside) if self.task.kind == "weights" else self._copy(outside, inside)]
        rows = [(self._number(argument), self._memory_of(primitive, argument), *end) for argument, end in ends.items()]
        step = self._step(primitive, rows)
        steps = [step, *copies] if self.task.kind == "weights" else [*copies, step]
        flat = [number for step in steps for number in step]
        return np.array([self.scratch, self.library.engine.value, len(steps), len(flat) + 3, *flat], np.int64)

    def _chosen(self) -> c_void_p:
        """The primitive for the order that the weights have, if it is implemented as for the best one."""
        best = self._described(self._memory(self.task.weights._replace(strides=())))
        name = self.library.implementation(best)
        if not name.startswith(("brg", "jit")):
            raise OneDnnError(f"{name} is slow")
        as_given = self._described(self._memory(self.task.weights))
        return as_given if self.library.implementation(as_given) == name else best

    def _copy(self, source: _End, target: _End) -> list[int]:
        engine = self.library.engine
        reorder = self.library.new(
            "reorder_primitive_desc_create", source[0], engine, target[0], engine, self.library.attributes
        )
        return self._step(reorder, [(_SOURCE, *source), (_RESULT, *target)])

    def _step(self, described: c_void_p, rows: Sequence[tuple[int, c_void_p, int, int]]) -> list[int]:
        """A primitive, and what it takes: the number of an argument, its memory, and where it lies."""
        scratch = self.library.memory_of(described, _DESCRIPTIONS[_SCRATCH])
        primitive = self.library.new("primitive_create", described)
        step = [primitive.value or 0, len(rows) + 1]
        for argument, memory, buffer, offset in [*rows, (_SCRATCH, scratch, _SCRATCH_BUFFER, self._reserve(scratch))]:
            step += [argument, memory.value or 0, buffer, offset]
        return step

    def _number(self, argument: int) -> int:
        return argument + (_OF_GRADIENT if argument in self.gradients else 0)

    def _memory_of(self, primitive: c_void_p, argument: int) -> c_void_p:
        return self.library.memory_of(primitive, _DESCRIPTIONS[self._number(argument)])

    def _reserve(self, memory: c_void_p) -> int:
        """Where in the scratch memory there is room."""
        place = self.scratch
        self.scratch += -(-self.library.size(memory) // _ALIGNMENT) * _ALIGNMENT
        return place

    def _described(self, weights: c_void_p) -> c_void_p:
        """The primitive for weights in this order."""
        task, new = self.task, self.library.new
        source, result = self._memory(task.source), self._memory(task.result)
        engine, attributes = self.library.engine, self.library.attributes
        window = [_dims(each) for each in (task.strides, task.dilations, task.before, task.after)]
        forward = new(
            "convolution_forward_primitive_desc_create", engine, _FORWARD, _DIRECT, source, weights, None, result,
            *window, attributes,
        )
        if task.kind == "forward":
            return forward
        if task.kind == "source":
            return new(
                "convolution_backward_data_primitive_desc_create", engine, _DIRECT, source, weights, result, *window,
                forward, attributes,
            )
        return new(
            "convolution_backward_weights_primitive_desc_create", engine, _DIRECT, source, weights, None, result,
            *window, forward, attributes,
        )

    def _memory(self, layout: Layout) -> c_void_p:
        """In any order where the layout has no strides."""
        rank, sizes = len(layout.sizes), _dims(layout.sizes)
        if layout.strides:
            return self.library.new(
                "memory_desc_create_with_strides", rank, sizes, _FLOAT32, _dims(layout.strides)
            )
        return self.library.new("memory_desc_create_with_tag", rank, sizes, _FLOAT32, _ANY)


def _dims(numbers: Sequence[int]) -> Any:
    return (c_int64 * 12)(*numbers)


__all__ = ["Layout", "Task", "plan_of_call", "scratch_of"]
