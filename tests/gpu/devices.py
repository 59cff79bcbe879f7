"""Two devices: the CPU, and the one whose numbers are compared with the CPU's.

That is the GPU if JAX sees one. Otherwise the comparison is rehearsed on a CPU whose programs are lowered as for GPUs:
on a second virtual one if there is any (`JAX_NUM_CPU_DEVICES=2`), else on the only one. A rehearsal shows that
everything runs and that both lowerings agree, and nothing about a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import jax
import numpy as np

from cntkjax.engine.run.program_cache import programs
from cntkjax.engine.xla import devices
from cntkjax.engine.xla.platform import lowering_for
from cntkjax.graph.seed import reset_random_seed

RUNS_ALL = os.environ.get("CNTKJAX_TEST_GPU") == "all"
PART = 40  # otherwise one case of so many

# Largest differences, relative to the number and to the largest one of its array. On a GPU sums are in another order,
# and functions such as exp and tanh are others; products are in the precision of their type.
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2}


def part(cases: Sequence) -> list:
    """The cases to run: all with `make test-gpu`, otherwise some, which show that the comparison works."""
    return list(cases) if RUNS_ALL else list(cases)[::PART]


def is_rehearsal() -> bool:
    """Whether JAX sees no GPU."""
    return not devices.accelerators()


def other_device() -> jax.Device:
    """The device that is compared with the CPU."""
    return next(iter(devices.accelerators()), jax.local_devices(backend="cpu")[-1])


@contextmanager
def computing_on(device: jax.Device, as_gpu: bool) -> Iterator[None]:
    """A scope in which everything is computed on a device, compiled anew, with the random numbers of a new process."""
    before = jax.config.values["jax_default_device"]
    programs.clear()
    reset_random_seed()
    jax.config.update("jax_default_device", device)
    try:
        with lowering_for("gpu") if as_gpu else nullcontext():
            yield
    finally:
        jax.config.update("jax_default_device", before)
        programs.clear()


def on_cpu():
    """A scope in which everything is computed on the CPU."""
    return computing_on(devices.host(), as_gpu=False)


def on_other():
    """A scope in which everything is computed on the device that is compared with the CPU."""
    return computing_on(other_device(), as_gpu=True)


def check_alike(numbers: Callable[[], Sequence[np.ndarray]]) -> None:
    """Compare the numbers that a function computes on both devices. Errors: AssertionError if they differ."""
    with on_cpu():
        expected = [np.asarray(a) for a in numbers()]
    with on_other():
        actual = [np.asarray(a) for a in numbers()]
    assert_alike(actual, expected)


def assert_alike(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Errors: AssertionError if arrays differ in shape, type, or by more than the tolerance of the type."""
    for a, b in zip(actual, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        tolerance = TOLERANCES[b.dtype.name]
        largest = np.abs(b[np.isfinite(b)]).max(initial=1)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * largest)
