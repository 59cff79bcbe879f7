"""Data in CNTK's text format for the inputs of a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ..formats.containers import Dictionary
from ..graph.variable import Variable
from ..io import CTFDeserializer, StreamDef, StreamDefs

_SPARSE = re.compile(r"\|\s*(\S+)\s+\d+:")


def deserializer(inputs: Sequence[Variable], data: Path, fields: list[str]) -> Dictionary:
    """Reads the inputs, numbered as in `stream_name`, from a file; fields with ``index:value`` are sparse.

    `fields`: ``INPUT=FIELD`` for inputs whose fields have other names.
    Errors: ValueError for unknown inputs, inputs without a name, and a file that does not exist.
    """
    renamed = dict(entry.partition("=")[::2] for entry in fields)
    for name in renamed:
        by_name(inputs, name, "input")
    if not data.exists():
        raise ValueError(f"there is no file {str(data)!r}; check --data")
    with data.open(encoding="utf-8", errors="replace") as file:
        sparse = {match[1] for line, _ in zip(file, range(100), strict=False) for match in _SPARSE.finditer(line)}
    streams = {}
    for i, v in enumerate(inputs):
        field = renamed.get(v.name or v.uid, v.name)
        if not field:
            raise ValueError(f"input {v.uid!r} has no name; select its field with --field {v.uid}=FIELD")
        streams[stream_name(i)] = StreamDef(field, int(np.prod(v.shape)), is_sparse=field in sparse)
    return CTFDeserializer(str(data), StreamDefs(**streams))


def stream_name(number: int) -> str:
    """The name of the stream of an input."""
    return f"input{number}"


def by_name(variables: Iterable[Variable], name: str, kind: str) -> Variable:
    """The variable of a name. Errors: ValueError if there is none."""
    for v in variables:
        if name in (v.name, v.uid):
            return v
    names = ", ".join(v.name or v.uid for v in variables)
    raise ValueError(f"the model has no {kind} {name!r}; use one of: {names}")


__all__ = ["by_name", "deserializer", "stream_name"]
