"""``cntkjax doctor --compile``: runs a script, and says what it compiled, for how long, and what would reduce that."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..engine.run.compilations import Compilation, report
from ..engine.xla import cache

_MOST_LISTED = 20
_SHORT = 0.5  # seconds that are no reason for advice
_LARGE = 1000  # operations


def run_script(arguments: Sequence[str]) -> None:
    """Run a script with its arguments, and print its compilations, also if it fails.

    Errors: ValueError without a script; those of the script.
    """
    if not arguments:
        raise ValueError("doctor --compile needs a script: cntkjax doctor --compile train.py")
    before, begin = sys.argv, len(report().programs)
    sys.argv, sys.path[0] = list(arguments), str(Path(arguments[0]).resolve().parent)
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    finally:
        sys.argv = before
        print(*lines(report().programs[begin:]), sep="\n", flush=True)


def lines(programs: Sequence[Compilation]) -> Iterator[str]:
    """The programs by time, each with the user's line and what would reduce it."""
    waits = [p for p in programs if not p.background]
    yield f"{len(programs)} programs, {sum(p.seconds for p in waits):.1f} s of waiting for them"
    sizes = Counter((p.line, _task(p)) for p in programs)
    for p in sorted(programs, key=lambda p: -p.seconds)[:_MOST_LISTED]:
        graph = f", {p.operations:,} operations" if p.operations else ""
        where = f", first needed at {p.line}" if p.line else ""
        yield f"  {p.seconds:6.2f} s  {p}{graph}{where}"
        yield from (f"            {advice}" for advice in _advice(p, sizes[p.line, _task(p)]))


def _task(program: Compilation) -> str:
    return program.text.partition(" for minibatches")[0]


def _advice(program: Compilation, sizes: int) -> Iterator[str]:
    if program.background or program.seconds < _SHORT:
        return
    if sizes > 1:
        yield f"one of {sizes} programs for minibatches of other sizes: fewer sizes need fewer programs"
    if program.operations >= _LARGE:
        yield "large graphs of equal pieces compile faster as C.layers.Recurrence or C.layers.Fold over a sequence"
    if program.stored:
        yield f"it was loaded; compiling took {program.cost:.1f} s in the process that stored it"
    elif cache.store() is None:
        yield "later processes load it if programs can be stored: see CNTKJAX_CACHE_DIR and `cntkjax doctor`"
    else:
        yield "later processes load it, unless the script or its user functions change what is computed"


__all__ = ["lines", "run_script"]
