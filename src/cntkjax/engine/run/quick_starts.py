"""Quick starts: what is needed now is compiled quickly, and again with all optimizations once that pays.

Both versions round differently, so nothing but sizes, and the number of a training's step, decides which one runs: a
script computes the same numbers each time, and training that resumes those of one that was never interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

# What a program that was compiled quickly may compute, in elements of the results of its operations. On two cores of an
# Intel Xeon compiling it thoroughly pays from 1e8 elements (an LSTM of 128 cells) to 2e9 (a convolutional network).
QUICK_ELEMENTS = 200_000_000

# The same for the first steps of a training, for each of its operations: compiling one thoroughly takes 3 ms of
# processor time longer, and computing an element 2 ns less where it matters, as in the gradients of pooling and dropout
# (a network for digits; two cores of an Intel Xeon), so a training that goes on loses at most about what a short one
# saves; and next to nothing in recurrences, where it loses less.
QUICK_ELEMENTS_OF_AN_OPERATION = 1_500_000



def affordable_runs(elements: int) -> int:
    """How often a program that computes this many elements may run if it was compiled quickly; 0: not worth it."""
    return QUICK_ELEMENTS // max(1, elements)


def affordable_steps(elements: int, operations: int) -> int:
    """The last step of a training for which a program of this size is to be compiled quickly; 0: not worth it."""
    return QUICK_ELEMENTS_OF_AN_OPERATION * operations // max(1, elements)


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


__all__ = ["QUICK_ELEMENTS", "QUICK_ELEMENTS_OF_AN_OPERATION", "Allowance", "affordable_runs", "affordable_steps"]
