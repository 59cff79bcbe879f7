"""Reads chunks and items ahead of their use, in a second thread."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Protocol

from .._best_effort import BestEffort
from .._threads import start_thread

_READING = BestEffort("read chunks of a file ahead", "they are read when they are needed")
_STARTING = BestEffort("start a thread that reads ahead", "chunks are read when they are needed")


class ReadsAhead(Protocol):
    """What a thread reads chunks for."""

    def read_next(self) -> bool:
        """Read one of the chunks that will be used; False if there is nothing left to read."""


class ReadAhead:
    """Calls ``read_next`` until it returns False, in a thread that ends then, or when nobody uses the reader.

    An error of the reader ends the thread; the reader has to raise it again when the chunk is used.
    """

    def __init__(self, reader: ReadsAhead) -> None:
        self._reader = weakref.ref(reader)
        self._running = threading.Lock()  # of the thread that reads

    @property
    def is_running(self) -> bool:
        """Whether chunks are being read."""
        return self._running.locked()

    def start(self) -> None:
        """Begin to read, if that has ended."""
        if not self.is_running:
            _STARTING.attempt(start_thread, partial(_read, self._reader, self._running), "cntkjax-ahead")


def _read(reference: weakref.ref[ReadsAhead], running: threading.Lock) -> None:
    if not running.acquire(blocking=False):  # an interrupted `start` may have started another thread
        return
    try:
        while (reader := reference()) is not None and _READING.attempt(reader.read_next, otherwise=False):
            del reader
    finally:
        running.release()


# ---- items of an iterable
END: Final = object()
"""Stands between the items of sweeps."""

_FEW, _POLL_SECONDS = 16, 0.1


@dataclass(frozen=True)
class FailedItem:
    """Stands in the place of an item: what was raised instead of it."""

    error: BaseException


@dataclass
class _Shared:
    """What the thread and its user share. ``size``: how many items are ready at most; ``running`` is never released."""

    queue: SimpleQueue[Any] = field(default_factory=SimpleQueue)
    taken: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    running: threading.Lock = field(default_factory=threading.Lock)
    size: int = _FEW


class ItemsAhead:
    """Iterates in a thread of its own, some items ahead. It begins when the first item is needed, and ends with them.

    Args:
        items: called by the thread
    """

    def __init__(self, items: Callable[[], Iterable[Any]]) -> None:
        self._shared = _Shared()
        self._produce = partial(_produce, items, self._shared)
        self.stop = weakref.finalize(self, self._shared.stopped.set)
        self.stop.atexit = False

    def move(self, buffer: deque[Any]) -> None:
        """Append the next item, or a ``FailedItem``. An interrupt loses none: this is one call of C."""
        if not self._shared.running.locked():
            start_thread(self._produce, "cntkjax-items")
        buffer.extend(map(SimpleQueue.get, (self._shared.queue,)))
        self._shared.taken.set()

    def expect(self, items: int) -> None:
        """So many are used at once: twice as many should be ready."""
        self._shared.size = max(_FEW, 2 * items)


def _produce(items: Callable[[], Iterable[Any]], shared: _Shared) -> None:
    if not shared.running.acquire(blocking=False):  # as in `_read`
        return
    try:
        for item in items():
            while shared.queue.qsize() >= shared.size and not shared.stopped.is_set():
                shared.taken.wait(_POLL_SECONDS)
                shared.taken.clear()
            if shared.stopped.is_set():
                return
            shared.queue.put(item)
    except BaseException as error:
        shared.queue.put(FailedItem(error))
