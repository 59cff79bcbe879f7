"""Data-parallel training: gradients summed over the workers, in the program in which the learners use them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import AnyArray, Array, PyTree
from ..engine.lower.rows import Rows, dense, sum_rows
from ..engine.lower.values import Context, Environment
from ..engine.plan.parts import resolve
from ..engine.plan.plan import Plan
from ..engine.run.devices import AXIS, Devices
from ..engine.run.handover import Captures
from ..engine.run.program import Program
from ..engine.train.learner import StepLearner
from ..engine.train.update import Gradient, Gradients, Hyperparameters, TrainedState, update_key, updated
from ..engine.xla.platform import lowering
from ..graph.variable import Leaf, Variable
from . import workers
from .exchange import ExchangeProgram
from .quantization import (
    Errors,
    all_reduce_in_1_bit,
    all_reduce_in_16_bits,
    gathered_errors,
    is_compressible,
    no_errors,
    restored_errors,
)

_BITS = 32, 16, 1
_DENSE = -1

Format: TypeAlias = int
"""The form of a gradient: the number of its rows, or `_DENSE`."""

Gather: TypeAlias = Callable[[str, bytes], workers.Pending]
"""Collects the payloads of those that take part; see `workers.gather`."""


@dataclass
class DataParallel:
    """Workers sum their gradients in each step, once `after` samples were seen. Until then each trains by itself.

    `bits`: 32, 16 or 1, in which a value of a gradient travels; see quantization.py.
    """

    after: int = 0
    bits: int = 32


class Agreement(NamedTuple):
    """What the workers know of a step.

    `samples`: of all workers. `ends_sweep`: whether a sweep ends on any. `alike`: whether all have minibatches of the
    same shapes.
    """

    samples: int
    ends_sweep: bool
    alike: bool


class GradientExchange:
    """The exchange of a trainer's steps, which sums gradients over all devices and updates the state on each.

    Where the minibatches of all workers have the same shapes, it is part of the program that computes the gradients, so
    that XLA sends some while it computes others; otherwise a program of its own, the same on all workers.

    `shares`: the number of this worker's devices. `samples`, `ends_sweep`: of the step that was agreed on last, the
    samples of all workers, and whether a sweep ends on any.
    """

    def __init__(self, learners: Sequence[StepLearner], bits: Sequence[int], devices: Devices) -> None:
        shapes = [p.shape for p in _in_1_bit(learners, bits)]
        self.devices, self.shares, self._learners = devices, len(devices.local), learners
        self._learn = partial(_exchange_and_update, learners, bits)
        self._program = ExchangeProgram(self._learn, devices)
        self._gathered_errors = ExchangeProgram(lambda errors: gathered_errors(errors, AXIS), devices)
        self._errors = no_errors(shapes, devices.count)
        self._operation = ""
        self._formats: tuple[Format, ...] = ()
        self._is_agreed = False
        self._steps: Counter[str] = Counter()  # that were taken, by the shapes of all workers, "" for different ones
        self._tally = "", 0  # what this step adds to them
        self._joined: WeakKeyDictionary[Program, Program] = WeakKeyDictionary()
        self._gather = workers.gather if devices.count > self.shares else workers.alone
        self.samples = 0
        self.ends_sweep = self.is_open = False

    # ---- what the workers agree on
    def begin(self, operation: str, ends_sweep: bool) -> None:
        """To be called before a step, with its name for messages, and whether it ends a sweep on this worker."""
        self._operation, self.ends_sweep, self._is_agreed = operation, ends_sweep, False

    def agree_ahead(self, samples: int, shapes: str) -> bool:
        """Tell the other workers about this one's minibatch; whether all compute and learn in one program.

        `shapes`: equal for minibatches that run the same program; "" where that cannot be part of another one. A
        program is made for shapes that all have had more often than they have had different ones.
        """
        self.is_open = self._is_agreed = True  # the others count on this worker's part
        self.samples, self.ends_sweep, alike = agree(self._operation, samples, self.ends_sweep, shapes, self._gather)
        if not self.samples:
            self.is_open = False
            return False
        shapes = shapes if alike else ""
        self._tally = shapes, self._steps[shapes] + 1
        return bool(shapes) and self._tally[1] > self._steps[""]

    def agree(self, samples: int, gradients: Gradients | None) -> int:
        """The number of samples of all workers, whose gradients are computed, or being computed."""
        if not self._is_agreed:
            self.agree_ahead(samples, "")
        if self.samples:
            self._formats = agree_on_formats(self._operation, gradients, self._gather)
        return self.samples

    # ---- one program
    def joined(self, program: Program) -> Program:
        """The program that goes on where one has computed `StepOutputs` with gradients; see `donated`."""
        if program not in self._joined:
            compute, learn, ready = program.body, self._learn, self._order_in_backward_pass(program.plan)

            def compute_and_learn(plan: Plan, ctx: Context, env: Environment, donated: PyTree, extra: PyTree) -> PyTree:
                hypers, pending = extra
                ctx.total = self.devices.total_of_process
                outputs = compute(plan, ctx, env, donated[0], (None, pending))
                state, errors, sums = learn(donated, outputs.gradients, outputs.sums, hypers, ready)
                return outputs._replace(state=state, gradients=None, sums=sums), errors

            self._joined[program] = program.over(self.devices, compute_and_learn)
        return self._joined[program]

    def _order_in_backward_pass(self, plan: Plan) -> list[int]:
        """For each gradient a number that is lower if it is ready earlier: those of the last nodes come first."""
        first_use: dict[Variable, int] = {}
        for i, node in enumerate(plan.nodes):
            for v in node.node_inputs:
                first_use.setdefault(resolve(v), i)
        return [-first_use.get(p, 0) for learner in self._learners for p in learner.parameters]

    def donated(self, state: TrainedState) -> PyTree:
        """What is donated to the joined program for this state."""
        return state, self._errors

    def result_of_joined(self, outputs: PyTree) -> PyTree:
        """The `StepOutputs` of the joined program, with the state after the update, and sums over all workers."""
        computed, self._errors = outputs
        self._end()
        return self.devices.of_this_process(computed)

    # ---- a program of its own
    def update(
        self, outputs: Captures, state: TrainedState, gradients: Gradients | None, sums: list[Array],
        hypers: Sequence[Hyperparameters | None],
    ) -> None:
        """Run the program."""
        first, *others = (
            (conform(g, state.parameters, self._formats), s)
            for g, s in [(gradients, sums)] + [(None, [jnp.zeros_like(s) for s in sums])] * (self.shares - 1)
        )
        key = update_key(first[0], hypers)
        self._program(outputs, key, self.donated(state), *self.devices.spread(first, *others), hypers)

    def result(self, outputs: PyTree) -> tuple[TrainedState, list[Array]]:
        """The state after the update, and the sums over all workers."""
        state, self._errors, sums = outputs
        self._end()
        return self.devices.of_this_process((state, sums))

    def _end(self) -> None:
        """Count the step; may be repeated."""
        shapes, count = self._tally
        self._steps[shapes] = count
        self.is_open = False

    # ---- what quantization has left out
    def errors(self) -> list[np.ndarray]:
        """What quantization has left out so far: of gradients, then of stripes. Shapes: [devices, ...] of `Errors`."""
        if not self._errors.own:
            return []
        captures: Captures = []
        self._gathered_errors(captures, None, self.devices.copied(self.devices.spread(self._errors)))
        own, stripes = self.devices.of_this_process(captures[0]())
        return [np.asarray(error) for error in (*own, *stripes)]

    def restore_errors(self, errors: Sequence[np.ndarray]) -> None:
        """Continue with what `errors` returned; where the number of devices differs, each gets its share."""
        half, count, arrays = len(errors) // 2, self.devices.count, list[Any](errors)
        gathered = Errors(arrays[:half], arrays[half:])
        first = workers.rank() * self.shares if count > self.shares else 0
        self._errors = self.devices.spread(*(restored_errors(gathered, first + i, count) for i in range(self.shares)))


def _in_1_bit(learners: Sequence[StepLearner], bits: Sequence[int]) -> list[Leaf]:
    groups = zip(learners, bits, strict=True)
    return [p for learner, b in groups for p in learner.parameters if b == 1 and is_compressible(p.shape, p.dtype, b)]


def _exchange_and_update(
    learners: Sequence[StepLearner], bits: Sequence[int], state: tuple[TrainedState, Errors], gradients: Gradients,
    sums: list[Array], hypers: Sequence[Hyperparameters | None], ready: Sequence[int] = (),
) -> tuple[TrainedState, Errors, list[Array]]:
    """`ready`: see `all_reduce_in`."""
    trained, errors = state
    flat = [g for group in gradients for g in group]
    widths = [b for b, group in zip(bits, gradients, strict=True) for _ in group]
    totals, errors = all_reduce_in(widths, flat, errors, ready)
    remaining = iter(totals)
    gradients = [[next(remaining) for _ in group] for group in gradients]
    return updated(learners, trained, gradients, hypers), errors, all_reduce(sums)


def all_reduce_in(
    bits: Sequence[int], gradients: Sequence[Gradient], errors: Errors, ready: Sequence[int] = ()
) -> tuple[list[Gradient], Errors]:
    """The sums of gradients, each of which travels in so many bits if it may, and the new errors of those of 1 bit.

    `ready`: a number for each gradient, lower if it is ready earlier; those that are ready together travel together.
    """
    compressed = [is_compressible(_shape(g), g.dtype, b) for b, g in zip(bits, gradients, strict=True)]
    width = [
        b if c and not isinstance(g, Rows) else 32 for b, c, g in zip(bits, compressed, gradients, strict=True)
    ]
    parts: dict[int, Sequence[Any]] = {b: [g for g, w in zip(gradients, width, strict=True) if w == b] for b in _BITS}
    if parts[1]:
        has_error = [w for w, b, c in zip(width, bits, compressed, strict=True) if c and b == 1]
        places = [i for i, w in enumerate(has_error) if w == 1]  # not those whose rows travel
        parts[1], new = all_reduce_in_1_bit(parts[1], Errors(*([e[i] for i in places] for e in errors)), AXIS)
        errors = Errors(*(_replaced(e, places, n) for e, n in zip(errors, new, strict=True)))
    if parts[16]:
        parts[16] = all_reduce_in_16_bits(parts[16], AXIS)
    ready_in_32 = [r for r, w in zip(ready, width, strict=True) if w == 32] if ready else ()
    remaining = {b: iter(part) for b, part in (parts | {32: all_reduce(parts[32], ready_in_32)}).items()}
    return [next(remaining[w]) for w in width], errors


def _shape(gradient: Gradient) -> tuple[int, ...]:
    return (gradient.height, *gradient.values.shape[1:]) if isinstance(gradient, Rows) else gradient.shape


def _replaced(items: Sequence[Array], places: Sequence[int], new: Sequence[Array]) -> list[Array]:
    return [dict(zip(places, new, strict=True)).get(i, item) for i, item in enumerate(items)]


def agree(
    operation: str, samples: int, ends_sweep: bool, shapes: str = "", gather: Gather = workers.gather
) -> Agreement:
    """Tell the other workers about this one's minibatch, while their devices may still compute the one before."""
    message = json.dumps([samples, ends_sweep, shapes]).encode()
    parts = [json.loads(part) for part in gather(operation, message).wait()]
    return Agreement(
        sum(part[0] for part in parts), any(part[1] for part in parts), len({part[2] for part in parts}) == 1
    )


