"""The devices that JAX sees. JAX is imported on first use, so that ``cntkjax.device`` loads fast."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows, where JAX sees no accelerators
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import jax


@lru_cache(maxsize=1)
def accelerators() -> tuple[jax.Device, ...]:
    """This process's devices other than CPUs, in JAX's order; CNTK's ``gpu(i)`` is the i-th."""
    import jax

    return tuple(d for d in jax.local_devices() if d.platform != "cpu")


@lru_cache(maxsize=1)
def host() -> jax.Device:
    """The CPU, which JAX always has."""
    import jax

    return jax.local_devices(backend="cpu")[0]


def memory_bytes(device: jax.Device) -> int:
    """The number of bytes that JAX may use on the device; 0 where the platform does not report it."""
    return int((device.memory_stats() or {}).get("bytes_limit", 0))


def compute_on(device: jax.Device) -> None:
    """Make it JAX's default device, unless it is that anyway."""
    import jax

    default = next(iter(accelerators()), host())
    jax.config.update("jax_default_device", None if device is default else device)


class Lock:
    """A lock on an accelerator against other processes of this package; it ends with the process."""

    def __init__(self, number: int) -> None:
        self._path = os.path.join(tempfile.gettempdir(), f"cntkjax-gpu{number}.lock")
        self._file: int | None = None  # its descriptor

    def acquire(self) -> bool:
        """Lock it unless another process has; True if this process holds the lock."""
        if self._file is not None or fcntl is None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT)
        with suppress(PermissionError):  # the file is another user's, who has set its mode
            os.chmod(self._path, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Unlock it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def held_by_another(self) -> bool:
        """True if another process holds the lock."""
        if self._file is not None:
            return False
        free = self.acquire()
        self.release()
        return not free


@cache
def lock(number: int) -> Lock:
    """The lock on the accelerator with this number."""
    return Lock(number)
