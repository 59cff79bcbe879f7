"""Compare random programs with CNTK 2.7: python -m tests.random_graphs FIRST_SEED NUMBER FOLDER.

Programs that differ are written into FOLDER as scripts, with what differs.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from .generator import write
from .program import Program
from .shrink import differences, shrink

AT_ONCE = 60


def main(first: int, number: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    totals: Counter[str] = Counter()
    for begin in range(first, first + number, AT_ONCE):
        programs = written(range(begin, min(begin + AT_ONCE, first + number)))
        for i, (p, found) in enumerate(zip(programs, differences(programs), strict=True)):
            kinds = {d.kind for d in found} or {"agrees"}
            totals.update(kinds)
            fault = next((d for d in found if d.is_fault), None)
            if fault:
                p, found = shrink(p, fault.kind)
            if found:
                report(p, found, folder / f"{'-'.join(sorted(kinds))}-{p.seed}-{i}.txt")
        print(f"seeds {first} to {begin + AT_ONCE - 1}:", dict(totals), flush=True)


def written(seeds: range) -> list[Program]:
    programs = []
    for seed in seeds:
        program, refused = write(seed)
        programs += [p for p in (program, *refused) if p.roots]
    return programs


def report(p: Program, found: list, path: Path) -> None:
    notes = "".join(f"# {d.kind} {d.what}: {d.details}\n".replace("\n", " ") + "\n" for d in found)
    path.write_text(notes + "\n".join(p.lines()) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
