"""Data-parallel training: gradients summed over the workers, in the program in which the learners use them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
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
from ..engine.train.step_body import StepOutputs
from ..engine.train.update import Gradient, Gradients, Hyperparameters, TrainedState, update_key, updated
from ..engine.train.ways import Agreement, Counts
from ..engine.xla.platform import platform
from ..graph.axis import Axis
from ..graph.cells import Cell, Changes
from ..graph.variable import Edge, Leaf
from . import workers
from .collectives import Groups, all_reduce, reduce_scatter
from .exchange import ExchangeProgram
from .quantization import (
    Errors,
    all_reduce_in_bits,
    gathered_errors,
    is_compressible,
    no_errors,
    reduce_scatter_in_16_bits,
    restored_errors,
)
from .sharding import on_parts

_DENSE = -1

_STEPS_AHEAD = 8
"""The most steps on several CPU devices that wait to run. XLA blocks a thread for each device when there are 32, and
may then lack threads for what these devices exchange: of three threads, two devices had one left, and never ended.
"""

Format: TypeAlias = int
"""The form of a gradient: the number of its rows, or `_DENSE`."""

Gather: TypeAlias = Callable[[str, bytes], workers.BegunGathering]
"""Collects the payloads of those that take part; see `workers.gather`."""


@dataclass
class DataParallel:
    """Workers sum their gradients in each step, once `after` samples were seen. Until then each trains by itself.

    `bits`: in how many a value of a gradient travels; see quantization.py. `shard_state`: each keeps a part
    of the learner's state; see sharding.py. `aggregates_metrics`: it decides whose losses a trainer reports.
    """

    after: int = 0
    bits: int = 32
    shard_state: bool = False
    aggregates_metrics: bool = False


class GradientExchange:
    """The exchange of a trainer's steps, which sums gradients over all devices and updates the state on each.

    Other learners learn in the same step from the gradients of this worker's devices alone, and not without data.

    Where the minibatches of all workers have the same shapes, it is part of the program that computes the gradients, so
    that XLA sends some while it computes others; otherwise a program of its own, the same on all workers.

    `devices`: `Devices` of its own. `ways`: how the gradients of each learner are exchanged; None if they stay on their
    worker. `sums_criteria`: the sums of criteria are those of all workers. `shares`: the number of this worker's
    devices. `is_open`: whether others wait for this worker's part of a step.
    """

    def __init__(
        self, learners: Sequence[StepLearner], ways: Sequence[DataParallel | None], devices: Devices,
        sums_criteria: bool = True,
    ) -> None:
        self.devices, self.shares, self.learners, self.ways = devices, len(devices.local), learners, ways
        self.sums_criteria = sums_criteria
        self._processes = devices.processes if self.shares > 1 else None
        self._transforms = [
            a.transform if way is None or not way.shard_state else on_parts(a.transform)
            for a, way in zip(learners, ways, strict=True)
        ]
        self.program = ExchangeProgram(self._learn, devices)
        self._gathered_errors = ExchangeProgram(lambda errors: gathered_errors(errors, AXIS), devices)
        self._operation, self._ends_sweep, self._are_sizes_agreed = "", False, False
        self._exchanging: WeakKeyDictionary[Program, Program] = WeakKeyDictionary()
        self._gather = workers.gather if devices.count > self.shares else workers.alone
        self._running: deque[Array] = deque()  # a result of each step that may not have ended
        self._errors = Cell(self._no_errors())
        # How often minibatches had the same shapes on all workers, by these, and how often different ones, by "".
        self._met = Cell[Mapping[str, int]]({})
        self._is_open = Cell(False)

    @property
    def is_open(self) -> bool:
        """Whether others wait for this worker's part of a step."""
        return self._is_open.value

    # ---- what the workers agree on
    def begin(self, operation: str, ends_sweep: bool) -> None:
        """To be called before a step, with its name for messages, and whether it ends a sweep on this worker."""
        self._operation, self._ends_sweep, self._are_sizes_agreed = operation, ends_sweep, False
        while len(self._running) > _STEPS_AHEAD:
            self._running.popleft().block_until_ready()

    def agree_on_sizes(self, sizes: Sequence[Sizes], prices: Prices = FREE) -> Agreed | None:
        """The sizes of all workers' minibatches, and the prices of worker 0: so all choose the same shape.

        None if a worker has no data, or none that others know how to pack. `sizes`: of this worker's shares.
        """
        if self.devices.count == self.shares:
            return None
        self._is_open.value = self._are_sizes_agreed = True
        shares = [[s.number, [n.tolist() for n in s.lengths.values()], s.widths] for s in sizes]
        message = json.dumps([shares, prices.seconds_per_work, prices.compilation_seconds]).encode()
        parts = self._gather(self._operation, message).wait()
        of_workers, rates, compilations = zip(*map(json.loads, parts), strict=True)
        everyone = [_sizes(*share) for shares in of_workers for share in shares]
        return Agreed(everyone, rates[0], compilations[0]) if all(of_workers) else None

    def agree(self, samples: int, shapes: Callable[[], str] | None = None) -> Agreement:
        """See `Exchange`. All compute and learn in one program for shapes that all workers have had more often than
        they have had different ones.
        """
        if not self._are_sizes_agreed:
            self.agree_on_sizes([])
        self._is_open.value = True  # the others count on this worker's part
        own = shapes() if shapes else ""
        total, ends_sweep, alike = agree(self._operation, samples, self._ends_sweep, own, self._gather)
        agreement = Agreement(total, ends_sweep if self.devices.count > self.shares else None, joins=False)
        if not total:
            self._is_open.value = False
            return agreement
        met, common = self._met.value, own if alike else ""
        number = met.get(common, 0) + 1
        joins = bool(common) and number > met.get("", 0)
        return agreement._replace(joins=joins, changes={self._met: {**met, common: number}})

    def in_one_program(self, agreement: Agreement) -> _InOneProgram:
        """See `Exchange`."""
        return _InOneProgram(self, agreement)

    def separate(self, agreement: Agreement, gradients: Gradients | None) -> _Separate:
        """See `Exchange`."""
        return _Separate(self, agreement, agree_on_formats(self._operation, gradients, self._gather))

    # ---- the two programs
    def _learn(
        self, state: tuple[TrainedState, Errors], gradients: Gradients, sums: list[Array],
        hypers: Sequence[Hyperparameters | None], ready: Sequence[int] = (),
    ) -> tuple[TrainedState, Errors, list[Array]]:
        """Exchange gradients and update, in a program over the devices. `ready`: see `all_reduce`."""
        trained, errors = state
        ways, groups = [*self.ways, DataParallel() if self.sums_criteria else None], [*gradients, sums]
        each = [way for way, group in zip(ways, groups, strict=True) for _ in group]
        first = min(ready, default=0)  # criteria are there before all gradients
        order = [*ready, *(first for _ in sums)] if ready else ()
        totals, errors = summed(each, [a for group in groups for a in group], errors, order, self._processes)
        remaining: Iterator[Any] = iter(totals)
        *learned, criteria = [[next(remaining) for _ in group] for group in groups]
        return updated(self._transforms, trained, learned, hypers, _on_all_devices), errors, criteria

    def exchanging(self, program: Program) -> Program:
        """The program that goes on where one has computed `StepOutputs` with gradients; see `donated`."""
        if program not in self._exchanging:
            compute, learn, ready = program.body, self._learn, self._order_in_backward_pass(program.plan)

            def compute_and_learn(plan: Plan, ctx: Context, env: Environment, donated: PyTree, extra: PyTree) -> PyTree:
                hypers, pending = extra
                ctx.total = self.devices.total_of_process
                outputs = compute(plan, ctx, env, donated[0], (None, pending))
                before = outputs.state, donated[1]  # with what the forward pass has assigned
                state, errors, sums = learn(before, outputs.gradients, outputs.sums, hypers, ready)
                return outputs._replace(state=state, gradients=None, sums=sums), errors

            self._exchanging[program] = program.over(self.devices, compute_and_learn)
        return self._exchanging[program]

    def _order_in_backward_pass(self, plan: Plan) -> list[int]:
        """For each gradient a number that is lower if it is ready earlier: those of the last nodes come first."""
        first_use: dict[Edge, int] = {}
        for i, node in enumerate(plan.nodes):
            for v in node.node_inputs:
                first_use.setdefault(resolve(v), i)
        return [-first_use.get(p, 0) for learner in self.learners for p in learner.parameters]

    def donated(self, state: TrainedState) -> PyTree:
        """What is donated to the programs for this state."""
        return state, self._errors.value

    def after(self, agreement: Agreement, errors: Errors, sums: Sequence[Array]) -> Changes:
        """What changes when a program has returned these; `sums` are one of its results, to wait for."""
        if self.shares > 1 and platform() == "cpu":
            self._running.append(sums[0])
        return {**agreement.changes, self._errors: errors, self._is_open: False}

    # ---- what quantization has left out
    def errors(self) -> list[np.ndarray]:
        """What quantization has left out so far: of gradients, then of stripes. Shapes: [devices, ...] of `Errors`."""
        if not self._errors.value.own:
            return []
        captures: Captures = []
        self._gathered_errors(captures, None, self.devices.copied(self.devices.spread(self._errors.value)))
        own, stripes = self.devices.of_this_process(captures[0]())
        return [np.asarray(error) for error in (*own, *stripes)]

    def restart(self, errors: Sequence[np.ndarray]) -> None:
        """Go on from a checkpoint with what `errors` returned for it; where the number of devices differs, each gets
        its share. Programs that are compiled stay.
        """
        self._met.value, self._is_open.value = {}, False
        half, count, arrays = len(errors) // 2, self.devices.count, list[Any](errors)
        gathered = Errors(arrays[:half], arrays[half:])
        first = workers.rank() * self.shares if count > self.shares else 0
        self._errors.value = self._no_errors() if not errors else self.devices.spread(
            *(restored_errors(gathered, first + i, count) for i in range(self.shares))
        )

    def _no_errors(self) -> Errors:
        return no_errors(_quantized(self.learners, self.ways), self.devices.count)


