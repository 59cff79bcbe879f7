"""Quick starts: what is needed now is compiled quickly, and again with all optimizations once that pays.

Both versions round differently, so nothing but sizes, and the number of a training's step, decides which one runs: a
script computes the same numbers each time, and training that resumes those of one that was never interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

# What a program that was compiled quickly may lose for each of its operations, in nanoseconds: compiling one thoroughly
# takes 2 to 3 ms of processor time longer (two cores of an Intel Xeon). So work that goes on loses what other work
# saves that ends early.
LOST_TIME_OF_AN_OPERATION = 2_000_000


def affordable_runs(lost_time: float, operations: int) -> int:
    """How often a program may run if it was compiled quickly, in training until which step; 0: it is not worth it.

    `lost_time`: what a run takes longer then, in nanoseconds.
    """
    return int(LOST_TIME_OF_AN_OPERATION * operations / max(1, lost_time))


@dataclass
class Allowance:
    """The runs that an executable has left before another one, compiled thoroughly, has to take its place.

    When `replace_at` are left, compiling the other one begins in the background.
    """

    runs: float = inf
    left: float = inf
    replace_at: int = -1

    @classmethod
    def of(cls, runs: int) -> Allowance:
        """That of an executable that was compiled quickly; 0 runs stand for one that was compiled thoroughly."""
        return cls(runs, runs, runs // 2) if runs else cls()

    def reach(self, step: int) -> None:
        """Count the steps of a training, in whatever programs they ran, in place of the runs."""
        self.left = self.runs - step + 1

    @property
    def is_unlimited(self) -> bool:
        """Whether the executable stays."""
        return self.left == inf

    def spend(self) -> bool:
        """Count a run; whether this is the one at which compiling the other executable begins."""
        self.left -= 1
        if self.left > self.replace_at:
            return False
        self.replace_at = -1
        return True


__all__ = ["LOST_TIME_OF_AN_OPERATION", "Allowance", "affordable_runs"]
