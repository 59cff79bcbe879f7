"""Messages between workers, and news of those that fail: each worker is connected to a hub in worker 0.

Only small things travel here: counts of samples, descriptions, checkpoints' external state. Each worker beats once a
second from the moment it joins; one that is silent for too long, or whose connection closes, is reported to all others,
also while they still wait for the rest to join. Nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from .._threads import start_thread
from .environment import Address

BEAT = 1.0  # seconds between signs of life
_SEND_TIMEOUT = 10  # seconds


class WorkerError(RuntimeError):
    """Another worker failed, or the workers differ in what they do; the message names the worker and the reason."""


def silence_limit() -> int:
    """After how many seconds of silence a worker counts as stopped: `CNTKJAX_WORKER_TIMEOUT`, by default 15."""
    return int(os.environ.get("CNTKJAX_WORKER_TIMEOUT", 15))


def join_limit() -> float:
    """Within how many seconds all workers must have started: `CNTKJAX_JOIN_TIMEOUT`, by default 300."""
    return float(os.environ.get("CNTKJAX_JOIN_TIMEOUT", 300))


def _silent(worker: str) -> str:
    return (
        f"{worker} has not answered for {silence_limit()} s: it is stopped, or its machine or network is down. Where "
        "that is no error, set CNTKJAX_WORKER_TIMEOUT to a larger number of seconds"
    )


def _not_started(ranks: Sequence[int]) -> str:
    names = ", ".join(f"worker {rank}" for rank in ranks)
    return (
        f"{names} {'has' if len(ranks) == 1 else 'have'} not started within {join_limit():.0f} s. If starting takes "
        "longer, set CNTKJAX_JOIN_TIMEOUT to a larger number of seconds"
    )


class _Peer:
    """One end of a connection: frames of a JSON header and bytes."""

    def __init__(self, sock: socket.socket) -> None:
        from multiprocessing.connection import Connection  # slow to import, and one process needs none of it

        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT, 0))
        self.connection = Connection(sock.detach())
        self._sending = threading.Lock()
        self.silence = 0  # beats since the last message

    def send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        """Send a message; a connection that fails is noticed by who reads it."""
        frame = json.dumps(header).encode() + b"\n" + payload
        try:
            with self._sending:
                self.connection.send_bytes(frame)
        except OSError:
            pass

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message. Errors: EOFError or OSError if the connection is closed."""
        header, _, payload = self.connection.recv_bytes().partition(b"\n")
        self.silence = 0
        return json.loads(header), payload