def agree_on_formats(
    operation: str, gradients: Gradients | None, gather: Gather = workers.gather
) -> tuple[Format, ...]:
    """The formats in which gradients travel, which the devices may still be computing.

    Rows travel as rows, as many from each worker, unless a worker has a dense gradient.
    """
    formats = [] if gradients is None else [_format(g) for group in gradients for g in group]
    parts = gather(f"the gradients of {operation}", json.dumps(formats).encode()).wait()
    known = [formats for formats in map(json.loads, parts) if formats]
    return tuple(_DENSE if _DENSE in column else max(column) for column in zip(*known, strict=True))


def conform(gradients: Gradients | None, like: Sequence[Sequence[Array]], formats: Sequence[Format]) -> Gradients:
    """This worker's gradients in the formats in which they travel; zeros if it has none.

    `like`: arrays with the shapes and types of the parameters.
    """
    remaining = iter(formats)
    groups = [[None] * len(group) for group in like] if gradients is None else gradients
    return [
        [_conform(g, p, next(remaining)) for g, p in zip(group, parameters, strict=True)]
        for group, parameters in zip(groups, like, strict=True)
    ]


def all_reduce(gradients: PyTree, ready: Sequence[int] = ()) -> PyTree:
    """The sums of all arrays and `Rows` of a tree over all workers, inside an exchange program.

    `ready`: see `all_reduce_in`.
    """
    arrays, structure = jax.tree.flatten(gradients, is_leaf=lambda g: isinstance(g, Rows))
    sums: list[Gradient] = [_gather_rows(g) if isinstance(g, Rows) else g for g in arrays]
    order = sorted(range(len(arrays)), key=lambda i: ready[i]) if ready else range(len(arrays))
    dense = [i for i in order if not isinstance(arrays[i], Rows)]
    limit = min(lowering().message_bytes, sum(arrays[i].nbytes for i in dense) // lowering().messages)
    for bucket in buckets([arrays[i] for i in dense], limit):
        for i, total in zip(bucket, _all_reduce([arrays[dense[i]] for i in bucket]), strict=True):
            sums[dense[i]] = total
    return jax.tree.unflatten(structure, sums)


def buckets(arrays: Sequence[Array], limit: int) -> list[list[int]]:
    """The numbers of arrays that travel together: of one type, and at most `limit` bytes, unless it is a single array.

    >>> buckets([np.zeros(3), np.zeros(9), np.zeros(1), np.zeros(2, np.float32), np.zeros(2)], limit=48)
    [[0, 2, 4], [1], [3]]
    """
    result: list[list[int]] = []
    open_buckets: dict[np.dtype, list[int]] = {}
    free: dict[np.dtype, int] = {}
    for i, array in enumerate(arrays):
        if array.nbytes > limit:
            result.append([i])
            continue
        if array.nbytes > free.get(array.dtype, -1):
            open_buckets[array.dtype], free[array.dtype] = [], limit
            result.append(open_buckets[array.dtype])
        open_buckets[array.dtype].append(i)
        free[array.dtype] -= array.nbytes
    return result


def _all_reduce(arrays: Sequence[Array]) -> list[Array]:
    """The sums of arrays of one type, as one message. Half precision is summed in single precision."""
    dtype, shapes = arrays[0].dtype, [a.shape for a in arrays]
    flat = arrays[0] if len(arrays) == 1 else jnp.concatenate([a.ravel() for a in arrays])
    total = lax.psum(flat.astype(jnp.float32) if dtype == jnp.float16 else flat, AXIS).astype(dtype)
    if len(arrays) == 1:
        return [total]
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(jnp.split(total, ends[:-1]), shapes, strict=True)]


