"""Workers of this machine that are stopped before all have met: no message can tell, but Linux does."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .channel import BEAT, silence_limit
from .environment import RANKS

_PROCESSES = Path("/proc")


@contextmanager
def watched(on_stopped: Callable[[str], object]) -> Iterator[None]:
    """Watch the workers that the same launcher has started, until the block ends; only on Linux.

    `on_stopped(text)`: called once, in a thread of its own, when one has been stopped for a third of `silence_limit`;
    `text` names it.
    """
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(done, on_stopped), name="cntkjax-siblings", daemon=True)
    if _PROCESSES.is_dir() and any(name in os.environ for name in RANKS):
        watcher.start()
    try:
        yield
    finally:
        done.set()


def _watch(done: threading.Event, on_stopped: Callable[[str], object]) -> None:
    beats: Counter[int] = Counter()  # counted, so that pausing all workers is no failure
    limit = silence_limit() // 3  # it is known to be stopped, and this process has only begun to look
    while not done.wait(BEAT):
        stopped = {process: rank for process, rank, state in workers_of(os.getppid()) if state == "T"}
        beats = Counter({process: beats[process] + 1 for process in stopped})
        for process, count in beats.items():
            if count * BEAT > limit:
                text = f"worker {stopped[process]} (process {process}) has been stopped for {limit} s"
                on_stopped(f"{text}, before all workers had started")
                return


def workers_of(parent: int) -> Iterator[tuple[int, int, str]]:
    """The processes, ranks and states of the workers that this parent has started; "T" is a stopped one's state."""
    for folder in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError, ValueError):  # it has ended, or belongs to another user
            state, its_parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(its_parent) == parent:
                variables = dict(v.split("=", 1) for v in (folder / "environ").read_text().split("\0") if "=" in v)
                rank = next((variables[name] for name in RANKS if name in variables), None)
                if rank is not None:
                    yield int(folder.name), int(rank), state


__all__ = ["watched", "workers_of"]
