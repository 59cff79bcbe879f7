"""Boundaries between kernels, which keep the compiled text of a program linear in its operations.

XLA:CPU fuses an operation into each kernel that reads its result. So a kernel computes again whatever lies below the
values that it reads, down to a product, a sum, or an operation that is expensive enough. In a chain of activations
whose values are read twice, by the next one and by the backward pass, each kernel repeats the chain below it: the
compiled text grows with the square of the length, and the time that it takes to compile with the cube.

So a value that several kernels read is stored if more than `REPEATED` operations would be repeated with it, or more
than `TOGETHER` with it and all such values below, and another one if a kernel would reach `LONGEST` operations. The
size of each kernel is then bounded, and so is what each further reader of a value adds. The trace alone decides, after
differentiation: this holds for forward passes, backward passes and updates, for what a loop computes in a step, and
whatever the operations are.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from ..._typing import Array, PyTree
from ..xla.materialize import materialized, storing_values
from ..xla.platform import platform
from ..xla.work import LOOPS
from .inlining import Equation, Inlined
from .partial_eval import Atom

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, JaxprEqn  # slow to import

REPEATED = 96
TOGETHER = 1536
LONGEST = 384
_ENCLOSED = 256  # operations, at most, between a value and the one in which all that is computed from it meets

# XLA stores the results of these itself, where several kernels read them.
EXPENSIVE = frozenset({
    "cbrt", "div", "exp", "exp2", "expm1", "log", "log1p", "logistic", "pow", "rem", "rsqrt", "sqrt", "tanh",
})
# Kernels of their own, or several: they read values that are stored, and store what they compute.
_KERNELS = frozenset({
    "argmax", "argmin", "checkpoint", "cond", "conv_general_dilated", "cumlogsumexp", "cummax", "cummin", "cumprod",
    "cumsum", "dot_general", "fft", "ffi_call", "io_callback", "optimization_barrier", "psum",
    "pure_callback", "random_bits", "reduce", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod",
    "reduce_sum", "reduce_window", "reduce_window_max", "reduce_window_min", "reduce_window_sum", "remat2", "scan",
    "scatter", "scatter-add", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "select_and_gather_add",
    "select_and_scatter_add", "shard_map", "sort", "threefry2x32", "top_k", "while",
})
# They read other elements of their operand than those that they compute: a kernel that computes the operand for them
# does so again for each other reader, and XLA gives up such kernels where they would grow too much.
_MOVES = frozenset({"concatenate", "dynamic_slice", "dynamic_update_slice", "gather", "pad", "rev", "slice"})
# XLA composes these of this many operations.
_COMPOSED = {
    "acos": 12, "acosh": 25, "asin": 12, "asinh": 25, "atan": 25, "atan2": 25, "atanh": 25, "cos": 12, "cosh": 12,
    "digamma": 100, "erf": 25, "erf_inv": 40, "erfc": 60, "integer_pow": 4, "lgamma": 100, "sin": 12, "sinh": 30,
    "tan": 12,
}
_SLICED = 3  # operations that read a step's part of what a loop has stacked: each kernel slices it for itself


class _Readings:
    """Where the values of a trace are read, by the places of the operations that compute them.

    `readers`: the operations that may compute such a value again in their kernel, and `end` for each of the others,
    which read it where it is stored, or read other elements of it. `escaping`: operations whose value has readers that
    do not meet again in one operation nearby, so several kernels may compute it. `enclosed`: those between a value and
    where its readers meet.
    """

    def __init__(self, trace: Inlined) -> None:
        operations = trace.operations
        maker = {n: i for i, operation in enumerate(operations) for n in operation.outputs}
        self.end = len(operations)
        self.operands = [_distinct(maker.get(s) for s in o.inputs if isinstance(s, int)) for o in operations]
        self.readers: list[list[int]] = [[] for _ in operations]
        for i, operation in enumerate(operations):
            for k in self.operands[i]:
                self.readers[k].append(self.end if _is_kernel(operation) or _moves(operation) else i)
        for i in _distinct(maker.get(s) for s in trace.outputs if isinstance(s, int)):
            self.readers[i].append(self.end)
        self.escaping: set[int] = set()
        self.enclosed: set[int] = set()
        meeting = self._meeting_points()
        for i, readers in enumerate(self.readers):
            if len(readers) > 1 and i not in self.enclosed:
                between = self._between(i, meeting[i])
                self.enclosed |= between
                self.escaping |= set() if between else {i}

    def _meeting_points(self) -> list[int]:
        """For each operation the first one that all paths from it pass: its dominator on the way from the end."""
        meeting = [self.end] * self.end
        for i in range(self.end - 1, -1, -1):
            for k, reader in enumerate(self.readers[i]):
                meeting[i] = self._common(meeting, meeting[i], reader) if k else reader
        return meeting

    @staticmethod
    def _common(meeting: Sequence[int], a: int, b: int) -> int:
        while a != b:  # what all paths pass comes later
            a, b = (meeting[a], b) if a < b else (a, meeting[b])
        return a

    def _between(self, begin: int, end: int) -> set[int]:
        """The operations between a value and where its readers meet; none if they are many, or do not meet."""
        found: set[int] = set()
        waiting = [] if end == self.end else list(self.readers[begin])
        while waiting and len(found) <= _ENCLOSED:
            i = waiting.pop()
            if i != end and i not in found:
                found.add(i)
                waiting += self.readers[i]
        return set() if waiting else found


def boundaries(trace: Inlined, sliced: Container[int] = ()) -> set[int]:
    """The numbers of the values to store. `sliced`: those of the inputs that are slices."""
    readings, stored = _Readings(trace), set[int]()
    # For each operation those that a kernel computes where it needs the result; numbers below 0 are those of slices.
    repeated: list[frozenset[int]] = []
    sizes = [0 if _is_kernel(operation) else _size(operation) for operation in trace.operations]
    known = _known(trace)
    copies: dict[int, int] = {}  # by operations whose value several kernels compute: how many each of them repeats
    last_reader = {k: i for i, operands in enumerate(readings.operands) for k in operands}
    for i, operation in enumerate(trace.operations):
        operands = readings.operands[i]
        slices = (-1 - n for n in operation.inputs if isinstance(n, int) and n in sliced)
        below = frozenset((i, *slices)).union(*(repeated[k] for k in operands))
        for k in operands:
            if last_reader[k] == i:
                repeated[k] = frozenset()  # many of them would take much memory
        if not sizes[i] or (i in readings.escaping and operation.eqn.primitive.name in EXPENSIVE):
            below = frozenset()
        elif i not in readings.enclosed and i not in known and _is_storable(operation):
            size, most = sum(sizes[k] if k >= 0 else _SLICED for k in below), LONGEST
            if i in readings.escaping:
                copies[i], most = size, REPEATED
            if size > most or sum(copies.get(k, 0) for k in below) > TOGETHER:
                stored.update(operation.outputs)
                below = frozenset()
        repeated.append(below)
    return stored


def _known(trace: Inlined) -> set[int]:
    """The operations that compute with literals alone, which XLA does while it compiles, unless elements move."""
    known, values = set[int](), set[int]()
    for i, operation in enumerate(trace.operations):
        computed = any(isinstance(n, int) and n not in values for n in operation.inputs)
        if operation.inputs and not computed and not _moves(operation):
            known.add(i)
            values.update(operation.outputs)
    return known


def _is_kernel(operation: Equation) -> bool:
    return len(operation.outputs) != 1 or (operation.eqn.primitive.name in _KERNELS and not _only_reshapes(operation))


def _moves(operation: Equation) -> bool:
    return operation.eqn.primitive.name in _MOVES


def _only_reshapes(operation: Equation) -> bool:
    """Whether it is a reduction of axes of size 1, of which XLA makes a view."""
    eqn = operation.eqn
    return "axes" in eqn.params and prod(_shape(eqn.invars[0])) == prod(_shape(eqn.outvars[0]))


def _is_storable(operation: Equation) -> bool:
    """Whether the value is an array of numbers or of truth values."""
    dtype = getattr(operation.eqn.outvars[0].aval, "dtype", None)
    return dtype is not None and (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool_)


def _size(operation: Equation) -> int:
    """Of how many operations XLA makes this one: repeating an operand along axes of size 1 takes one more."""
    eqn = operation.eqn
    shape, shapes = _shape(eqn.outvars[0]), [_shape(v) for v in eqn.invars]
    repeats = sum(s != shape and len(s) == len(shape) for s in shapes) if shape in shapes else 0
    return _COMPOSED.get(eqn.primitive.name, 1) + repeats


def _shape(value: Atom) -> tuple[int, ...]:
    return getattr(value.aval, "shape", ())


def _distinct(places: Iterable[int | None]) -> list[int]:
    return [i for i in dict.fromkeys(places) if i is not None]


def bounded(traced: jax.stages.Traced) -> Callable[..., PyTree] | None:
    """What a trace computes, as a function of the same arguments whose kernels have boundaries; None if it needs none.

    It has none on other platforms than CPUs, whose compilers weigh what a kernel repeats.
    """
    evaluate = _with_boundaries(traced.jaxpr) if platform() == "cpu" else None
    if evaluate is None:
        return None
    structure = jax.tree.structure(traced.out_info)

    def compute(*arguments: PyTree, **static: object) -> PyTree:
        with storing_values(True):
            outputs = evaluate(jax.tree.leaves(arguments))
        return jax.tree.unflatten(structure, outputs)

    return compute


def _with_boundaries(
    closed: ClosedJaxpr, sliced: Container[int] = ()
) -> Callable[[Sequence[Array]], list[Array]] | None:
    """What a trace computes, with boundaries, also in the steps of its loops; None if it needs none."""
    trace = Inlined(closed)
    numbers = boundaries(trace, sliced)
    loops = {i: loop for i, o in enumerate(trace.operations) if (loop := _bounded_loop(o)) is not None}
    for i, loop in loops.items():
        trace.operations[i] = loop
    return partial(trace, stored=numbers, store=materialized) if numbers or loops else None


def _bounded_loop(operation: Equation) -> Equation | None:
    """A loop whose step has boundaries; None for one that needs none, and for all other operations."""
    eqn = operation.eqn
    name = LOOPS.get(eqn.primitive.name, "")
    evaluate = _with_boundaries(eqn.params[name], _sliced(eqn)) if name else None
    if evaluate is None:
        return None
    with storing_values(True):
        step = jax.make_jaxpr(lambda *arrays: evaluate(arrays))(*eqn.params[name].in_avals)
    return operation._replace(eqn=eqn.replace(params=eqn.params | {name: step}))


def _sliced(loop: JaxprEqn) -> range:
    """Which inputs of a loop's step are slices."""
    whole = loop.params.get("num_consts", 0) + loop.params.get("num_carry", len(loop.invars))
    return range(whole, len(loop.invars))


__all__ = ["bounded"]
