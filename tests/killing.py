"""Training in forked processes that are killed: what tests/stress/killed.py and tests/sgd/restarted.py share.

These are scripts, run by `output_of`, which import everything but compute nothing: jax starts anew in each fork.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.stress.training import LONGER

ROOT = Path(__file__).parents[1]


class End(NamedTuple):
    """How a process ended: whether it was killed, what it had written by then, and how long that took."""

    killed: bool
    written: bytes
    seconds: float


def end_of(train: Callable[[int], object], minibatches: int | None = None, later: float = 0.0) -> End:
    """Call `train` in a process that is killed some seconds after a minibatch, or ends by itself.

    `train` gets a pipe, into which it writes a byte after each minibatch.
    """
    begin = time.perf_counter()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        os.close(reader)
        try:
            train(writer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    written, last = b"", b"."
    while last and (minibatches is None or len(written) < minibatches):
        last = os.read(reader, 1)
        written += last
    seconds = time.perf_counter() - begin
    if minibatches is not None:
        time.sleep(later)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    os.close(reader)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit("training failed")
    return End(os.WIFSIGNALED(status), written, seconds)


def write_data(folder: Path, rows: int) -> None:
    """Write data.ctf, with fields x of 4 numbers and y of 2 classes."""
    x = np.random.default_rng(0).normal(size=(rows, 4))
    (folder / "data.ctf").write_text("".join(
        f"|x {' '.join(map(str, row))} |y {'1 0' if row.sum() > 0 else '0 1'}\n" for row in x
    ))


def output_of(script: Path, folder: Path, kills: int) -> str:
    """What `python script folder kills` prints. Errors: AssertionError if it fails."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "ignore:os.fork", script, folder, str(kills)]  # no thread of jax runs yet
    run = subprocess.run(command, capture_output=True, text=True, timeout=280 * LONGER, env=environment)
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


def assert_same_parameters(folder: Path, other: Path) -> int:
    """Compare trained.npz and the names of all files in two folders; returns the number of arrays."""
    with np.load(folder / "trained.npz") as a, np.load(other / "trained.npz") as b:
        assert sorted(a.files) == sorted(b.files)
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name], err_msg=f"{folder.name} {name}")
        count = len(a.files)
    assert sorted(file.name for file in folder.iterdir()) == sorted(file.name for file in other.iterdir())
    return count
