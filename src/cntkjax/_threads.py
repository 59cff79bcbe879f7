"""Threads of the package's own, which an exception that is sent to the thread that starts them cannot keep from it."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable

_PATIENCE_SECONDS = 1.0
_END_SECONDS = 10.0  # for what is computed, or compiled, when the process ends
_FOLDER = os.path.dirname(__file__) + os.sep


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


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_computing: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # users' threads that have run programs
_has_ended = False


def check_running() -> None:
    """End a thread of a user that goes on computing when the process ends; to be called before a program runs.

    Python ends such threads where they next need its lock. In the midst of jax's C++ code that aborts the process.
    Errors: SystemExit, which ends the thread silently.
    """
    thread = threading.current_thread()
    if thread is not threading.main_thread() and not isinstance(thread, threading._DummyThread):  # one of XLA's
        if _has_ended:
            raise SystemExit
        _computing.add(thread)


@atexit.register
def _end_computing() -> None:
    """Wait until no thread is in the midst of a program. Registered before what ends the package's own threads, and so
    run after it.
    """
    global _has_ended
    _has_ended = True
    deadline = time.monotonic() + _END_SECONDS
    while any(map(_is_inside, list(_computing))) and time.monotonic() < deadline:
        time.sleep(0.005)


def _is_inside(thread: threading.Thread) -> bool:
    """Whether a thread runs code of this package, or what that has called."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and not frame.f_code.co_filename.startswith(_FOLDER):
        frame = frame.f_back
    return frame is not None


__all__ = ["after_fork", "check_running", "cores", "start_thread"]
