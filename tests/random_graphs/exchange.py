"""Checkpoints and models of random programs that CNTK 2.7 saves and this package reads, and the other way round.

    python -m tests.random_graphs.exchange checkpoints FIRST_SEED NUMBER
    python -m tests.random_graphs.exchange models FIRST_SEED NUMBER

Training goes on from a checkpoint as if it had not been interrupted. A model computes, and learns, what it does in the
process that saved it: the other process has nothing of it but the file.
"""

from __future__ import annotations

import re
import sys
import tempfile
from abc import ABC, abstractmethod
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
SHOWN = "shown"


@dataclass(frozen=True)
class Exchange(ABC):
    """A program and the file that one process saves and another reads."""

    program: Program
    path: Path

    @abstractmethod
    def lines(self, reads: bool) -> list[str]:
        """One line of Python each."""

    @staticmethod
    @abstractmethod
    def suits(program: Program) -> bool:
        """Whether a program has such a file."""

    @property
    def graph(self) -> list[str]:
        """The lines that build the graph and its minibatches."""
        return [line for line in self.program.lines() if not line.startswith(("show(", "loss ="))]


class Checkpoint(Exchange):
    def lines(self, reads: bool) -> list[str]:
        p = self.program
        training = f"resume(loss, {p.learner_function}, {p.minibatch_list}, {str(self.path)!r}, {reads})"
        return [*self.graph, *p.loss, f'show("{SHOWN}", {training})']

    @staticmethod
    def suits(program: Program) -> bool:
        learns = any("C.parameter(" in s.text or "C.layers" in s.text for s in program.statements)
        return bool(program.loss and program.learner) and learns and not is_mixing(program)


class Model(Exchange):
    """The roots, and behind them the loss, if there is one."""

    def lines(self, reads: bool) -> list[str]:
        p, path = self.program, repr(str(self.path))
        minibatches = [line for line in p.lines() if re.match(r"T =|m\d+ =", line)]
        outputs = ", ".join([*p.roots, *(["loss"] if p.loss else [])])
        made = [*minibatches, f"f = C.Function.load({path})"] if reads else [
            *self.graph, *p.loss, f"f = C.combine([{outputs}])", f"f.save({path})",
        ]
        training = f"train(C.combine([f.outputs[-1]]), {p.learner_function}, {p.minibatch_list})"
        learns = p.loss and p.learner and not is_mixing(p)
        return [*made, f'show("{SHOWN}", [evaluate([f], m0), {training if learns else None}])']

    @staticmethod
    def suits(program: Program) -> bool:
        return not any(re.search("random|Dropout", s.text) for s in program.statements)


KINDS: dict[str, type[Exchange]] = {"checkpoints": Checkpoint, "models": Model}


def problems(kind: type[Exchange], programs: list[Program]) -> Iterator[tuple[Program, str]]:
    """What differs after each exchange; "" where all agree. Programs that one of both does not compute are left out."""
    with tempfile.TemporaryDirectory() as folder:
        exchanges = {name: [kind(p, Path(folder, f"{name}{p.seed}")) for p in programs] for name in PYTHON}
        saved = {name: _observed(name, exchanges[name], reads=False) for name in PYTHON}
        for reader, saver in zip(PYTHON, reversed(PYTHON), strict=True):
            found_there = _observed(reader, exchanges[saver], reads=True)
            for p, before, after, other in zip(programs, saved[saver], found_there, saved[reader], strict=True):
                if before is None or other is None or is_refusal(before) or is_refusal(other):
                    continue
                found = after["message"] if is_refusal(after) else problem(before, after, TOLERANCE[p.dtype])
                if reader == "CNTK" and is_of_cntk(p, found):
                    continue
                yield p, found and f"saved by {saver}: {found.replace('in CNTK', 'saved').replace('here', 'restored')}"


def is_of_cntk(program: Program, found: str) -> bool:
    """Whether CNTK does not go on for reasons of its own.

    docs/compatibility.md: initial states of its double precision delays are single precision. The uids of what it
    creates begin at 0 in each process, and meet those of its own files, too.
    """
    return (program.dtype == "float64" and "isomorphic" in found) or "Duplicated name for" in found


def _observed(name: str, exchanges: list[Exchange], reads: bool) -> list[Any]:
    """What each process shows; None if it has not come so far, except where it should have read."""
    shown = run(PYTHON[name], [e.lines(reads) for e in exchanges])
    return [s.get(SHOWN, next(iter(s.values())) if reads and s else None) for s in shown]


def suitable(kind: type[Exchange], seeds: range) -> Iterator[Program]:
    """Programs with such a file, of which no known difference is to be expected."""
    for seed in seeds:
        program, _ = write(seed)
        known = any(k.kind == "value" and k.culprit(program, s) for k in KNOWN for s in program.statements)
        if program.roots and not known and kind.suits(program):
            yield program


def main(kind: str, first: str, number: str) -> None:
    """Print what differs, and how many exchanges agree."""
    totals: Counter[str] = Counter()
    seeds = range(int(first), int(first) + int(number))
    for program, found in problems(KINDS[kind], list(suitable(KINDS[kind], seeds))):
        totals["differs" if found else "agrees"] += 1
        if found:
            print(f"seed {program.seed}: {found[:400]}", flush=True)
    print(f"seeds {seeds.start} to {seeds.stop - 1}:", dict(totals), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
