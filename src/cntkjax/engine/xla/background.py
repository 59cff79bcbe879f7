"""A thread for compilations that nobody waits for yet; XLA compiles without holding Python's lock."""

from __future__ import annotations

import atexit
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Runs tasks one after the other in a thread of its own.

    At the end of the process the task that is running is waited for, since XLA must not be left in the midst of it;
    the others are dropped.
    """

    _thread: threading.Thread | None

    def __init__(self) -> None:
        self._forget()
        atexit.register(self._stop)
        os.register_at_fork(after_in_child=self._forget)

    def submit(self, task: Callable[[], T]) -> Future[T]:
        """Run a task when those before it are done; until it begins, its future can be cancelled."""
        future: Future[T] = Future()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cntkjax-compile", daemon=True)
                self._thread.start()
            self._tasks.put((future, task))
        return future

    def _run(self) -> None:
        while True:
            future, task = self._tasks.get()
            if self._stopping:
                return
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = task()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del future, task  # they keep programs alive

    def _stop(self) -> None:
        self._stopping = True
        if self._thread is not None:
            self._tasks.put((Future(), lambda: None))  # wakes the thread
            self._thread.join()

    def _forget(self) -> None:
        """Begin without a thread: a forked process has none."""
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._thread = None
        self._stopping = False


background = Background()

__all__ = ["Background", "background"]
