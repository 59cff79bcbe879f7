"""Programs that failed once, with what CNTK 2.7 shows: a script each, whose last line is that as JSON.

    python -m tests.random_graphs.corpus tests/random_graphs/corpus/NAME.txt ...

records CNTK's answers to scripts that have none yet, or whose program was changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from . import serve
from .compare import Difference, compare
from .processes import HERE, ORACLE, Shown, run

FOLDER = HERE / "corpus"
EXPECTED = "EXPECTED = "


def parts(path: Path) -> tuple[list[str], Shown]:
    """The lines of a script, and what CNTK shows."""
    lines = path.read_text().splitlines()
    expected = json.loads(lines.pop().removeprefix(EXPECTED)) if lines[-1].startswith(EXPECTED) else {}
    return lines, expected


def record(path: Path) -> None:
    """Ask CNTK, and write its answer into the script."""
    lines, _ = parts(path)
    (shown,) = run([str(ORACLE)], [lines])
    path.write_text("\n".join([*lines, EXPECTED + json.dumps(rounded(shown))]) + "\n")


def rounded(shown: object) -> object:
    """Numbers with the digits that a comparison looks at."""
    if isinstance(shown, float):
        return float(f"{shown:.8g}")
    if isinstance(shown, list):
        return [rounded(v) for v in shown]
    return {k: rounded(v) for k, v in shown.items()} if isinstance(shown, dict) else shown


def replay(path: Path) -> list[Difference]:
    """How this package differs from what CNTK showed."""
    lines, expected = parts(path)
    dtype = "float64" if "T = np.float64" in lines else "float32"
    return compare(expected, serve.run(lines), dtype)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        record(Path(name))
