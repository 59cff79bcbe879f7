"""Ctrl-C where jax traces and compiles: it takes effect where nothing is left half changed, and is never lost."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from ._terminal import is_interactive

T = TypeVar("T")


_SOON = 0.01  # seconds


def keep_ignored_interrupts() -> None:
    """Interrupt again, a moment later, where Python ignores a KeyboardInterrupt, so that no Ctrl-C is lost.

    Python ignores exceptions in functions that it calls when objects die and when garbage is collected; jax has one of
    the latter (`gc.callbacks`), in which a cold program spends some hundredths of its time.
    """
    show = sys.unraisablehook

    def keep(ignored: sys.UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            _thread.start_new_thread(_interrupt_soon, ())
        else:
            show(ignored)

    sys.unraisablehook = keep


def _interrupt_soon() -> None:
    time.sleep(_SOON)  # at once, it would be ignored in the same place
    thread = threading.main_thread().ident
    if sys.platform == "win32" or thread is None:
        _thread.interrupt_main()
    else:
        signal.pthread_kill(thread, signal.SIGINT)  # ends what the main thread waits for, too


class _Interrupts:
    """Signals that arrive in a scope of `deferred_interrupts`."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self.handler = handler
        self.noted: list[FrameType | None] = []
        self.is_waiting = False  # the thread only waits for another one

    def note(self, number: int, frame: FrameType | None) -> None:
        self.noted.append(frame)
        if self.is_waiting or len(self.noted) > 1:
            self.deliver()
        elif is_interactive():
            print("\ninterrupted, as soon as that is safe; Ctrl-C again stops it now", file=sys.stderr, flush=True)

    def deliver(self) -> None:
        """Let the signals so far take effect, as one."""
        if self.noted:
            frame = self.noted[-1]
            self.noted.clear()
            signal.signal(signal.SIGINT, self.handler)
            self.handler(signal.SIGINT, frame)


_scopes: list[_Interrupts] = []  # of the main thread, one inside the other


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """A scope at whose end a signal that arrived inside it (Ctrl-C) takes effect; only in the main thread.

    Where jax traces and compiles: an exception in the midst of that would leave its own state half changed. Who
    insists, with a second one, ends even that, as soon as Python code runs.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    scope = _Interrupts(handler)
    try:
        signal.signal(signal.SIGINT, scope.note)
        _scopes.append(scope)
        yield
    finally:
        _scopes[:] = [s for s in _scopes if s is not scope]
        signal.signal(signal.SIGINT, handler)
        scope.deliver()


def take_interrupts() -> None:
    """Let signals that are deferred take effect now; for places within a scope where an exception does no harm."""
    if _scopes and threading.current_thread() is threading.main_thread():
        for scope in [*_scopes]:
            scope.deliver()


def awaited(outcome: Future[T]) -> T:
    """What another thread computes. A signal need not be deferred meanwhile: this thread changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        return outcome.result()
    scopes = [*_scopes]
    try:
        for scope in scopes:
            scope.is_waiting = True
        take_interrupts()
        return outcome.result()
    finally:
        for scope in scopes:
            scope.is_waiting = False


__all__ = ["awaited", "deferred_interrupts", "keep_ignored_interrupts", "take_interrupts"]