class Hub(threading.Thread):
    """The thread in worker 0 that collects what the workers send, and tells all of them the result.

    A gathering is complete when each worker has sent its part; it fails if they are at different operations, or if one
    has left.
    """

    def __init__(self, server: socket.socket, size: int) -> None:
        super().__init__(name="cntkjax-hub", daemon=True)
        self._server, self._size = server, size
        self._strangers: list[_Peer] = []  # connected, but they have not said who they are
        self._peers: dict[int, _Peer] = {}
        self._hosts: dict[int, str] = {}
        self._parts: list[deque[tuple[str, bytes]]] = [deque() for _ in range(size)]
        self._left: set[int] = set()
        self._gone: set[int] = set()
        self._waited = 0  # beats until all have joined
        self._failure: dict[str, Any] | None = None

    def run(self) -> None:
        """Serve until all workers are gone, or one has failed."""
        next_beat = time.monotonic() + BEAT
        while self._failure is None and len(self._gone) < self._size:
            self._serve(max(next_beat - time.monotonic(), 0))
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + BEAT  # beats are counted, so that pausing all workers is no failure
                self._beat()
        while self._failure is not None and not self._all_joined():  # those that join later are told, while this runs
            self._serve(None)

    def _serve(self, timeout: float | None) -> None:
        """Wait for messages and for workers that join, and deal with them; after a failure only for those that join."""
        from multiprocessing.connection import wait

        sources: dict[Any, Callable[[], None]] = {}
        if self._failure is None:
            sources |= {peer.connection: partial(self._read, rank) for rank, peer in self._present()}
        if not self._all_joined():
            sources |= {self._server: self._accept}
            sources |= {peer.connection: partial(self._introduce, peer) for peer in self._strangers}
        for source in wait(list(sources), timeout):
            sources[source]()

    def _present(self) -> list[tuple[int, _Peer]]:
        return [(rank, peer) for rank, peer in self._peers.items() if rank not in self._gone]

    def _all_joined(self) -> bool:
        return len(self._peers) == self._size

    def _accept(self) -> None:
        with suppress(OSError):
            self._strangers.append(_Peer(self._server.accept()[0]))

    def _introduce(self, peer: _Peer) -> None:
        self._strangers.remove(peer)
        try:
            header = peer.receive()[0]
        except (OSError, EOFError, ValueError):
            return  # not one of the workers
        if header.get("size") != self._size:
            return
        self._peers[header["rank"]], self._hosts[header["rank"]] = peer, header["host"]
        if self._failure is not None:
            peer.send(self._failure)
        elif self._all_joined():
            self._server.close()
            self._send({"kind": "start", "hub": self._worker(0)})

    def _beat(self) -> None:
        if not self._all_joined():
            self._waited += 1
            if self._waited * BEAT > join_limit():
                self._fail(_not_started(sorted(set(range(self._size)) - set(self._peers))))
        self._send({"kind": "beat"})
        for rank, peer in self._present():
            peer.silence += 1
            if peer.silence * BEAT > silence_limit():
                self._fail(_silent(self._worker(rank)), rank)

    def _read(self, rank: int) -> None:
        try:
            header, payload = self._peers[rank].receive()
        except (EOFError, OSError):
            return self._fail(f"{self._worker(rank)} was killed or crashed: its connection was closed", rank)
        if header["kind"] == "gather":
            self._parts[rank].append((header["operation"], payload))
        elif header["kind"] == "report":
            return self._fail(f"{self._worker(rank)} {header['text']}", rank)
        elif header["kind"] == "leave":
            self._left.add(rank)
        elif header["kind"] == "gone":
            self._gone.add(rank)
        self._match()
        if header["kind"] == "leave" and len(self._left) == self._size:
            self._send({"kind": "end"})

    def _match(self) -> None:
        """Answer a gathering that is complete; fail where it can never be."""
        waiting = {rank: parts[0][0] for rank, parts in enumerate(self._parts) if parts}
        if not waiting:
            return
        first, operation = next(iter(waiting.items()))
        if other := next((rank for rank in waiting if waiting[rank] != operation), None):
            texts = [f"{self._worker(rank)} is at {waiting[rank]}" for rank in (first, other)]
            return self._fail(f"workers do different things: {' while '.join(texts)}; all have to take the same steps")
        if gone := self._left - set(waiting):
            text = f"{self._worker(min(gone))} has ended, but {self._worker(first)} needs it for {operation}"
            return self._fail(f"{text}; all workers have to take the same number of steps, empty minibatches included")
        if len(waiting) == self._size:
            payloads = [parts.popleft()[1] for parts in self._parts]
            self._send({"kind": "result", "sizes": [len(p) for p in payloads]}, b"".join(payloads))
        return None

    def _worker(self, rank: int) -> str:
        return f"worker {rank} (on {self._hosts[rank]})"

    def _fail(self, text: str, culprit: int = -1) -> None:
        if self._failure is None:
            self._failure = {"kind": "fail", "text": text, "culprit": culprit}
            self._send(self._failure)

    def _send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        for _, peer in self._present():
            peer.send(header, payload)


