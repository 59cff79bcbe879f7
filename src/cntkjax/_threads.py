"""Threads of the package's own, which an exception that is sent to the thread that starts them cannot keep from it."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable

_PATIENCE_SECONDS = 1.0


def start_thread(target: Callable[[], object], name: str) -> None:
    """Run a function in a daemon thread, once; returns when it has begun.

    CPython 3.11 may deliver an exception that is sent to this thread (`PyThreadState_SetAsyncExc`) to the thread that
    it is just creating. That one never begins, and `Thread.start` waits for it for ever. So `Thread.start` is called
    by another new thread here, to which nobody sends any, and if nothing has begun after a while, that is done again.
    """
    begun, claim = threading.Event(), threading.Lock()

    def run() -> None:
        if claim.acquire(blocking=False):  # a thread that was only slow comes second
            begun.set()
            target()

    while not begun.is_set():
        _thread.start_new_thread(threading.Thread(target=run, name=name, daemon=True).start, ())
        begun.wait(_PATIENCE_SECONDS)


def after_fork(callback: Callable[[], object]) -> None:
    """Call a function in every process that is forked from this one, which lacks its threads; Windows forks none."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


__all__ = ["after_fork", "start_thread"]
