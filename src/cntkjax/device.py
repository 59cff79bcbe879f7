"""Devices for computation: the CPU, and the accelerators that JAX finds, which CNTK calls GPUs.

>>> try_set_default_device(cpu())
True
>>> use_default_device()
CPU
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from ._user_code import call_stack
from .engine.xla import devices as _devices
from .graph.annotations import EXACT
from .graph.arguments import public
from .graph.settings import Settings

if TYPE_CHECKING:
    import jax

__all__ = ["DeviceDescriptor", "DeviceKind", "all_devices", "cpu", "get_gpu_properties", "gpu", "set_excluded_devices",
           "set_matmul_precision", "try_set_default_device", "use_all_devices", "use_default_device"]


@public
class DeviceKind(IntEnum):
    """The kind of device that a ``DeviceDescriptor`` describes.

    >>> DeviceKind.CPU
    <DeviceKind.CPU: 0>
    """

    CPU = 0
    GPU = 1

    def __str__(self) -> str:
        return f"DeviceKind.{self.name}"


@public
@dataclass(frozen=True)
class DeviceDescriptor:
    """A device, returned by ``cpu()``, ``gpu()`` and ``all_devices()``; equal to others of the same kind and number.

    >>> cpu() == cpu(), cpu().id()
    (True, 0)
    """

    _kind: DeviceKind
    _id: int

    def id(self) -> int:
        """The number of the device among those of its kind."""
        return self._id

    def type(self) -> int:
        """CNTK's number of the kind of device."""
        return int(self._kind)

    def is_locked(self) -> bool:
        """Whether another process has locked the device (see ``try_set_default_device``); always False for the CPU."""
        return self._kind is DeviceKind.GPU and _devices.lock(self._id).held_by_another()

    def as_string(self) -> str:
        """The printed form of the device."""
        return repr(self)

    def __repr__(self) -> str:
        if self._kind is DeviceKind.CPU:
            return "CPU"
        return f"GPU[{self._id}] {jax_device(self).device_kind}"


Device: TypeAlias = DeviceDescriptor | None  # None: the default device


@public
def cpu() -> DeviceDescriptor:
    """The CPU.

    >>> cpu()
    CPU
    """
    return DeviceDescriptor(DeviceKind.CPU, 0)


@public
def gpu(device_id: int) -> DeviceDescriptor:
    """The accelerator with this number.

    Errors: ValueError if JAX finds no such device; OverflowError for a negative number, TypeError for a non-integer.

    >>> accelerators = all_devices()[:-1]
    >>> [gpu(i) for i in range(len(accelerators))] == list(accelerators)
    True
    """
    if not isinstance(device_id, int):
        raise TypeError(f"gpu() needs the number of a device, got {device_id!r}")
    if device_id < 0:
        raise OverflowError(f"gpu({device_id}): device numbers start at 0")
    count = len(_devices.accelerators())
    if device_id >= count:
        fix = "" if count else '; for an NVIDIA GPU: pip install "jax[cuda12]"'
        raise ValueError(
            f"Specified GPU device id ({device_id}) is invalid: JAX finds {count} accelerator(s){fix}{call_stack()}"
        )
    return DeviceDescriptor(DeviceKind.GPU, device_id)


@public
def all_devices() -> tuple[DeviceDescriptor, ...]:
    """All devices of this process: first the accelerators by number, then the CPU.

    >>> all_devices()[-1]
    CPU
    """
    return (*(DeviceDescriptor(DeviceKind.GPU, i) for i in range(len(_devices.accelerators()))), cpu())


class _Choice:
    """The process-wide default device and the excluded devices."""

    default: DeviceDescriptor | None = None
    excluded: frozenset[DeviceDescriptor] = frozenset()


@public
def try_set_default_device(new_default_device: DeviceDescriptor, acquire_device_lock: bool = False) -> bool:
    """Set the default device, also for JAX's own computations; False if it is excluded or locked by another process.

    Args:
        acquire_device_lock: lock the device until another one becomes the default. The lock is advisory: only processes
            that use this package respect it. The CPU cannot be locked; as in CNTK, the result is False then.

    Errors: TypeError for anything but a device, ValueError for None.

    >>> try_set_default_device(cpu())
    True
    """
    _check(new_default_device, "try_set_default_device")
    device = new_default_device
    if acquire_device_lock and device == cpu():
        return False
    if device != _Choice.default and (device in _Choice.excluded or device.is_locked()):
        return False
    if acquire_device_lock and not _devices.lock(device.id()).acquire():
        return False
    if _Choice.default not in (None, cpu(), device):
        _devices.lock(_Choice.default.id()).release()
    _choose(device)
    return True


def _choose(device: DeviceDescriptor) -> None:
    _Choice.default = device
    _devices.compute_on(jax_device(device))


def _check(device: object, function: str) -> None:
    if device is None:
        raise ValueError(f"{function}() needs a device such as cpu() or gpu(0), not None")
    if not isinstance(device, DeviceDescriptor):
        raise TypeError(f"{function}() needs a device such as cpu() or gpu(0), not {device!r}")


@public
def use_default_device() -> DeviceDescriptor:
    """The default device: the one set last, otherwise the first accelerator that is neither excluded nor locked by
    another process, otherwise the CPU.

    Errors: RuntimeError if every device is excluded or locked.

    >>> use_default_device() in all_devices()
    True
    """
    if _Choice.default is None:
        _choose(_first_eligible())
    assert _Choice.default is not None
    return _Choice.default