class _Exchanged:
    """What both ways have in common."""

    def __init__(self, exchange: GradientExchange, agreement: Agreement) -> None:
        self._exchange, self.agreement = exchange, agreement

    def counts(self, samples: int) -> Counts:
        """The samples of all workers for gradients and criteria that are summed, otherwise those of this one."""
        total = self.agreement.samples
        learned = [samples if way is None else total for way in self._exchange.ways]
        return Counts(total if self._exchange.sums_criteria else samples, learned)

    def hypers(self, counts: Counts) -> list[Hyperparameters | None]:
        """Those of each learner, flagged where a worker that runs the same program may have nothing to learn from."""
        each = zip(self._exchange.learners, self._exchange.ways, counts.learned, strict=True)
        return [learner.hyper(samples, flagged=way is None) for learner, way, samples in each]


class _InOneProgram(_Exchanged):
    """Gradients are exchanged in the program that computes them."""

    def program(self, gradients: Program) -> Program:
        """The one over all devices."""
        return self._exchange.exchanging(gradients)

    def donated(self, state: TrainedState) -> PyTree:
        """The state, and what quantization has left out."""
        return self._exchange.donated(state)

    def received(self, outputs: PyTree) -> tuple[StepOutputs, Changes]:
        """The outputs on this worker's first device."""
        computed, errors = outputs
        changes = self._exchange.after(self.agreement, errors, computed.sums)
        return self._exchange.devices.of_this_process(computed), changes


