"""What a process has compiled, and loaded from earlier ones: a record, and messages while users wait."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..._terminal import is_interactive

PATIENCE = 2.0
"""Units: seconds that users wait without being told for what."""

_BEGIN = time.monotonic()


class Compilation(NamedTuple):
    """A program that became ready to run.

    `stored`: an earlier process had compiled it. `background`: the training did not wait. Units: seconds.
    """

    text: str
    seconds: float
    stored: bool
    background: bool

    def __str__(self) -> str:
        return f"{self.text}: {'loaded' if self.stored else 'compiled'}{' in the background' * self.background}"


class CompilationReport(NamedTuple):
    """How much of the time of this process was compilation.

    Units: seconds. `elapsed` counts from the import of this package; `waited`: those of it in which programs were
    compiled or loaded while nothing else ran. `background`: those that were spent beside other work.
    """

    compiled: int
    loaded: int
    waited: float
    background: float
    elapsed: float
    programs: tuple[Compilation, ...]

    def __str__(self) -> str:
        share = self.waited / max(self.elapsed, 1e-9)
        return "\n".join([
            f"{self.compiled} programs were compiled, and {self.loaded} loaded that an earlier process had compiled;",
            f"{self.waited:.1f} of {self.elapsed:.1f} s ({share:.0%}) were waits for them.",
            *([f"Another {self.background:.1f} s were spent in the background."] if self.background else []),
            *(f"  {p.seconds:6.2f} s  {p}" for p in sorted(self.programs, key=lambda p: -p.seconds)),
        ])


_compilations: list[Compilation] = []


def record(compilation: Compilation) -> None:
    """Add to the report."""
    _compilations.append(compilation)


def report() -> CompilationReport:
    """What was compiled until now."""
    programs = tuple(_compilations)
    stored = sum(p.stored for p in programs)
    waited = sum(p.seconds for p in programs if not p.background)
    background = sum(p.seconds for p in programs if p.background)
    return CompilationReport(
        len(programs) - stored, stored, waited, background, time.monotonic() - _BEGIN, programs
    )


@contextmanager
def announced(text: str) -> Iterator[None]:
    """A scope that tells an interactive user what is compiled, if it takes long."""
    if not is_interactive():
        yield
        return
    timer = threading.Timer(PATIENCE, _say, [f"compiling {text} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(line: str) -> None:
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""  # a progress bar may be there
    print(f"{clear}{line}", file=sys.stderr, flush=True)


__all__ = ["Compilation", "CompilationReport", "announced", "record", "report"]