def _first_eligible() -> DeviceDescriptor:
    for device in all_devices():
        if device not in _Choice.excluded and not device.is_locked():
            return device
    raise RuntimeError("Device selection: every device is excluded or locked; see set_excluded_devices()")


@public
def use_all_devices(use: bool = True) -> int:
    """Train on all devices of this process at once; returns how many there are.

    Each training step divides its minibatch, by samples or sequences, into one share for each device; gradients are
    summed, so learners do what they do on one device, with the same numbers up to rounding. Batch normalization uses
    the statistics of the whole minibatch, and dropout the masks that one device would use. Minibatches that cannot be
    divided are computed on one device: those with fewer samples than devices, pieces of sequences, models with user
    functions or operations along the batch axis, and steps that return further outputs. Evaluations use one device.

    The devices are all accelerators, or, without any, JAX's CPU devices (``jax_num_cpu_devices``). CNTK 2.7 has no such
    function: there, as with ``cntk.distributed`` here, each device has a process of its own.

    Args:
        use: False trains on the default device again.

    >>> use_all_devices()
    1
    >>> use_all_devices(False)
    1
    """
    devices = _devices.accelerators() or _devices.hosts()
    _devices.train_on(devices if use and len(devices) > 1 else ())
    return len(devices) if use else 1


@public
def set_excluded_devices(excluded_devices: Iterable[DeviceDescriptor] | DeviceDescriptor) -> None:
    """Exclude devices from the selection of the default device; a default device that is already set is kept.

    Errors: TypeError for anything but a device, ValueError for None.

    >>> set_excluded_devices([])
    """
    listed = [excluded_devices] if isinstance(excluded_devices, DeviceDescriptor) else excluded_devices
    if listed is None:
        raise ValueError("set_excluded_devices() needs a list of devices, not None: pass [] to exclude none")
    excluded = frozenset(listed)
    for device in excluded:
        _check(device, "set_excluded_devices")
    _Choice.excluded = excluded
    if _Choice.default is None and not excluded.issuperset(all_devices()):
        _devices.compute_on(jax_device(_first_eligible()))


@public
def get_gpu_properties(device: DeviceDescriptor) -> SimpleNamespace:
    """Properties of an accelerator: ``device_id``, ``name``, ``total_memory`` and ``version_major``/``version_minor``.

    Units: ``total_memory`` is the memory that JAX may use, in MiB; the version is CUDA's compute capability, or 0.0.

    Errors: ValueError for the CPU, TypeError for anything but a device.

    >>> accelerators = all_devices()[:-1]
    >>> [get_gpu_properties(device).device_id for device in accelerators] == list(range(len(accelerators)))
    True
    """
    _check(device, "get_gpu_properties")
    if device == cpu():
        raise ValueError("GPU properties cannot be obtained for a CPU device: pass gpu(0), for example.")
    jax_gpu = jax_device(device)
    major, minor = str(getattr(jax_gpu, "compute_capability", "0.0")).split(".")
    return SimpleNamespace(device_id=device.id(), name=jax_gpu.device_kind, version_major=int(major),
                           version_minor=int(minor), total_memory=_devices.memory_bytes(jax_gpu) >> 20)


_PRECISIONS = {"float32": "float32", "tf32": "tensorfloat32"}


@public
def set_matmul_precision(precision: str) -> None:
    """Set the precision of float32 products and convolutions on GPUs, for programs that are compiled from now on.

    ``"float32"``, the default, gives the same numbers as a CPU up to rounding. ``"tf32"`` rounds the operands to 10
    bits of mantissa on NVIDIA GPUs since Ampere, which is several times as fast and changes results in the third or
    fourth digit. The environment variable ``CNTKJAX_MATMUL_PRECISION`` sets it too. On a CPU it has no effect. For
    bfloat16 see ``Trainer(precision=)``. CNTK 2.7 has no such function; it computes in float32.

    Errors: ValueError for another precision.

    >>> import cntkjax as C
    >>> C.device.set_matmul_precision("float32")
    """
    if precision not in _PRECISIONS:
        raise ValueError(f"set_matmul_precision: {precision!r} is none of {', '.join(map(repr, _PRECISIONS))}")
    Settings.matmul_precision = _PRECISIONS[precision]


if "CNTKJAX_MATMUL_PRECISION" in os.environ:
    set_matmul_precision(os.environ["CNTKJAX_MATMUL_PRECISION"])


def jax_device(device: DeviceDescriptor | None = None) -> jax.Device:
    """The JAX device of a descriptor; the default device for None.

    >>> jax_device(cpu()).platform
    'cpu'
    """
    device = device or use_default_device()
    return _devices.host() if device == cpu() else _devices.accelerators()[device.id()]


# The same functions under the names that CNTK's C++ module has for them.
_CPP: dict[str, Callable[..., Any]] = {
    "all_devices": all_devices, "cpu_device": cpu, "gpu_device": gpu, "use_default_device": use_default_device,
    "try_set_default_device": try_set_default_device, "set_excluded_devices": set_excluded_devices,
    "get_gpu_properties": get_gpu_properties,
}
for _name, _function in _CPP.items():
    setattr(DeviceDescriptor, _name, staticmethod(_function))


EXACT.add(DeviceDescriptor)