class _Separate(_Exchanged):
    """Gradients are exchanged in a program of its own. `formats`: see `agree_on_formats`."""

    def __init__(self, exchange: GradientExchange, agreement: Agreement, formats: Sequence[Format]) -> None:
        super().__init__(exchange, agreement)
        self._formats = formats

    def update(
        self, outputs: Captures, state: TrainedState, gradients: Gradients | None, sums: list[Array],
        hypers: Sequence[Hyperparameters | None],
    ) -> None:
        """Run the program: the first device has this worker's gradients, the others have none."""
        exchange = self._exchange
        first, *others = (
            (conform(g, state.parameters, self._formats), s)
            for g, s in [(gradients, sums)] + [(None, [jnp.zeros_like(s) for s in sums])] * (exchange.shares - 1)
        )
        key = update_key(first[0], hypers)
        exchange.program(outputs, key, exchange.donated(state), *exchange.devices.spread(first, *others), hypers)

    def updated(self, outputs: PyTree) -> tuple[TrainedState, list[Array], Changes]:
        """The state and the sums on this worker's first device."""
        state, errors, sums = outputs
        changes = self._exchange.after(self.agreement, errors, sums)
        return *self._exchange.devices.of_this_process((state, sums)), changes


def _quantized(learners: Sequence[StepLearner], ways: Sequence[DataParallel | None]) -> list[Leaf]:
    each = ((way, p) for learner, way in zip(learners, ways, strict=True) for p in learner.parameters)
    return [p for way, p in each if _is_quantized(way, p.shape, p.dtype)]


