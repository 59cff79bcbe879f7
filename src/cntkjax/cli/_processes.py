"""Workers of one host: started together, their output labelled, ended together."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

LAST_WORDS = 3.0  # seconds after a failure in which the other workers may say why they end
TERMINATION = 5.0  # seconds from SIGTERM to SIGKILL
PATIENCE = 30.0  # seconds that workers have to end after a signal from outside, such as to save a checkpoint
_POLL = 0.05  # seconds
_ERROR_LINES = 30  # of a failed worker, which are repeated at the end
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_PR_SET_PDEATHSIG = 1

_printing = threading.Lock()


class Worker:
    """A process in a group of its own, and two threads that copy its output, line by line.

    `log`: the file for its output, to which it is appended; None for this process's stdout and stderr, with the rank
    before each line.
    """

    def __init__(
        self, rank: int, command: Sequence[str], environment: Mapping[str, str], log: Path | None,
        descriptors: Sequence[int],
    ) -> None:  # fmt: skip
        self.rank = rank
        self.blames_another = False  # whether it ends because of another worker, as `parallel.workers` says then
        self._errors: deque[bytes] = deque(maxlen=_ERROR_LINES)
        self._log = None if log is None else log.open("ab", buffering=0)
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, pass_fds=descriptors, preexec_fn=_end_with(os.getpid()),
        )  # fmt: skip
        self._threads: list[threading.Thread] = []

    def copy_output(self) -> None:
        """Start the threads; to be called when all workers are started, since threads and fork do not mix."""
        streams = (self.process.stdout, sys.stdout.buffer, None), (self.process.stderr, sys.stderr.buffer, self._errors)
        for arguments in streams:
            self._threads.append(threading.Thread(target=self._copy, args=arguments, daemon=True))
            self._threads[-1].start()

    def send(self, number: int) -> None:
        """Send a signal to the worker and the processes that it has started."""
        with suppress(OSError):  # they have ended
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """After its end: end what it has started, and copy the rest of its output."""
        self.send(signal.SIGKILL)
        for thread in self._threads:
            thread.join(TERMINATION)
        if self._log is not None:
            self._log.close()

    def report(self) -> str:
        """How it failed, and the last lines of its stderr."""
        status = self.process.returncode
        reason = f"exit status {status}" if status > 0 else signal.Signals(-status).name
        lines = [f"cntkjax launch: worker {self.rank} failed with {reason}"]
        return "\n".join(
            [*lines, *(f"[{self.rank}] {line.decode(errors='replace').rstrip()}" for line in self._errors)]
        )

    def _copy(self, pipe: IO[bytes], stream: IO[bytes], kept: deque[bytes] | None) -> None:
        with pipe:
            for line in pipe:
                line = line.rstrip(b"\n") + b"\n"
                if kept is not None:
                    kept.append(line)
                    self.blames_another |= b"cntkjax: worker %d ends, because" % self.rank in line
                with suppress(OSError), _printing:  # who reads it, such as head, may have ended
                    if self._log is not None:
                        self._log.write(line)
                    else:
                        stream.write(b"[%d] %b" % (self.rank, line))
                        stream.flush()


class Job:
    """Workers that end together: when one fails, the others get some seconds, then SIGTERM, then SIGKILL.

    SIGINT, SIGTERM and SIGHUP are passed on to all of them while the job is entered.
    """

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.signal: int | None = None  # the last one from outside
        self._failed: list[Worker] = []  # in the order of their ends, without those that this process has ended
        self._plan: deque[tuple[float, int]] = deque()  # when to send which signal
        self._is_ending = False

    def __enter__(self) -> Job:
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in self._handlers.items():
            if handler is not signal.SIG_IGN:  # as nohup wants it
                signal.signal(number, self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:  # left only if this process raises
            if worker.process.poll() is None:
                worker.send(signal.SIGKILL)
                worker.process.wait()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def wait(self) -> int:
        """Copy the workers' output until all have ended; returns the exit status, that of the first one to fail.

        Its error is printed last.
        """
        for worker in self.workers:
            worker.copy_output()
        if self.signal is not None:  # it came before all were started
            self._send(self.signal)
        running = list(self.workers)
        while running:
            time.sleep(_POLL)
            for worker in [each for each in running if each.process.poll() is not None]:
                running.remove(worker)
                self._has_ended(worker)
            while self._plan and time.monotonic() >= self._plan[0][0]:
                self._is_ending = True
                self._send(self._plan.popleft()[1])
        return self._status()

    def _has_ended(self, worker: Worker) -> None:
        worker.close()
        if worker.process.returncode == 0 or self._is_ending:
            return
        self._failed.append(worker)
        if not self._plan:
            now = time.monotonic()
            self._plan.extend([(now + LAST_WORDS, signal.SIGTERM), (now + LAST_WORDS + TERMINATION, signal.SIGKILL)])

    def _status(self) -> int:
        if all(worker.process.returncode == 0 for worker in self.workers):
            return 0
        if self.signal is not None:
            return 128 + self.signal
        culprit = next((worker for worker in self._failed if not worker.blames_another), self._failed[0])
        print(culprit.report(), file=sys.stderr, flush=True)
        status = culprit.process.returncode
        return status if status > 0 else 128 - status

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self._plan.clear()
        self._plan.append((time.monotonic() + PATIENCE, signal.SIGKILL))
        self._send(number)

    def _send(self, number: int) -> None:
        for worker in self.workers:
            if worker.process.returncode is None:
                worker.send(number)


def _end_with(parent: int) -> Callable[[], None]:
    """What a child does before it runs its program: on Linux, it asks to be killed when its parent ends."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def ask() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask


__all__ = ["Job", "Worker"]
