"""Runs a script as ``python SCRIPT ARGUMENTS`` would, and writes what it compiled to a file of JSON.

    python cold_worker.py REPORT SCRIPT [ARGUMENTS]
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path


def main(report: str, script: str, *arguments: str) -> None:
    """Run the script; the report has the counters of `worker.compilations`."""
    from worker import compilations, with_loaded  # beside this file

    counters = compilations()
    sys.path[0] = str(Path(script).parent)
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        Path(report).write_text(json.dumps(with_loaded(counters)))


if __name__ == "__main__":
    main(*sys.argv[1:])
