"""A trainer's part in training on several workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import SupportsFloat

import numpy as np

from .._typing import Array
from ..engine.run.devices import Devices
from ..engine.run.handover import STATE, Captures, assign, settle
from ..engine.run.state import leaf_array
from ..engine.xla.devices import training_devices
from ..graph.variable import set_value
from ..learners._learner import LearnerCore
from ..logging._progress_writer import LazySum
from ..parallel import workers
from ..parallel.block_momentum import BlockMomentum
from ..parallel.comparison import compare
from ..parallel.exchange import all_devices, broadcast, one_device_each, own_devices
from ..parallel.gradients import DataParallel, GradientExchange, agree


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

    def _between_all_devices(self) -> GradientExchange:
        """The exchange between all workers."""
        if self._exchange is None:
            devices = Devices(all_devices().mesh)
            self._exchange = GradientExchange(self.learners, self._ways, devices, self._sums_criteria)
            if self._restored_errors:
                self._exchange.restore_errors(self._restored_errors)
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

    def agree(self, number: int, samples: int, ends_sweep: bool, samples_seen: int) -> tuple[int, bool]:
        """Samples of all workers in a step, and whether it ends a sweep on any; to be called before it is stored.

        `samples`: of this worker, or those of all where gradients are exchanged. Where the step ends a block, all
        workers are ready to merge their models.
        """
        sharded = self.is_sharded(samples_seen)
        if sharded and self._exchange is not None:
            ends_sweep = self._exchange.ends_sweep
        elif sharded:
            samples, ends_sweep, _ = agree(f"minibatch {number}", samples, ends_sweep)
        if any(self._count_after(block, samples, samples_seen) >= block.size for _, block in self.blocks):
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
        self._restored_errors, self._exchange = errors, None

    def abandon(self, error: BaseException) -> None:
        """To be called with an error that ended a step: a worker that others wait for has failed."""
        if self._exchange is not None and self._exchange.is_open:
            workers.fail(f"left an exchange of gradients that others wait for: {error!r}")

    def _count_after(self, block: BlockMomentum, samples: int, samples_seen: int) -> int:
        """The samples in a block after a step on `samples` (see `agree`), with those seen before it."""
        shares = self.has_others and not self.is_sharded(samples_seen)
        return block.count_after(samples * workers.size() if shares else samples, samples_seen + samples)

    def counting(self) -> Callable[[int, int], None]:
        """What counts the next step in the blocks, and merges the models where it ends them; it may be repeated.

        It gets the samples that `agree` has returned, and those seen before the step.
        """
        before = [dict(vars(block)) for _, block in self.blocks]
        merged: list[Captures] = [[] for _ in self.blocks]

        def count(samples: int, samples_seen: int) -> None:
            for (learner, block), state, merging in zip(self.blocks, before, merged, strict=True):
                vars(block).update(state)
                block.count = self._count_after(block, samples, samples_seen)
                block.samples_seen += samples
                if block.count >= block.size:
                    _merge(learner, block, merging)

        return count

    def merge(self) -> None:
        """End the blocks now, so that all workers have one model."""
        for learner, block in self.blocks:
            if block.count:
                self._meet()
                assign(partial(_merge, learner, block, []))

    def _meet(self) -> None:
        """Wait for all workers, and connect them if they are not."""
        workers.barrier("the end of a block")
        one_device_each()

    def _broadcast_parameters(self) -> None:
        """Continue with the values of worker 0 where gradients are summed."""
        learners = [learner for learner, way in zip(self.learners, self._ways, strict=True) if way is not None]
        values = [broadcast(_values(learner)) for learner in learners]

        def store() -> None:
            for learner, of_learner in zip(learners, values, strict=True):
                _set_values(learner, of_learner)

        assign(store)


def _values(learner: LearnerCore) -> list[Array]:
    with STATE:
        settle()
        return [leaf_array(p) for p in learner.parameters]


def _set_values(learner: LearnerCore, values: Sequence[Array]) -> None:
    for p, value in zip(learner.parameters, values, strict=True):
        set_value(p, value)


def _merge(learner: LearnerCore, block: BlockMomentum, merged: Captures) -> None:
    """End a block; to be called while state is handed over. It may be repeated with the same list `merged`."""
    _set_values(learner, block.merge([leaf_array(p) for p in learner.parameters], merged))
    if block.resets_momentum:
        learner.reset_smoothed_gradients()
