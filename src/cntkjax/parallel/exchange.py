"""Programs over all workers: one device of each forms a mesh, over whose axis "data" they sum, gather and exchange.

Such a program gets arrays of each worker's device, which differ; for jax they are replicated arrays of the mesh. It
returns arrays of this worker's device again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .._typing import Array, PyTree
from ..engine.run.executables import DonatingFunction
from ..engine.run.handover import Captures, copied
from . import workers

AXIS = "data"


@cache
def mesh() -> Mesh:
    """The first device of each worker, in the order of ranks. All workers have to call it at the same time.

    Connections are made here, since Gloo waits only 30 s for a worker that is slower at its first exchange.
    """
    if workers.size() == 1:
        return Mesh(np.array(jax.local_devices()[:1]), AXIS)
    first = {device.process_index: device for device in reversed(jax.devices())}
    workers.barrier("the first exchange")
    everyone = Mesh(np.array([first[rank] for rank in range(workers.size())]), AXIS)
    jax.block_until_ready(jax.jit(_over(everyone, lambda x: lax.psum(x, AXIS)))(_spread(everyone, np.float32(1))))
    return everyone


class ExchangeProgram:
    """A function that all workers run at the same time, and in which they may use collectives over `AXIS`.

    Its first argument is donated.
    """

    def __init__(self, function: Callable[..., PyTree]) -> None:
        self._run = DonatingFunction(
            _over(mesh(), function), lambda donated: _spread(mesh(), copied(local(donated)))
        )

    def __call__(self, outputs: Captures, key: object, *arguments: PyTree) -> None:
        """Append a function whose result `local` turns into that of the function; see `DonatingFunction`."""
        self._run(outputs, key, *(_spread(mesh(), a) for a in arguments))


def all_reduce(arrays: list[Array]) -> list[Array]:
    """The sums of arrays over all workers. Shapes: the same on each worker, and of the results."""
    return local(_sum()(_spread(mesh(), arrays)))


def broadcast(arrays: list[Array]) -> list[Array]:
    """The arrays of worker 0. Shapes: the same on each worker, and of the results."""
    return local(_broadcast()(_spread(mesh(), arrays)))


@cache
def _broadcast() -> Callable[[PyTree], PyTree]:
    def of_worker_0(array: Array) -> Array:
        return lax.psum(jnp.where(lax.axis_index(AXIS) == 0, array, jnp.zeros_like(array)), AXIS)

    return jax.jit(_over(mesh(), lambda arrays: [of_worker_0(a) for a in arrays]))


@cache
def _sum() -> Callable[[PyTree], PyTree]:
    return jax.jit(_over(mesh(), lambda arrays: lax.psum(arrays, AXIS)))


def _over(devices: Mesh, function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    return jax.shard_map(
        function, mesh=devices, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False
    )


def _spread(devices: Mesh, tree: PyTree) -> PyTree:
    """The tree with arrays of the mesh in the place of those of this worker's device."""
    sharding = NamedSharding(devices, PartitionSpec())

    def spread(array: Any) -> jax.Array:
        local = array if isinstance(array, jax.Array) else jax.device_put(array)
        return jax.make_array_from_single_device_arrays(local.shape, sharding, [local])

    return jax.tree.map(spread, tree)


def local(tree: PyTree) -> PyTree:
    """The tree with arrays of this worker's device in the place of those of the mesh."""
    return jax.tree.map(lambda array: array.addressable_data(0), tree)


__all__ = ["AXIS", "ExchangeProgram", "all_reduce", "broadcast", "local", "mesh"]
