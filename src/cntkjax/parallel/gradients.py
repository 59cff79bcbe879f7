"""Data-parallel training: gradients summed over the workers, in the program in which the learners use them."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import AnyArray, Array, PyTree
from ..engine.data.shape_policy import Prices
from ..engine.lower.rows import Rows, dense
from ..engine.lower.values import Context, Environment
from ..engine.plan.parts import resolve
from ..engine.plan.plan import Plan
from ..engine.run.devices import AXIS, Devices
from ..engine.run.handover import Captures
from ..engine.run.prices import FREE
from ..engine.run.program import Program
from ..engine.run.shape_choice import Agreed, Sizes
from ..engine.train.learner import StepLearner
from ..engine.train.update import Counts, Gradient, Gradients, Hyperparameters, TrainedState, update_key, updated
from ..engine.xla.platform import platform
from ..graph.axis import Axis
from ..graph.variable import Leaf, Variable
from . import workers
from .collectives import Groups, all_reduce, reduce_scatter
from .exchange import ExchangeProgram
from .quantization import (
    Errors,
    all_reduce_in_1_bit,
    all_reduce_in_16_bits,
    gathered_errors,
    is_compressible,
    no_errors,
    reduce_scatter_in_16_bits,
    restored_errors,
)
from .sharding import on_parts

_DENSE = -1

_STEPS_AHEAD = 8
"""So many steps on several CPU devices at most wait to run. XLA blocks a thread for each device when there are 32, and
may then lack threads for what these devices exchange: of three threads, two devices had one left, and never ended.
"""

Format: TypeAlias = int
"""The form of a gradient: the number of its rows, or `_DENSE`."""

Gather: TypeAlias = Callable[[str, bytes], workers.Pending]
"""Collects the payloads of those that take part; see `workers.gather`."""


@dataclass
class DataParallel:
    """Workers sum their gradients in each step, once `after` samples were seen. Until then each trains by itself.

    `bits`: 32, 16 or 1, in which a value of a gradient travels; see quantization.py. `shard_state`: each keeps a part
    of the learner's state; see sharding.py. `aggregates_metrics`: it decides whose losses a trainer reports.
    """

    after: int = 0
    bits: int = 32
    shard_state: bool = False
    aggregates_metrics: bool = False


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

    Other learners learn in the same step from the gradients of this worker's devices alone, and not without data.

    Where the minibatches of all workers have the same shapes, it is part of the program that computes the gradients, so
    that XLA sends some while it computes others; otherwise a program of its own, the same on all workers.

    `devices`: `Devices` of its own. `ways`: how the gradients of each learner are exchanged; None if they stay on their
    worker. `sums_criteria`: the sums of criteria are those of all workers. `shares`: the number of this worker's
    devices. `samples`, `ends_sweep`: of the step that was agreed on last, the samples of all workers, and whether a
    sweep ends on any.
    """

    def __init__(
        self, learners: Sequence[StepLearner], ways: Sequence[DataParallel | None], devices: Devices,
        sums_criteria: bool = True,
    ) -> None:
        shapes = [p.shape for p in _in_1_bit(learners, ways)]
        self.devices, self.shares, self._learners, self.ways = devices, len(devices.local), learners, ways
        self._sums_criteria = sums_criteria
        self._processes = devices.processes if self.shares > 1 else None
        self._transforms = [
            a.transform if way is None or not way.shard_state else on_parts(a.transform)
            for a, way in zip(learners, ways, strict=True)
        ]
        self._program = ExchangeProgram(self._learn, devices)
        self._gathered_errors = ExchangeProgram(lambda errors: gathered_errors(errors, AXIS), devices)
        self._errors = no_errors(shapes, devices.count)
        self._operation = ""
        self._formats: tuple[Format, ...] = ()
        self._is_agreed = self._are_sizes_agreed = False
        self._steps: Counter[str] = Counter()  # that were taken, by the shapes of all workers, "" for different ones
        self._tally = "", 0  # what this step adds to them
        self._joined: WeakKeyDictionary[Program, Program] = WeakKeyDictionary()
        self._gather = workers.gather if devices.count > self.shares else workers.alone
        self._running: deque[Array] = deque()  # a result of each step that may not have ended
        self.samples = 0
        self.ends_sweep = self.is_open = False

    # ---- what the workers agree on
    def begin(self, operation: str, ends_sweep: bool) -> None:
        """To be called before a step, with its name for messages, and whether it ends a sweep on this worker."""
        self._operation, self.ends_sweep = operation, ends_sweep
        self._is_agreed = self._are_sizes_agreed = False
        while len(self._running) > _STEPS_AHEAD:
            self._running.popleft().block_until_ready()

    def agree_on_sizes(self, sizes: Sequence[Sizes], prices: Prices = FREE) -> Agreed | None:
        """The sizes of all workers' minibatches, and the prices of worker 0: so all choose the same shape.

        None if a worker has no data, or none that others know how to pack. `sizes`: of this worker's shares.
        """
        if self.devices.count == self.shares:
            return None
        self.is_open = self._are_sizes_agreed = True
        shares = [[s.number, [n.tolist() for n in s.lengths.values()], s.widths] for s in sizes]
        message = json.dumps([shares, prices.seconds_per_work, prices.compilation_seconds]).encode()
        parts = self._gather(self._operation, message).wait()
        of_workers, rates, compilations = zip(*map(json.loads, parts), strict=True)
        everyone = [_sizes(*share) for shares in of_workers for share in shares]
        return Agreed(everyone, rates[0], compilations[0]) if all(of_workers) else None

    def agree_ahead(self, samples: int, shapes: str) -> bool:
        """Tell the other workers about this one's minibatch; whether all compute and learn in one program.

        `shapes`: equal for minibatches that run the same program; "" where that cannot be part of another one. A
        program is made for shapes that all have had more often than they have had different ones.
        """
        if not self._are_sizes_agreed:
            self.agree_on_sizes([])
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

    # ---- what this worker learns from
    def counts(self, samples: int) -> Counts:
        """Of all workers for gradients and criteria that are summed, otherwise of this one."""
        learned = [samples if way is None else self.samples for way in self.ways]
        return Counts(self.samples if self._sums_criteria else samples, learned)

    def hypers(self, counts: Counts) -> list[Hyperparameters | None]:
        """With a flag where other workers, which run the same program, may learn and this one not, or reversely."""
        each = zip(self._learners, self.ways, counts.learned, strict=True)
        return [learner.hyper(samples, flagged=way is None) for learner, way, samples in each]

    def _learn(
        self, state: tuple[TrainedState, Errors], gradients: Gradients, sums: list[Array],
        hypers: Sequence[Hyperparameters | None], ready: Sequence[int] = (),
    ) -> tuple[TrainedState, Errors, list[Array]]:
        """Exchange gradients and update, in a program over the devices. `ready`: see `all_reduce`."""
        trained, errors = state
        ways, groups = [*self.ways, DataParallel() if self._sums_criteria else None], [*gradients, sums]
        each = [way for way, group in zip(ways, groups, strict=True) for _ in group]
        first = min(ready, default=0)  # criteria are there before all gradients
        order = [*ready, *(first for _ in sums)] if ready else ()
        totals, errors = summed(each, [a for group in groups for a in group], errors, order, self._processes)
        remaining: Iterator[Any] = iter(totals)
        *learned, criteria = [[next(remaining) for _ in group] for group in groups]
        return updated(self._transforms, trained, learned, hypers, _on_all_devices), errors, criteria

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
        self._end(computed.sums)
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
        self._end(sums)
        return self.devices.of_this_process((state, sums))

    def _end(self, sums: Sequence[Array]) -> None:
        """Count the step; may be repeated."""
        shapes, count = self._tally
        self._steps[shapes] = count
        self.is_open = False
        if self.shares > 1 and platform() == "cpu":
            self._running.append(sums[0])

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


