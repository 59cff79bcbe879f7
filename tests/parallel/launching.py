"""Starts workers as a scheduler does, by variables in their environment."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def start(script, *arguments, size=2, timeout="15", missing=(), environments=None, **variables):
    """Start the workers; returns their processes, whose output and errors are piped together.

    `missing`: ranks that are not started. `variables`: more of the environment;
    `environments`: those of each rank.
    """
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        coordinator = f"localhost:{probe.getsockname()[1]}"
    environment = {
        **os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "JAX_PLATFORMS": "cpu",
        "CNTKJAX_COORDINATOR": coordinator, "CNTKJAX_SIZE": str(size), "CNTKJAX_WORKER_TIMEOUT": timeout,
        **variables,
    }  # fmt: skip
    return [
        subprocess.Popen(
            [sys.executable, HERE / script, *map(str, arguments)],
            env={**environment, "CNTKJAX_RANK": str(rank), **(environments[rank] if environments else {})},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(size) if rank not in missing
    ]  # fmt: skip


def outputs(workers, seconds=200):
    """What each worker has printed when all have ended; none is left running."""
    deadline = time.monotonic() + seconds
    try:
        return [worker.communicate(timeout=deadline - time.monotonic())[0] for worker in workers]
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
