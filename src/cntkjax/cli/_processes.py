"""The processes of a job: started together, their output labelled, ended together."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from types import FrameType
from typing import IO, Any, NamedTuple

from ._cores import compute_on

LAST_WORDS = 3.0  # seconds after a failure in which the other workers may say why they end
TERMINATION = 5.0  # seconds from SIGTERM to SIGKILL
PATIENCE = 30.0  # seconds that workers have to end after a signal from outside, such as to save a checkpoint
POLL = 0.05  # seconds
_ERROR_LINES = 30  # of a failed worker, which are printed at the end if its output goes to a file
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_PR_SET_PDEATHSIG = 1
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None

_printing = threading.Lock()


class Ending(NamedTuple):
    """How a job is ended: the seconds to wait before each signal, which are SIGKILL but the first after a failure."""

    after_failure: Sequence[float] = (LAST_WORDS, TERMINATION)
    after_signal: Sequence[float] = (PATIENCE,)


class WorkerProcess(ABC):
    """A process in a group of its own, and two threads that copy its output, line by line.

    `repeated`: how many lines of its stderr the report of a failure has: the last one, where all were printed before.
    """

    def __init__(self, name: str, command: Sequence[str], repeated: int = 1, **options: Any) -> None:
        self.name = name
        self._errors: deque[bytes] = deque(maxlen=repeated)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **options
        )
        self._threads: list[threading.Thread] = []

    def copy_output(self) -> None:
        """Start the threads."""
        streams = (self.process.stdout, sys.stdout.buffer, None), (self.process.stderr, sys.stderr.buffer, self._errors)
        for arguments in streams:
            self._threads.append(threading.Thread(target=self._copy, args=arguments, daemon=True))
            self._threads[-1].start()

    def send(self, number: int) -> None:
        """Send a signal to the process and those that it has started."""
        with suppress(OSError):  # they have ended
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """After its end: end what it has started, and copy the rest of its output."""
        WorkerProcess.send(self, signal.SIGKILL)
        for thread in self._threads:
            thread.join(TERMINATION)

    @property
    @abstractmethod
    def blames_another(self) -> bool:
        """Whether it ends because of another worker."""

    def report(self) -> str:
        """How it failed, and the last lines of its stderr."""
        status = self.process.returncode
        reason = f"exit status {status}" if status > 0 else signal.Signals(-status).name
        lines = (line.decode(errors="replace").rstrip() for line in self._errors)
        return "\n".join([f"cntkjax launch: {self.name} failed with {reason}", *lines])

    @abstractmethod
    def copy(self, line: bytes, stream: IO[bytes]) -> None:
        """Write a line of its output."""

    def _copy(self, pipe: IO[bytes], stream: IO[bytes], kept: deque[bytes] | None) -> None:
        with pipe:
            for line in pipe:
                line = line.rstrip(b"\n") + b"\n"
                if kept is not None and not line.isspace():
                    kept.append(line)
                with suppress(OSError), _printing:  # who reads it, such as head, may have ended
                    self.copy(line, stream)


class Worker(WorkerProcess):
    """A worker on this host.

    `log`: the file for its output, to which it is appended; None for this process's stdout and stderr, with the rank
    before each line. `cores`: see `compute_on`.
    """

    def __init__(
        self, rank: int, command: Sequence[str], environment: Mapping[str, str], log: Path | None,
        descriptors: Sequence[int], cores: Collection[int],
    ) -> None:
        self._label, self._blame = b"[%d] " % rank, b"cntkjax: worker %d ends, because" % rank
        self._blames_another = False
        self._log = None if log is None else log.open("ab", buffering=0)
        super().__init__(
            f"worker {rank}", command, 1 if log is None else _ERROR_LINES, env=environment, stdin=subprocess.DEVNULL,
            pass_fds=descriptors, preexec_fn=partial(_prepare, os.getpid(), cores),
        )

    @property
    def blames_another(self) -> bool:
        """Whether it says that it ends because of another worker, as `parallel.workers` does."""
        return self._blames_another

    def close(self) -> None:
        """After its end."""
        super().close()
        if self._log is not None:
            self._log.close()

    def report(self) -> str:
        """How it failed, and the last lines of its stderr, labelled."""
        first, *lines = super().report().splitlines()
        return "\n".join([first, *(self._label.decode() + line for line in lines)])

    def copy(self, line: bytes, stream: IO[bytes]) -> None:
        """Write a line of its output to the log, or labelled."""
        self._blames_another |= self._blame in line
        if self._log is not None:
            self._log.write(line)
        else:
            stream.write(self._label + line)
            stream.flush()


class Job:
    """Members that end together: when one fails, the others get some seconds, then SIGTERM, then SIGKILL.

    SIGINT, SIGTERM and SIGHUP are passed on to all of them while the job is entered.
    """

    def __init__(self, ending: Ending) -> None:
        self.members: list[WorkerProcess] = []
        self.signal: int | None = None  # the last one from outside
        self._ending = ending
        self._failed: list[WorkerProcess] = []  # in the order of their ends, without those that this process has ended
        self._plan: deque[tuple[float, int]] = deque()  # when to send which signal
        self._is_ending = False

    def __enter__(self) -> Job:
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in self._handlers.items():
            if handler is not signal.SIG_IGN:  # as nohup wants it
                signal.signal(number, self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:  # left only if this process raises
            if member.process.poll() is None:
                member.send(signal.SIGKILL)
                member.process.wait()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def wait(self) -> int:
        """Wait until all members have ended; returns the exit status, that of the first one to fail."""
        if self.signal is not None:  # it came before all were started
            self._send(self.signal)
        running = list(self.members)
        while running:
            time.sleep(POLL)
            for member in [each for each in running if each.process.poll() is not None]:
                running.remove(member)
                self._has_ended(member)
            while self._plan and time.monotonic() >= self._plan[0][0]:
                self._is_ending = True
                self._send(self._plan.popleft()[1])
        return self._status()

    @property
    def culprit(self) -> WorkerProcess | None:
        """The member that failed by itself, or else the first to fail; None if none did, or after a signal."""
        if self.signal is not None or not self._failed:
            return None
        return next((member for member in self._failed if not member.blames_another), self._failed[0])

    def kill(self) -> None:
        """End all members at once; may be called in another thread, when all are started."""
        self._is_ending = True
        self._send(signal.SIGKILL)

    def _has_ended(self, member: WorkerProcess) -> None:
        member.close()
        if member.process.returncode == 0 or self._is_ending:
            return
        self._failed.append(member)
        if not self._plan:
            numbers = signal.SIGTERM, *[signal.SIGKILL] * (len(self._ending.after_failure) - 1)
            self._plan.extend(zip(_times(self._ending.after_failure), numbers, strict=True))

    def _status(self) -> int:
        if all(member.process.returncode == 0 for member in self.members):
            return 0
        if self.signal is not None:
            return 128 + self.signal
        if self.culprit is None:  # killed
            return 1
        status = self.culprit.process.returncode
        return status if status > 0 else 128 - status

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self._plan = deque((at, signal.SIGKILL) for at in _times(self._ending.after_signal))
        self._send(number)

    def _send(self, number: int) -> None:
        for member in self.members:
            if member.process.returncode is None:
                member.send(number)


def _times(seconds: Sequence[float]) -> list[float]:
    now = time.monotonic()
    return [now + after for after in accumulate(seconds)]


def _prepare(parent: int, cores: Collection[int]) -> None:
    """What a child does before it runs its program: on Linux, it asks to be killed when its parent ends."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    compute_on(cores)


__all__ = ["LAST_WORDS", "PATIENCE", "POLL", "TERMINATION", "Ending", "Job", "WorkerProcess", "Worker"]
