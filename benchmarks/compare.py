"""Runs the sides of a comparison in interleaved rounds, so that other load affects all of them alike."""

from __future__ import annotations

import compileall
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
from benchmarks.resources import HERE

NETWORKS = (
    "fcn5", "alexnet", "resnet56", "lstm64", "lstm256", "atis", "bilstm", "bigru", "attention", "decoding", "tiny"
)
SIDES = ("cntkjax", "cntk27", "torch", "torch.compile", "jax")
COLD, COLD_SECONDS = 100, 20.0  # minibatches of a process whose caches are empty; seconds after which fewer do
UNSUPPORTED = {"jax": ("bilstm", "bigru", "attention", "decoding"), "torch.compile": ("decoding",)}

Result = dict[str, Any]


class SideFailed(Exception):
    """A side cannot build or train a network; the message is the end of its output."""


class Worker:
    """A process that trains one network on one side and is idle between runs. `begin`: when it was started."""

    def __init__(self, process: subprocess.Popen[str], log: Path, begin: float) -> None:
        self.process, self.log, self.begin = process, log, begin
        self.version: str = self._answer()["version"]

    def run(self, minibatches: int) -> Result:
        """Train; the result has `seconds`, `samples` and, for the JAX sides, the compilations so far."""
        assert self.process.stdin
        with suppress(BrokenPipeError):  # then there is no answer either, and that error says more
            print(minibatches, file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Result:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SideFailed("\n".join(self.log.read_text(errors="replace").splitlines()[-8:]))
        return json.loads(line)


def environment(cache: Path) -> dict[str, str]:
    """The environment of a process that imports this package from the checkout, with its compilation cache.

    The package has bytecode, as pip gives it to all that it installs, whatever PYTHONDONTWRITEBYTECODE says.
    """
    source = HERE.parent / "src"
    compileall.compile_dir(source, quiet=1)
    path = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "CNTKJAX_CACHE_DIR": str(cache)}


@contextmanager
def worker_process(side: str, network: str, interpreter: str, folder: Path | None, scratch: Path) -> Iterator[Worker]:
    """A worker with its log and its compilation cache in `scratch`."""
    command = [interpreter, str(HERE / "worker.py"), side, network, *([str(folder)] if folder else [])]
    log = scratch / f"{side}.log"
    begin = time.perf_counter()
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, env=environment(scratch / "cache"), stdin=PIPE, stdout=PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            yield Worker(process, log, begin)
        finally:
            process.terminate()


def compare(
    network: str, interpreters: Mapping[str, str], folder: Path | None, rounds: int, seconds: float
) -> dict[str, Result]:
    """Train one network on every side of `interpreters`, in interleaved rounds.

    Returns for each side its version, `milliseconds` per minibatch and `samples_per_second` (one number per round),
    `cold`: how many minibatches were done how many `seconds` after the process was started, with all caches empty, and
    for the JAX sides the compilations. A side that fails has only `error`.

    Units: each side trains for about `seconds` per round, and for at least one minibatch.
    """
    results: dict[str, Result] = {}
    workers: dict[str, Worker] = {}

    def failed(side: str, failure: SideFailed) -> None:
        print(f"{network}: {side} failed:\n{failure}", file=sys.stderr)
        results[side] = {"error": str(failure)}
        workers.pop(side, None)

    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        for side, interpreter in interpreters.items():
            if network in UNSUPPORTED.get(side, ()):
                continue
            try:
                worker = stack.enter_context(worker_process(side, network, interpreter, folder, Path(scratch)))
                results[side] = warm_up(worker, network, seconds)
                workers[side] = worker
            except SideFailed as failure:
                failed(side, failure)
        for _ in range(rounds):
            for side, worker in list(workers.items()):
                time.sleep(0.3)  # until the threads of the previous side have stopped spinning
                try:
                    run_round(worker, results[side])
                except SideFailed as failure:
                    failed(side, failure)
    return results


def warm_up(worker: Worker, network: str, seconds: float) -> Result:
    """Compile, fill caches, and measure how many minibatches take that many seconds."""
    varies = network == "atis"
    cold = run_cold(worker, COLD if varies else data.DIFFERENT, COLD_SECONDS if seconds else 0)
    if varies:
        worker.run(data.ATIS_PASS - cold["minibatches"])
    second = worker.run(1)
    count = max(1, round(seconds / second["seconds"]))
    result = {"version": worker.version, "cold": cold, "minibatches_per_round": count}
    return result | {"milliseconds": [], "samples_per_second": []}


def run_cold(worker: Worker, at_least: int, seconds: float) -> Result:
    """The first minibatches of a process: `COLD` of them, or fewer where these take longer than `seconds`."""
    minibatches, elapsed = 0, 0.0
    while minibatches < at_least or (minibatches < COLD and elapsed < seconds):
        elapsed += worker.run(data.DIFFERENT)["seconds"]
        minibatches += data.DIFFERENT
    return {"minibatches": minibatches, "seconds": time.perf_counter() - worker.begin}


def run_round(worker: Worker, result: Result) -> None:
    """Train for one round and append its times to the result."""
    answer = worker.run(result["minibatches_per_round"])
    seconds, samples = answer.pop("seconds"), answer.pop("samples")
    result["milliseconds"].append(1000 * seconds / result["minibatches_per_round"])
    result["samples_per_second"].append(samples / seconds)
    result |= answer
