"""Workers of this machine that are stopped or end before all have met: no message can tell, but Linux does."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from .._threads import start_thread
from .channel import BEAT, silence_limit
from .environment import RANKS

_PROCESSES = Path("/proc")
_JOB = "CNTKJAX_COORDINATOR"  # other launchers are a parent of their own


@contextmanager
def watched(on_failure: Callable[[str], object]) -> Iterator[None]:
    """Watch the workers that the same launcher has started, until the block ends; only on Linux.

    `on_failure(text)`: called once, in a thread of its own, when one has been stopped, or gone, for a third of
    `silence_limit`; `text` names it.
    """
    done = threading.Event()
    if _PROCESSES.is_dir() and any(name in os.environ for name in RANKS):
        start_thread(partial(_watch, done, on_failure), "cntkjax-siblings")
    try:
        yield
    finally:
        done.set()


def _watch(done: threading.Event, on_failure: Callable[[str], object]) -> None:
    known: dict[int, int] = {}  # ranks, by process
    beats: Counter[int] = Counter()  # counted, so that pausing all workers is no failure
    limit = silence_limit() // 3  # it is known to be stopped, and this process has only begun to look
    while not done.wait(BEAT):
        states = {process: (rank, state) for process, rank, state in workers_of(os.getppid())}
        known |= {process: rank for process, (rank, _) in states.items()}
        failing = [process for process in known if process not in states or states[process][1] == "T"]
        beats = Counter({process: beats[process] + 1 for process in failing})
        for process, count in beats.items():
            if count * BEAT > limit:
                what = f"has been stopped for {limit} s" if process in states else "has ended"
                on_failure(f"worker {known[process]} (process {process}) {what}, before all workers had started")
                return


def end_stopped() -> None:
    """Kill the workers of this machine that are stopped, before this process ends: a launcher may wait for them."""
    for process, _, state in workers_of(os.getppid()):
        if state == "T":
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)


def workers_of(parent: int) -> Iterator[tuple[int, int, str]]:
    """The processes, ranks and states of this job's workers that this parent has started; "T" is a stopped one's."""
    for folder in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError, ValueError):  # it has ended, or belongs to another user
            state, its_parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(its_parent) == parent:
                variables = dict(v.split("=", 1) for v in (folder / "environ").read_text().split("\0") if "=" in v)
                rank = next((variables[name] for name in RANKS if name in variables), None)
                if rank is not None and variables.get(_JOB) == os.environ.get(_JOB):
                    yield int(folder.name), int(rank), state


__all__ = ["end_stopped", "watched", "workers_of"]
