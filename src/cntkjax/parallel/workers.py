"""The workers of a job: joining them when the package is imported, leaving them at exit, and ending with them.

A process that its launcher says to be one of several connects to the others, and initializes `jax.distributed` before
jax has used a device. From then on a worker that fails ends all others: they raise `WorkerError` where they wait for
it, and end after `GRACE` seconds wherever they are, since a program that waits in a collective cannot be interrupted.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import time
from contextlib import suppress
from types import TracebackType

import jax

from .._threads import after_fork
from ..engine.xla.versions import option
from . import siblings
from .channel import BegunGathering, Channel, Hub, WorkerError
from .environment import Rank, discover, finalize_mpi, launched_rank, listen

GRACE = 7.0  # seconds; after the 15 of silence that a stopped worker is noticed by, all end well within 30
_NOTICE = 5.0  # seconds in which the others notice by themselves what cannot be told to them yet
_NEWS = 1.0  # seconds after an error of this worker in which it may turn out to be due to another one
_FOREVER = 10**7  # seconds; failures are noticed by the channel

_place = Rank()
_channel: Channel | None = None


def start() -> None:
    """Join the workers, if the environment says that there are several; to be called before jax uses a device.

    Errors: RuntimeError if it has used one already; WorkerError if workers are missing; those of
            `environment.discover`.
    """
    global _place, _channel
    if _channel is not None:
        return
    with siblings.watched(_end_at_once):
        place = discover()
        if place.size == 1:
            return
        if place.rank == 0:
            Hub(listen(place), place.size).start()
        _place = place
        try:
            _channel = Channel(place.address, place.rank, place.size, _end)
        except WorkerError:
            time.sleep(_NOTICE)  # worker 0 tells it to those that are late
            raise
    _install_hooks()
    _initialize_jax(_channel, place)


def rank() -> int:
    """The number of this worker, from 0."""
    return _place.rank


def size() -> int:
    """The number of workers."""
    return _place.size


class _Alone(BegunGathering):
    """The gathering of a single worker."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def wait(self) -> list[bytes]:
        """Its own part."""
        return [self._payload]


def gather(operation: str, payload: bytes = b"") -> BegunGathering:
    """Begin to collect the payloads of all workers, which have to do the same operations in the same order."""
    return alone(operation, payload) if _channel is None else _channel.gather(operation, payload)


def alone(operation: str, payload: bytes = b"") -> BegunGathering:
    """As `gather`, for what the other workers do not take part in."""
    return _Alone(payload)


def barrier(operation: str) -> None:
    """Wait for all workers."""
    gather(operation).wait()


def fail(text: str) -> None:
    """Tell the other workers that this one fails. `text` goes on where "worker 1" begins."""
    if _channel is not None:
        _channel.report(text)


def _initialize_jax(channel: Channel, place: Rank) -> None:
    """Form jax's global set of devices; worker 0 chooses the port of its coordination service."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    ports = channel.gather("import", str(port).encode()).wait()
    before = option("jax_enable_preemption_service")
    jax.config.update("jax_enable_preemption_service", False)  # SIGTERM ends a process, as it does without workers
    try:
        jax.distributed.initialize(
            f"{place.address[0]}:{int(ports[0])}", place.size, place.rank, _local_device(place),
            heartbeat_timeout_seconds=_FOREVER, shutdown_timeout_seconds=_FOREVER,
        )
    except RuntimeError as error:
        text = f"jax has used a device before 'import cntk', so worker {place.rank} cannot join the others: {error}"
        raise RuntimeError(f"{text}. Fix: import cntk first") from error
    finally:
        jax.config.update("jax_enable_preemption_service", before)


def _local_device(place: Rank) -> int | None:
    """The accelerator of this worker, by its number; None where the environment gives it one of its own already."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if visible is not None and "," not in visible else place.local_rank


def _install_hooks() -> None:
    atexit.register(_leave, os.getpid())
    after_fork(_forget)
    show = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        show(kind, error, traceback)
        if _channel is None:
            return
        time.sleep(_NEWS)
        if _channel.failure is None:
            fail(f"raised {kind.__name__}: {error}".removesuffix(": "))
            time.sleep(_NEWS)  # so that the others can say why they end before mpiexec ends them

    sys.excepthook = report


def _end(text: str, is_culprit: bool) -> None:
    """End this process, in which another thread may wait for a worker that will never answer."""
    if not is_culprit:
        _say(text, _place.rank)
    time.sleep(GRACE)
    _exit()


def _end_at_once(text: str) -> None:
    """End this process before it has joined the others, which are given time to notice the same; it may be in MPI."""
    _say(text, launched_rank())
    time.sleep(_NOTICE)
    _exit()


def _say(text: str, rank: int) -> None:
    line = f"cntkjax: worker {rank} ends, because {text}\n"  # in one piece: another thread may print
    print(line, end="", file=sys.stderr, flush=True)


def _leave(process: int) -> None:
    """At exit: wait for the others, so that none is left with a collective that never ends."""
    if _channel is None or os.getpid() != process:
        return
    try:
        _channel.leave()
        jax.distributed.shutdown()
        finalize_mpi()
        _channel.gone()
    except WorkerError:
        _exit()


def _exit() -> None:
    """Worker 0 ends last: jax's service is in it, without which jax aborts the others, with messages of its own."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # of a stream that is None, broken or closed
            stream.flush()
    siblings.end_stopped()
    if _channel is not None and _place.rank == 0:
        time.sleep(2 * _NEWS)
    os._exit(1)


def _forget() -> None:
    """A forked process is no worker."""
    global _place, _channel
    if _channel is not None:
        _channel.close()
    _place, _channel = Rank(), None


__all__ = ["BegunGathering", "WorkerError", "alone", "barrier", "fail", "gather", "rank", "size", "start"]
