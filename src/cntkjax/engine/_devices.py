"""The devices that JAX sees. JAX is imported at the first question, so that ``cntkjax.device`` loads fast."""
from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jax


@lru_cache(maxsize=1)
def accelerators() -> tuple[jax.Device, ...]:
    """This process's devices that are no CPU, in JAX's order; CNTK's ``gpu(i)`` is the i-th."""
    import jax

    return tuple(d for d in jax.local_devices() if d.platform != "cpu")


@lru_cache(maxsize=1)
def host() -> jax.Device:
    """The CPU, which JAX always has."""
    import jax

    return jax.local_devices(backend="cpu")[0]


def memory_bytes(device: jax.Device) -> int:
    """How many bytes JAX may use on the device; 0 where the platform does not tell."""
    return int((device.memory_stats() or {}).get("bytes_limit", 0))
