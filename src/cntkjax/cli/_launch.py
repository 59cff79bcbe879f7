"""``cntkjax launch``: starts the workers of a job, without MPI or a scheduler."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ._processes import Job, Worker

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Plan:
    """The workers of this host: `count` of `size`, from `first` on. `coordinator` is None for a free port of it."""

    size: int
    first: int
    count: int
    coordinator: str | None


def run(options: argparse.Namespace) -> int:
    """Runs the script on all workers of this host, again if they fail and `--restarts` allows it; the exit status.

    Errors: ValueError for options that do not fit together or more workers than accelerators; OSError if the script
            cannot be read.
    """
    plan = _plan(options)
    _check(options, plan)
    if options.logs is not None:
        options.logs.mkdir(parents=True, exist_ok=True)
    for restart in range(options.restarts + 1):
        if restart:
            text = f"cntkjax launch: starts all workers again, restart {restart} of {options.restarts}"
            print(text, file=sys.stderr, flush=True)
        with Job() as job:
            _start(job, plan, options)
            status = job.wait()
        if status == 0 or job.signal is not None:
            break
    return status


def _plan(options: argparse.Namespace) -> Plan:
    """Errors: ValueError if the options do not fit together."""
    hosts = options.hosts.split(",") if options.hosts else [socket.gethostname()]
    if options.workers < 1 or options.restarts < 0:
        raise ValueError("give at least one worker (-n), and restarts from 0")
    if options.workers % len(hosts):
        raise ValueError(
            f"{options.workers} workers cannot be divided evenly among {len(hosts)} hosts: {options.hosts}"
        )
    if len(hosts) > 1 and options.coordinator is None:
        raise ValueError(f"with several hosts, give a free port of the first: --coordinator {hosts[0]}:PORT")
    index = options.host_index
    if index is None:
        names = {socket.gethostname(), socket.gethostname().partition(".")[0], socket.getfqdn()}
        index = next((i for i, host in enumerate(hosts) if host in names), None)
    if index is None or not 0 <= index < len(hosts):
        raise ValueError(
            f"this host, {socket.gethostname()}, is none of {options.hosts}; give its number from 0: --host-index"
        )
    count = options.workers // len(hosts)
    return Plan(options.workers, index * count, count, options.coordinator)


def _check(options: argparse.Namespace, plan: Plan) -> None:
    if os.name != "posix":
        raise ValueError("processes are started as on Linux and macOS; on Windows, run this under WSL2")
    if options.script.is_dir():
        raise IsADirectoryError(f"{options.script} is a folder; give the script in it")
    with options.script.open("rb"):
        pass
    accelerators = _accelerators()
    if 0 < accelerators < plan.count:
        raise ValueError(
            f"{plan.count} workers need a device each, but this host has {accelerators}; give -n at most "
            f"{accelerators * (plan.size // plan.count)}, or set JAX_PLATFORMS=cpu to train on the CPU"
        )


def _accelerators() -> int:
    """The number of this host's accelerators, as another process sees them: this one must not occupy their memory."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return 0
    program = "import jax; print(sum(d.platform != 'cpu' for d in jax.local_devices()))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    )  # fmt: skip
    return int(done.stdout) if done.returncode == 0 else 0


def _start(job: Job, plan: Plan, options: argparse.Namespace) -> None:
    """Start the workers. Worker 0 inherits the socket of a port that is chosen here, so that none can take it."""
    environment = {**os.environ, "CNTKJAX_SIZE": str(plan.size), "PYTHONUNBUFFERED": "1"}
    environment.pop("CNTKJAX_PROCESS", None)  # where a worker starts a job
    descriptors: list[int] = []
    with ExitStack() as stack:
        coordinator = plan.coordinator
        if coordinator is None:
            server = stack.enter_context(socket.create_server((_LOOPBACK, 0), backlog=plan.size))
            coordinator = f"{_LOOPBACK}:{server.getsockname()[1]}"
            descriptors = [server.fileno()]
            environment["CNTKJAX_SOCKET"] = str(server.fileno())
        environment["CNTKJAX_COORDINATOR"] = coordinator
        for local in range(plan.count):
            rank = plan.first + local
            variables = {"CNTKJAX_RANK": str(rank), "CNTKJAX_LOCAL_RANK": str(local)}
            log: Path | None = options.logs and options.logs / f"worker-{rank}.log"
            command = [sys.executable, str(options.script), *options.arguments]
            inherited = descriptors if rank == 0 else []
            job.workers.append(Worker(rank, command, {**environment, **variables}, log, inherited))


__all__ = ["run"]