def _gather_rows(rows: Rows) -> Rows:
    """The sum of the rows of all workers."""
    indices, values = (lax.all_gather(a, AXIS, tiled=True) for a in (rows.indices, rows.values))
    return sum_rows(indices, values, rows.height)


def _format(gradient: Gradient) -> Format:
    return len(gradient.indices) if isinstance(gradient, Rows) else _DENSE


def _conform(gradient: Gradient | None, parameter: Array, form: Format) -> Gradient:
    if form == _DENSE:
        return _zeros(parameter.shape, parameter.dtype) if gradient is None else _dense(gradient)
    if gradient is None:
        gradient = _no_rows(form, parameter.shape, parameter.dtype)
    assert isinstance(gradient, Rows)
    return gradient if len(gradient.indices) == form else _padded(gradient, form)


def _dense(gradient: Gradient) -> AnyArray:
    return jax.jit(dense)(gradient) if isinstance(gradient, Rows) else gradient


@partial(jax.jit, static_argnums=(0, 1))
def _zeros(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    return jnp.zeros(shape, dtype)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _no_rows(count: int, shape: tuple[int, ...], dtype: np.dtype) -> Rows:
    padding = shape[0] + jnp.arange(count, dtype=jnp.int32)
    return Rows(padding, jnp.zeros((count, *shape[1:]), dtype), shape[0])


@partial(jax.jit, static_argnums=1)
def _padded(rows: Rows, count: int) -> Rows:
    more = _no_rows(count - len(rows.indices), (rows.height, *rows.values.shape[1:]), rows.dtype)
    indices, values = (jnp.concatenate(p) for p in ((rows.indices, more.indices), (rows.values, more.values)))
    return Rows(indices, values, rows.height)


__all__ = [
    "Agreement", "DataParallel", "GradientExchange", "agree", "agree_on_formats", "all_reduce", "buckets", "conform",
]
