"""Data that stay on the device on their way from one program to the next, and to other libraries."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..xla.versions import double_precision
from .ragged import Ragged, SparseRows, ranges
from .sparse import Sparse


def end_to_end(data: Any, count: int, layout: tuple[Any, Any, Any] | None) -> Ragged:
    """What a program gave for a variable with dynamic axes, as it can be fed again: on the device, unless sparse.

    Shapes: data [batch, *shape], or with a layout (row, start, length) [time, rows, *shape]; padding is left out.
    """
    if isinstance(data, Sparse):
        kept = end_to_end(data.todense(), count, layout)
        dense = np.asarray(kept.data)
        return Ragged(SparseRows.from_dense(dense.reshape(len(dense), -1)), kept.lengths)
    with double_precision(data.dtype == np.float64):
        if layout is None:
            return Ragged(data if len(data) == count else data[:count], None)
        row, start, length = (np.asarray(a)[:count] for a in layout)
        return Ragged(data[ranges(start, length), np.repeat(row, length)], length.astype(np.int32))


def padded(data: Any, lengths: np.ndarray) -> Any:
    """Sequences end to end as an array [sequences, longest, *shape] with zeros in the padding, where the data are."""
    longest = int(lengths.max(initial=0))
    there = np.arange(longest)[None, :] < lengths[:, None]
    if isinstance(data, np.ndarray):
        made = np.zeros((*there.shape, *data.shape[1:]), data.dtype)
        made[there] = data
        return made
    where = np.zeros(there.shape, np.int32)
    where[there] = np.arange(len(data))
    with double_precision(data.dtype == np.float64):
        return jnp.where(there.reshape(*there.shape, *(1,) * (data.ndim - 1)), data[where], jnp.zeros((), data.dtype))


def device_array(data: Any, device: jax.Device | None = None) -> jax.Array:
    """An array as one of jax, on the device where it is, or on another one."""
    with double_precision(data.dtype == np.float64):
        return jnp.asarray(data) if device is None else jax.device_put(data, device)


def platform_of(data: Any) -> tuple[str, int]:
    """Where an array is: the platform and the number of the device there."""
    if not isinstance(data, jax.Array):
        return "cpu", 0
    device = next(iter(data.devices()))
    return device.platform, jax.local_devices(backend=device.platform).index(device)


__all__ = ["device_array", "end_to_end", "padded", "platform_of"]
