"""Checkpoints of random programs that CNTK 2.7 saves and this package restores, and the other way round.

    python -m tests.random_graphs.exchange FIRST_SEED NUMBER

Training goes on as if it had not been interrupted: with the losses and parameters of the process that saved.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .compare import TOLERANCE, is_refusal, problem
from .executing import is_mixing
from .generator import write
from .known import KNOWN
from .processes import ORACLE, run
from .program import Program

PYTHON = {"CNTK": [str(ORACLE)], "this package": [sys.executable]}


@dataclass(frozen=True)
class Exchange:
    """A program and the checkpoint that one process saves and another restores."""

    program: Program
    path: Path

    def lines(self, restores: bool) -> list[str]:
        """One line of Python each."""
        p = self.program
        minibatches = ", ".join(f"m{i}" for i in range(len(p.minibatches)))
        training = f"resume(loss, lambda parameters: {p.learner}, [{minibatches}], {str(self.path)!r}, {restores})"
        shown = [line for line in p.lines() if not line.startswith(("show(", "loss ="))]
        return [*shown, *p.loss, f'show("training", {training})']


def problems(programs: list[Program]) -> Iterator[tuple[Program, str]]:
    """What differs after each exchange; "" where all agree. Programs that one of both does not train are left out."""
    with tempfile.TemporaryDirectory() as folder:
        exchanges = {name: [Exchange(p, Path(folder, f"{name}{p.seed}")) for p in programs] for name in PYTHON}
        saved = {name: _trainings(name, exchanges[name], restores=False) for name in PYTHON}
        for restorer, saver in zip(PYTHON, reversed(PYTHON), strict=True):
            restored = _trainings(restorer, exchanges[saver], restores=True)
            for p, before, after, other in zip(programs, saved[saver], restored, saved[restorer], strict=True):
                if before is None or other is None or is_refusal(before) or is_refusal(other):
                    continue
                found = after["message"] if is_refusal(after) else problem(before, after, TOLERANCE[p.dtype])
                if restorer == "CNTK" and p.dtype == "float64" and "isomorphic" in found:
                    continue  # docs/compatibility.md: the initial states of its delays are single precision
                yield p, found and f"saved by {saver}: {found.replace('in CNTK', 'saved').replace('here', 'restored')}"


def _trainings(name: str, exchanges: list[Exchange], restores: bool) -> list[Any]:
    """What each training shows; None if it has not come so far."""
    return [shown.get("training") for shown in run(PYTHON[name], [e.lines(restores) for e in exchanges])]


def trained(seeds: range) -> Iterator[Program]:
    """Programs with parameters, of which no known difference of training is to be expected."""
    for seed in seeds:
        program, _ = write(seed)
        learns = any("C.parameter(" in s.text or "C.layers" in s.text for s in program.statements)
        known = any(k.kind == "value" and k.culprit(program, s) for k in KNOWN for s in program.statements)
        if program.roots and program.loss and program.learner and learns and not known and not is_mixing(program):
            yield program


def main(first: int, number: int) -> None:
    """Print what differs, and how many exchanges agree."""
    totals: Counter[str] = Counter()
    for program, found in problems(list(trained(range(first, first + number)))):
        totals["differs" if found else "agrees"] += 1
        if found:
            print(f"seed {program.seed}: {found[:400]}", flush=True)
    print(f"seeds {first} to {first + number - 1}:", dict(totals), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
