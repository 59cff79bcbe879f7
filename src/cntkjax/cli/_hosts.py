"""The hosts of a job: which workers run on each, and the launcher that ssh starts there.

The launcher of a job runs `cntkjax launch --host-index` on each host, on this one without ssh. What it tells them goes
through their stdin: the numbers of signals, a line each; its end is that of the job. What they tell it comes between
the lines of their stdout, as JSON behind a zero byte: where the workers meet, and why the job failed there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ._processes import LAST_WORDS, PATIENCE, POLL, TERMINATION, Ending, WorkerProcess

FORWARDED = "CNTKJAX_", "JAX_", "XLA_", "NCCL_", "PYTHONPATH", "LD_LIBRARY_PATH"
"""The variables, by the beginning of their names, that the workers on other hosts get too."""

HOSTS_ENDING = Ending(  # each host ends its own workers, which takes as long as without other hosts
    (LAST_WORDS + 2 * TERMINATION, TERMINATION, TERMINATION), (PATIENCE + TERMINATION, TERMINATION)
)
_MARK = b"\0"
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Host:
    """A host, as ssh knows it, and how many workers it has."""

    name: str
    workers: int

    @property
    def address(self) -> str:
        """Its name without the user."""
        return self.name.rpartition("@")[2]

    @property
    def is_local(self) -> bool:
        """Whether it is this one, as its name says."""
        return self.address in _LOCAL | {socket.gethostname(), socket.gethostname().partition(".")[0]}


def hosts_of(names: str | None, file: Path | None, workers: int | None) -> list[Host]:
    """The hosts that have workers, from the options of the command line.

    `names`: "a,b:4"; `file`: a line "a slots=4" or "a:4" for each host, as mpiexec reads it; `workers`: how many in
    all, by default as many as there are slots. Where no host has a number of slots they are divided evenly.
    Errors: ValueError if they do not fit together; OSError if the file cannot be read.

    >>> hosts_of("a:2,b:4", None, 3)
    [Host(name='a', workers=2), Host(name='b', workers=1)]
    """
    if names is not None and file is not None:
        raise ValueError("give --hosts or --hostfile, not both")
    entries = [_entry(e) for e in (_lines(file) if file else (names or "localhost").split(","))]
    given, text = any(slots for _, slots in entries), str(file or names)
    if workers is None and not given:
        raise ValueError(f"give the number of workers: -n, or slots of the hosts, {entries[0][0]}:8")
    if given:
        slots = [count or 1 for _, count in entries]
        if workers is not None and workers > sum(slots):
            raise ValueError(f"{workers} workers are more than the {sum(slots)} slots of {text}")
    else:
        assert workers is not None
        if workers < 1:
            raise ValueError("give at least one worker (-n)")
        if workers % len(entries):
            raise ValueError(f"{workers} workers cannot be divided evenly among {len(entries)} hosts: {text}")
        slots = [workers // len(entries)] * len(entries)
    left, hosts = sum(slots) if workers is None else workers, []
    for (name, _), count in zip(entries, slots, strict=True):
        hosts.append(Host(name, min(count, left)))
        left -= hosts[-1].workers
    return [host for host in hosts if host.workers]


def _lines(file: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    if entries := [line for line in lines if line]:
        return entries
    raise ValueError(f"{file} lists no hosts; write a line such as 'node1 slots=8' for each")


def _entry(text: str) -> tuple[str, int]:
    """A host's name and number of slots, 0 if there is none."""
    match = re.fullmatch(r"([^\s:=]+)(?:(?::|\s+slots\s*=\s*)([1-9]\d*))?", text.strip())
    if match is None:
        raise ValueError(f"{text.strip()!r} is no host; write name, name:slots or, in a file, 'name slots=8'")
    return match[1], int(match[2] or 0)


class HostMember(WorkerProcess):
    """The launcher of one host, as a part of the job. Lines that are not of its workers have the host's name before."""

    def __init__(self, host: Host, command: Sequence[str], ssh: Sequence[str]) -> None:
        self._failure: dict[str, Any] | None = None
        self._told = threading.Event()
        self._coordinator: str | None = None
        self._label = f"[{host.name}] ".encode()
        remote = () if host.is_local else (*ssh, host.name, "--", _shell_command(command, os.environ))
        super().__init__(f"host {host.name}", remote or command, stdin=subprocess.PIPE)

    def await_coordinator(self, is_ended: Callable[[], bool]) -> str | None:
        """Where the workers meet, when the launcher has said it; None if it, or the job, ends before."""
        while not self._told.wait(POLL) and self.process.poll() is None and not is_ended():
            pass
        return self._coordinator

    def send(self, number: int) -> None:
        """Pass a signal on to the launcher there. SIGKILL ends the connection, and so the job; the next one, ssh."""
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):
            if number != signal.SIGKILL:
                self.process.stdin.write(b"%d\n" % number)
                self.process.stdin.flush()
                return
            if not self.process.stdin.closed:
                self.process.stdin.close()
                return
        super().send(number)

    @property
    def blames_another(self) -> bool:
        """Whether the workers there ended because of one elsewhere."""
        return self._failure is not None and bool(self._failure["blames_another"])

    def report(self) -> str:
        """The error of the worker that failed there, or that of the launcher or ssh."""
        return super().report() if self._failure is None else str(self._failure["text"])

    def copy(self, line: bytes, stream: IO[bytes]) -> None:
        """A line of its output."""
        if not line.startswith(_MARK):
            stream.write(line if line.startswith(b"[") else self._label + line)
            stream.flush()
            return
        message = json.loads(line[1:])
        self._coordinator = message.get("coordinator", self._coordinator)
        self._failure = message.get("failure", self._failure)
        self._told.set()


def _shell_command(command: Sequence[str], environment: Mapping[str, str]) -> str:
    variables = {name: value for name, value in environment.items() if name.startswith(FORWARDED)}
    settings = [f"{name}={value}" for name, value in variables.items()]
    return f"cd {shlex.quote(os.getcwd())} && exec env {shlex.join([*settings, *command])}"


# ---- the other end


def tell(**message: object) -> None:
    """Tell the launcher of the job something."""
    with suppress(OSError):
        sys.stdout.buffer.write(_MARK + json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()


def obey(on_end: Callable[[], object]) -> None:
    """Raise the signals that the launcher of the job sends, in a thread of its own; `on_end` is called at their end."""

    def read() -> None:
        with open(0, "rb", buffering=0, closefd=False) as pipe:  # sys.stdin's lock would be held when Python ends
            for line in pipe:
                os.kill(os.getpid(), int(line))
        on_end()

    threading.Thread(target=read, name="cntkjax-launch", daemon=True).start()


__all__ = ["FORWARDED", "HOSTS_ENDING", "Host", "HostMember", "hosts_of", "obey", "tell"]
