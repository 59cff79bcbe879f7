"""Compare random programs with CNTK 2.7.

What CNTK refuses is asked of this package for every fourth seed only.

    python -m tests.random_graphs compare FIRST_SEED NUMBER FOLDER    # what differs is written into FOLDER
    python -m tests.random_graphs compare FIRST_SEED NUMBER FOLDER equal  # each with a rule whose name contains `equal`
    python -m tests.random_graphs pairs FIRST_SEED NUMBER FOLDER      # of one statement: each rule, each observation
    python -m tests.random_graphs forms FIRST_SEED NUMBER FOLDER      # the same in other forms of themselves, not CNTK
    python -m tests.random_graphs ill-typed FIRST_SEED NUMBER FOLDER  # the same of variants with something wrong
    python -m tests.random_graphs readers FIRST_SEED NUMBER FOLDER    # the same of files, and what minibatches contain
    python -m tests.random_graphs images FIRST_SEED NUMBER FOLDER     # the same of images; and `speech`
    python -m tests.random_graphs shrink SEED FOLDER                  # make those of a seed smaller
    python -m tests.random_graphs print SEED [equal]                  # as a script, which CNTK 2.7 runs too
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from . import media_programs, reader_programs
from .compare import Difference
from .consistency import problems
from .generator import write, write_pair
from .ill_typed import variants
from .program import Program
from .serve import refusal
from .shrink import differences, shrink

AT_ONCE = 600  # starting both packages takes three seconds


def compare(first: int, number: int, folder: Path, make: Callable[[Iterable[int]], list[Program]]) -> None:
    """Programs of `number` seeds; totals are printed after each batch."""
    totals: Counter[str] = Counter()
    for begin in range(first, first + number, AT_ONCE):
        programs = make(range(begin, min(begin + AT_ONCE, first + number)))
        for i, (program, found) in enumerate(zip(programs, differences(programs, thriftily=True), strict=True)):
            kinds = {d.kind for d in found} or {"agrees"}
            totals.update(["+".join(sorted(kinds))])
            if kinds - {"agrees", "both refuse", "not asked"}:
                report(program, found, folder / f"{'-'.join(sorted(kinds))}-{program.seed}-{i}.txt")
        print(f"seeds {first} to {begin + AT_ONCE - 1}:", dict(totals), flush=True)


def compare_forms(first: int, number: int, folder: Path, form: str) -> None:
    """Programs of `number` seeds, each in other forms that compute the same."""
    totals: Counter[str] = Counter()
    for seed in range(first, first + number):
        program, _ = write(seed, form)
        try:
            found = [Difference("value", "", problem) for problem in problems(program)] if program.roots else []
        except Exception as error:
            kind = "accident" if refusal(error, is_fed_well=True)["accident"] else "refused"
            found = [Difference(kind, "", f"{type(error).__name__}: {error}")]
        totals.update(sorted({d.kind for d in found} or {"agrees"}))
        if found:
            report(program, found, folder / f"forms-{seed}.txt")
        print(f"seeds {first} to {seed}:", dict(totals), flush=True)


def shrink_seed(seed: int, folder: Path) -> None:
    programs = written([seed])
    for i, (program, found) in enumerate(zip(programs, differences(programs), strict=True)):
        for fault in [d for d in found if d.is_fault][:1]:
            small, found = shrink(program, fault.kind)
            report(small, found, folder / f"small-{fault.kind}-{seed}-{i}.txt")
            print((folder / f"small-{fault.kind}-{seed}-{i}.txt").read_text())


def written(seeds: Iterable[int], form: str = "") -> list[Program]:
    """The programs of some seeds, those that end in what was refused included."""
    programs = []
    for seed in seeds:
        program, refused = write(seed, form)
        programs += [p for p in (program, *refused) if p.roots]
    return programs


def pairs(seeds: Iterable[int]) -> list[Program]:
    """Programs of one statement each."""
    return [p for p in map(write_pair, seeds) if p.roots]


def ill_typed(seeds: Iterable[int]) -> list[Program]:
    """Variants of the programs of some seeds."""
    return [v for seed in seeds for v in variants(write(seed)[0], seed) if v.roots]


def reading(write_program: Callable[[int], Program]) -> Callable[[Iterable[int]], list[Program]]:
    """Programs that read random files."""
    return lambda seeds: [write_program(seed) for seed in seeds]


COMPARED = {
    "pairs": pairs, "ill-typed": ill_typed, "readers": reading(reader_programs.write),
    "images": reading(media_programs.images), "speech": reading(media_programs.speech),
}


def report(program: Program, found: Sequence[Difference], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    notes = ["# " + f"{d.kind} {d.what}: {d.details}".replace("\n", " ") for d in found]
    path.write_text("\n".join([*notes, *program.lines()]) + "\n")


def main(verb: str, seed: str, *arguments: str) -> None:
    first = int(seed)
    if verb in ("compare", "forms"):
        number, folder, *rest = arguments
        form = "".join(rest)
        if verb == "forms":
            compare_forms(first, int(number), Path(folder), form)
        else:
            compare(first, int(number), Path(folder), partial(written, form=form))
    elif verb in COMPARED:
        compare(first, int(arguments[0]), Path(arguments[1]), COMPARED[verb])
    elif verb == "shrink":
        shrink_seed(first, Path(arguments[0]))
    else:
        print("\n".join(p.script() for p in written([first], "".join(arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
