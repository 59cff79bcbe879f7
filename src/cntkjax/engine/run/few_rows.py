"""Networks for a few samples, computed by the library in C (`engine.native`), or dense layers by NumPy.

XLA:CPU multiplies a row by a matrix in one thread, and a call of its executable takes longer than a small network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from math import prod
from operator import is_
from typing import Any, TypeAlias

import numpy as np

from ...graph.function import Node
from ...graph.shape import is_known
from ...graph.variable import Edge
from ..native.library import library
from ..native.memory import NO_BORDER
from ..native.program import Operation, Packed, Value, Writer
from ..native.program import Program as NativeProgram
from ..plan.parts import Loop, Part, inputs_of, resolve
from ..plan.plan import Plan
from ..xla.platform import platform

MOST_ROWS = 64  # up to here NumPy took less time than XLA (docs/measurements.md)

Samples: TypeAlias = "np.ndarray[Any, Any]"
Call: TypeAlias = Callable[[Sequence[Samples]], list[Samples]]  # of an array for each argument
_Step: TypeAlias = Callable[[list[Samples]], Samples]  # from what was computed before it


class FewRows:
    """The outputs of a plan for some samples, with any values of its leaves.

    First come the values of the leaves, then what follows from them alone (`fixed`), the arguments, what the library in
    C computes (`native`), and what NumPy computes from all these (`steps`). `outputs` are places in that order.
    """

    def __init__(
        self, rows: int, fixed: Sequence[_Step], native: NativePart | None, steps: Sequence[_Step],
        outputs: Sequence[int],
    ) -> None:
        self._rows, self._fixed, self._native, self._steps, self._outputs = rows, fixed, native, steps, outputs
        self._latest: tuple[Sequence[Any], Call | None] = (), None

    def latest(self, leaves: Sequence[Any]) -> Call | None:
        """The function of the arguments with these values of the leaves; it is kept until others come.

        None when they come for the first time, and weights would have to be packed.
        """
        seen, call = self._latest
        is_new = len(seen) != len(leaves) or not all(map(is_, seen, leaves))
        if is_new or call is None:
            call = None if is_new and self._native else self.bound(leaves)
            self._latest = leaves, call
        return call

    def bound(self, leaves: Sequence[Any], packed: Packed | None = None) -> Call:
        """The function of the arguments for values of the leaves that stay.

        `packed`: weights of these leaves that were packed for other numbers of samples; it gets those that are missing.
        Shapes: contiguous arrays [batch, *shape] -> arrays [batch, *shape of the output] of their own.
        """
        constants = with_steps([*map(np.asarray, leaves)], self._fixed)
        packed = {} if packed is None else packed
        native = self._native.program(constants, packed, self._rows) if self._native else _nothing
        steps, outputs = self._steps, self._outputs

        def call(arrays: Sequence[Samples]) -> list[Samples]:
            computed = with_steps([*constants, *arrays, *native(arrays)], steps)
            return [computed[i] for i in outputs]

        return call


def with_steps(computed: list[Samples], steps: Sequence[_Step]) -> list[Samples]:
    """What was computed before, to which the results of these steps are added."""
    with np.errstate(all="ignore"):
        for step in steps:
            computed.append(step(computed))
    return computed


def _nothing(arrays: Sequence[Samples]) -> list[Samples]:
    return []


class NativePart:
    """Nodes that the library in C computes from the arguments and from constants.

    `results`: the outputs of them that others read. `constants`: their places among the constants of a call.
    """

    def __init__(
        self, operations: Mapping[Node, Operation], parts: Sequence[Part], arguments: Sequence[Edge],
        constants: Mapping[Edge, int], results: Sequence[Edge],
    ) -> None:
        self.operations, self.results = operations, results
        self._parts, self._arguments, self._constants = parts, arguments, constants
        self._readers = Counter([*(resolve(v) for node in operations for v in node.node_inputs), *results])
        self._borders: dict[Edge, tuple[int, ...]] = {}
        for node, operation in operations.items():
            for v in map(resolve, node.node_inputs):
                self._borders[v] = tuple(map(max, self._borders.get(v, operation.border), operation.border))

    def program(
        self, constants: Sequence[Samples], packed: Packed, samples: int, length: int | None = None,
        transforms: bool = True,
    ) -> NativeProgram:
        """The computation with these constants, for so many samples, or sequences of one length."""
        native = library()
        assert native is not None
        writer = Writer(native, samples, packed, length, transforms)
        values: dict[Edge, Value | Samples] = {v: constants[i] for v, i in self._constants.items()}
        for v in self._arguments:
            argument, border = writer.input(prod(v.shape), v.sequence_axis is not None), self._border(v)
            if prod(v.shape[1:]) > 1:
                argument.border = border  # of the image that it becomes
            else:
                argument = writer.finished(argument, border, is_shared=True)
            values[v] = argument
        with np.errstate(all="ignore"):
            for part in self._parts:
                if isinstance(part, Loop):
                    self._write_loop(part, writer, values)
                else:
                    values[_output(part)] = self._written(part, writer, values)
        without_transforms = partial(self.program, constants, packed, samples, length, transforms=False)
        return writer.program([(_value(values[v]), v.shape) for v in self.results], without_transforms)

    def _border(self, v: Edge) -> tuple[int, ...]:
        return self._borders.get(v, NO_BORDER)

    def _written(self, node: Node, writer: Writer, values: Mapping[Edge, Value | Samples]) -> Value:
        output = _output(node)
        value = self.operations[node].write(writer, *(values[resolve(v)] for v in node.node_inputs))
        return writer.finished(value, self._border(output), is_shared=self._readers[output] > 1)

    def _write_loop(self, loop: Loop, writer: Writer, values: dict[Edge, Value | Samples]) -> None:
        """The nodes of a loop; what its delays read has its place before."""
        for v in inputs_of(loop):
            if isinstance(value := values.get(v), Value):
                writer.read(value)
        reserved = {}
        for delay in loop.delays:
            x = resolve(delay.node_inputs[0])
            values[x] = reserved[x] = writer.reserved(x.shape[0], self._border(x))
            values[_output(delay)] = self._written(delay, writer, values)
        writer.begin_loop(loop.reverse)
        for node in loop.nodes:
            value, output = self._written(node, writer, values), _output(node)
            values[output] = writer.put(value, reserved[output]) if output in reserved else value
        for v in loop.outputs:
            writer.read(_value(values[v]))
        writer.end_loop()


def _value(value: Value | Samples) -> Value:
    assert isinstance(value, Value)
    return value


def few_rows(plan: Plan, rows: int) -> FewRows | None:
    """The computation for so many samples; None if parts of it are left to XLA, or take it less time."""
    if rows > MOST_ROWS or platform() != "cpu" or not plan.arguments or not plan.is_of_samples:
        return None
    if len(set(plan.outputs)) < len(plan.outputs):
        return None
    fixed, varying = constant_nodes(plan)
    before = [*plan.leaves, *map(_output, fixed)]
    native, constants = _native_part(plan, varying, before), constant_steps(plan)
    rest = [node for node in varying if native is None or node not in native.operations]
    order = [*before, *plan.arguments, *(native.results if native else ()), *map(_output, rest)]
    places = {v: i for i, v in enumerate(order)}
    steps = [step for node in rest if (step := _step(node, rows, places, {*before})) is not None]
    if constants is None or len(steps) < len(rest):
        return None
    return FewRows(rows, constants, native, steps, [places[v] for v in plan.outputs])


def constant_nodes(plan: Plan) -> tuple[list[Node], list[Node]]:
    """The nodes that follow from leaves alone, and the others."""
    constants: set[Edge] = {*plan.leaves}
    fixed, varying = [], []
    for node in plan.nodes:
        if all(resolve(v) in constants for v in node.node_inputs):
            fixed.append(node)
            constants.update(node.node_outputs)
        else:
            varying.append(node)
    return fixed, varying


def constant_steps(plan: Plan) -> list[_Step] | None:
    """The computation of what follows from leaves alone; None if NumPy does not compute all of it."""
    fixed, _ = constant_nodes(plan)
    constants = [*plan.leaves, *map(_output, fixed)]
    places = {v: i for i, v in enumerate(constants)}
    steps = [step for node in fixed if (step := _step(node, 1, places, {*constants})) is not None]
    return steps if len(steps) == len(fixed) else None


def _native_part(plan: Plan, nodes: Sequence[Node], constants: Sequence[Edge]) -> NativePart | None:
    """The nodes that the library computes, from the first on; None if it was not built, or there is no product."""
    if library() is None or any(v.dtype is not np.float32 for v in plan.arguments):
        return None
    places = {v: i for i, v in enumerate(constants)}
    known, operations = {*constants, *plan.arguments}, {}
    for node in nodes:
        operands = [resolve(v) for v in node.node_inputs]
        operation = native_operation(node) if known.issuperset(operands) else None
        if operation is not None:
            operations[node] = operation
            known.update(node.node_outputs)
    if all(node.primitive.weight_operand is None for node in operations):
        return None
    read = {resolve(v) for node in nodes if node not in operations for v in node.node_inputs} | {*plan.outputs}
    results = [v for v in map(_output, operations) if v in read]
    return NativePart(operations, [*operations], plan.arguments, places, results)


def native_operation(node: Node) -> Operation | None:
    """How the library computes a node; None if it does not."""
    edges = [*map(resolve, node.node_inputs), _output(node)]
    if not all(v.dtype is np.float32 and is_known(v.shape) for v in edges):
        return None
    return node.primitive.by_steps(node)


def _output(node: Node) -> Edge:
    return node.node_outputs[0]


def _step(node: Node, rows: int, places: Mapping[Edge, int], constants: Set[Edge]) -> _Step | None:
    """The computation of a node by NumPy from what was computed before it; None if XLA is to compute it."""
    operands = [resolve(v) for v in node.node_inputs]
    if any(v.dtype != node.node_outputs[0].dtype or v not in places for v in operands):
        return None
    compute, weight = node.primitive.by_numpy(node, rows), node.primitive.weight_operand
    if compute is None or (weight is not None and operands[weight] not in constants):
        return None
    return _applied(compute, [places[v] for v in operands])


def _applied(compute: Callable[..., Samples], places: Sequence[int]) -> _Step:
    """A function that computes with the operands in these places. Few instructions take least time."""
    match places:
        case [i]:
            return lambda computed: compute(computed[i])
        case [i, j]:
            return lambda computed: compute(computed[i], computed[j])
    return lambda computed: compute(*(computed[i] for i in places))


__all__ = ["MOST_ROWS", "Call", "FewRows", "NativePart", "few_rows", "with_steps"]
