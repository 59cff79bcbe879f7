"""Data that stay on the device when they are passed from one program to the next, and to other libraries."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import AnyArray
from ..xla.versions import double_precision
from .dimensions import expand_to
from .ragged import Ragged, SparseRows, ranges
from .sparse import Sparse


def ragged_from_grid(
    data: AnyArray | Sparse, count: int, layout: tuple[AnyArray, AnyArray, AnyArray] | None
) -> Ragged:
    """An output with dynamic axes of a program, in the form in which it can be fed again: where it is, unless sparse.

    Shapes: data [batch, *shape], or with a layout (row, start, length) [time, rows, *shape]; padding is removed.
    """
    if isinstance(data, Sparse):
        ragged = ragged_from_grid(data.todense(), count, layout)
        dense = np.asarray(ragged.data)
        return Ragged(SparseRows.from_dense(dense.reshape(len(dense), -1)), ragged.lengths)
    with double_precision(data.dtype == np.float64):
        if layout is None:
            samples = data if len(data) == count else host_view(data)[:count]
            return Ragged(samples, None)  # type: ignore[arg-type]  # on the device
        row, start, length = (np.asarray(a)[:count] for a in layout)
        samples = host_view(data)[ranges(start, length), np.repeat(row, length)]
        return Ragged(samples, length.astype(np.int32))  # type: ignore[arg-type]  # on the device


def pad_sequences(data: AnyArray, lengths: np.ndarray, steps: int = 0) -> AnyArray:
    """Concatenated sequences as one array with zeros in the padding, on the host or device where the data are.

    Shapes: data [samples, *shape], lengths [sequences] -> [sequences, longest, *shape], at least `steps` long.
    """
    longest = int(lengths.max(initial=steps))
    mask = np.arange(longest)[None, :] < lengths[:, None]
    data = host_view(data)
    if isinstance(data, np.ndarray):
        padded = np.zeros((*mask.shape, *data.shape[1:]), data.dtype)
        padded[mask] = data
        return padded
    index = np.zeros(mask.shape, np.int32)
    index[mask] = np.arange(len(data))
    with double_precision(data.dtype == np.float64):
        return jnp.where(expand_to(mask, data.ndim + 1), data[index], jnp.zeros((), data.dtype))


def device_array(data: AnyArray, device: jax.Device | None = None) -> jax.Array:
    """An array as a JAX array, on the device where it is, or on another one."""
    with double_precision(data.dtype == np.float64):
        return jnp.asarray(data) if device is None else jax.device_put(data, device)


def host_view(data: AnyArray) -> AnyArray:
    """An array of the first CPU as a NumPy array in the same memory, any other as it is.

    Elements are selected from a JAX array by a program, which is compiled for each new size.
    """
    return np.asarray(data) if platform_of(data) == ("cpu", 0) else data


def platform_of(data: AnyArray) -> tuple[str, int]:
    """The platform of the device that holds an array, and the number of the device there."""
    if not isinstance(data, jax.Array):
        return "cpu", 0
    device = next(iter(data.devices()))
    return device.platform, jax.local_devices(backend=device.platform).index(device)


__all__ = ["device_array", "host_view", "pad_sequences", "platform_of", "ragged_from_grid"]
