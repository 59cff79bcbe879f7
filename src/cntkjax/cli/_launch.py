"""``cntkjax launch``: starts the workers of a job, on one or several hosts, without MPI or a scheduler."""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ._cores import shares
from ._hosts import HOSTS_ENDING, Host, HostMember, hosts_of, obey, tell
from ._processes import Ending, Job, Worker

_LOOPBACK = "127.0.0.1"


def run(options: argparse.Namespace) -> int:
    """Run the script on all workers, again if they fail and `--restarts` allows it; the exit status.

    With several hosts this process starts a launcher on each, unless `--host-index` says that it is one of these.
    Errors: ValueError for options that do not fit together or more workers than accelerators; OSError if the script
            cannot be read.
    """
    hosts = _hosts(options)
    if len(hosts) == 1 and hosts[0].is_local:
        options.host_index = 0
    if options.host_index is None:
        return _repeated(options, lambda: _run_hosts(options, hosts))
    here = hosts[options.host_index].workers
    cores = [set[int]()] * here if _accelerators(hosts, options.host_index) else shares(here)
    if options.logs is not None:
        options.logs.mkdir(parents=True, exist_ok=True)
    return _repeated(options, lambda: _run_workers(options, hosts, options.host_index, cores))


def _hosts(options: argparse.Namespace) -> list[Host]:
    """Errors: ValueError if the options do not fit together; OSError if the script cannot be read."""
    if os.name != "posix":
        raise ValueError("processes are started as on Linux and macOS; on Windows, run this under WSL2")
    if (options.workers is not None and options.workers < 1) or options.restarts < 0:
        raise ValueError("give at least one worker (-n), and restarts from 0")
    hosts = hosts_of(options.hosts, options.hostfile, options.workers)
    if options.host_index is not None:
        if not 0 <= options.host_index < len(hosts):
            raise ValueError(f"--host-index {options.host_index}: there are {len(hosts)} hosts, counted from 0")
        if len(hosts) > 1 and options.coordinator is None and not (options.attached and options.host_index == 0):
            raise ValueError(
                f"where each host has a launcher of its own, give all a free port of the first: --coordinator "
                f"{hosts[0].address}:PORT"
            )
    if options.script.is_dir():
        raise IsADirectoryError(f"{options.script} is a folder; give the script in it")
    with options.script.open("rb"):
        pass
    return hosts


def _accelerators(hosts: list[Host], index: int) -> int:
    """The number of this host's accelerators. Errors: ValueError if it has some, but fewer than workers."""
    accelerators = _visible_accelerators()
    if 0 < accelerators < hosts[index].workers:
        raise ValueError(
            f"{hosts[index].workers} workers need a device each, but this host has {accelerators}; give -n at most "
            f"{accelerators * len(hosts)}, or set JAX_PLATFORMS=cpu to train on the CPU"
        )
    return accelerators


def _visible_accelerators() -> int:
    """Their number as another process sees them: this one must not occupy their memory."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return 0
    program = "import jax; print(sum(d.platform != 'cpu' for d in jax.local_devices()))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    )
    return int(done.stdout) if done.returncode == 0 else 0


def _repeated(options: argparse.Namespace, run_once: Callable[[], tuple[Job, int]]) -> int:
    """Run the job, again after a failure; the error of the member that failed is printed last, or told."""
    for restart in range(options.restarts + 1):
        if restart:
            text = f"cntkjax launch: starts all workers again, restart {restart} of {options.restarts}"
            print(text, file=sys.stderr, flush=True)
        job, status = run_once()
        if (culprit := job.culprit) is not None:
            if options.attached:
                tell(failure={"text": culprit.report(), "blames_another": culprit.blames_another})
            else:
                print(culprit.report(), file=sys.stderr, flush=True)
        if status == 0 or job.signal is not None:
            break
    return status


def _run_workers(options: argparse.Namespace, hosts: list[Host], index: int, cores: list[set[int]]) -> tuple[Job, int]:
    """Run the workers of this host, each on its cores. Worker 0 inherits the socket of a port that is chosen here."""
    size, first = sum(host.workers for host in hosts), sum(host.workers for host in hosts[:index])
    environment = {**os.environ, "CNTKJAX_SIZE": str(size), "PYTHONUNBUFFERED": "1"}
    environment.pop("CNTKJAX_PROCESS", None)  # where a worker starts a job
    descriptors: list[int] = []
    with ExitStack() as stack, Job(Ending()) as job:
        coordinator = options.coordinator
        if coordinator is None:
            address = _meeting_host(hosts)
            server = stack.enter_context(
                socket.create_server((address if address == _LOOPBACK else "", 0), backlog=size)
            )
            coordinator = f"{address}:{server.getsockname()[1]}"
            descriptors = [server.fileno()]
            environment["CNTKJAX_SOCKET"] = str(server.fileno())
        environment["CNTKJAX_COORDINATOR"] = coordinator
        for local, worker_cores in enumerate(cores):
            rank = first + local
            variables = {"CNTKJAX_RANK": str(rank), "CNTKJAX_LOCAL_RANK": str(local)}
            log: Path | None = options.logs and options.logs / f"worker-{rank}.log"
            command = [sys.executable, str(options.script), *options.arguments]
            inherited = descriptors if rank == 0 else []
            job.members.append(Worker(rank, command, {**environment, **variables}, log, inherited, worker_cores))
        for member in job.members:  # when all are started, since threads and fork do not mix
            member.copy_output()
        if options.attached:
            tell(coordinator=coordinator)
            obey(job.kill)
        return job, job.wait()


def _meeting_host(hosts: list[Host]) -> str:
    """The address of the first host for all others."""
    if all(host.is_local for host in hosts):
        return _LOOPBACK
    return socket.gethostname() if hosts[0].is_local else hosts[0].address


def _run_hosts(options: argparse.Namespace, hosts: list[Host]) -> tuple[Job, int]:
    """Run a launcher on each host; the first one says where the workers meet."""
    coordinator = options.coordinator
    with Job(HOSTS_ENDING) as job:
        for index, host in enumerate(hosts):
            command = _command(options, hosts, index, coordinator)
            member = HostMember(host, command, shlex.split(options.ssh))
            job.members.append(member)
            member.copy_output()
            coordinator = coordinator or member.await_coordinator(lambda: job.signal is not None)
            if coordinator is None:  # it has failed
                break
        return job, job.wait()


def _command(options: argparse.Namespace, hosts: list[Host], index: int, coordinator: str | None) -> list[str]:
    names = ",".join(f"{host.name}:{host.workers}" for host in hosts)
    flags = ["--hosts", names, "--host-index", str(index), "--attached"]
    flags += ["--coordinator", coordinator] if coordinator else []
    flags += ["--logs", str(options.logs)] if options.logs else []
    return [sys.executable, "-m", "cntkjax.cli", "launch", *flags, str(options.script), *options.arguments]


__all__ = ["run"]
