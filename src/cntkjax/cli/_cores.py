"""Which cores the workers of a host compute on, as mpiexec chooses them.

Each has a thread for each of its cores. Threads for all cores in every worker take turns on them: two workers of two
cores then need 1.05 (FCN5) to 1.25 times (a small AlexNet) as long for a minibatch.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")


def shares(workers: int) -> list[set[int]]:
    """The cores of each worker, of those of this process; all of them where there are fewer cores than workers."""
    cores = _in_order(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < workers:
        return [set(cores)] * workers
    bounds = [i * len(cores) // workers for i in range(workers + 1)]
    return [set(cores[begin:end]) for begin, end in pairwise(bounds)]


def compute_on(cores: Collection[int]) -> None:
    """Let this process compute on these cores only; without any, on all."""
    if cores:
        os.sched_setaffinity(0, cores)


def _in_order(cores: Collection[int]) -> list[int]:
    """With the cores of one processor, and the threads of one core, side by side."""
    return sorted(cores, key=lambda core: (_number(core, "physical_package_id"), _number(core, "core_id"), core))


def _number(core: int, name: str) -> int:
    with suppress(OSError, ValueError):
        return int((_TOPOLOGY / f"cpu{core}" / "topology" / name).read_text())
    return 0


__all__ = ["compute_on", "shares"]