class BegunGathering:
    """A gathering that this worker has begun."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel, self._number = channel, number

    def wait(self) -> list[bytes]:
        """What each worker has sent, in the order of ranks. Errors: WorkerError if a worker fails."""
        return self._channel.result(self._number)


class Channel:
    """A worker's connection to the hub.

    `on_failure(text, is_culprit)`: called once, in a thread of its own, when a worker fails.
    """

    def __init__(self, address: Address, rank: int, size: int, on_failure: Callable[[str, bool], object]) -> None:
        self._rank, self._on_failure = rank, on_failure
        self._peer = _Peer(_connect(address))
        self._news = threading.Condition()
        self._results: dict[int, list[bytes]] = {}
        self._begun = self._answered = 0
        self._started = self._ended = self._is_gone = self._is_culprit = False
        self.failure: str | None = None
        self._hub = "worker 0"
        self._peer.send({"kind": "join", "rank": rank, "size": size, "host": socket.gethostname()})
        start_thread(self._listen, "cntkjax-channel")
        start_thread(self._beat, "cntkjax-beat")
        self._await(lambda: self._started)

    def gather(self, operation: str, payload: bytes = b"") -> BegunGathering:
        """Send this worker's part. All workers have to gather for the same operations in the same order."""
        with self._news:
            self._begun += 1
            self._peer.send({"kind": "gather", "operation": operation}, payload)
            return BegunGathering(self, self._begun)

    def result(self, number: int) -> list[bytes]:
        """The result of a gathering; see `BegunGathering.wait`."""
        self._await(lambda: number in self._results)
        return self._results.pop(number)

    def report(self, text: str) -> None:
        """Tell all workers that this one fails: `text` goes on where "worker 1" begins."""
        self._peer.send({"kind": "report", "text": text})

    def leave(self) -> None:
        """Wait until no worker has work left. Errors: WorkerError if one fails.

        They are watched on, since what they call now may wait for all of them, until each says that it is `gone`.
        """
        self._peer.send({"kind": "leave"})
        self._await(lambda: self._ended)

    def gone(self) -> None:
        """This worker waits for no other any more, and none for it."""
        with self._news:
            self._is_gone = True
            self._news.notify_all()
        self._peer.send({"kind": "gone"})

    def close(self) -> None:
        """Close this process's copy of the connection, in a forked process."""
        self._peer.connection.close()

    def _await(self, is_done: Callable[[], bool]) -> None:
        with self._news:
            self._news.wait_for(lambda: is_done() or self.failure is not None)
            if not is_done():
                assert self.failure is not None
                raise WorkerError(self.failure)

    def _listen(self) -> None:
        silence, is_served = 0, False  # until worker 0 has started, it may only have inherited the socket
        while not self._is_gone and self.failure is None:
            if not self._peer.connection.poll(BEAT):
                silence += 1
                if silence * BEAT > (silence_limit() if is_served else join_limit()):
                    text = _silent(self._hub) if is_served else _not_started([0])
                    self._note({"kind": "fail", "text": text, "culprit": 0}, b"")
                continue
            silence, is_served = 0, True
            try:
                self._note(*self._peer.receive())
            except (EOFError, OSError):
                if self._ended and self._is_gone_within(silence_limit()):
                    return  # worker 0 was done a little earlier
                text = f"{self._hub} was killed or crashed: its connection was closed"
                self._note({"kind": "fail", "text": text, "culprit": 0}, b"")
        if self.failure is not None:
            self._on_failure(self.failure, self._is_culprit)

    def _is_gone_within(self, seconds: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self._is_gone, seconds)

    def _note(self, header: dict[str, Any], payload: bytes) -> None:
        with self._news:
            if header["kind"] == "start":
                self._started, self._hub = True, header["hub"]
            elif header["kind"] == "end":
                self._ended = True
            elif header["kind"] == "fail":
                self._is_culprit = header["culprit"] == self._rank
                self.failure = header["text"]
            elif header["kind"] == "result":
                self._answered += 1
                self._results[self._answered] = _split(payload, header["sizes"])
            self._news.notify_all()

    def _beat(self) -> None:
        while not self._is_gone and self.failure is None:
            self._peer.send({"kind": "beat"})
            time.sleep(BEAT)


def _connect(address: Address) -> socket.socket:
    deadline = time.monotonic() + join_limit()
    while True:
        try:
            return socket.create_connection(address, timeout=BEAT)
        except OSError as error:
            if time.monotonic() > deadline:
                host, port = address
                raise WorkerError(f"worker 0 does not answer at {host}:{port}: {error}") from error
            time.sleep(0.05)


def _split(payload: bytes, sizes: Sequence[int]) -> list[bytes]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [payload[end - size : end] for size, end in zip(sizes, ends, strict=True)]


__all__ = ["Channel", "Hub", "BegunGathering", "WorkerError"]
