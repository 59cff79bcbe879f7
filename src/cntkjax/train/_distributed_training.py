"""The part that a trainer takes in training on several workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..parallel import mpi
from ..parallel.block_momentum import BlockMomentum
from ..parallel.gradients import DataParallel, all_reduce


class DistributedTraining:
    """How a trainer's learners learn from what all workers see. Without distributed learners it does nothing.

    Errors: ValueError if only some learners are distributed, or in different ways, or with accumulated gradients.
    """

    def __init__(self, learners: Sequence[Any], accumulate: int) -> None:
        ways: list[Any] = [learner.distribution for learner in learners]
        if len({type(way) for way in ways}) > 1:
            raise ValueError("the learners of a trainer have to be distributed all in the same way, or none of them")
        self.learners, self.ways = learners, ways
        self.blocks = [(a, way) for a, way in zip(learners, ways, strict=True) if isinstance(way, BlockMomentum)]
        self.has_others = ways[0] is not None and mpi.size() > 1
        if accumulate > 1 and self.has_others:
            raise ValueError("several workers do not accumulate gradients: give each of them larger minibatches")

    def shares(self, seen: int) -> bool:
        """Whether each worker trains on data of its own, after so many samples."""
        return self.has_others and all(way is not None and seen >= way.after for way in self.ways)

    def all_reduce(self, seen: int) -> Any:
        """What sums gradients over the workers in the next step; None if nothing does."""
        if not self.shares(seen) or self.blocks:
            return None
        ways: list[DataParallel] = self.ways
        if not all(way.began for way in ways):
            self._go_on_from_worker_0()
            for way in ways:
                way.began = True
        return all_reduce

    def begin_blocks(self) -> None:
        """To be called before a step."""
        for learner, block in self.blocks:
            if block.begun_with is None:
                block.begun_with = [p.value for p in learner.parameters]

    def end_blocks(self, samples: int, before: int, seen: int) -> None:
        """To be called after a step with what `total` says, which makes `seen` of the samples seen `before`."""
        of_all = samples * mpi.size() if self.has_others and not self.shares(before) else samples
        for learner, block in self.blocks:
            block.seen += samples
            if block.ends(of_all, seen):
                _merge(learner, block)

    def merge(self) -> None:
        """End the blocks now, so that there is one model."""
        for learner, block in self.blocks:
            if block.count:
                _merge(learner, block)

    def total(self, samples: int, seen: int) -> int:
        """Samples of all workers in a step; with summed gradients they are known already."""
        return int(mpi.summed(np.array(samples))) if self.shares(seen) and self.blocks else samples

    def any(self, flag: bool, seen: int) -> bool:
        """Whether it is so on any worker."""
        return bool(mpi.summed(np.array(int(flag)))) if self.shares(seen) else flag

    def _go_on_from_worker_0(self) -> None:
        for learner in self.learners:
            for p in learner.parameters:
                p.value = mpi.from_main(p.value)


def _merge(learner: Any, block: BlockMomentum) -> None:
    for p, value in zip(learner.parameters, block.merged([p.value for p in learner.parameters]), strict=True):
        p.value = value
    if block.resets_momentum:
        learner.reset_smoothed_gradients()
