"""Runs the sides of a comparison by turns, so that whatever else the machine does falls on all of them alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

from benchmarks import data

HERE = Path(__file__).parent
NETWORKS = (
    "fcn5", "alexnet", "resnet56", "lstm64", "lstm256", "atis", "bilstm", "bigru", "attention", "decoding", "tiny"
)  # fmt: skip
SIDES = ("cntkjax", "cntk27", "torch", "torch.compile", "jax")
NOT_IN = {"jax": ("bilstm", "bigru", "attention", "decoding"), "torch.compile": ("decoding",)}  # not written there

Result = dict[str, Any]


class SideFailed(Exception):
    """A side cannot build or train a network; the text is the end of what it printed."""


class Worker:
    """A process that trains one network on one side; it waits idle between two runs."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self.log = process, log
        self.version: str = self._answer()["version"]

    def run(self, minibatches: int) -> Result:
        """Trains; the result has `seconds`, `samples` and, for jax's sides, what has been compiled so far."""
        assert self.process.stdin
        with suppress(BrokenPipeError):  # a dead process gives no answer either, which says more
            print(minibatches, file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Result:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SideFailed("\n".join(self.log.read_text(errors="replace").splitlines()[-8:]))
        return json.loads(line)


def environment(cache: Path) -> dict[str, str]:
    """The variables of a process that imports this package from the checkout and keeps what it compiles in `cache`."""
    path = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "CNTKJAX_CACHE_DIR": str(cache)}


@contextmanager
def working(side: str, network: str, interpreter: str, folder: Path | None, scratch: Path) -> Iterator[Worker]:
    """A worker with its log and its compilation cache in `scratch`."""
    command = [interpreter, str(HERE / "worker.py"), side, network, *([str(folder)] if folder else [])]
    log = scratch / f"{side}.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, env=environment(scratch / "cache"), stdin=PIPE, stdout=PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            yield Worker(process, log)
        finally:
            process.terminate()


def compare(
    network: str, interpreters: Mapping[str, str], folder: Path | None, rounds: int, seconds: float
) -> dict[str, Result]:
    """Trains one network on every side of `interpreters`, by turns.

    Returns for each side its version, `milliseconds` per minibatch and `samples_per_second` (one number a round), the
    seconds of its warm-up, and for jax's sides what was compiled. A side that fails has only `error`.

    Units: one turn lasts about `seconds`, and at least one minibatch.
    """
    found: dict[str, Result] = {}
    workers: dict[str, Worker] = {}

    def failed(side: str, failure: SideFailed) -> None:
        print(f"{network}: {side} failed:\n{failure}", file=sys.stderr)
        found[side] = {"error": str(failure)}
        workers.pop(side, None)

    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        for side, interpreter in interpreters.items():
            if network in NOT_IN.get(side, ()):
                continue
            try:
                worker = stack.enter_context(working(side, network, interpreter, folder, Path(scratch)))
                found[side] = warmed_up(worker, data.ATIS_PASS if network == "atis" else 2, seconds)
                workers[side] = worker
            except SideFailed as failure:
                failed(side, failure)
        for _ in range(rounds):
            for side, worker in list(workers.items()):
                time.sleep(0.3)  # until the threads of the side before have stopped spinning
                try:
                    took_turn(worker, found[side])
                except SideFailed as failure:
                    failed(side, failure)
    return found


def warmed_up(worker: Worker, minibatches: int, seconds: float) -> Result:
    """Compiles and fills caches, and finds how many minibatches make a turn of that many seconds."""
    first = worker.run(minibatches)
    second = worker.run(1)
    turn = max(1, round(seconds / second["seconds"]))
    result = {"version": worker.version, "warm_up_seconds": first["seconds"], "minibatches_a_turn": turn}
    return result | {"milliseconds": [], "samples_per_second": []}


def took_turn(worker: Worker, result: Result) -> None:
    answer = worker.run(result["minibatches_a_turn"])
    seconds, samples = answer.pop("seconds"), answer.pop("samples")
    result["milliseconds"].append(1000 * seconds / result["minibatches_a_turn"])
    result["samples_per_second"].append(samples / seconds)
    result |= answer
