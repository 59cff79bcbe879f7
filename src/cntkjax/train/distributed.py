"""Workers that train together: the processes that were started by mpiexec, or one that is alone."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple

from ..core import NDArrayView
from ..graph.proxy import unwrap
from ..learners import Learner
from ..learners._user import Parameters
from ..parallel import mpi
from ..parallel.block_momentum import BlockMomentum
from ..parallel.gradients import DataParallel
from . import trainer


class WorkerDescriptor(NamedTuple):
    """A worker: its number and the name of its machine.

    >>> WorkerDescriptor(0, "here").global_rank
    0
    """

    global_rank: int
    host_id: str

    def is_main(self) -> bool:
        """True for the worker with rank 0, which writes files."""
        return self.global_rank == 0


class Communicator:
    """What workers exchange data through; ``mpi_communicator()`` gives one.

    >>> communicator = mpi_communicator()
    >>> Communicator.rank(), Communicator.num_workers(), communicator.is_main()
    (0, 1, True)
    """

    @staticmethod
    def rank() -> int:
        """Number of this worker, from 0."""
        return mpi.rank()

    @staticmethod
    def num_workers() -> int:
        """How many workers there are."""
        return mpi.size()

    @staticmethod
    def finalize() -> None:
        """To be called at the end of a distributed script: no worker ends before the others."""
        mpi.barrier()

    def current_worker(self) -> WorkerDescriptor:
        """This worker."""
        return WorkerDescriptor(self.rank(), socket.gethostname())

    def workers(self) -> list[WorkerDescriptor]:
        """All workers."""
        return [WorkerDescriptor(*worker) for worker in mpi.gathered(tuple(self.current_worker()))]

    def is_main(self) -> bool:
        """True for the worker with rank 0, which writes files."""
        return self.rank() == 0

    def barrier(self) -> None:
        """Wait for all workers."""
        mpi.barrier()

    def aggregate_in_place(self, values: Sequence[NDArrayView], send_to_workers: Sequence[WorkerDescriptor]) -> None:
        """Put sums over all workers into dense array views, which have the same shapes on each of them.

        Errors: RuntimeError for a part of the workers only.

        >>> import numpy as np
        >>> from cntkjax import NDArrayView
        >>> communicator, view = mpi_communicator(), NDArrayView.from_dense(np.ones(2, np.float32))
        >>> communicator.aggregate_in_place([view], communicator.workers())
        >>> view.asarray()
        array([1., 1.], dtype=float32)
        """
        if {worker.global_rank for worker in send_to_workers} != set(range(self.num_workers())):
            raise RuntimeError("aggregate_in_place: all workers take part, so give workers()")
        for view in values:
            view.copy_from(NDArrayView.from_dense(mpi.summed(view.asarray()), borrow=True))


def mpi_communicator() -> Communicator:
    """The communicator of all workers.

    >>> mpi_communicator().workers()[0].global_rank
    0
    """
    return Communicator()


class DistributedLearner(Learner):
    """A learner that learns what all workers have seen, in the way that its `distribution` says."""

    _aggregates_metrics = False

    @property
    def parameters(self) -> Parameters:
        """The parameters that it changes, in its order; they may be called, as in CNTK."""
        return Parameters(self.__wrapped__.parameters)

    def communicator(self) -> Communicator:
        """What the workers exchange gradients or models through."""
        return mpi_communicator()

    get_communicator = communicator

    def parallelization_after(self) -> int:
        """After how many samples the workers begin to learn together."""
        return self.__wrapped__.distribution.after

    def minibatch_size_scale_factor(self) -> int:
        """What a training session multiplies minibatch sizes by: with block momentum each worker takes a whole one."""
        return mpi.size() if isinstance(self.__wrapped__.distribution, BlockMomentum) else 1

    def set_as_metric_aggregator(self) -> None:
        """Say that this one of several learners exchanges the metric; a trainer does so once whoever is named."""
        self._aggregates_metrics = True

    def is_metric_aggregator(self) -> bool:
        """Whether ``set_as_metric_aggregator`` was called."""
        return self._aggregates_metrics

    @property
    def total_number_of_samples_seen(self) -> int:  # type: ignore[override]
        """Samples of all steps of all workers that were not skipped; a property, other than that of a learner."""
        way = self.__wrapped__.distribution
        return way.seen if isinstance(way, BlockMomentum) else self.__wrapped__.counters.samples


def data_parallel_distributed_learner(
    learner: Learner,
    distributed_after: int = 0,
    num_quantization_bits: int = 32,
    use_async_buffered_parameter_update: bool = False,
) -> DistributedLearner:
    """The learner with gradients summed over all workers, as if their minibatches were one.

    All workers have to take the same number of steps; one without data takes part with an empty minibatch.

    `distributed_after`: until this number of samples the workers train by themselves, on the same data; then they all
    go on with the model of worker 0. Gradients are exchanged in full, whatever `num_quantization_bits` says.

    Errors: TypeError for what is no learner; RuntimeError for the asynchronous update, which CNTK does not have either.

    >>> import cntkjax as C
    >>> w = C.parameter((2, 1))
    >>> data_parallel_distributed_learner(C.sgd([w], 0.1)).learning_rate()
    0.1
    """
    if use_async_buffered_parameter_update:
        raise RuntimeError("data_parallel_distributed_learner: there is no asynchronous parameter update")
    return _distributed(learner, DataParallel(distributed_after), "data_parallel_distributed_learner")


def block_momentum_distributed_learner(
    learner: Learner,
    block_size: int,
    block_momentum_as_time_constant: float | None = None,
    use_nestrov_momentum: bool = True,
    reset_sgd_momentum_after_aggregation: bool = True,
    block_learning_rate: float = 1.0,
    distributed_after: int = 0,
) -> DistributedLearner:
    """The learner with what all workers have learned put together after each block of samples, with a momentum.

    `block_size`: samples of all workers. `block_momentum_as_time_constant`: in samples; by default such that a block
    counts as much as it would for one worker. `reset_sgd_momentum_after_aggregation`: a block begins without momentum.
    `distributed_after`: blocks begin after this number of samples.

    Errors: TypeError for what is no learner; ValueError for a block without samples.
    Source: CNTK 2.7 (see ``parallel/block_momentum.py``).

    >>> import cntkjax as C
    >>> w = C.parameter((2, 1))
    >>> block_momentum_distributed_learner(C.sgd([w], 0.1), block_size=1000).learning_rate()
    0.1
    """
    if block_size < 1:
        raise ValueError(f"block_momentum_distributed_learner: a block has samples, at least 1, not {block_size}")
    distribution = BlockMomentum(
        block_size, block_momentum_as_time_constant, use_nestrov_momentum, reset_sgd_momentum_after_aggregation,
        block_learning_rate, distributed_after,
    )
    return _distributed(learner, distribution, "block_momentum_distributed_learner")


def _distributed(learner: Learner, distribution: DataParallel | BlockMomentum, where: str) -> DistributedLearner:
    if not isinstance(learner, Learner):
        raise TypeError(f"{where}: needs a learner, not {learner!r}")
    learning = unwrap(learner)
    learning.distribution = distribution
    return DistributedLearner._of(learning)  # one state under both names: what is done to one is done to the other


__all__ = [
    "Communicator", "DistributedLearner", "Learner", "WorkerDescriptor", "block_momentum_distributed_learner",
    "data_parallel_distributed_learner", "mpi_communicator", "trainer",
]
