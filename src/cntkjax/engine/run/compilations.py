"""What a process has compiled, and loaded from earlier ones: a record, and messages while users wait."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from ... import _terminal

_BEGIN = time.monotonic()


class Compilation(NamedTuple):
    """A program that became ready to run.

    `stored`: an earlier process had compiled it. `background`: the training did not wait. `operations`: of its graph;
    0 if it has none. `line`: of the user's code that ran it first. `cost`: how long it took to compile, in this process
    or in that which stored it. Units: seconds.
    """

    text: str
    seconds: float
    stored: bool
    background: bool
    operations: int = 0
    line: str = ""
    cost: float = 0.0

    def __str__(self) -> str:
        return f"{self.text}: {'loaded' if self.stored else 'compiled'}{' in the background' * self.background}"


@dataclass(frozen=True)
class Subject:
    """What is compiled, as people who wait for it read it. `operations`: see `Compilation`."""

    text: str
    operations: int = 0

    @property
    def size(self) -> str:
        """How large the graph is, and how long one of about this size took to compile in this process."""
        n = self.operations
        similar = [c.cost for c in _compilations if c.cost and n <= 2 * c.operations <= 4 * n]
        operations = f"; {n:,} operation{'s' * (n > 1)}" if n else ""
        return operations + (f", as many took {similar[-1]:.0f} s" if n and similar else "")


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


def waited() -> float:
    """Units: seconds in which programs were compiled or loaded while nothing else ran."""
    return sum(p.seconds for p in _compilations if not p.background)


def report() -> CompilationReport:
    """What was compiled until now."""
    programs = tuple(_compilations)
    stored = sum(p.stored for p in programs)
    background = sum(p.seconds for p in programs if p.background)
    return CompilationReport(
        len(programs) - stored, stored, waited(), background, time.monotonic() - _BEGIN, programs
    )


def announced(subject: Subject) -> AbstractContextManager[None]:
    """A scope that tells an interactive user what is compiled, if it takes long."""
    return _terminal.announced(f"compiling {subject.text}", subject.size)


__all__ = ["Compilation", "CompilationReport", "Subject", "announced", "record", "report", "waited"]
