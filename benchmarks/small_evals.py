"""python -m benchmarks.small_evals: 1,000 different small graphs, as in tests and notebooks, each evaluated once.

Milliseconds for each graph, in a process with an empty compilation cache, in a second one that finds it filled, and in
CNTK 2.7; and how many megabytes the process grows after the first 100 graphs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.compare import environment
from benchmarks.resources import HERE, parse_with_paths


def measure(interpreter: str, cache: Path, count: int, uncounted: int = 100) -> dict[str, float]:
    """What `small_graphs.py` measures in a process of its own."""
    process = subprocess.run(
        [interpreter, str(HERE / "small_graphs.py"), str(count), str(uncounted)], env=environment(cache),
        capture_output=True, check=True, text=True,
    )
    return json.loads(process.stdout.splitlines()[-1])


def main(arguments: list[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_evals", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="number of graphs")
    options = parse_with_paths(parser, arguments)
    with tempfile.TemporaryDirectory() as cache:
        sides = {"cntkjax, cold": sys.executable, "cntkjax, warm": sys.executable}
        if options.cntk27:
            sides["CNTK 2.7"] = str(options.cntk27)
        print("| side | ms per graph | processor ms per graph | growth |\n|---|---|---|---|")
        for side, interpreter in sides.items():
            result = measure(interpreter, Path(cache), options.count)
            print(
                f"| {side} | {result['milliseconds']:.1f} | {result['cpu_milliseconds']:.1f} "
                f"| {result['growth']:.0f} MB |", flush=True,
            )


if __name__ == "__main__":
    main()
