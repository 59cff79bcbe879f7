"""A trainer's part in training on several workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..engine.train.update import AllReduce
from ..learners._learner import LearnerCore
from ..parallel import mpi
from ..parallel.block_momentum import BlockMomentum
from ..parallel.gradients import DataParallel, all_reduce


class DistributedTraining:
    """How a trainer's learners learn from the data of all workers. Without distributed learners it does nothing.

    `samples_seen` among the arguments is the number of samples that all workers have trained on so far.

    Errors: ValueError if only some learners are distributed, or with different strategies, or with accumulated
            gradients.
    """

    def __init__(self, learners: Sequence[LearnerCore], accumulate: int) -> None:
        strategies = [learner.strategy for learner in learners]
        if len({type(strategy) for strategy in strategies}) > 1:
            raise ValueError(
                "the learners of a trainer have to be distributed all in the same way, or none of them: wrap each in "
                "the same distributed learner"
            )
        self.learners, self.strategies = learners, strategies
        self.blocks = [(a, b) for a, b in zip(learners, strategies, strict=True) if isinstance(b, BlockMomentum)]
        self.is_distributed = any(strategy is not None for strategy in strategies)
        self.has_others = strategies[0] is not None and mpi.size() > 1
        if accumulate > 1 and self.has_others:
            raise ValueError("several workers do not accumulate gradients: give each of them larger minibatches")

    def is_sharded(self, samples_seen: int) -> bool:
        """Whether each worker trains on its own share of the data by now."""
        return self.has_others and all(s is not None and samples_seen >= s.after for s in self.strategies)

    def all_reduce(self, samples_seen: int) -> AllReduce | None:
        """The function that sums gradients over the workers in the next step; None if they are not summed."""
        if not self.is_sharded(samples_seen) or self.blocks:
            return None
        strategies = [s for s in self.strategies if isinstance(s, DataParallel)]
        if not all(strategy.synchronized for strategy in strategies):
            self._broadcast_parameters()
            for strategy in strategies:
                strategy.synchronized = True
        return all_reduce

    def begin_blocks(self) -> None:
        """To be called before a step: learners between two blocks begin one."""
        for learner, block in self.blocks:
            if block.start_values is None:
                block.start_values = [p.value for p in learner.parameters]

    def end_blocks(self, samples: int, samples_before: int, samples_seen: int) -> None:
        """To be called after a step on `samples` (see `total`), with the samples seen before and after it."""
        of_all_workers = samples * mpi.size() if self.has_others and not self.is_sharded(samples_before) else samples
        for learner, block in self.blocks:
            block.samples_seen += samples
            if block.ends(of_all_workers, samples_seen):
                _merge(learner, block)

    def merge(self) -> None:
        """End the blocks now, so that all workers have one model."""
        for learner, block in self.blocks:
            if block.count:
                _merge(learner, block)

    def total(self, samples: int, samples_seen: int) -> int:
        """Samples of all workers in a step; where gradients are summed, `samples` counts them already."""
        return int(mpi.all_reduce(np.array(samples))) if self.is_sharded(samples_seen) and self.blocks else samples

    def any(self, flag: bool, samples_seen: int) -> bool:
        """Whether the flag is set on any worker."""
        return bool(mpi.all_reduce(np.array(int(flag)))) if self.is_sharded(samples_seen) else flag

    def _broadcast_parameters(self) -> None:
        for learner in self.learners:
            for p in learner.parameters:
                p.value = mpi.broadcast(p.value)


def _merge(learner: LearnerCore, block: BlockMomentum) -> None:
    for p, value in zip(learner.parameters, block.merge([p.value for p in learner.parameters]), strict=True):
        p.value = value
    if block.resets_momentum:
        learner.reset_smoothed_gradients()
