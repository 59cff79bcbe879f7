"""What a compiled program depends on besides its graph and inputs: versions, sources, device and options."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

import jax

from ..._threads import cores
from .descriptions import digest
from .devices import default_device
from .platform import Lowering, lowering
from .versions import options

_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "OMP_NUM_THREADS")
# Parts of the names of options of jax that do not change what is computed.
_IRRELEVANT = (
    "address", "cache", "device", "dump", "explain", "log", "pprint", "timeout", "traceback", "transfer_guard",
)


def environment() -> str:
    """A text that is equal in processes, and scopes of jax's options, that compile a program to the same code."""
    values = options()
    names = _relevant(tuple(values))
    chosen = tuple(str(getattr(jax.config, name, values[name])) for name in names)
    return _digest_of(default_device(), lowering(), names, chosen)


def device_and_versions() -> str:
    """A digest of the device for which programs are compiled, of its driver, and of the versions of jax and XLA."""
    return _of_device(default_device())


@cache
def _relevant(names: tuple[str, ...]) -> tuple[str, ...]:
    """The options of jax that change what is computed."""
    return tuple(name for name in sorted(names) if not any(part in name for part in _IRRELEVANT))


@lru_cache(64)
def _digest_of(device: jax.Device, choices: Lowering, names: tuple[str, ...], options: tuple[str, ...]) -> str:
    return digest(_of_device(device), asdict(choices), names, options)


@cache
def _of_device(device: jax.Device) -> str:
    versions = [(name, metadata.version(name)) for name in ("jax", "jaxlib")]
    variables = [(name, os.environ.get(name)) for name in _VARIABLES]
    processor = list(_processor()) if device.platform == "cpu" else []
    driver = getattr(getattr(device, "client", None), "platform_version", None)
    return digest(versions, variables, device.platform, device.device_kind, driver, processor)


def _processor() -> Iterator[object]:
    """The CPU's model and features, and how many of them there are, which decides on how loops are split."""
    yield platform.machine()
    yield cores()
    with suppress(OSError):  # there is no such file outside of Linux
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        yield from sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})


@cache
def code() -> str:
    """A text that changes with the Python code which makes programs of graphs: this package's, and that of others."""
    versions = [(name, metadata.version(name)) for name in ("jax", "numpy", "optax")]
    return digest(versions, platform.python_version(), list(_sources()))


def _sources() -> Iterator[tuple[str, int, int]]:
    """Names, sizes and times of this package's modules."""
    package = Path(__file__).parents[2]
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        inside = os.path.relpath(folder, package)
        for name in sorted(files):
            if name.endswith(".py"):
                info = os.stat(os.path.join(folder, name))
                yield os.path.join(inside, name), info.st_size, info.st_mtime_ns


__all__ = ["code", "device_and_versions", "environment"]
