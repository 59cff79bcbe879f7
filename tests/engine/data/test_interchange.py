"""Data that are passed on: grids as sequences, sequences as one array, on the device where they are."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cntkjax.engine.data.interchange import device_array, host_view, pad_sequences, platform_of, ragged_from_grid
from cntkjax.engine.data.ragged import SparseRows
from cntkjax.engine.data.sparse import Sparse

GRID = jnp.arange(8.0).reshape(4, 2)
LAYOUT = tuple(np.array(a, np.int32) for a in ([1, 0, 1, 0], [2, 0, 0, 0], [2, 3, 1, 1]))  # the last one is padding


def test_sequences_come_out_of_a_grid_in_their_order():
    ragged = ragged_from_grid(GRID, 3, LAYOUT)
    assert ragged.lengths.tolist() == [2, 3, 1]
    assert ragged.data.tolist() == [5, 7, 0, 2, 4, 1]


@pytest.mark.parametrize("count", [2, 4])
def test_samples_lose_their_padding(count):
    ragged = ragged_from_grid(GRID, count, None)
    assert ragged.lengths is None and ragged.data.tolist() == GRID[:count].tolist()
    assert (ragged.data is GRID) == (count == 4)


def test_sparse_outputs_become_sparse_rows():
    samples = Sparse(jnp.array([2, 0, 1]), None, (3,), np.dtype(np.float32))
    ragged = ragged_from_grid(samples, 2, None)
    assert isinstance(ragged.data, SparseRows) and ragged.data.to_dense().tolist() == [[0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_jax", [False, True])
def test_shorter_sequences_are_padded_with_zeros(is_jax, dtype):
    data = np.arange(1, 9, dtype=dtype).reshape(4, 2)
    if is_jax:
        with jax.enable_x64(dtype == np.float64):
            data = jnp.asarray(data)
    padded = pad_sequences(data, np.array([1, 0, 3]))
    zero = [0, 0]
    assert padded.dtype == dtype and padded.tolist() == [[[1, 2], zero, zero], [zero] * 3, [[3, 4], [5, 6], [7, 8]]]


def test_arrays_of_the_first_cpu_are_numpy_arrays_in_the_same_memory():
    view = host_view(GRID)
    assert isinstance(view, np.ndarray) == (jax.default_backend() == "cpu")
    assert view is GRID or np.shares_memory(view, np.asarray(GRID))


def test_arrays_of_another_device_stay_there():
    script = """
import jax, jax.numpy as jnp, numpy as np
from cntkjax.engine.data.interchange import pad_sequences, ragged_from_grid
other = jax.devices("cpu")[1]
layout = tuple(np.array(a, np.int32) for a in ([1, 0, 1, 0], [2, 0, 0, 0], [2, 3, 1, 1]))
for dtype in np.float32, np.float64:
    with jax.enable_x64(True):
        grid = jax.device_put(np.arange(8, dtype=dtype).reshape(4, 2), other)
    ragged = ragged_from_grid(grid, 3, layout)
    padded, some = pad_sequences(ragged.data, ragged.lengths), ragged_from_grid(grid, 2, None).data
    assert all(a.devices() == {other} and a.dtype == dtype for a in (ragged.data, padded, some))
    assert ragged.data.tolist() == [5, 7, 0, 2, 4, 1] and some.tolist() == [[0, 1], [2, 3]]
    assert padded.tolist() == [[5, 7, 0], [0, 2, 4], [1, 0, 0]]
"""
    flags = {"PYTHONPATH": ":".join(sys.path), "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, "-c", script], check=True, env=flags | {"JAX_PLATFORMS": "cpu"})


def test_arrays_keep_double_precision_on_their_way_to_the_device():
    array = device_array(np.float64([1 / 3]))
    assert array.dtype == np.float64 and array.tolist() == [1 / 3]
    assert platform_of(array) == (jax.default_backend(), 0) and platform_of(np.ones(2)) == ("cpu", 0)
