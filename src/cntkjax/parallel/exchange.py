"""Programs over all workers, whose devices form a mesh: over its axis `AXIS` they sum, gather and exchange."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from .._typing import Array, PyTree
from ..engine.run.devices import AXIS, Devices
from ..engine.run.executables import DonatingFunction
from ..engine.run.handover import Captures
from ..engine.xla.devices import training_devices
from . import workers


def all_devices() -> Devices:
    """The devices of all workers, in the order of ranks. All workers have to call it at the same time.

    They train on as many devices of one kind: see `comparison.py`.
    """
    return _all_devices(training_devices())


def one_device_each() -> Devices:
    """The first device of each worker; see `all_devices`."""
    return _all_devices(training_devices()[:1])


@cache
def _all_devices(local: tuple[jax.Device, ...]) -> Devices:
    """Connections are made here, since Gloo waits only 30 s for a worker that is slower at its first exchange."""
    if workers.size() == 1:
        return own_devices(local)
    workers.barrier("the first exchange")
    of_rank = [[d for d in jax.devices() if d.process_index == rank] for rank in range(workers.size())]
    everyone = Devices(Mesh(np.array([d for devices in of_rank for d in devices[: len(local)]]), AXIS))
    with _announced_as_errors():
        jax.block_until_ready(jax.jit(everyone.over(lambda x: lax.psum(x, AXIS)))(everyone.spread(np.float32(1))))
    if local[0].platform == "cpu":
        _do_not_preempt()
    return everyone


@contextmanager
def _announced_as_errors() -> Iterator[None]:
    """Gloo says on standard output, where programs have their results, that it is connected; on standard error here."""
    try:
        sys.stdout.flush()
        output = os.dup(1)
        os.dup2(2, 1)
    except (OSError, AttributeError, ValueError):  # there is no such output
        yield
        return
    try:
        yield
    finally:
        os.dup2(output, 1)
        os.close(output)


def _do_not_preempt() -> None:
    """Let the threads of jax not interrupt others when they wake up, on Linux.

    Gloo's thread polls without a pause while data of another worker is there that no operation has asked for yet. If it
    has interrupted the only thread that could ask, that waits for the end of its time slice: on workers of one core
    each, sums of 64 numbers took 3.6 ms instead of 0.07, and ATIS (docs/scaling.md) 28 ms a minibatch instead of 19.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    own = {thread.native_id for thread in threading.enumerate()}
    for task in {int(name) for name in os.listdir("/proc/self/task")} - own:
        with suppress(OSError):  # it has ended, or the system forbids it
            os.sched_setscheduler(task, os.SCHED_BATCH, os.sched_param(0))


def own_devices(local: tuple[jax.Device, ...]) -> Devices:
    """Devices of this process."""
    return Devices(Mesh(np.array(local), AXIS))


class ExchangeProgram:
    """A function that runs on all devices at the same time, and in which they may use collectives over `AXIS`.

    Its first argument is donated.
    """

    def __init__(self, function: Callable[..., PyTree], devices: Devices) -> None:
        self.devices = devices
        self._run = DonatingFunction(devices.over(function), devices.copied)

    def __call__(self, outputs: Captures, key: object, *arguments: PyTree) -> None:
        """Append a function that returns the result, in arrays of the mesh; see `DonatingFunction`."""
        self._run(outputs, key, *map(self.devices.spread, arguments))


def all_reduce(arrays: list[Array]) -> list[Array]:
    """The sums of arrays over all workers. Shapes: the same on each worker, and of the results."""
    return _on_each_worker(_sum, arrays)


def broadcast(arrays: list[Array]) -> list[Array]:
    """The arrays of worker 0. Shapes: the same on each worker, and of the results."""
    return _on_each_worker(_of_worker_0, arrays)


def _on_each_worker(function: Callable[[list[Array]], list[Array]], arrays: list[Array]) -> list[Array]:
    devices = one_device_each()
    return devices.of_this_process(_compiled(function, devices)(devices.spread(arrays)))


@cache
def _compiled(function: Callable[[list[Array]], list[Array]], devices: Devices) -> Callable[[PyTree], PyTree]:
    return jax.jit(devices.over(function))


def _sum(arrays: list[Array]) -> list[Array]:
    return lax.psum(arrays, AXIS)


def _of_worker_0(arrays: list[Array]) -> list[Array]:
    is_0 = lax.axis_index(AXIS) == 0
    return lax.psum([jnp.where(is_0, a, jnp.zeros_like(a)) for a in arrays], AXIS)


__all__ = ["AXIS", "ExchangeProgram", "all_devices", "all_reduce", "broadcast", "one_device_each", "own_devices"]
