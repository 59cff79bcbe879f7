"""python -m benchmarks workers: two workers on this machine against two of CNTK 2.7, and one against one.

Each worker of two has a minibatch of the same size as the one, so two do twice as much. All sides run in interleaved
rounds of about `--seconds`, each in its own processes. The last column is one process with two devices of half of the
cores each, which divide the minibatch, against one device of all cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.compare import environment
from benchmarks.resources import HERE, parse_with_paths

NETWORKS = "fcn5", "alexnet", "lstm64", "atis"
WORKERS = {"cntkjax 1": 1, "cntkjax 2": 2, "devices 2": 1, "cntk27 1": 1, "cntk27 2": 2}
WARM_UP = {"atis": 120}  # minibatches until all programs are compiled; 12 of other networks, and one with CNTK
TIMEOUT = 600.0  # seconds for a round


class Side:
    """The workers of one side, which wait for the next round."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, workers: int) -> None:
        self._process, self._folder, self._workers, self._round = process, folder, workers, 0
        self.minibatches, self.seconds = 1, list[float]()

    def run(self, minibatches: int) -> float:
        """Train on so many minibatches; the seconds of the slowest worker. Errors: RuntimeError if one has ended."""
        answers = [self._folder / f"{self._round}.{rank}" for rank in range(self._workers)]
        self.ask(minibatches)
        deadline = time.monotonic() + TIMEOUT
        while not all(answer.exists() for answer in answers):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "log").read_text()[-2000:])
            time.sleep(0.005)
        return max(float(answer.read_text()) for answer in answers)

    def ask(self, minibatches: int) -> None:
        """Begin a round; 0 minibatches end the processes."""
        hidden = self._folder / "next"
        hidden.write_text(str(minibatches))
        hidden.rename(self._folder / str(self._round))
        self._round += 1


@contextmanager
def running(side: str, network: str, options: argparse.Namespace) -> Iterator[Side]:
    """The processes of a side."""
    arguments = [network, *([str(options.atis)] if network == "atis" else [])]
    workers = WORKERS[side]
    with tempfile.TemporaryDirectory() as name, open(Path(name) / "log", "w") as log:
        script = [str(HERE / "workers_worker.py"), name, *arguments]
        variables = environment(Path(name) / "cache")
        if side.startswith("cntk27"):
            command = [str(options.cntk27), *(["--mpi", str(workers)] if workers > 1 else []), *script]
        elif workers > 1:
            command = [sys.executable, "-m", "cntkjax", "launch", "-n", str(workers), *script]
        else:
            command = [sys.executable, *script]
        if side == "devices 2":
            variables |= {"DEVICES": "2", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        result = Side(process, Path(name), workers)
        try:
            yield result
            result.ask(0)
            process.wait(60)
        finally:
            process.terminate()
            process.wait()


def compare(network: str, options: argparse.Namespace) -> dict[str, float]:
    """The median seconds of a minibatch on each side."""
    names = [side for side in WORKERS if options.cntk27 or not side.startswith("cntk27")]
    with ExitStack() as stack:
        sides = {name: stack.enter_context(running(name, network, options)) for name in names}
        for name, side in sides.items():
            side.run(1 if name.startswith("cntk27") else WARM_UP.get(network, 12))
            side.minibatches = max(1, round(options.seconds / (side.run(2) / 2)))
        for _ in range(options.rounds):
            for side in sides.values():
                time.sleep(0.3)  # until the threads of the previous side have stopped spinning
                side.seconds.append(side.run(side.minibatches) / side.minibatches)
        return {name: statistics.median(side.seconds) for name, side in sides.items()}


def row(network: str, seconds: dict[str, float]) -> str:
    """The times of a network, in milliseconds, and their ratios."""
    cells = [f"{1000 * seconds[name]:.2f}" if name in seconds else "" for name in WORKERS]
    ratios = [("cntk27 1", "cntkjax 1"), ("cntk27 2", "cntkjax 2"), ("cntkjax 1", "devices 2")]
    cells += [f"{seconds[a] / seconds[b]:.2f}" if a in seconds else "" for a, b in ratios]
    return f"| {' | '.join([network, *cells])} |"


def main(arguments: list[str]) -> None:
    """Print the table of all networks, or of those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks workers", description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="default: all")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--seconds", type=float, default=1.5, help="of a round; default: 1.5")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    options = parse_with_paths(parser, arguments)
    networks = [name for name in options.networks if name != "atis" or options.atis]
    print(f"| ms a minibatch | {' | '.join(WORKERS)} | 1: cntkjax is faster by | 2: by | 2 devices |")
    print("|---" * (len(WORKERS) + 4) + "|", flush=True)
    results = {}
    for network in networks:
        results[network] = compare(network, options)
        print(row(network, results[network]), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"cores": os.cpu_count(), "seconds": results}, indent=1))
