"""Programs over several devices: one function runs on each, on inputs of its own, with collectives over `AXIS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import jax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..._typing import Array, PyTree
from .handover import device_copy

AXIS = "data"

Replicas: TypeAlias = dict[int, tuple[Array, Array]]
"""Arrays of the first device, and those of the mesh that they are of, by the ids of the former."""


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
    sees of them are those of its first device. `spread` remembers which they are of, from one `of_this_process` to the
    next: so a trainer needs `Devices` of its own.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._sharding = NamedSharding(mesh, PartitionSpec())
        self._replicas: Replicas = {}
        self._used: Replicas = {}  # since the last `of_this_process`

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
        of_devices = [jax.tree.leaves(tree) for tree in trees] * (1 if len(trees) > 1 else len(self.local))
        spread = [self._known(first) for first in of_devices[0]]
        new = [i for i, known in enumerate(spread) if known is None]
        where = [device for device in self.local for _ in new]
        placed = jax.device_put([own[i] for own in of_devices for i in new], where)  # a call for each takes longer
        for place, i in enumerate(new):
            shards, first = placed[place :: len(new)], of_devices[0][i]
            array = spread[i] = jax.make_array_from_single_device_arrays(shards[0].shape, self._sharding, shards)
            if isinstance(first, jax.Array) and all(own[i] is first for own in of_devices):
                self._used[id(first)] = first, array
        return jax.tree.unflatten(jax.tree.structure(trees[0]), spread)

    def _known(self, array: Any) -> Array | None:
        """The array of the mesh that this one is, or is of, if there is one already."""
        if not isinstance(array, jax.Array):
            return None
        if array.sharding == self._sharding:
            return array
        first, replicas = self._replicas.get(id(array), (None, None))
        if first is not array or replicas is None:
            return None
        self._used[id(array)] = array, replicas
        return replicas

    def of_this_process(self, tree: PyTree) -> PyTree:
        """The tree with arrays of this process's first device in the place of those of the mesh, except in `Divided`.
        """
        arrays, structure = jax.tree.flatten(tree, is_leaf=lambda a: isinstance(a, Divided))
        first: list[Any] = [a if isinstance(a, Divided) else a.addressable_data(0) for a in arrays]
        self._replicas = self._used | {id(a): (a, of) for a, of in zip(first, arrays, strict=True)}
        self._used = {}
        return jax.tree.unflatten(structure, first)

    def copied(self, tree: PyTree) -> PyTree:
        """A tree of arrays of the mesh with copies of them; nothing is compiled for it."""

        def copy(array: Array) -> Array:
            shards = [device_copy(shard.data) for shard in array.addressable_shards]
            return jax.make_array_from_single_device_arrays(array.shape, array.sharding, shards)

        return jax.tree.map(copy, tree)


__all__ = ["AXIS", "Devices", "Divided"]
