"""Workers that train together. There is one worker so far: ranks are still to come."""

from __future__ import annotations

import socket
from typing import NamedTuple

from ..learners import Learner
from . import trainer


class WorkerDescriptor(NamedTuple):
    """A worker: its number and the name of its machine.

    >>> WorkerDescriptor(0, "here").global_rank
    0
    """

    global_rank: int
    host_id: str


class Communicator:
    """What workers exchange data through; ``mpi_communicator()`` gives one.

    >>> communicator = mpi_communicator()
    >>> Communicator.rank(), Communicator.num_workers(), communicator.is_main()
    (0, 1, True)
    """

    @staticmethod
    def rank() -> int:
        """Number of this worker, from 0."""
        return 0

    @staticmethod
    def num_workers() -> int:
        """How many workers there are."""
        return 1

    @staticmethod
    def finalize() -> None:
        """To be called at the end of a distributed script; with one worker there is nothing to end."""

    def current_worker(self) -> WorkerDescriptor:
        """This worker."""
        return WorkerDescriptor(self.rank(), socket.gethostname())

    def workers(self) -> list[WorkerDescriptor]:
        """All workers."""
        return [self.current_worker()]

    def is_main(self) -> bool:
        """True for the worker with rank 0, which writes files."""
        return self.rank() == 0

    def barrier(self) -> None:
        """Wait for all workers."""


def mpi_communicator() -> Communicator:
    """The communicator of all workers.

    >>> mpi_communicator().workers()[0].global_rank
    0
    """
    return Communicator()


class DistributedLearner(Learner):
    """A learner whose gradients are summed over all workers; with one worker they are its own."""

    def communicator(self) -> Communicator:
        """What the workers exchange gradients through."""
        return mpi_communicator()

    @property
    def total_number_of_samples_seen(self) -> int:  # type: ignore[override]
        """Samples of all steps of all workers that were not skipped; a property, other than that of a learner."""
        return self.counters.samples


def data_parallel_distributed_learner(
    learner: Learner,
    distributed_after: int = 0,
    num_quantization_bits: int = 32,
    use_async_buffered_parameter_update: bool = False,
) -> DistributedLearner:
    """The learner with gradients summed over all workers.

    `distributed_after`, `num_quantization_bits`: from which sample on, and how precisely, gradients are exchanged; with
    one worker there is nothing to exchange.

    Errors: TypeError for what is no learner; RuntimeError for the asynchronous update, which CNTK does not have either.

    >>> import cntkjax as C
    >>> w = C.parameter((2, 1))
    >>> data_parallel_distributed_learner(C.sgd([w], 0.1)).learning_rate()
    0.1
    """
    if not isinstance(learner, Learner):
        raise TypeError(f"data_parallel_distributed_learner: needs a learner, not {learner!r}")
    if use_async_buffered_parameter_update:
        raise RuntimeError("data_parallel_distributed_learner: there is no asynchronous parameter update")
    kind = type("DistributedLearner", (DistributedLearner, type(learner)), {})
    made: DistributedLearner = object.__new__(kind)
    made.__dict__ = learner.__dict__  # one state under both names: what is done to the learner is done to this
    return made


def block_momentum_distributed_learner(
    learner: Learner,
    block_size: int,
    block_momentum_as_time_constant: float | None = None,
    use_nestrov_momentum: bool = True,
    reset_sgd_momentum_after_aggregation: bool = True,
    block_learning_rate: float = 1.0,
    distributed_after: int = 0,
) -> DistributedLearner:
    """The learner with models averaged after each block of samples, with a momentum of its own.

    Errors: NotImplementedError: blocks change the model even with one worker, and are still to come.
    """
    raise NotImplementedError(
        "block_momentum_distributed_learner: block momentum is not supported yet; with one worker, train with the "
        "learner itself, or with data_parallel_distributed_learner"
    )


__all__ = [
    "Communicator", "DistributedLearner", "Learner", "WorkerDescriptor", "block_momentum_distributed_learner",
    "data_parallel_distributed_learner", "mpi_communicator", "trainer",
]
