"""The devices that JAX sees. JAX is imported on first use, so that ``cntkjax.device`` loads fast."""

from __future__ import annotations

import os
import platform
import stat
import tempfile
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from pathlib import Path
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


def first() -> jax.Device:
    """The device that JAX computes on unless it is told otherwise; `JAX_PLATFORMS=cuda` leaves it no CPU."""
    return accelerators()[0] if accelerators() else host()


def host() -> jax.Device:
    """The CPU."""
    return hosts()[0]


@lru_cache(maxsize=1)
def hosts() -> tuple[jax.Device, ...]:
    """The CPU, as one device or as several, each with its share of the cores."""
    import jax

    return tuple(jax.local_devices(backend="cpu"))


def default_device() -> jax.Device:
    """The device for which programs are compiled."""
    import jax

    return getattr(jax.config, "jax_default_device", None) or first()


_training: tuple[jax.Device, ...] = ()


def train_on(devices: tuple[jax.Device, ...]) -> None:
    """Divide the minibatches of training steps between these devices; () for the default device alone."""
    global _training
    _training = devices


def training_devices() -> tuple[jax.Device, ...]:
    """The devices between which a training step divides its minibatch."""
    return _training or (default_device(),)


def memory_bytes(device: jax.Device) -> int:
    """The number of bytes that JAX may use on the device; 0 where the platform does not report it."""
    return int((device.memory_stats() or {}).get("bytes_limit", 0))


def compute_on(device: jax.Device) -> None:
    """Make it JAX's default device, unless it is that anyway."""
    import jax

    jax.config.update("jax_default_device", None if device is first() else device)


class Lock:
    """A lock on an accelerator of this machine against the same user's other processes; it ends with the process."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._file: int | None = None  # its descriptor

    @cached_property
    def _path(self) -> str:
        """The file to lock. Folders of users may be shared by several machines, so it is named after this one."""
        return os.path.join(_lock_folder(), f"{platform.node()}-gpu{self._number}.lock")

    def acquire(self) -> bool:
        """Lock it unless another process has; True if this process holds the lock.

        Errors: OSError if there is no folder for the file, or the file is a link or cannot be locked.
        """
        if self._file is not None or fcntl is None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        except BaseException:
            os.close(file)
            raise
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


def _lock_folder() -> str:
    """A directory that only this user can write to: in the user's cache, otherwise in the temporary directory.

    The user's runtime directory is no option: it is removed at logout, while jobs may still be running.
    """
    folders = Path.home() / ".cache" / "cntkjax" / "locks", Path(tempfile.gettempdir()) / f"cntkjax-{os.geteuid()}"
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = folder.lstat()
            is_private = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022
            if is_private and os.access(folder, os.W_OK):
                return str(folder)
    raise PermissionError(
        f"an accelerator cannot be locked: neither {folders[0]} nor {folders[1]} is a folder that this user can write "
        "to and nobody else; create one of them with mode 700"
    )


@cache
def lock(number: int) -> Lock:
    """The lock on the accelerator with this number."""
    return Lock(number)
