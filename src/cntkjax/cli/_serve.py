"""``cntkjax serve``: models over HTTP."""

from __future__ import annotations

import argparse
import signal
import socket
from contextlib import suppress
from pathlib import Path

from ..serving.models import Batching, Model
from ._files import load
from ._parser import version

_PATIENCE_SECONDS = 30  # for requests under way when the server is stopped


def run(options: argparse.Namespace) -> None:
    """Load the models, and answer requests until SIGINT or SIGTERM; requests under way are answered before it ends.

    Errors: ImportError without the packages of the extra `serve`; those of `Function.load`; ValueError for two models
            of one name; OSError for an address that cannot be used.
    """
    try:
        import uvicorn

        from ..serving.app import Service
        from ..serving.connections import Server, impatient
    except ImportError as error:
        raise ImportError(f'serve needs a server ({error}): pip install "cntkjax[serve]"') from error
    batching = Batching(options.max_batch, options.max_delay / 1000, options.max_queue)
    models = {name: Model(path, load, batching) for name, path in named(options.models).items()}
    service = Service(models, version(), int(options.max_request * 2**20), options.body_timeout)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.create_server((options.host, options.port), family=family) as listening:
        host, port = listening.getsockname()[:2]
        config = uvicorn.Config(
            service.app(), http=impatient(options.body_timeout), access_log=False, lifespan="on",
            timeout_graceful_shutdown=_PATIENCE_SECONDS,
        )
        server = Server(config)
        # Before uvicorn handles it, and again when it has stopped: it sends the signal to this process once more.
        signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
        print(f"http://{f'[{host}]' if ':' in host else host}:{port} serves {', '.join(models)}", flush=True)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])


def named(models: list[str]) -> dict[str, Path]:
    """The files by the names of the models: NAME=FILE, or the name of the file without its extension.

    Errors: ValueError for a name that occurs twice, or cannot be a part of an address.
    """
    result: dict[str, Path] = {}
    for model in models:
        name, equals, path = model.partition("=")
        file = Path(path if equals else model)
        name = name if equals else file.stem
        if name in result or not name or "/" in name:
            raise ValueError(f"{model}: {name!r} is the name of another model or cannot be one; give NEWNAME={file}")
        result[name] = file
    return result


__all__ = ["named", "run"]
