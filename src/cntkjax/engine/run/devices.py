"""Programs over several devices: one function runs on each, on inputs of its own, with collectives over `AXIS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..._typing import Array, PyTree
from .handover import device_copy

AXIS = "data"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Divided:
    """State of which each of several devices has a part.

    `parts`: a tree of arrays of the mesh. `shapes`: those of the whole arrays.
    """

    parts: PyTree
    devices: Devices = field(metadata={"static": True})
    shapes: tuple[tuple[int, ...], ...] = field(metadata={"static": True})


class Devices:
    """Devices in a mesh with the axis `AXIS`: those of this process that compute, and as many of each other process.

    Arrays differ from device to device; for jax they are replicated arrays of the mesh. What the rest of this process
    sees of them are those of its first device.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._sharding = NamedSharding(mesh, PartitionSpec())
        self._replicas: dict[int, tuple[Array, Array]] = {}  # by the id of the array of the first device

    @property
    def count(self) -> int:
        """The number of devices of all processes."""
        return self.mesh.size

    @cached_property
    def local(self) -> list[jax.Device]:
        """The devices of this process."""
        return list(self.mesh.local_devices)

    def over(self, function: Callable[..., PyTree]) -> Callable[..., PyTree]:
        """The function of arrays of the mesh that runs a function on each device."""
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False
        )

    @cached_property
    def processes(self) -> list[list[int]]:
        """The numbers of the devices of each process."""
        size = len(self.local)
        return [list(range(i, i + size)) for i in range(0, self.count, size)]

    def total_of_process(self, value: Any) -> Any:
        """Inside such a function, the sum over the devices of this process; a single device's is the value itself."""
        return value if len(self.local) == 1 else lax.psum(value, AXIS, axis_index_groups=self.processes)

    def spread(self, *trees: PyTree) -> PyTree:
        """A tree of arrays of the mesh, from a tree for each device of this process, or a single one for all."""
        leaves = [jax.tree.leaves(tree) for tree in trees]
        return jax.tree.unflatten(jax.tree.structure(trees[0]), map(self._spread, zip(*leaves, strict=True)))

    def _spread(self, arrays: tuple[Any, ...]) -> Array:
        first = arrays[0]
        if isinstance(first, jax.Array):
            if first.sharding == self._sharding:
                return first
            array, replicas = self._replicas.get(id(first), (None, first))
            if array is first:
                return replicas
        if len(arrays) < len(self.local):
            arrays = (first,) * len(self.local)
        placed = [_placed(array, device) for array, device in zip(arrays, self.local, strict=True)]
        return jax.make_array_from_single_device_arrays(placed[0].shape, self._sharding, placed)

    def of_this_process(self, tree: PyTree) -> PyTree:
        """The tree with arrays of this process's first device in the place of those of the mesh, except in `Divided`.

        Until the next call, `spread` knows which arrays of the mesh they are of.
        """
        arrays, structure = jax.tree.flatten(tree, is_leaf=lambda a: isinstance(a, Divided))
        first: list[Any] = [a if isinstance(a, Divided) else a.addressable_data(0) for a in arrays]
        if len(self.local) > 1:
            self._replicas = {id(a): (a, replicas) for a, replicas in zip(first, arrays, strict=True)}
        return jax.tree.unflatten(structure, first)

    def copied(self, tree: PyTree) -> PyTree:
        """A tree of arrays of the mesh with copies of them; nothing is compiled for it."""

        def copy(array: Array) -> Array:
            shards = [device_copy(shard.data) for shard in array.addressable_shards]
            return jax.make_array_from_single_device_arrays(array.shape, array.sharding, shards)

        return jax.tree.map(copy, tree)


def _placed(array: Any, device: jax.Device) -> Array:
    """The array on a device; the same if it is there."""
    return array if isinstance(array, jax.Array) and array.devices() == {device} else jax.device_put(array, device)


__all__ = ["AXIS", "Devices", "Divided"]
