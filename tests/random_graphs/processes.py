"""Programs run by CNTK 2.7 or by this package: many in a process, which is started again behind one that ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .image_libraries import search_path
from .program import Program

HERE = Path(__file__).resolve().parent
ORACLE = HERE.parents[2] / "shared" / "oracle" / "cntk27"
# Seconds for one program on a busy machine. CNTK, which compiles nothing, computes without end what is a cycle.
PATIENCE_WITH_CNTK, PATIENCE, LOOKS_EACH = 20, 100, 0.05
CNTK, OURS = [str(ORACLE)], [sys.executable]
Shown = dict[str, Any]


def on_cntk(programs: Sequence[Program]) -> list[Shown]:
    return run(CNTK, [p.lines() for p in programs])


def comparable(program: Program, cntk: Shown) -> list[str]:
    """The lines of which CNTK shows something: nothing is computed that is compared with nothing."""
    lines = program.lines()
    if "crash" in cntk:
        return lines[:1]
    stopped = next((i for i in range(len(lines)) if f"line {i}" in cntk), None)
    if stopped is not None:
        return lines[: stopped + 1]
    return [line for line in lines if not is_refused(line, cntk)]


def is_refused(line: str, cntk: Shown) -> bool:
    """Whether CNTK refuses what a line shows."""
    shown = cntk.get(line.split('"')[1]) if line.startswith("show(") else None
    return isinstance(shown, dict) and "error" in shown


def run(python: list[str], programs: list[list[str]]) -> list[Shown]:
    """What each program shows; {"crash": why} for those that ended their process."""
    shown: list[Shown] = []
    while len(shown) < len(programs):
        shown += _until_crash(python, programs[len(shown):])
    return shown


def _until_crash(python: list[str], programs: list[list[str]]) -> list[Shown]:
    with tempfile.TemporaryDirectory() as folder:
        source, results = Path(folder, "programs"), Path(folder, "results")
        source.write_text("".join(json.dumps(lines) + "\n" for lines in programs))
        results.touch()
        command = [*python, str(HERE / "serve.py"), str(source), str(results)]
        with open(Path(folder, "errors"), "wb") as errors:
            process = subprocess.Popen(command, stdout=errors, stderr=errors, cwd=folder, env=_environment(python))
            reason = wait(process, results, PATIENCE_WITH_CNTK if python == CNTK else PATIENCE)
        shown = [r["shown"] for line in results.read_text().splitlines() if "shown" in (r := json.loads(line))]
        if len(shown) < len(programs):
            if not results.read_text():
                raise RuntimeError(Path(folder, "errors").read_text()[-2000:])
            shown.append({"crash": reason})
        return shown


def _environment(python: list[str]) -> dict[str, str]:
    libraries = {"LD_LIBRARY_PATH": search_path(str(ORACLE))} if python == CNTK else {}
    return {**os.environ, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", **libraries}


def wait(process: subprocess.Popen, results: Path, patience: float) -> str:
    """Why the process ended: by itself, or because one program took too long.

    Only the time in which this process looks counts, not that in which it is stopped.
    """
    size, waited = 0, 0.0
    while process.poll() is None:
        time.sleep(LOOKS_EACH)
        waited += LOOKS_EACH
        if results.stat().st_size != size:
            size, waited = results.stat().st_size, 0
        if waited > patience:
            process.kill()
            process.wait()
            return "no answer"
    return f"status {process.returncode}"