def _in_1_bit(learners: Sequence[StepLearner], ways: Sequence[DataParallel | None]) -> list[Leaf]:
    groups = zip(learners, map(_bits, ways), strict=True)
    return [p for learner, b in groups for p in learner.parameters if b == 1 and is_compressible(p.shape, p.dtype, b)]


def _bits(way: DataParallel | None) -> int:
    """In how many bits a value of a gradient travels; 0 if it stays on its worker."""
    return 0 if way is None else way.bits


def _on_all_devices(flag: Array) -> Array:
    return lax.pmin(flag.astype(jnp.int32), AXIS) == 1


def summed(
    ways: Sequence[DataParallel | None], gradients: Sequence[Gradient], errors: Errors, ready: Sequence[int] = (),
    processes: Groups = None,
) -> tuple[list[Gradient], Errors]:
    """The sums of gradients over all devices, or this device's parts of them, and the new errors of those of 1 bit.

    Each travels in so many bits if it may. Those without a way stay, or are summed in the groups `processes`. `ready`:
    see `all_reduce`.
    """
    compressed = [is_compressible(_shape(g), g.dtype, _bits(way)) for way, g in zip(ways, gradients, strict=True)]
    kinds = [_kind(way, g, c) for way, g, c in zip(ways, gradients, compressed, strict=True)]
    groups: dict[tuple[int, bool], list[Any]] = {kind: [] for kind in kinds}
    order: dict[tuple[int, bool], list[int]] = {kind: [] for kind in kinds}
    for i, (kind, g) in enumerate(zip(kinds, gradients, strict=True)):
        groups[kind].append(g)
        order[kind] += [ready[i]] if ready else []
    sums: dict[tuple[int, bool], Sequence[Gradient]] = {}
    for kind, group in groups.items():
        if kind == (1, False):
            each = zip(kinds, ways, compressed, strict=True)
            has_error = [bits for (bits, _), way, c in each if c and _bits(way) == 1]
            places = [i for i, bits in enumerate(has_error) if bits == 1]  # not those whose rows travel
            sums[kind], new = all_reduce_in_1_bit(group, Errors(*([e[i] for i in places] for e in errors)), AXIS)
            errors = Errors(*(_replaced(e, places, n) for e, n in zip(errors, new, strict=True)))
        elif kind[0] == 16:
            sums[kind] = (reduce_scatter_in_16_bits if kind[1] else all_reduce_in_16_bits)(group, AXIS)
        elif kind[0] == 32:
            sums[kind] = (reduce_scatter if kind[1] else all_reduce)(group, order[kind])
        else:
            sums[kind] = all_reduce(group, order[kind], processes) if processes else group
    remaining = {kind: iter(group) for kind, group in sums.items()}
    return [next(remaining[kind]) for kind in kinds], errors


def _kind(way: DataParallel | None, gradient: Gradient, is_compressed: bool) -> tuple[int, bool]:
    """The `_bits` in which a gradient travels, and whether each device gets a part of the sum."""
    if way is None:
        return 0, False
    if isinstance(gradient, Rows):
        return 32, False
    return way.bits if is_compressed else 32, way.shard_state


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


def _sizes(number: int, lengths: Sequence[Sequence[int]], widths: Sequence[int]) -> Sizes:
    arrays = {Axis(str(i)): np.array(n, np.int32) for i, n in enumerate(lengths)}
    return Sizes(number, arrays, tuple(widths), ())


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


__all__ = ["Agreement", "DataParallel", "GradientExchange", "agree", "agree_on_formats", "conform", "summed"]
