"""The processes that were started together by mpiexec, and what they exchange."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np

_LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")  # what Open MPI, MPICH and Intel MPI set


@cache
def world() -> Any:
    """MPI's communicator of all processes; None for a process that is alone. MPI is only loaded under mpiexec.

    Errors: ImportError, with the pip line to run, under mpiexec without mpi4py.
    """
    if not any(name in os.environ for name in _LAUNCHERS):
        return None
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError('training over several processes needs mpi4py: pip install "cntkjax[mpi]"') from error
    return MPI.COMM_WORLD if MPI.COMM_WORLD.Get_size() > 1 else None


def rank() -> int:
    """Number of this worker, from 0."""
    return 0 if world() is None else int(world().Get_rank())


def size() -> int:
    """How many workers there are."""
    return 1 if world() is None else int(world().Get_size())


def barrier() -> None:
    """Wait for all workers."""
    if world() is not None:
        world().Barrier()


def summed(array: Any) -> np.ndarray:
    """The sum of an array over all workers. Shapes: the same on each of them."""
    array = np.asarray(array)
    if world() is None:
        return array
    wide = array.astype(np.float32) if array.dtype == np.float16 else array  # MPI has no half precision
    total = np.empty(wide.shape, wide.dtype)
    world().Allreduce(np.ascontiguousarray(wide), total)
    return total.astype(array.dtype, copy=False)


def gathered(value: Any) -> list[Any]:
    """What each worker gives, by rank, on all of them."""
    return [value] if world() is None else world().allgather(value)


def from_main(value: Any) -> Any:
    """What worker 0 gives, on all of them."""
    return value if world() is None else world().bcast(value, root=0)

