"""Where computation runs: the CPU, or an accelerator that JAX sees, which CNTK calls a GPU.

Example:
    >>> try_set_default_device(cpu())
    True
    >>> use_default_device()
    CPU
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING

from cntkjax.engine import _devices

if TYPE_CHECKING:
    import jax

__all__ = ["DeviceDescriptor", "DeviceKind", "all_devices", "cpu", "get_gpu_properties", "gpu", "set_excluded_devices",
           "try_set_default_device", "use_default_device"]


class DeviceKind(IntEnum):
    """What a ``DeviceDescriptor`` describes.

    Example:
        >>> DeviceKind.CPU
        <DeviceKind.CPU: 0>
    """

    CPU = 0
    GPU = 1

    def __str__(self) -> str:
        return f"DeviceKind.{self.name}"


@dataclass(frozen=True)
class DeviceDescriptor:
    """A device; made by ``cpu()``, ``gpu()`` and ``all_devices()``, and equal where kind and number are.

    Example:
        >>> cpu() == cpu(), cpu().id()
        (True, 0)
    """

    _kind: DeviceKind
    _id: int

    def id(self) -> int:
        """Its number among the devices of its kind."""
        return self._id

    def type(self) -> DeviceKind:
        """Its kind, which equals CNTK's number for it."""
        return self._kind

    def is_locked(self) -> bool:
        """Whether another process reserved it: never, as JAX leaves that to the driver."""
        return False

    def __repr__(self) -> str:
        if self._kind is DeviceKind.CPU:
            return "CPU"
        return f"GPU[{self._id}] {jax_device(self).device_kind}"


def cpu() -> DeviceDescriptor:
    """The CPU.

    Example:
        >>> cpu()
        CPU
    """
    return DeviceDescriptor(DeviceKind.CPU, 0)


def gpu(device_id: int) -> DeviceDescriptor:
    """The accelerator with this number.

    Errors: ValueError if JAX sees no such device.

    Example:
        >>> accelerators = all_devices()[:-1]
        >>> [gpu(i) for i in range(len(accelerators))] == list(accelerators)
        True
    """
    found = len(_devices.accelerators())
    if not 0 <= device_id < found:
        mend = "" if found else '; for an NVIDIA GPU: pip install "jax[cuda12]"'
        raise ValueError(f"Specified GPU device id ({device_id}) is invalid: JAX sees {found} accelerator(s){mend}")
    return DeviceDescriptor(DeviceKind.GPU, device_id)


def all_devices() -> tuple[DeviceDescriptor, ...]:
    """All devices of this process: the accelerators by number, then the CPU.

    Example:
        >>> all_devices()[-1]
        CPU
    """
    return (*(DeviceDescriptor(DeviceKind.GPU, i) for i in range(len(_devices.accelerators()))), cpu())


class _Choice:
    """The process-wide choice of a device."""

    default: DeviceDescriptor | None = None
    excluded: frozenset[DeviceDescriptor] = frozenset()


def try_set_default_device(new_default_device: DeviceDescriptor, acquire_device_lock: bool = False) -> bool:
    """Make the device the one that computes from now on, unless told otherwise; False if it cannot be.

    Args:
        acquire_device_lock: reserve the device against other processes. False is the answer for the CPU, as in CNTK;
            for an accelerator the reservation is JAX's own (it takes most of the memory), so nothing more is done.

    Example:
        >>> try_set_default_device(cpu())
        True
    """
    if not isinstance(new_default_device, DeviceDescriptor):
        raise TypeError(f"try_set_default_device() needs a device such as cpu() or gpu(0), not {new_default_device!r}")
    if new_default_device in _Choice.excluded or (acquire_device_lock and new_default_device == cpu()):
        return False
    _Choice.default = new_default_device
    return True


def use_default_device() -> DeviceDescriptor:
    """The device that computes: the one last set, else the first accelerator that is not excluded, else the CPU.

    Errors: RuntimeError if every device is excluded.

    Example:
        >>> use_default_device() in all_devices()
        True
    """
    if _Choice.default is None:
        eligible = [device for device in all_devices() if device not in _Choice.excluded]
        if not eligible:
            raise RuntimeError("Device selection: every device is excluded; see set_excluded_devices()")
        _Choice.default = eligible[0]
    return _Choice.default


def set_excluded_devices(excluded_devices: Iterable[DeviceDescriptor]) -> None:
    """Never choose these devices by default. A default that is already set stays.

    Example:
        >>> set_excluded_devices([])
    """
    _Choice.excluded = frozenset(excluded_devices)


def get_gpu_properties(device: DeviceDescriptor) -> SimpleNamespace:
    """Properties of an accelerator: ``device_id``, ``name``, ``total_memory`` and ``version_major``/``version_minor``.

    Units: ``total_memory`` is in MB, and is what JAX may use; the version is CUDA's compute capability, 0.0 elsewhere.

    Errors: ValueError for the CPU.

    Example:
        >>> accelerators = all_devices()[:-1]
        >>> [get_gpu_properties(device).device_id for device in accelerators] == list(range(len(accelerators)))
        True
    """
    if device == cpu():
        raise ValueError("GPU properties cannot be obtained for a CPU device.")
    found = jax_device(device)
    major, minor = str(getattr(found, "compute_capability", "0.0")).split(".")
    return SimpleNamespace(device_id=device.id(), name=found.device_kind, version_major=int(major),
                           version_minor=int(minor), total_memory=_devices.memory_bytes(found) >> 20)


def jax_device(device: DeviceDescriptor | None = None) -> jax.Device:
    """The JAX device behind a descriptor; the default device for None.

    Example:
        >>> jax_device(cpu()).platform
        'cpu'
    """
    device = device or use_default_device()
    return _devices.host() if device == cpu() else _devices.accelerators()[device.id()]
