"""The HTTP interface of served models: the Open Inference Protocol, and metrics for Prometheus."""

from __future__ import annotations

import asyncio
import logging
import queue
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any, TypeVar

import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .models import Loaded, Model
from .tensors import BadRequest, Query, decoded, encoded

_HEADER_LENGTH = "Inference-Header-Content-Length"
_SMALL = 2**14  # bytes that are read or written in less time than it takes to hand them to another thread and back
_WINDOW_BITS = {"gzip": 31, "deflate": 15}  # of zlib, by Content-Encoding
T = TypeVar("T")
log = logging.getLogger("uvicorn.error")


class Service:
    """Answers requests for models by name.

    `max_request`: bytes of a body. `body_timeout`: seconds in which it has to come. `poll`: seconds between looks at
    the files.
    """

    def __init__(
        self, models: Mapping[str, Model], version: str, max_request: int, body_timeout: float = 30.0, poll: float = 1.0
    ) -> None:
        self._models, self._version, self._poll = models, version, poll
        self._max_request, self._body_timeout = max_request, body_timeout
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "cntkjax_requests", "Inference requests, by HTTP status", ["model", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "cntkjax_request_seconds", "Time from a request to its answer", ["model"], registry=self._registry
        )
        self._reloads = Counter(
            "cntkjax_reloads", "Files that changed, by whether they could be loaded", ["model", "result"],
            registry=self._registry,
        )

    def app(self) -> Starlette:
        """The ASGI application."""
        model = "/v2/models/{model}"
        routes = [Route(path, handler) for path, handler in [
            ("/v2", self.server), ("/v2/health/live", self.health), ("/v2/health/ready", self.health),
            ("/metrics", self.metrics),
        ]]
        for path in (model, model + "/versions/1"):
            routes += [
                Route(path, self.metadata), Route(path + "/ready", self.ready),
                Route(path + "/infer", self.infer, methods=["POST"]),
            ]
        handlers: Any = {HTTPException: _http_error, Exception: _internal_error}
        return Starlette(routes=routes, exception_handlers=handlers, lifespan=self._watching)

    async def server(self, request: Request) -> Response:
        """Metadata of the server."""
        return JSONResponse({"name": "cntkjax", "version": self._version, "extensions": ["binary_tensor_data"]})

    async def health(self, request: Request) -> Response:
        """Alive and ready: models are loaded before the server listens."""
        return Response()

    async def ready(self, request: Request) -> Response:
        """Ready: models are loaded before the server listens. Errors: 404 if there is no such model."""
        self._model(request)
        return JSONResponse({"name": request.path_params["model"], "ready": True})

    async def metadata(self, request: Request) -> Response:
        """Inputs and outputs of a model."""
        return JSONResponse(self._model(request).current.metadata(request.path_params["model"]))

    async def metrics(self, request: Request) -> Response:
        """Counters for Prometheus."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def infer(self, request: Request) -> Response:
        """The outputs of a model for the tensors in the request."""
        name, model = request.path_params["model"], self._model(request)
        begin, status = time.perf_counter(), 500
        try:
            response = await self._answer(name, model, request)
            status = response.status_code
        except HTTPException as error:
            status = error.status_code
            raise
        except asyncio.CancelledError:  # the server waits no longer for what is under way
            status = 503
            raise HTTPException(503, "the server stops") from None
        finally:
            self._requests.labels(name, str(status)).inc()
            self._seconds.labels(name).observe(time.perf_counter() - begin)
        return response

    async def _answer(self, name: str, model: Model, request: Request) -> Response:
        try:
            body = await asyncio.wait_for(self._body(request), self._body_timeout)
        except TimeoutError:
            text = f"the body has not come within {self._body_timeout:g} seconds"
            raise HTTPException(408, text, {"Connection": "close"}) from None
        except ClientDisconnect:  # nobody reads the answer; the metrics have it under the status that nginx logs
            raise HTTPException(499, "the client has gone before its request was complete") from None
        length = request.headers.get(_HEADER_LENGTH)
        encoding = request.headers.get("content-encoding", "identity").lower()
        loaded = model.current
        try:
            is_small = len(body) <= _SMALL and encoding == "identity"
            query, future = await _done(is_small, lambda: self._asked(loaded, body, encoding, length))
            answer = await asyncio.wrap_future(future)
            content, json_length = await _done(
                _size(answer) <= _SMALL, lambda: encoded(query, name, loaded.values(query, answer))
            )
        except queue.Full:
            raise HTTPException(503, "too many requests wait for this model; try again later", {"Retry-After": "1"}) \
                from None
        except (ValueError, IndexError) as error:  # of what was sent: shapes, lengths, indices out of range
            raise HTTPException(400, str(error)) from error
        if json_length is None:
            return Response(content, media_type="application/json")
        headers = {_HEADER_LENGTH: str(json_length)}
        return Response(content, media_type="application/octet-stream", headers=headers)

    def _asked(self, loaded: Loaded, body: bytes, encoding: str, length: str | None) -> tuple[Query, Future[Any]]:
        """What a body asks, and the answer to come."""
        if encoding != "identity":
            body = self._decompressed(body, encoding)
        query = decoded(body, length, loaded.inputs)
        return query, loaded.submit(query)

    async def _body(self, request: Request) -> bytes:
        """The body. Errors: 413 as soon as it is known to be too large."""
        body = bytearray()
        announced = request.headers.get("content-length", "0")
        if announced.isdigit() and len(announced) < 20 and int(announced) <= self._max_request:
            async for chunk in request.stream():
                body += chunk
                if len(body) > self._max_request:
                    break
            else:
                return bytes(body)
        raise HTTPException(413, self._too_large, {"Connection": "close"})

    def _decompressed(self, body: bytes, encoding: str) -> bytes:
        """The body as it was before the client compressed it; no more of it than a request may have is in memory."""
        if encoding not in _WINDOW_BITS:
            text = f"a body may be compressed by {' or '.join(_WINDOW_BITS)}, and the request's by {encoding!r:.200}"
            raise HTTPException(415, text)
        stream = zlib.decompressobj(_WINDOW_BITS[encoding])
        try:
            content = stream.decompress(body, self._max_request + 1)
        except zlib.error as error:
            raise BadRequest(f"the body is not compressed by {encoding}: {error}") from None
        if len(content) > self._max_request:
            raise HTTPException(413, self._too_large)
        if not stream.eof or stream.unused_data:
            raise BadRequest(f"the body is not compressed by {encoding}: it ends too early, or goes on after its end")
        return content

    @property
    def _too_large(self) -> str:
        return f"a request may have {self._max_request} bytes"

    def _model(self, request: Request) -> Model:
        name = request.path_params["model"]
        if name not in self._models:
            known = ", ".join(map(repr, self._models))
            raise HTTPException(404, f"there is no model {name!r:.200}; the models are {known}")
        return self._models[name]

    @asynccontextmanager
    async def _watching(self, app: Starlette) -> AsyncIterator[None]:
        """Reload models whose files change, as long as the server runs."""
        task = asyncio.create_task(self._watch())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._poll)
            for name, model in self._models.items():
                result = await run_in_threadpool(model.reload)
                if result is not None:
                    self._reloads.labels(name, "loaded" if result else "failed").inc()


async def _done(at_once: bool, work: Callable[[], T]) -> T:
    """The result of some work, which a thread does while the server goes on, unless it is done at once."""
    return work() if at_once else await run_in_threadpool(work)


def _size(answer: Any) -> float:
    """The bytes of arrays in an answer; infinite where it contains anything else."""
    if isinstance(answer, (list, dict)):
        return sum(map(_size, answer.values() if isinstance(answer, dict) else answer))
    return answer.nbytes if isinstance(answer, np.ndarray) else inf


async def _http_error(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _internal_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "the server failed to answer; its log says why"}, 500)


__all__ = ["Service"]
