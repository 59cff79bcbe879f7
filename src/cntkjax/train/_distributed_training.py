"""A trainer's part in training on several workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, SupportsFloat, TypeVar

import numpy as np

from .._typing import Array
from ..engine.run.devices import Devices
from ..engine.run.handover import STATE, Captures, conclude, replace_state, settle
from ..engine.run.state import leaf_array
from ..engine.train.ways import Agreement
from ..engine.xla.devices import training_devices
from ..graph.cells import Cell, Changes
from ..graph.variable import cell_of, new_value
from ..learners._learner import LearnerCore
from ..logging._progress_writer import LazySum
from ..parallel import workers
from ..parallel.block_momentum import BlockMomentum, MergedBlock
from ..parallel.comparison import compare
from ..parallel.exchange import all_devices, broadcast, one_device_each, own_devices
from ..parallel.gradients import DataParallel, GradientExchange, agree

T = TypeVar("T")


class DistributedTraining:
    """How a trainer's learners learn from the data of all workers. Without distributed learners it does nothing.

    `samples_seen` among the arguments is the number of samples that all workers have trained on so far.

    `describe`: returns what workers have to agree in.

    Errors: ValueError if only some learners are distributed, or start at different times, or with accumulated
            gradients.
    """

    def __init__(
        self, learners: Sequence[LearnerCore], accumulate: int, describe: Callable[[], Mapping[str, str]]
    ) -> None:
        strategies = [learner.strategy for learner in learners if learner.strategy is not None]
        if strategies and len(strategies) < len(learners):
            raise ValueError(
                "the learners of a trainer have to be distributed all, or none of them: wrap each in a distributed "
                "learner"
            )
        if len({strategy.after for strategy in strategies}) > 1:
            raise ValueError(
                "the distributed learners of a trainer have to start together: give all the same distributed_after"
            )
        if len(strategies) == 1:
            strategies[0].aggregates_metrics = True
        self.learners, self.strategies = learners, strategies
        self._ways = [strategy if isinstance(strategy, DataParallel) else None for strategy in strategies]
        self.blocks = [(a, block) for a in learners if isinstance(block := a.strategy, BlockMomentum)]
        self.has_others = bool(strategies) and workers.size() > 1
        self._accumulate, self._describe = accumulate, describe
        self._exchange: GradientExchange | None = None
        self._local_exchange: GradientExchange | None = None
        self._is_synchronized = False
        self._restored_errors: list[np.ndarray] = []
        self._samples, self._sums = 0, (LazySum(), LazySum())
        self._synchronized_at = 0  # as in CNTK also where training goes on from a checkpoint
        self._begun: list[Any] = []  # the models from which the blocks of the current step began
        if accumulate > 1 and self.has_others:
            raise ValueError("several workers do not accumulate gradients: give each of them larger minibatches")

    @property
    def counts_skipped(self) -> bool:
        """Whether steps that no learner takes count too, as in CNTK."""
        return bool(self.strategies)

    @cached_property
    def _sums_criteria(self) -> bool:
        """Whether losses, metrics and samples are reported of all workers; each minibatch's otherwise of its worker.

        As in CNTK the last marked learner decides. CNTK demands one if there are several learners.
        """
        marked = [way for way, strategy in zip(self._ways, self.strategies, strict=True) if strategy.aggregates_metrics]
        return marked[-1] is not None if marked else any(self._ways)

    def is_sharded(self, samples_seen: int) -> bool:
        """Whether each worker trains on its own share of the data by now."""
        return self.has_others and samples_seen >= self.strategies[0].after

    def begin(self, number: int, ends_sweep: bool, samples_seen: int) -> GradientExchange | None:
        """To be called before the step on the minibatch with this number, which may end a sweep.

        Returns how gradients are exchanged in it, or None if they are not.
        """
        if self.is_sharded(samples_seen) and not self._is_synchronized:
            compare(self._describe())
            self._broadcast_parameters()
            self._is_synchronized = True
        for learner, block in self.blocks:
            block.begin(_values(learner))
        self._begun = [block.state.value.start_values for _, block in self.blocks]
        exchange: GradientExchange | None
        if self.is_sharded(samples_seen) and any(self._ways):
            exchange = self._between_all_devices()
            exchange.begin(f"minibatch {number}", ends_sweep)
        else:
            exchange = self._between_own_devices()
        for i, learner in enumerate(self.learners):
            way = None if exchange is None else exchange.ways[i]
            learner.divide_state(exchange.devices if exchange and way and way.shard_state else None)
        return exchange

    def synchronized(self, exchange: GradientExchange | None, samples_seen: int) -> int:
        """Samples since the last exchange of gradients or models, if the step was one, otherwise 0.

        To be called after a step, with what `begin` returned, and the samples that were seen with it.
        """
        now = [block.state.value.start_values for _, block in self.blocks]
        is_exchange = any(a is not b for a, b in zip(now, self._begun, strict=True))  # models were merged
        is_exchange |= exchange is not None and exchange is self._exchange
        if not (self.has_others and is_exchange):
            return 0
        samples, self._synchronized_at = samples_seen - self._synchronized_at, samples_seen
        return samples

    def _between_all_devices(self) -> GradientExchange:
        """The exchange between all workers."""
        if self._exchange is None:
            devices = Devices(all_devices().mesh)
            self._exchange = GradientExchange(self.learners, self._ways, devices, self._sums_criteria)
            if self._restored_errors:
                self._exchange.restart(self._restored_errors)
        return self._exchange

    def _between_own_devices(self) -> GradientExchange | None:
        """The exchange of a worker that trains by itself: between its devices, if there are several."""
        local = training_devices()
        if len(local) == 1:
            return None
        if self._local_exchange is None or self._local_exchange.devices.local != list(local):
            if self._accumulate > 1:
                raise ValueError("several devices do not accumulate gradients: give them larger minibatches")
            shards = not self.has_others  # by itself a worker has all of its state
            strategies = [learner.strategy for learner in self.learners]
            ways = [DataParallel(shard_state=shards and getattr(s, "shard_state", False)) for s in strategies]
            self._local_exchange = GradientExchange(self.learners, ways, own_devices(local))
        self._local_exchange.begin("", False)
        return self._local_exchange

    def agree(self, number: int, agreement: Agreement, ends_sweep: bool, samples_seen: int) -> tuple[int, bool]:
        """Samples of all workers in a step, and whether it ends a sweep on any; to be called before it is computed.

        `agreement`, `ends_sweep`: what is known, and of this worker. Where the step ends a block, all workers are ready
        to merge their models then.
        """
        samples = agreement.samples
        if agreement.ends_sweep is not None:
            ends_sweep = agreement.ends_sweep
        elif self.is_sharded(samples_seen):
            samples, ends_sweep, _ = agree(f"minibatch {number}", samples, ends_sweep)
        if any(self._after_step(block, samples, samples_seen).count >= block.size for _, block in self.blocks):
            self._meet()
        return samples, ends_sweep

    def add(self, samples: int, loss: SupportsFloat, metric: SupportsFloat) -> None:
        """Count a minibatch of this worker for `averages`; loss and metric are sums over its samples."""
        if self.has_others and not self._sums_criteria:
            self._samples += samples
            for total, value in zip(self._sums, (loss, metric), strict=True):
                total.add(value)

    def averages(self) -> tuple[float, float] | None:
        """Loss and metric since the last call, averaged over the samples of all workers, which have to call it.

        None where each knows them, since those of each minibatch are of all.
        """
        if not self.has_others or self._sums_criteria:
            return None
        message = json.dumps([self._samples, *map(float, self._sums)]).encode()
        parts = [json.loads(part) for part in workers.gather("the summary of training", message).wait()]
        self._samples, self._sums = 0, (LazySum(), LazySum())
        samples, loss, metric = (sum(column) for column in zip(*parts, strict=True))
        return loss / max(samples, 1), metric / max(samples, 1)

    def quantization_errors(self) -> list[np.ndarray]:
        """What quantization has left out of the gradients of all workers, for a checkpoint; to be called by all."""
        return self._restored_errors if self._exchange is None else self._exchange.errors()

    def restore_quantization_errors(self, errors: list[np.ndarray]) -> None:
        """Continue from a checkpoint; without its errors, if it has none."""
        self._restored_errors = errors
        if self._exchange is not None:
            self._exchange.restart(errors)

    def abandon(self, error: BaseException) -> None:
        """To be called with an error that ended a step: a worker that others wait for has failed."""
        if self._exchange is not None and self._exchange.is_open:
            workers.fail(f"left an exchange of gradients that others wait for: {error!r}")

    def _after_step(self, block: BlockMomentum, samples: int, samples_seen: int) -> MergedBlock:
        """The block after a step on `samples` (see `agree`), with those seen before it."""
        before, counted = block.state.value, 0
        if samples_seen + samples >= block.after:
            counted = samples if not self.has_others or self.is_sharded(samples_seen) else samples * workers.size()
        return replace(before, count=before.count + counted, samples_seen=before.samples_seen + samples)

    def conclusion(self, samples: int, samples_seen: int) -> Callable[[Changes], Changes]:
        """What extends the changes of a step by those of the blocks, whose models are merged where it ends them.

        `samples`: those that `agree` has returned. `samples_seen`: before the step.
        """
        merged: list[Captures] = [[] for _ in self.blocks]  # see `BlockMomentum.merge`

        def extended(changes: Changes) -> Changes:
            for (learner, block), captures in zip(self.blocks, merged, strict=True):
                after = self._after_step(block, samples, samples_seen)
                changes = {**changes, block.state: after}
                if after.count >= block.size:
                    changes = _merge(learner, block, changes, captures)
            return changes

        return extended

    def merge(self) -> None:
        """End the blocks now, so that all workers have one model."""
        for learner, block in self.blocks:
            if block.state.value.count:
                self._meet()
                captures: Captures = []
                conclude(partial(_merge, learner, block, {}, captures))

    def _meet(self) -> None:
        """Wait for all workers, and connect them if they are not."""
        workers.barrier("the end of a block")
        one_device_each()

    def _broadcast_parameters(self) -> None:
        """Continue with the values of worker 0 where gradients are summed."""
        learners = [learner for learner, way in zip(self.learners, self._ways, strict=True) if way is not None]
        values = [broadcast(_values(learner)) for learner in learners]
        changes: dict[Cell[Any], Any] = {}
        for learner, of_learner in zip(learners, values, strict=True):
            changes |= _new_values(learner, of_learner)
        replace_state(changes)


def _values(learner: LearnerCore) -> list[Array]:
    with STATE:
        settle()
        return [leaf_array(p) for p in learner.parameters]


def _new_values(learner: LearnerCore, values: Sequence[Array]) -> Changes:
    changes: dict[Cell[Any], Any] = {}
    for p, value in zip(learner.parameters, values, strict=True):
        changes |= new_value(p, value)
    return changes


def _merge(learner: LearnerCore, block: BlockMomentum, changes: Changes, captures: Captures) -> Changes:
    """The changes of a step that ends a block, with those of the merge. `captures`: see `BlockMomentum.merge`."""

    def after(cell: Cell[T]) -> T:
        return changes.get(cell, cell.value)

    values: list[Any] = [after(cell_of(p)).array for p in learner.parameters]
    begun, merged = block.merge(after(block.state), values, captures)
    changes = {**changes, block.state: begun, **_new_values(learner, merged)}
    if block.resets_momentum:
        counters = replace(after(learner.counters_cell), smoothed=0.0)
        changes = {**changes, learner.optax_cell: None, learner.counters_cell: counters}
    return changes
