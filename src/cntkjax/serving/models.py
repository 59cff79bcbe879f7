"""Served models: loaded, replaced when their files change, and asked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..eval.predictor import Predictor
from ..graph.shape import is_known
from ..graph.variable import Edge
from ..ops.functions import Function
from .tensors import BadRequest, Query, description

Stamp = tuple[int, int, int]
log = logging.getLogger("uvicorn.error")  # the server's own


class Batching(NamedTuple):
    """How requests are joined; see `Predictor`."""

    max_batch: int = 32
    max_delay: float = 0.002
    max_queue: int = 256


class Loaded:
    """A model in memory. It is complete before anyone sees it, and never changes.

    Errors: those of `Function.load`.
    """

    def __init__(self, function: Function, batching: Batching) -> None:
        self._predict = Predictor(function, None, *batching)
        self.inputs = _by_name(self._predict.arguments)
        self.outputs = _by_name(self._predict.outputs)
        if all(is_known(v.shape) for v in self.inputs.values()):
            self._predict.warm()

    def metadata(self, name: str) -> dict[str, Any]:
        """What the protocol says of a model."""
        return {
            "name": name, "versions": ["1"], "platform": "cntkjax",
            "inputs": [description(*item) for item in self.inputs.items()],
            "outputs": [description(*item) for item in self.outputs.items()],
        }

    def submit(self, query: Query) -> Future[Any]:
        """Ask. Errors: BadRequest for unknown outputs; those of `Predictor.submit`."""
        if unknown := [name for name in query.outputs if name not in self.outputs]:
            raise BadRequest(f"{unknown[0]!r:.200} is no output; the outputs are {', '.join(map(repr, self.outputs))}")
        return self._predict.submit({v: query.tensors[name] for name, v in self.inputs.items()})

    def values(self, query: Query, answer: Any) -> dict[str, np.ndarray]:
        """The tensors of the outputs that were asked for. Errors: BadRequest for sequences that differ in length."""
        variables = self.outputs.values()
        answers = [answer] if len(variables) == 1 else [answer[v] for v in variables]
        named = dict(zip(self.outputs, answers, strict=True))
        return {name: _stacked(name, named[name]) for name in query.outputs or self.outputs}


class Model:
    """A file, and what was loaded from it.

    Errors: those of `Function.load`, when it is made; afterwards what was loaded before stays.
    """

    def __init__(self, path: Path, load: Callable[[Path], Function], batching: Batching) -> None:
        self.path, self._load, self._batching = path, load, batching
        self._loaded_stamp = self._last_stamp = _stamp(path)
        self.current = self._new()

    def _new(self) -> Loaded:
        return Loaded(self._load(self.path), self._batching)

    def reload(self) -> bool | None:
        """Load the file if it has changed, and not since the last call; whether that worked, None if it is the same."""
        stamp, before = _stamp(self.path), self._last_stamp
        self._last_stamp = stamp
        if stamp is None or stamp == self._loaded_stamp or stamp != before:  # gone, the same, or still being written
            return None
        self._loaded_stamp = stamp
        try:
            self.current = self._new()
        except Exception as error:  # whatever the file contains
            log.warning("%s has changed, but cannot be loaded; the model from before stays: %s", self.path, error)
            return False
        log.info("%s has changed, and has been loaded", self.path)
        return True


def _by_name(variables: Any) -> Mapping[str, Edge]:
    """Variables by name, or by uid where there is none, or several have the same."""
    names = [v.name for v in variables]
    return {v.name if v.name and names.count(v.name) == 1 else v.uid: v for v in variables}


def _stacked(name: str, value: Any) -> np.ndarray:
    """The tensor of an output: [batch, steps, *shape] for sequences."""
    if not isinstance(value, list):
        return _dense(value)
    arrays = [*map(_dense, value)]
    if len({a.shape for a in arrays}) > 1:
        raise BadRequest(f"the sequences of output {name!r} differ in length: send one sequence in a request")
    return np.stack(arrays)


def _dense(value: Any) -> np.ndarray:
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value)


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


__all__ = ["Batching", "Loaded", "Model"]
