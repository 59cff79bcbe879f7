"""A trainer's part in training on several workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .._typing import Array
from ..engine.run.handover import STATE, settle
from ..engine.run.state import leaf_array
from ..engine.xla.devices import training_devices
from ..graph.variable import set_value
from ..learners._learner import LearnerCore
from ..parallel import workers
from ..parallel.block_momentum import BlockMomentum
from ..parallel.comparison import compare
from ..parallel.exchange import all_devices, broadcast, own_devices
from ..parallel.gradients import DataParallel, GradientExchange, agree


class DistributedTraining:
    """How a trainer's learners learn from the data of all workers. Without distributed learners it does nothing.

    `samples_seen` among the arguments is the number of samples that all workers have trained on so far.

    `describe`: returns what workers have to agree in.

    Errors: ValueError if only some learners are distributed, or with different strategies, or with accumulated
            gradients.
    """

    def __init__(
        self, learners: Sequence[LearnerCore], accumulate: int, describe: Callable[[], Mapping[str, str]]
    ) -> None:
        strategies = [learner.strategy for learner in learners]
        if len({type(strategy) for strategy in strategies}) > 1:
            raise ValueError(
                "the learners of a trainer have to be distributed all in the same way, or none of them: wrap each in "
                "the same distributed learner"
            )
        self.learners, self.strategies = learners, strategies
        self.blocks = [(a, b) for a, b in zip(learners, strategies, strict=True) if isinstance(b, BlockMomentum)]
        self.has_others = strategies[0] is not None and workers.size() > 1
        self.acts_after_steps = self.has_others or bool(self.blocks)  # then steps are counted after it
        self._accumulate, self._describe = accumulate, describe
        self._exchange: GradientExchange | None = None
        self._local_exchange: GradientExchange | None = None
        self._is_synchronized = False
        self._restored_errors: list[np.ndarray] = []
        if accumulate > 1 and self.has_others:
            raise ValueError("several workers do not accumulate gradients: give each of them larger minibatches")

    def is_sharded(self, samples_seen: int) -> bool:
        """Whether each worker trains on its own share of the data by now."""
        return self.has_others and all(s is not None and samples_seen >= s.after for s in self.strategies)

    def begin(self, number: int, ends_sweep: bool, samples_seen: int) -> GradientExchange | None:
        """To be called before the step on the minibatch with this number, which may end a sweep.

        Returns how gradients are exchanged in it, or None if they are not.
        """
        if self.is_sharded(samples_seen) and not self._is_synchronized:
            compare(self._describe())
            if not self.blocks:
                self._broadcast_parameters()
            self._is_synchronized = True
        for learner, block in self.blocks:
            block.begin(_values(learner))
        if not self.is_sharded(samples_seen) or self.blocks:
            return self._between_own_devices()
        if self._exchange is None:
            bits = [s.bits for s in self.strategies if isinstance(s, DataParallel)]
            self._exchange = GradientExchange(self.learners, bits, all_devices())
            if self._restored_errors:
                self._exchange.restore_errors(self._restored_errors)
        self._exchange.begin(f"minibatch {number}", ends_sweep)
        return self._exchange

    def _between_own_devices(self) -> GradientExchange | None:
        """The exchange of a worker that trains by itself: between its devices, if there are several."""
        local = training_devices()
        if len(local) == 1:
            return None
        if self._local_exchange is None or self._local_exchange.devices is not own_devices(local):
            if self._accumulate > 1:
                raise ValueError("several devices do not accumulate gradients: give them larger minibatches")
            self._local_exchange = GradientExchange(self.learners, [32] * len(self.learners), own_devices(local))
        self._local_exchange.begin("", False)
        return self._local_exchange

    def total(self, number: int, samples: int, ends_sweep: bool, samples_seen: int) -> tuple[int, bool]:
        """Samples of all workers in a step, and whether it ends a sweep on any. `samples` counts those exchanged."""
        if not self.is_sharded(samples_seen):
            return samples, ends_sweep
        if self._exchange is not None:
            return samples, self._exchange.ends_sweep
        total = agree(f"minibatch {number}", samples, ends_sweep)
        return total.samples, total.ends_sweep

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

    def end_blocks(self, samples: int, samples_before: int, samples_seen: int) -> None:
        """To be called after a step on `samples` (see `total`), with the samples seen before and after it."""
        shares = self.has_others and not self.is_sharded(samples_before)
        of_all_workers = samples * workers.size() if shares else samples
        for learner, block in self.blocks:
            block.samples_seen += samples
            if block.ends(of_all_workers, samples_seen):
                _merge(learner, block)

    def merge(self) -> None:
        """End the blocks now, so that all workers have one model."""
        for learner, block in self.blocks:
            if block.count:
                _merge(learner, block)

    def _broadcast_parameters(self) -> None:
        """Continue with the model of worker 0."""
        for learner in self.learners:
            _set_values(learner, broadcast(_values(learner)))


def _values(learner: LearnerCore) -> list[Array]:
    with STATE:
        settle()
        return [leaf_array(p) for p in learner.parameters]


def _set_values(learner: LearnerCore, values: Sequence[Array]) -> None:
    with STATE:
        settle()
        for p, value in zip(learner.parameters, values, strict=True):
            set_value(p, value)


def _merge(learner: LearnerCore, block: BlockMomentum) -> None:
    workers.barrier("the end of a block")
    _set_values(learner, block.merge(_values(learner)))
    if block.resets_momentum:
        learner.reset_smoothed_gradients()
