"""What running and compiling a program costs, by what was measured."""

from __future__ import annotations

from collections.abc import Hashable

from ..._threads import cores
from ...graph.settings import Settings
from ..data.shape_policy import Prices

_DISPATCH = 1e-4  # seconds to start a program, whatever its shapes
_TIMED_RUNS = 2  # of each executable, after its first one


class Free:
    """Nothing costs time, so nothing is worth a compilation."""

    seconds_per_work = 0.0
    compilation_seconds = 0.0


FREE: Prices = Free()


class _Nominal:
    """For runs that are to be identical bit by bit: padding decides on the order of sums, so no measurement may."""

    seconds_per_work = 1e-5
    compilation_seconds = 1.0


class MeasuredPrices:
    """Those of one program.

    Runs are timed by the host, which waits for the second and the third of each executable; the fastest counts. The
    time is taken to be proportional to the work of a shape, at the lowest rate of all shapes, so that what a better
    shape saves is not overestimated. A compilation costs what the latest one took, in this process or in the earlier
    one that stored its program; beside the work it takes one of the cores.
    """

    def __init__(self, in_background: bool = False) -> None:
        self._cores = cores() if in_background else 1
        self._rates: dict[float, float] = {}  # by the work of the shape
        self._runs: dict[Hashable, int] = {}
        self._compilation = 0.0

    @property
    def seconds_per_work(self) -> float:
        """As `Prices.seconds_per_work`; 0 before a run was timed."""
        return _Nominal.seconds_per_work if Settings.deterministic else min(self._rates.values(), default=0.0)

    @property
    def compilation_seconds(self) -> float:
        """As `Prices.compilation_seconds`."""
        return _Nominal.compilation_seconds if Settings.deterministic else self._compilation / self._cores

    def next_run(self, signature: Hashable) -> int:
        """The number of the run of an executable that comes now, from 0; -1 if it need not be timed."""
        run = self._runs.get(signature, 0)
        if run > _TIMED_RUNS:
            return -1
        self._runs[signature] = run + 1
        return run

    def is_settled(self, signature: Hashable) -> bool:
        """True if no run of an executable need be timed any more."""
        return self._runs.get(signature, 0) > _TIMED_RUNS

    def note_run(self, work: float, seconds: float) -> None:
        """Count a run on shapes of this work, in a program that has been compiled."""
        rate = max(seconds - _DISPATCH, 0.0) / max(work, 1.0)
        self._rates[work] = min(self._rates.get(work, rate), rate)

    def note_compilation(self, seconds: float) -> None:
        """Count a compilation."""
        self._compilation = seconds


__all__ = ["FREE", "MeasuredPrices"]
