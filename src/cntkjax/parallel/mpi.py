"""The processes started by mpiexec, and collective operations over them. Without MPI there is one worker."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, TypeVar

import numpy as np

from .._typing import ArrayLike

_LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")  # set by Open MPI, MPICH and Intel MPI

T = TypeVar("T")


@cache
def world() -> Any:
    """MPI's communicator of all processes; None for a single process. MPI is loaded only under mpiexec.

    Errors: ImportError, with the pip command to run, under mpiexec without mpi4py.
    """
    if not any(name in os.environ for name in _LAUNCHERS):
        return None
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError('training over several processes needs mpi4py: pip install "cntkjax[mpi]"') from error
    return MPI.COMM_WORLD if MPI.COMM_WORLD.Get_size() > 1 else None


def rank() -> int:
    """The number of this worker, from 0."""
    return 0 if world() is None else int(world().Get_rank())


def size() -> int:
    """The number of workers."""
    return 1 if world() is None else int(world().Get_size())


def barrier() -> None:
    """Wait for all workers."""
    if world() is not None:
        world().Barrier()


def all_reduce(array: ArrayLike) -> np.ndarray:
    """The sum of an array over all workers. Shapes: the same on each worker, and of the result."""
    array = np.asarray(array)
    if world() is None:
        return array
    wide = array.astype(np.float32) if array.dtype == np.float16 else array  # MPI has no half precision
    total = np.empty(wide.shape, wide.dtype)
    world().Allreduce(np.ascontiguousarray(wide), total)
    return total.astype(array.dtype, copy=False)


def all_gather(value: T) -> list[T]:
    """The values of all workers, in the order of their ranks."""
    return [value] if world() is None else world().allgather(value)


def broadcast(value: T) -> T:
    """The value of worker 0, on all workers."""
    return value if world() is None else world().bcast(value, root=0)
