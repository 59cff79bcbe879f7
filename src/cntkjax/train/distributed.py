"""Distributed training: the workers started by mpiexec, or a single one, and learners that span them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core import NDArrayView
from ..graph.arguments import public
from ..graph.proxy import unwrap
from ..learners import Learner
from ..learners._user import CallableProperty
from ..parallel import exchange, workers
from ..parallel.block_momentum import BlockMomentum
from ..parallel.gradients import DataParallel
from ..parallel.quantization import NUMBERS_OF_BITS
from . import trainer


@public
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


@public
class Communicator:
    """The means by which workers exchange data; ``mpi_communicator()`` returns one.

    >>> communicator = mpi_communicator()
    >>> Communicator.rank(), Communicator.num_workers(), communicator.is_main()
    (0, 1, True)
    """

    @staticmethod
    def rank() -> int:
        """The number of this worker, from 0."""
        return workers.rank()

    @staticmethod
    def num_workers() -> int:
        """The number of workers."""
        return workers.size()

    @staticmethod
    def finalize() -> None:
        """Wait for all workers; to be called at the end of a distributed script."""
        workers.barrier("Communicator.finalize")

    def current_worker(self) -> WorkerDescriptor:
        """This worker."""
        return WorkerDescriptor(self.rank(), socket.gethostname())

    def workers(self) -> list[WorkerDescriptor]:
        """All workers."""
        hosts = workers.gather("Communicator.workers", socket.gethostname().encode()).wait()
        return [WorkerDescriptor(i, host.decode()) for i, host in enumerate(hosts)]

    def is_main(self) -> bool:
        """True for the worker with rank 0, which writes files."""
        return self.rank() == 0

    def barrier(self) -> None:
        """Wait for all workers."""
        workers.barrier("Communicator.barrier")

    def aggregate_in_place(self, values: Sequence[NDArrayView], sendToWorkers: Sequence[WorkerDescriptor]) -> None:
        """Replace the contents of dense array views by their sums over all workers.

        Shapes: the same on each worker.
        Errors: RuntimeError unless all workers take part.

        >>> import numpy as np
        >>> from cntkjax import NDArrayView
        >>> communicator, view = mpi_communicator(), NDArrayView.from_dense(np.ones(2, np.float32))
        >>> communicator.aggregate_in_place([view], communicator.workers())
        >>> view.asarray()
        array([1., 1.], dtype=float32)
        """
        if {worker.global_rank for worker in sendToWorkers} != set(range(self.num_workers())):
            raise RuntimeError("aggregate_in_place: all workers take part; pass communicator.workers()")
        shapes = ", ".join(str(view.shape) for view in values)
        workers.barrier(f"aggregate_in_place of shapes {shapes}")
        arrays = [view.asarray() for view in values]
        for view, total in zip(values, exchange.all_reduce(arrays), strict=True):
            view.copy_from(NDArrayView.from_dense(np.asarray(total), borrow=True))


@public
def mpi_communicator() -> Communicator:
    """The communicator of all workers.

    >>> mpi_communicator().workers()[0].global_rank
    0
    """
    return Communicator()


@public
class DistributedLearner(Learner):
    """A learner that learns from the data of all workers, by summed gradients or by block momentum.

    ``data_parallel_distributed_learner`` and ``block_momentum_distributed_learner`` return one.
    """

    @property
    def parameters(self) -> CallableProperty:
        """The parameters that it updates, in its order; as in CNTK they can also be called: ``parameters()``."""
        return CallableProperty(self.__wrapped__.parameters)

    def communicator(self) -> Communicator:
        """The communicator that gradients or models are exchanged with."""
        return mpi_communicator()

    get_communicator = communicator

    def parallelization_after(self) -> int:
        """The number of samples after which distributed training starts."""
        return self._strategy.after

    def minibatch_size_scale_factor(self) -> int:
        """The factor that a training session applies to minibatch sizes: with block momentum, the number of workers.

        Each worker then takes a minibatch of the full size; otherwise the workers share one.
        """
        return workers.size() if isinstance(self._strategy, BlockMomentum) else 1

    def set_as_metric_aggregator(self) -> None:
        """Mark this one of several learners as the one that decides whose samples a trainer reports losses of.

        Those of all workers if it sums gradients, and those of this worker with block momentum.
        """
        self._strategy.aggregates_metrics = True

    def is_metric_aggregator(self) -> bool:
        """Whether ``set_as_metric_aggregator`` was called, or this is the only learner of a trainer."""
        return self._strategy.aggregates_metrics

    @property
    def total_number_of_samples_seen(self) -> int:  # type: ignore[override]
        """Samples of all steps of all workers, also with a rate of 0; a property here, a method of other learners."""
        strategy = self._strategy
        if isinstance(strategy, BlockMomentum):
            return strategy.state.value.samples_seen
        return self.__wrapped__.counters.samples

    @property
    def _strategy(self) -> DataParallel | BlockMomentum:
        strategy = self.__wrapped__.strategy
        assert strategy is not None
        return strategy


@public
def data_parallel_distributed_learner(
    learner: Learner,
    distributed_after: int = 0,
    num_quantization_bits: int = 32,
    use_async_buffered_parameter_update: bool = False,
    shard_state: bool = False,
) -> DistributedLearner:
    """A learner that sums gradients over all workers, as if their minibatches were one.

    All workers have to take the same number of steps; one without data takes part with an empty minibatch.

    `distributed_after`: up to this number of samples the workers train independently, on the same data; then all
    continue with the model of worker 0.
    `num_quantization_bits`: in how many bits a value of a gradient travels: 32, 16, 8, 4, 2 (numbers of intervals for
    each column, which goes along the last axis) or 1 (signs, with two means for each column). What that leaves out is
    added to the next gradient. Rows of embeddings travel in 32 bits. A single worker ignores it.
    `shard_state`: each worker (or device, with ``use_all_devices``) keeps a part of the learner's state, such as adam's
    means, and updates that part of the parameters. Checkpoints are the same. An extension of CNTK.

    Units: `distributed_after` in samples.
    Errors: TypeError if `learner` is not a learner; ValueError for another number of bits, or for `shard_state` with
            fewer than 16 bits or a learner of users, of optax or of a graph; RuntimeError for the asynchronous update,
            which CNTK lacks too.
    Source: Seide et al. 2014 for 1 bit, CNTK 2.7 for more (``parallel/quantization.py``); Rajbhandari et al. 2020 for
            `shard_state` (``parallel/sharding.py``).

    >>> import cntkjax as C
    >>> w = C.parameter((2, 1))
    >>> data_parallel_distributed_learner(C.sgd([w], 0.1)).learning_rate()
    0.1
    """
    if use_async_buffered_parameter_update:
        raise RuntimeError(
            "data_parallel_distributed_learner: there is no asynchronous parameter update; leave out "
            "use_async_buffered_parameter_update"
        )
    if num_quantization_bits < 32 and num_quantization_bits not in NUMBERS_OF_BITS:
        raise ValueError(
            "data_parallel_distributed_learner: num_quantization_bits is 1, 2, 4, 8, 16 or 32, not "
            f"{num_quantization_bits!r}"
        )
    if shard_state and num_quantization_bits < 16:
        raise ValueError(
            "data_parallel_distributed_learner: shard_state is for gradients of 32 or 16 bits, not for "
            f"{num_quantization_bits}; leave one of them out"
        )
    if shard_state and isinstance(learner, Learner) and not unwrap(learner).works_on_parts:
        raise ValueError(
            f"data_parallel_distributed_learner: the state of {learner!r} cannot be divided, since its rule is not one "
            "of CNTK's; leave out shard_state"
        )
    strategy = DataParallel(distributed_after, min(num_quantization_bits, 32), shard_state)
    return _distributed(learner, strategy, "data_parallel_distributed_learner")


@public
def block_momentum_distributed_learner(
    learner: Learner,
    block_size: int,
    block_momentum_as_time_constant: float | None = None,
    use_nestrov_momentum: bool = True,
    reset_sgd_momentum_after_aggregation: bool = True,
    block_learning_rate: float = 1.0,
    distributed_after: int = 0,
) -> DistributedLearner:
    """A learner whose workers train independently; after each block of samples their models are merged, with momentum.

    `block_momentum_as_time_constant`: by default such that a block counts as much as it would for one worker.
    `reset_sgd_momentum_after_aggregation`: each block starts without momentum of its own.
    `distributed_after`: blocks start after this number of samples.

    Units: `block_size`, the time constant and `distributed_after` in samples of all workers.
    Errors: TypeError if `learner` is not a learner; ValueError for a block without samples.
    Source: CNTK 2.7 (see ``parallel/block_momentum.py``).

    >>> import cntkjax as C
    >>> w = C.parameter((2, 1))
    >>> block_momentum_distributed_learner(C.sgd([w], 0.1), block_size=1000).learning_rate()
    0.1
    """
    if block_size < 1:
        raise ValueError(
            f"block_momentum_distributed_learner: block_size is a number of samples, at least 1, not {block_size}"
        )
    strategy = BlockMomentum(
        block_size, block_momentum_as_time_constant, use_nestrov_momentum, reset_sgd_momentum_after_aggregation,
        block_learning_rate, distributed_after,
    )
    return _distributed(learner, strategy, "block_momentum_distributed_learner")


def _distributed(learner: Learner, strategy: DataParallel | BlockMomentum, where: str) -> DistributedLearner:
    if not isinstance(learner, Learner):
        raise TypeError(f"{where}: needs a learner, such as sgd(...), not {learner!r}")
    learning = unwrap(learner)
    learning.strategy = strategy
    return DistributedLearner.wrap(learning)  # both share one state: what is done to one is done to the other


__all__ = [
    "Communicator", "DistributedLearner", "Learner", "WorkerDescriptor", "block_momentum_distributed_learner",
    "data_parallel_distributed_learner", "mpi_communicator", "trainer",
]
