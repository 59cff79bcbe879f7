"""Reads chunks ahead of their use, in a second thread."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol


class ReadsAhead(Protocol):
    """What a thread reads chunks for."""

    def read_next(self) -> bool:
        """Reads one of the chunks that will be used; False if there is nothing left to read."""


class ReadAhead:
    """Calls ``read_next`` until it returns False, in a thread that ends then, or when nobody uses the reader.

    Errors: one of the reader's ends the thread; the reader has to raise it again when the chunk is used.
    """

    def __init__(self, reader: ReadsAhead) -> None:
        self._reader = weakref.ref(reader)
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether chunks are being read."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begins to read, if that has ended."""
        if not self.is_running:
            self._thread = threading.Thread(target=_read, args=(self._reader,), name="cntkjax-ahead", daemon=True)
            self._thread.start()


def _read(reference: weakref.ref[ReadsAhead]) -> None:
    try:
        while (reader := reference()) is not None and reader.read_next():
            del reader
    except Exception:
        return
