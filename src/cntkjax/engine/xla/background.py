"""Threads of the package's own that run tasks one after the other, which no interrupt of another thread confuses."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from ..._best_effort import BestEffort
from ..._threads import after_fork, start_thread

T = TypeVar("T")

_STARTING = BestEffort("start a thread for work in the background", "the work is done at once, while the program waits")

_IDLE_SECONDS = 5.0


class Background:
    """Runs tasks one after the other in a thread of its own, which ends when there was none for some seconds.

    An exception that arrives anywhere in `submit` (Ctrl-C) leaves the task in the queue or not; the order is kept, and
    the process ends. With a ThreadPoolExecutor it may leave a thread that the pool does not know of: the process waits
    for it for ever, and tasks run beside each other.

    `finishes`: at the end of the process all tasks are waited for. Otherwise only the one that is running, since XLA
    must not be left in the midst of it; the others are dropped.
    """

    def __init__(self, name: str, finishes: bool = False) -> None:
        self._name, self._finishes = name, finishes
        self._forget()
        _all.add(self)

    def submit(self, task: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run a task when those before it are done; until it begins, its future can be cancelled.

        At the end of the process, in the exit functions of others, it is run at once.
        """
        future: Future[T] = Future()
        self._tasks.put((future, task, arguments))
        if self._has_ended or (not self._running.locked() and not _STARTING.attempt(self._start, otherwise=False)):
            self._run_here()
        return future

    def _start(self) -> bool:
        start_thread(self._run, self._name)
        return True

    def _run_here(self) -> None:
        """Run the tasks that there are in this thread, unless another one has started nevertheless."""
        if self._running.acquire(blocking=False):
            try:
                self._run_all()
            finally:
                self._running.release()

    def _run(self) -> None:
        """Run tasks, unless another thread does: an interrupted `submit` may have started that one."""
        while not self._tasks.empty() and self._running.acquire(blocking=False):
            try:
                while self._run_next():
                    pass
            except Empty:
                pass
            finally:
                self._running.release()

    def _run_next(self) -> bool:
        """Run the next task; False at the end of the process. Errors: Empty if there is none for some seconds."""
        future, task, arguments = self._tasks.get(timeout=_IDLE_SECONDS)
        if task is _end or self._stopping:
            future.cancel()  # whoever waits for it goes on
            return False
        if future.set_running_or_notify_cancel():
            try:
                result = task(*arguments)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
        return True

    def _stop(self) -> None:
        """Wait as `finishes` says."""
        self._stopping = not self._finishes
        self._tasks.put((Future(), _end, ()))  # wakes the thread
        with self._running:
            while not self._tasks.empty():  # its thread had not begun yet, or dropped them
                self._run_next()
        self._has_ended, self._stopping = True, False

    def _run_all(self) -> None:
        """Run the tasks that there are."""
        while not self._tasks.empty() and self._run_next():
            pass

    def _forget(self) -> None:
        """Begin without a thread: a forked process has none."""
        self._running = threading.Lock()  # of the thread that runs tasks
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        self._stopping = self._has_ended = False


def beside(task: Callable[[], T]) -> Future[T]:
    """Run a task in a thread of its own, for a thread that waits for it unless it is interrupted.

    A process that ends waits for it; one that ends by an interrupt does not, and ends as by the signal.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(task())
        except BaseException as error:
            future.set_exception(error)

    _beside.add(future)
    start_thread(run, "cntkjax-beside")
    return future


_beside: weakref.WeakSet[Future[Any]] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """Registered before what stops other threads, and so run after it."""
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not all(f.done() for f in list(_beside)):
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError, ValueError):
                stream.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    wait(list(_beside))


def _end() -> None:
    """The last task."""


_all: weakref.WeakSet[Background] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for background in sorted(_all, key=lambda b: b._finishes):  # what is compiled last is stored too
        background._stop()


def _forget_all() -> None:
    for background in list(_all):
        background._forget()


after_fork(_forget_all)

compilations = Background("cntkjax-compile")
"""For compilations that nobody waits for yet; XLA compiles without holding Python's lock."""
storing = Background("cntkjax-store", finishes=True)
"""For storing what was compiled."""

__all__ = ["Background", "beside", "compilations", "storing"]
