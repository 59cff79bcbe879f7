"""Starts workers as a scheduler does, by variables in their environment, or by mpiexec."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "JAX_PLATFORMS": "cpu"}
MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


def start(script, *arguments, size=2, timeout="15", missing=(), environments=None, **variables):
    """Start the workers; returns their processes, whose output and errors are piped together.

    `missing`: ranks that are not started. `variables`: more of the environment;
    `environments`: those of each rank.
    """
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        coordinator = f"localhost:{probe.getsockname()[1]}"
    common = {
        "CNTKJAX_COORDINATOR": coordinator, "CNTKJAX_SIZE": str(size), "CNTKJAX_WORKER_TIMEOUT": timeout, **variables
    }
    return [
        process(
            [sys.executable, HERE / script, *arguments],
            {**common, "CNTKJAX_RANK": str(rank), **(environments[rank] if environments else {})},
        )
        for rank in range(size) if rank not in missing
    ]


def process(command, variables, errors=subprocess.STDOUT):
    """A process with these variables in its environment, whose output and errors are piped, together by default."""
    return subprocess.Popen(
        [*map(str, command)], env={**ENVIRONMENT, **variables}, stdout=subprocess.PIPE, stderr=errors,
        stdin=subprocess.DEVNULL, text=True,
    )


def mpiexec(options, script, *arguments, errors=subprocess.STDOUT, **variables):
    """The process of mpiexec with these options."""
    pytest.importorskip("mpi4py")
    if MPIEXEC is None:
        pytest.skip("needs mpiexec: pip install 'cntkjax[mpi]'")
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [MPIEXEC, *options, sys.executable, HERE / script, *arguments]
    return process(command, as_root | {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"} | variables, errors)


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
            worker.stdout.close()


def saved(file):
    """The arrays that a worker has saved; the file is closed, and not by whatever test collects garbage next."""
    with np.load(file) as arrays:
        return dict(arrays)
