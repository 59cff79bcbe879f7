"""Connections of the server: those that begin a request and do not go on are closed, and how all end with it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

_LAST_SECONDS = 1.0  # in which an idle client may still send a request when the server stops
_Protocol: Any = AutoHTTPProtocol  # by h11 or httptools, whichever is installed


class _Impatient(_Protocol):
    """uvicorn's protocol, with a limit for the time in which the headers of a request have to come.

    uvicorn itself waits for them as long as the client likes, so some hundred clients that send nothing would take all
    file descriptors. How long the body may take is up to the application.

    When the server stops, uvicorn closes idle connections at once. A client that is sending a request just then sees
    its connection reset, and cannot know whether the request was computed. So the next request is answered first, with
    ``Connection: close``.
    """

    seconds: ClassVar[float]
    _limit: asyncio.TimerHandle | None = None
    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_headers()
        if self._end is not None and self._answers():
            self._end_with_answer()

    def connection_lost(self, error: Exception | None) -> None:
        self._forget_limit()
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(error)

    def shutdown(self) -> None:
        if self._answers():
            self._end_with_answer()
        else:
            self._end = asyncio.get_running_loop().call_later(_LAST_SECONDS, super().shutdown)

    def _end_with_answer(self) -> None:
        if self.cycle.keep_alive:
            self.cycle.keep_alive = False
            self.cycle.default_headers = [*self.cycle.default_headers, (b"connection", b"close")]

    def _answers(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_headers(self) -> None:
        """Begin to count the time, unless it is counted already, or a request is being answered."""
        if self._answers():
            self._forget_limit()
        elif self._limit is None:
            self._limit = asyncio.get_running_loop().call_later(self.seconds, self.transport.close)

    def _forget_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


def impatient(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol with this limit for the time in which the headers of a request have to come."""
    return type("Impatient", (_Impatient,), {"seconds": seconds})


class Server(uvicorn.Server):
    """uvicorn's, which after a second Ctrl+C also tells the application that it ends, instead of logging tracebacks."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()


__all__ = ["Server", "impatient"]
