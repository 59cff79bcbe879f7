"""The line on which people read what a program does: on a terminal, or below the cell of a notebook."""

from __future__ import annotations

import html
import importlib
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ._threads import start_thread

PATIENCE = 2.0
"""Units: seconds that users wait without being told for what."""
_BAR_PATIENCE = 0.3  # seconds until a bar says that something is waited for
_NOTEBOOK_COLUMNS = 110


def is_interactive() -> bool:
    """Whether output goes to a terminal or a notebook."""
    return _notebook() is not None or _is_terminal(sys.stderr)


def _is_terminal(stream: Any) -> bool:
    """A stream may be None (a program without a console), closed, or a script's own object that can only write."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def _notebook() -> Any:
    """The shell of a notebook, otherwise None."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    return shell if hasattr(shell, "kernel") else None


class StatusLine:
    """A line for bars and waits: each text replaces the one before. Threads may use it.

    Nothing is written if no person reads the output. In a notebook the line is a display of its own, so a saved
    notebook has its last text only.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._drawn = 0  # characters on the terminal's line
        self._cell: tuple[int, Any] = (-1, None)  # where a notebook has the line
        self._bar: Callable[[], Callable[[str], str] | None] = lambda: None

    def columns(self) -> int:
        """The number of characters that fit."""
        return _NOTEBOOK_COLUMNS if _notebook() else shutil.get_terminal_size().columns - 1

    def follow(self, bar: Callable[[str], str]) -> None:
        """Show waits by a method of a bar until a line is finished; it gets what is waited for, and returns a text."""
        self._bar = weakref.WeakMethod(bar)

    def show(self, line: str) -> None:
        """Replace the text, cut to the width of the terminal."""
        with self._lock:
            if shell := _notebook():
                self._display(shell, line)
            elif is_interactive():
                line = line[: self.columns()]
                self._write("\r" + line.ljust(self._drawn))
                self._drawn = len(line)

    def finish(self, line: str) -> None:
        """Write a last text, and start a new line."""
        with self._lock:
            self.show(line)
            if self._drawn:
                self._write("\n")
            self._drawn, self._cell, self._bar = 0, (-1, None), lambda: None

    def clear(self) -> None:
        """Erase the text from the terminal, before something else is written there; a notebook keeps it apart."""
        with self._lock:
            if self._drawn:
                self._write("\r" + " " * self._drawn + "\r")
                self._drawn = 0

    def erase(self) -> None:
        """Erase the text, as what it told of is over."""
        with self._lock:
            self.clear()
            if shell := _notebook():
                self._display(shell, "")

    @contextmanager
    def waiting(self, text: str, patience: float, details: str = "") -> Iterator[None]:
        """A scope that says what is waited for and since when, then `details`, once it takes long.

        Units: seconds without a word, if there is no bar; a bar says it almost at once.
        """
        done, begin, is_shown = threading.Event(), time.monotonic(), False

        def tell() -> None:
            nonlocal is_shown
            pause = _BAR_PATIENCE if self._bar() else patience
            while not done.wait(pause):
                with self._lock:
                    if not done.is_set():
                        is_shown, pause = True, 1.0
                        wait = f"{text}: {time.monotonic() - begin:.0f} s{details}"
                        bar = self._bar()
                        self.show(bar(wait) if bar else wait)

        start_thread(tell, "cntkjax-status")
        try:
            yield
        finally:
            with self._lock:
                done.set()
                bar = self._bar()
                if is_shown and bar:
                    self.show(bar(""))
                elif is_shown:
                    self.erase()

    def _display(self, shell: Any, line: str) -> None:
        text = {"text/plain": line, "text/html": f"<code>{html.escape(line)}</code>" if line else ""}
        cell, handle = self._cell
        if cell == shell.execution_count:
            handle.update(text, raw=True)
        elif line:
            handle = importlib.import_module("IPython.display").display(text, raw=True, display_id=True)
            self._cell = (shell.execution_count, handle)

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


status = StatusLine()
"""The line of this process."""


def announced(text: str, details: str = "") -> AbstractContextManager[None]:
    """A scope that tells an interactive user what is waited for, if it takes long; see `StatusLine.waiting`."""
    return status.waiting(text, PATIENCE, details) if is_interactive() else nullcontext()


__all__ = ["PATIENCE", "StatusLine", "announced", "is_interactive", "status"]