def _bits(way: DataParallel | None, shape: Sequence[int], dtype: np.dtype) -> int:
    """In how many bits a value of a dense gradient travels; 0 if it stays on its worker."""
    if way is None:
        return 0
    if way.shard_state:
        return 16 if way.bits == 16 and dtype == np.float32 else 32
    return way.bits if is_compressible(shape, dtype, way.bits) else 32


def _is_quantized(way: DataParallel | None, shape: Sequence[int], dtype: np.dtype) -> bool:
    """Whether what is left out of a gradient is added to the next."""
    return way is not None and not way.shard_state and _bits(way, shape, dtype) < 32


def _on_all_devices(flag: Array) -> Array:
    return lax.pmin(flag.astype(jnp.int32), AXIS) == 1


def summed(
    ways: Sequence[DataParallel | None], gradients: Sequence[Gradient], errors: Errors, ready: Sequence[int] = (),
    processes: Groups = None,
) -> tuple[list[Gradient], Errors]:
    """The sums of gradients over all devices, or this device's parts of them, and the new errors of quantized ones.

    Each travels in the bits of its way if it may. Those without a way stay, or are summed in the groups `processes`.
    `ready`: see `all_reduce`.
    """
    each = list(zip(ways, gradients, strict=True))
    quantized = [i for i, (way, g) in enumerate(each) if _is_quantized(way, _shape(g), g.dtype)]
    groups: dict[tuple[int, bool], list[int]] = {}
    for i, (way, g) in enumerate(each):
        groups.setdefault(_kind(way, g), []).append(i)
    sums: dict[int, Gradient] = {}
    for (bits, is_divided), members in groups.items():
        group: list[Any] = [gradients[i] for i in members]
        order = [ready[i] for i in members] if ready else []
        totals: Sequence[Gradient]
        if bits == 0:
            totals = all_reduce(group, order, processes) if processes else group
        elif bits == 32:
            totals = (reduce_scatter if is_divided else all_reduce)(group, order)
        elif is_divided:
            totals = reduce_scatter_in_16_bits(group, AXIS)
        else:
            places = [quantized.index(i) for i in members]  # the rows of others travel
            totals, new = all_reduce_in_bits(group, Errors(*([e[i] for i in places] for e in errors)), bits, AXIS)
            errors = Errors(*(_replaced(e, places, n) for e, n in zip(errors, new, strict=True)))
        sums |= zip(members, totals, strict=True)
    return [sums[i] for i in range(len(gradients))], errors


def _kind(way: DataParallel | None, gradient: Gradient) -> tuple[int, bool]:
    """The `_bits` in which a gradient travels, and whether each device gets a part of the sum."""
    if way is not None and isinstance(gradient, Rows):
        return 32, False
    return _bits(way, _shape(gradient), gradient.dtype), way is not None and way.shard_state


def _shape(gradient: Gradient) -> tuple[int, ...]:
    return (gradient.height, *gradient.values.shape[1:]) if isinstance(gradient, Rows) else gradient.shape


def _replaced(items: Sequence[AnyArray], places: Sequence[int], new: Sequence[AnyArray]) -> list[AnyArray]:
    return [dict(zip(places, new, strict=True)).get(i, item) for i, item in enumerate(items)]


def agree(
    operation: str, samples: int, ends_sweep: bool, shapes: str = "", gather: Gather = workers.gather
) -> tuple[int, bool, bool]:
    """Tell the other workers about this one's minibatch, while their devices may still compute the one before.

    Returns the samples of all, whether a sweep ends on any, and whether all have the same shapes.
    """
    message = json.dumps([samples, ends_sweep, shapes]).encode()
    parts = [json.loads(part) for part in gather(operation, message).wait()]
    return sum(part[0] for part in parts), any(part[1] for part in parts), len({part[2] for part in parts}) == 1


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


__all__ = ["DataParallel", "GradientExchange", "agree", "agree_on_formats", "conform", "summed"]
