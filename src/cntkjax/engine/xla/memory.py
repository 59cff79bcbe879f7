"""What a program takes of a device's memory, and the error where that is not enough."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import jax

from ...graph.errors import OutOfMemoryError, explain


class Needs(NamedTuple):
    """What a program takes. Units: bytes.

    `inputs`: parameters, states of learners and data; `outputs`: those that take no input's place; `temporary`: values
    in between, of which most are kept for the backward pass.
    """

    inputs: int
    outputs: int
    temporary: int


class MemoryNeeds(NamedTuple):
    """Units: bytes; 0 where it is not known."""

    free: int
    total: int


def needs(compiled: jax.stages.Compiled) -> Needs | None:
    """What an executable takes; None where its backend does not say."""
    with suppress(NotImplementedError, AttributeError, jax.errors.JaxRuntimeError):
        if (m := compiled.memory_analysis()) is not None:
            outputs = max(0, m.output_size_in_bytes - m.alias_size_in_bytes)
            return Needs(m.argument_size_in_bytes, outputs, m.temp_size_in_bytes)
    return None


def memory(device: jax.Device) -> MemoryNeeds:
    """What a device has."""
    if device.platform == "cpu":
        return _host_memory()
    stats = device.memory_stats() or {}
    total = int(stats.get("bytes_limit", 0))
    return MemoryNeeds(total - int(stats.get("bytes_in_use", 0)), total)


def _host_memory() -> MemoryNeeds:
    """The memory of this machine, or of this process if it has a limit (`ulimit -v`, a container)."""
    if not sys.platform.startswith("linux"):
        return MemoryNeeds(0, 0)
    import resource  # not on Windows

    page = os.sysconf("SC_PAGE_SIZE")
    total, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    with suppress(OSError, ValueError):
        facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(facts["MemAvailable"].split()[0]) << 10  # includes what the system caches
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < total:
        used = page * int(Path("/proc/self/statm").read_text().split()[0])
        free, total = min(free, max(0, limit - used)), limit
    for group in _control_groups():
        with suppress(OSError, ValueError, KeyError):  # ValueError: the limit is "max", so there is none
            limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
            counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            used -= int(counts["inactive_file"])  # what the system caches, and gives up
            free, total = min(free, max(0, limit - used)), min(total, limit)
    return MemoryNeeds(free, total)


def _control_groups() -> list[Path]:
    """Those of Linux that this process belongs to, each with limits (version 2, as containers have them)."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = Path("/sys/fs/cgroup") / next(line[4:] for line in lines if line.startswith("0::/"))
        return [group for group in (own, *own.parents) if group.is_relative_to("/sys/fs/cgroup")]
    return []


def is_out_of_memory(error: Exception) -> bool:
    """Whether jax says that memory was not enough."""
    text = str(error)
    return isinstance(error, jax.errors.JaxRuntimeError) and ("RESOURCE_EXHAUSTED" in text or "Out of memory" in text)


def fits(takes: Needs | None, device: jax.Device) -> bool:
    """Whether a program may fit into what is free, beside its inputs, which are there."""
    has = memory(device)
    return takes is None or not has.total or takes.outputs + takes.temporary <= has.free


def out_of_memory(text: str, takes: Needs | None, device: jax.Device) -> OutOfMemoryError:
    """The error of a program that did not fit; `text`: what it computes."""
    has = memory(device)
    what = f"{text} does not fit into the memory of {device.device_kind}"
    if takes is not None:
        what += (
            f": it takes {_size(sum(takes))} ({_size(takes.inputs)} of parameters and other inputs, "
            f"{_size(takes.outputs)} of outputs, {_size(takes.temporary)} in between)"
        )
    if has.total:
        what += f"; {_size(has.free)} of {_size(has.total)} are free"
    return OutOfMemoryError(explain(
        what, fix="use smaller minibatches; in training C.Trainer(..., accumulate=n) sums the gradients of n of them, "
        "and rematerialize=True or precision='bfloat16' makes the values in between fewer or smaller",
    ))


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


__all__ = ["MemoryNeeds", "Needs", "fits", "is_out_of_memory", "memory", "needs", "out_of_memory"]
