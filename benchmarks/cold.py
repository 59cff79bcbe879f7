"""python -m benchmarks cold: whole processes, with an empty and then with a full compilation cache, beside CNTK 2.7.

The scripts are plain CNTK scripts, which run unchanged on both sides. Each run is a process of its own: `seconds` from
its start to its end, processor seconds and peak memory of the process, and for this package the programs that it
compiled and the seconds that lowering and compiling them took (in all threads).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare import Result, SideFailed, environment
from benchmarks.resources import HERE, machine, parse_with_paths

EXAMPLES = HERE.parent / "examples"


@dataclass(frozen=True)
class Script:
    """A script of the comparison."""

    title: str
    path: Path
    arguments: Sequence[str] = ()
    reads_atis: bool = False
    only_cold: bool = False  # measured for its number of programs: one run, without CNTK

    def command(self, atis: Path | None) -> list[str]:
        """The script and its arguments."""
        return [str(self.path), *([str(atis)] if self.reads_atis else []), *self.arguments]


SCRIPTS = {
    "atis": Script("ATIS tagging, two sweeps and a test", EXAMPLES / "atis_tagging.py", ["--epochs", "2"], True),
    "taggers": Script("six small taggers, two of them bi-directional", HERE / "taggers.py", reads_atis=True),
    "digits": Script("digits, convolutional network", EXAMPLES / "digits.py"),
    "sweeps": Script(
        "ATIS tagging, five sweeps and a test", EXAMPLES / "atis_tagging.py", ["--epochs", "5"], True, only_cold=True
    ),
    **{name: Script(f"three steps: {title}", HERE / "cold_programs.py", [name]) for name, title in {
        "cyclegan": "CycleGAN, three trainers over shared networks",
        "dcgan": "conditional DCGAN",
        "began": "BEGAN, the judge is an autoencoder",
        "unet": "U-Net, with a test after each",
        "rnet": "recurrences in both directions, one with attention",
        "yolo": "detector with a user function in its loss",
        "transformer": "Transformer of three blocks, and a test",
    }.items()},
}


def run(command: Sequence[str], variables: dict[str, str], log: Path) -> Result:
    """Run a process; its seconds, processor seconds and peak memory. Units: seconds, MB.

    Errors: SideFailed, with the end of its output.
    """
    begin = time.perf_counter()
    with log.open("w") as output:
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SideFailed("\n".join(log.read_text(errors="replace").splitlines()[-8:]))
    return {"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime, "megabytes": usage.ru_maxrss / 1024}


def run_here(script: Script, atis: Path | None, cache: Path, scratch: Path) -> Result:
    """One process of this package, with the counters of its compilations."""
    report = scratch / "report.json"
    command = [sys.executable, str(HERE / "cold_worker.py"), str(report), *script.command(atis)]
    return run(command, environment(cache), scratch / "cntkjax.log") | json.loads(report.read_text())


def compare(script: Script, cntk27: Path | None, atis: Path | None) -> dict[str, Result]:
    """The runs of a script: "cold", "warm" and "cntk27". A run that fails has only `error`."""
    runs: dict[str, Result] = {}

    def add(name: str, measure: Callable[[], Result]) -> None:
        try:
            runs[name] = measure()
        except SideFailed as failure:
            print(f"{script.title}: {name} failed:\n{failure}", file=sys.stderr)
            runs[name] = {"error": str(failure)}

    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for name in ("cold",) if script.only_cold else ("cold", "warm"):
            add(name, lambda: run_here(script, atis, scratch / "cache", scratch))
        if cntk27 and not script.only_cold:
            command = [str(cntk27), *script.command(atis)]
            add("cntk27", lambda: run(command, dict(os.environ), scratch / "cntk27.log"))
    return runs


def table(results: dict[str, dict[str, Result]]) -> str:
    """Markdown: a row for each run of each script. Programs are those that took more than 0.1 s to compile."""
    head = ["script", "", "seconds", "CPU seconds", "MB", "programs", "seconds of XLA"]
    labels = {"cold": "cold", "warm": "second process", "cntk27": "CNTK 2.7"}
    lines = [head, ["---"] * len(head)]
    for name, runs in results.items():
        lines += [[SCRIPTS[name].title, labels[run], *cells(result)] for run, result in runs.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells(result: Result) -> list[str]:
    """The cells of one run."""
    if "error" in result:
        return ["failed", *[""] * 4]
    figures = [f"{result['seconds']:.1f}", f"{result['cpu']:.1f}", f"{result['megabytes']:.0f}"]
    if "large" not in result:
        return [*figures, "", ""]
    return [*figures, str(result["large"]), f"{result['compile_seconds']:.1f}"]


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks cold", description=__doc__)
    parser.add_argument("--scripts", nargs="+", choices=SCRIPTS, default=list(SCRIPTS), help="default: all")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    return parse_with_paths(parser, arguments)


def main(arguments: list[str]) -> None:
    """Run the scripts and print a table."""
    options = parse(arguments)
    results = {}
    for name in options.scripts:
        if SCRIPTS[name].reads_atis and not options.atis:
            print(f"{SCRIPTS[name].title} is skipped: pass the folder of ATIS with --atis", file=sys.stderr)
            continue
        results[name] = compare(SCRIPTS[name], options.cntk27, options.atis)
        print(table({name: results[name]}), file=sys.stderr, flush=True)
    print(table(results), f"{machine()}. {datetime.date.today().isoformat()}.", sep="\n\n")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
