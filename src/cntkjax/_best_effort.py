"""Best-effort work: what is done ahead of time, beside the user's work, or only for speed.

None of it may change or stop what the user asked for, whatever goes wrong in it. So every piece of such work is a
`BestEffort`, declared where it is done and run by its `attempt`, which notes an exception and lets the caller go on
without the result. Notes go to the debug log (``logging.getLogger("cntkjax")``), and `cntkjax doctor` shows them.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar, overload

from ._cache_folder import directory

T = TypeVar("T")
U = TypeVar("U")

_log = logging.getLogger("cntkjax")
_LIBRARIES = {*sys.stdlib_module_names, "cntkjax", "jax", "jaxlib", "ml_dtypes", "numpy", "optax", "randomgen"}
_MOST_BYTES, _KEPT_LINES = 2**16, 20  # of the file of failures


@dataclass(frozen=True)
class Failure:
    """What went wrong in best-effort work.

    `time`: seconds since the epoch. `work`, `instead`: see `BestEffort`.
    """

    time: float
    work: str
    error: str
    instead: str


class BestEffort:
    """A piece of work that may fail without any effect other than on speed.

    `work` says what is done, and `instead` what happens where it fails, in words for users. Declare each at module
    level, once: the tests make every declared one fail (`efforts`).
    """

    def __init__(self, work: str, instead: str) -> None:
        self.work, self.instead = work, instead
        self._is_kept = False  # whether this process has written a failure to the file
        efforts.append(self)

    @overload
    def attempt(self, task: Callable[..., T], *arguments: Any) -> T | None: ...
    @overload
    def attempt(self, task: Callable[..., T], *arguments: Any, otherwise: U) -> T | U: ...

    def attempt(self, task: Callable[..., Any], *arguments: Any, otherwise: Any = None) -> Any:
        """The result of a task, or `otherwise` if it raises an exception.

        Interrupts pass through: KeyboardInterrupt and its like, and what a signal handler of the user raises or another
        thread sends.
        """
        try:
            return _perform(self, task, *arguments)
        except Exception as error:
            if "KeyboardInterrupt" in str(error):  # jax makes a ValueError of one that arrives in its C++ code
                raise KeyboardInterrupt from error
            if _is_interrupt(error):
                raise
            self._note(error)
            return otherwise

    def _note(self, error: Exception) -> None:
        with suppress(Exception):
            _log.debug("could not %s; instead, %s", self.work, self.instead, exc_info=error)
            failure = Failure(time.time(), self.work, f"{type(error).__name__}: {error}"[:500], self.instead)
            failures.append(failure)
            del failures[:-_KEPT_LINES]
            if not self._is_kept:
                self._is_kept = True
                _keep(failure)


efforts: list[BestEffort] = []
"""All that are declared."""
failures: list[Failure] = []
"""The latest ones in this process."""


def _perform(effort: BestEffort, task: Callable[..., T], *arguments: Any) -> T:
    return task(*arguments)


def _is_interrupt(error: Exception) -> bool:
    """Whether an exception is not the task's own: a signal handler raised it, or another thread sent it to this one.

    What is sent (`PyThreadState_SetAsyncExc`) shows in no frame: it is of a class that only the user has.
    """
    frames = list(_frames(error))
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    if any(frame.f_code in handlers for frame in frames):
        return True
    return _is_users(type(error).__module__) and not any(_is_users(f.f_globals.get("__name__", "")) for f in frames)


def _frames(error: Exception) -> Iterator[FrameType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _code(handler: Any) -> CodeType | None:
    """The code of a function, a method, a partial function or an object that can be called."""
    while isinstance(handler, partial):
        handler = handler.func
    call = vars(type(handler)).get("__call__")
    return getattr(handler, "__code__", None) or getattr(call, "__code__", None)


def _is_users(module: str) -> bool:
    return module.partition(".")[0] not in _LIBRARIES


def _file() -> Path | None:
    folder = directory("failures")
    return Path(folder) / "failures.jsonl" if folder else None


def _keep(failure: Failure) -> None:
    """Add to the file of failures, for `cntkjax doctor`."""
    file = _file()
    if file is None:
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if file.exists() and file.stat().st_size > _MOST_BYTES:
        file.write_text("".join(file.read_text().splitlines(keepends=True)[-_KEPT_LINES:]))
    with open(file, "a") as lines:
        lines.write(json.dumps(asdict(failure)) + "\n")


def kept_failures() -> list[Failure]:
    """The latest failures in all processes that share the cache folder, oldest first."""
    file, kept = _file(), []
    with suppress(OSError):
        for line in file.read_text(errors="replace").splitlines()[-_KEPT_LINES:] if file else []:
            with suppress(ValueError, TypeError):  # a line that two processes wrote at once
                kept.append(Failure(**json.loads(line)))
    return kept


def forget_failures() -> None:
    """Remove the file of failures."""
    if (file := _file()) is not None:
        file.unlink(missing_ok=True)


__all__ = ["BestEffort", "Failure", "efforts", "failures", "forget_failures", "kept_failures"]
