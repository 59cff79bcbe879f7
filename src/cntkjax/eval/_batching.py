"""Dynamic batching: requests that come within a short time are computed together."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from .._threads import start_thread


class Request(NamedTuple):
    """What is to be computed: `content`, this many samples or sequences; those of equal `kind` may be joined."""

    content: Any
    size: int
    kind: Hashable
    future: Future[Any]


class RequestQueue:
    """A queue of requests, and a thread that computes them.

    It begins with a batch when `max_batch` samples have come, or `max_delay` seconds after the first of them. `run`
    returns the answers to requests that are joined. More than `max_queue` waiting requests are refused.
    A process that is forked from the queue's has no thread that computes: see `is_served`.
    """

    def __init__(
        self, run: Callable[[Sequence[Any]], Sequence[Any]], max_batch: int, max_delay: float, max_queue: int
    ) -> None:
        self._run, self._max_batch, self._max_delay = run, max_batch, max_delay
        self._waiting: queue.Queue[Request | None] = queue.Queue(max_queue)
        self._closing, self._closed = threading.Lock(), False
        self._process = os.getpid()
        start_thread(self._work, "cntkjax predictions")

    @property
    def is_served(self) -> bool:
        """False in a forked process, where nothing computes what is put."""
        return self._process == os.getpid()

    def put(self, request: Request) -> None:
        """Have a request computed. Errors: queue.Full if too many are waiting; RuntimeError after `close`."""
        with self._closing:
            if self._closed:
                raise RuntimeError("this predictor has been closed, and takes no more requests: make a new one")
            try:
                self._waiting.put_nowait(request)
            except queue.Full:
                raise queue.Full(
                    f"{self._waiting.maxsize} requests wait already: submit fewer at a time, or give a larger max_queue"
                ) from None

    def close(self) -> None:
        """End when all that was put before has been computed."""
        if not self.is_served:  # nobody takes from a queue that may be full, or locked by a thread that is gone
            return
        with self._closing:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)

    def _work(self) -> None:
        first = self._waiting.get()
        while first is not None:
            batch, first = self._collect(first)
            started = [r for r in batch if r.future.set_running_or_notify_cancel()]
            if started:
                self._answer(started)
            del batch, started  # while it waits, it keeps no data alive
            first = self._waiting.get() if first is _NOTHING else first

    def _collect(self, first: Request) -> tuple[list[Request], Request | None]:
        """A batch, and what came after it: the next request, None at the end, or nothing yet."""
        batch, size, end = [first], first.size, time.monotonic() + self._max_delay
        while size < self._max_batch:
            try:
                following = self._waiting.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if following is None or following.kind != first.kind or size + following.size > self._max_batch:
                return batch, following
            batch.append(following)
            size += following.size
        return batch, _NOTHING

    def _answer(self, requests: Sequence[Request]) -> None:
        try:
            answers = self._run([r.content for r in requests])
        except Exception as error:
            if len(requests) == 1:
                requests[0].future.set_exception(error)
                return
            for request in requests:  # only those at fault are to fail
                self._answer([request])
            return
        for request, answer in zip(requests, answers, strict=True):
            request.future.set_result(answer)


_NOTHING = Request(None, 0, None, Future())
__all__ = ["RequestQueue", "Request"]
