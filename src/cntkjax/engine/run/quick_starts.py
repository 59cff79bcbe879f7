"""Quick starts: what is needed now is compiled quickly, and again with all optimizations once that pays."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

# What a program that was compiled quickly may compute, in elements of the results of its operations. On two cores of an
# Intel Xeon compiling it thoroughly pays from 1e8 elements (an LSTM of 128 cells) to 2e9 (a convolutional network).
QUICK_ELEMENTS = 200_000_000


def affordable_runs(elements: int) -> int:
    """How often a program that computes this many elements may run if it was compiled quickly; 0: not worth it."""
    return QUICK_ELEMENTS // max(1, elements)


@dataclass
class Allowance:
    """The runs that an executable has left before another one, compiled thoroughly, has to take its place.

    It is decided by the size of the computation, never by a clock. When `replace_at` are left, compiling the other one
    begins in the background.
    """

    left: float = inf
    replace_at: int = -1

    @classmethod
    def of(cls, runs: int) -> Allowance:
        """That of an executable that was compiled quickly; 0 runs stand for one that was compiled thoroughly."""
        return cls(runs, runs // 2) if runs else cls()

    @property
    def is_unlimited(self) -> bool:
        """Whether the executable stays."""
        return self.left == inf

    def spend(self) -> bool:
        """Count a run; whether this is the one at which compiling the other executable begins."""
        self.left -= 1
        return self.left == self.replace_at


__all__ = ["QUICK_ELEMENTS", "Allowance", "affordable_runs"]
