"""Data in CNTK's text format for the inputs of a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ..formats.containers import Dictionary
from ..graph.variable import Edge
from ..io import CTFDeserializer, StreamDef, StreamDefs

_FIRST_LINES = 100  # which show what fields there are, and which are sparse
_FIELD = re.compile(r"\|\s*([^\s|#]+)")
_SPARSE = re.compile(r"\|\s*(\S+)\s+\d+:")


def deserializer(inputs: Sequence[Edge], data: Path, fields: list[str]) -> Dictionary:
    """A reader of the inputs, numbered as in `stream_name`, from a file; fields with ``index:value`` are sparse.

    `fields`: ``INPUT=FIELD`` for inputs whose fields have other names.
    Errors: ValueError for unknown inputs, inputs without a name or without a field in the file; OSError for a file that
            cannot be read.
    """
    field_of = _fields_of(inputs, fields)
    found, sparse = _fields_in(data, set(field_of.values()))
    for v, field in field_of.items():
        if field not in found:
            name = v.name or v.uid
            raise ValueError(
                f"{data} has no field '|{field}' for the input {name!r}; {_advice(name, found)}"
            )
    streams = {
        stream_name(i): StreamDef(field, int(np.prod(v.shape)), is_sparse=field in sparse)
        for i, (v, field) in enumerate(field_of.items())
    }
    return CTFDeserializer(str(data), StreamDefs(**streams))


def _advice(name: str, found: Iterable[str]) -> str:
    fields = ", ".join(found)
    if not fields:
        return "it has none: give a file in CNTK's text format, of rows such as '|x 1 2 |y 1'"
    return f"its fields are {fields}. If one of these has the data, say so: --field {name}=FIELD"


def _fields_of(inputs: Sequence[Edge], fields: Iterable[str]) -> dict[Edge, str]:
    """The field of each input: that of its name, or the one that the options give it."""
    renamed = {}
    for entry in fields:
        name, _, field = entry.partition("=")
        if not name or not field:
            raise ValueError(f"--field {entry}: write INPUT=FIELD, such as --field features=x for '|x 1 2'")
        v = by_name(inputs, name, "input")
        renamed[v] = field.lstrip("|")
    for v in inputs:
        if v not in renamed and not v.name:
            raise ValueError(f"input {v.uid!r} has no name; select its field with --field {v.uid}=FIELD")
    return {v: renamed.get(v, v.name) for v in inputs}


def _fields_in(data: Path, wanted: set[str]) -> tuple[dict[str, None], set[str]]:
    """The fields of a file, in order, and those that are sparse: read until all that are wanted were found."""
    found: dict[str, None] = {}
    sparse: set[str] = set()
    with data.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file):
            if number >= _FIRST_LINES and wanted <= found.keys():
                break
            found |= dict.fromkeys(_FIELD.findall(line))
            sparse.update(_SPARSE.findall(line))
    return found, sparse


def stream_name(number: int) -> str:
    """The name of the stream of an input."""
    return f"input{number}"


def by_name(variables: Iterable[Edge], name: str, kind: str) -> Edge:
    """The variable of a name. Errors: ValueError if there is none."""
    for v in variables:
        if name in (v.name, v.uid):
            return v
    names = ", ".join(v.name or v.uid for v in variables)
    raise ValueError(f"the model has no {kind} {name!r}; use one of: {names}")


__all__ = ["by_name", "deserializer", "stream_name"]
