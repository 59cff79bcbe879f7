"""Which worker this process is, as its launcher says: environment variables, and MPI where that launched it."""

from __future__ import annotations

import ctypes
import os
import re
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

Address = tuple[str, int]

RANKS = "CNTKJAX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"
"""The variables in which launchers tell a process its rank."""

_PROCESS = "CNTKJAX_PROCESS"  # set by the worker; its children, which inherit the environment, are no workers
_OPEN_MPI, _OTHER_MPI = ("OMPI_COMM_WORLD_SIZE",), ("PMI_SIZE", "MPI_LOCALNRANKS")  # MPICH and Intel MPI
_LOCAL_RANKS = "CNTKJAX_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"
_own_mpi: ctypes.CDLL | None = None  # the library, if MPI was initialized here
_FIRST_PORT, _PORTS = 61440, 4096  # of jobs under SLURM, by the number of the job


@dataclass(frozen=True)
class Rank:
    """A process among the workers of a job.

    `address`: where the workers meet; worker 0 listens there. `server`: its socket, if that is open already.
    `local_rank`: the number among the workers of the same machine, if the launcher says it.
    """

    rank: int = 0
    size: int = 1
    address: Address = ("localhost", 0)
    local_rank: int | None = None
    server: socket.socket | None = None


def discover() -> Rank:
    """The place of this process.

    Looks for `CNTKJAX_COORDINATOR` (host:port of worker 0), `CNTKJAX_RANK` and `CNTKJAX_SIZE`, then for mpiexec and
    srun.
    Errors: ValueError for variables that do not fit together; ImportError under mpiexec without mpi4py.
    """
    if os.environ.get(_PROCESS, str(os.getpid())) != str(os.getpid()):
        return Rank()
    if "CNTKJAX_COORDINATOR" in os.environ or "CNTKJAX_SIZE" in os.environ:
        place = _explicit()
    elif _is_set(*_OPEN_MPI):
        place = _mpi()
    elif int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:  # of srun; sbatch and salloc start a single process
        place = _slurm()
    else:
        place = _mpi() if _is_set(*_OTHER_MPI) else Rank()
    if place.size > 1:
        os.environ[_PROCESS] = str(os.getpid())
    return place


def launched_rank() -> int:
    """The rank that the launcher has given this process; 0 without one."""
    return next((int(os.environ[name]) for name in RANKS if name in os.environ), 0)


def listen(place: Rank) -> socket.socket:
    """The socket at which worker 0 awaits the others. Errors: OSError if the address is not free."""
    if place.server is not None:
        return place.server
    return socket.create_server(("", place.address[1]), backlog=place.size, reuse_port=False)


def _is_set(*names: str) -> bool:
    return any(name in os.environ for name in names)


def _explicit() -> Rank:
    names = "CNTKJAX_COORDINATOR", "CNTKJAX_RANK", "CNTKJAX_SIZE"
    if not all(name in os.environ for name in names):
        missing = ", ".join(name for name in names if name not in os.environ)
        raise ValueError(f"a worker needs {', '.join(names)} in its environment; set {missing} too")
    host, _, port = os.environ["CNTKJAX_COORDINATOR"].rpartition(":")
    rank, size = os.environ["CNTKJAX_RANK"], os.environ["CNTKJAX_SIZE"]
    if not (host and port.isdecimal() and rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        values = ", ".join(f"{name}={os.environ[name]!r}" for name in names)
        raise ValueError(f"{values}: give the coordinator as host:port, and a rank from 0 to size - 1")
    address = host, int(port)
    return Rank(int(rank), int(size), address, _local_rank(), _inherited(address) if rank == "0" else None)


def _inherited(address: Address) -> socket.socket | None:
    """The socket at which `cntkjax launch` lets worker 0 listen, unless a process between them has closed it."""
    with suppress(KeyError, OSError):
        server = socket.socket(fileno=int(os.environ["CNTKJAX_SOCKET"]))
        if server.getsockname()[1] == address[1]:
            server.set_inheritable(False)
            return server
        server.detach()  # another one, which has got its number
    return None


def _slurm() -> Rank:
    host = first_host(os.environ["SLURM_STEP_NODELIST"])
    port = _FIRST_PORT + int(os.environ["SLURM_JOB_ID"]) % _PORTS
    size = int(os.environ["SLURM_STEP_NUM_TASKS"])
    return Rank(int(os.environ["SLURM_PROCID"]), size, (host, port), _local_rank())


def first_host(nodes: str) -> str:
    """The first of SLURM's list of hosts.

    >>> first_host("node[007-012,20],login")
    'node007'
    >>> first_host("big,small")
    'big'
    """
    match = re.match(r"([^,\[]+)(?:\[(\w+))?", nodes)
    assert match is not None
    return match[1] + (match[2] or "")


def _mpi() -> Rank:
    """Worker 0 chooses a free port, and MPI tells the others; nothing else travels through MPI."""
    world = _initialized_mpi().COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    if size == 1:
        return Rank()
    hosts = world.allgather(socket.gethostname())
    server = socket.create_server(("", 0), backlog=size) if rank == 0 else None
    host = "127.0.0.1" if len(set(hosts)) == 1 else hosts[0]
    address = world.bcast(None if server is None else (host, server.getsockname()[1]))
    return Rank(rank, size, address, hosts[:rank].count(hosts[rank]), server)


def _initialized_mpi() -> Any:
    """The module of mpi4py. MPI waits for all processes, so it is called by ctypes, which lets other threads run.

    One of them notices workers that are stopped (`siblings.py`).
    """
    try:
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError('mpiexec started this process, which needs mpi4py: pip install "cntkjax[mpi]"') from error
    if not MPI.Is_initialized():
        global _own_mpi
        _own_mpi = ctypes.CDLL(MPI.__file__)
        _own_mpi.MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
        MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)  # as mpi4py does, so that they are exceptions
    return MPI


def finalize_mpi() -> None:
    """End MPI if it was initialized here; this waits for all processes too, and is called in the same way."""
    if _own_mpi is not None and not sys.modules["mpi4py.MPI"].Is_finalized():
        _own_mpi.MPI_Finalize()


def _local_rank() -> int | None:
    return next((int(os.environ[name]) for name in _LOCAL_RANKS if name in os.environ), None)


__all__ = ["RANKS", "Address", "Rank", "discover", "finalize_mpi", "first_host", "launched_rank", "listen"]
