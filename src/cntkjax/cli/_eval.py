"""``cntkjax eval``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import cntkjax as C

from ._files import load

SAMPLES = 1024  # of a minibatch
_SPARSE = re.compile(r"\|\s*(\S+)\s+\d+:")


def run(options: argparse.Namespace) -> None:
    """Prints the outputs for each sequence of the data."""
    for line in lines(load(options.model), options.data, options.field, options.output):
        print(line)


def lines(model: C.Function, data: Path, fields: list[str], names: list[str]) -> Iterator[str]:
    """Rows of the text format: number of the sequence, and ``|name value ...`` for each output.

    Errors: ValueError for an output or input that the model has not, or a field that the data has not.
    """
    outputs = [_found(model.outputs, name, "output") for name in names] or list(model.outputs)
    wanted = C.combine(outputs)
    source = C.io.MinibatchSource(_deserializer(wanted, data, fields), randomize=False, max_sweeps=1)
    streams = {v: source[_key(i)] for i, v in enumerate(wanted.arguments)}
    sequence = 0
    while minibatch := source.next_minibatch(SAMPLES, input_map=streams):
        values = wanted.eval(minibatch)
        values = values if isinstance(values, dict) else {wanted.outputs[0]: values}
        count = next(iter(minibatch.values())).num_sequences
        for i in range(count):
            rows = {v.name or v.uid: _rows(v, values[v], i) for v in wanted.outputs}
            for step in range(max(map(len, rows.values()))):
                texts = (f"|{name} {_text(steps[step])}" for name, steps in rows.items() if step < len(steps))
                yield f"{sequence} {' '.join(texts)}"
            sequence += 1


def _deserializer(wanted: C.Function, data: Path, fields: list[str]) -> Any:
    renamed = dict(entry.partition("=")[::2] for entry in fields)
    for name in renamed:
        _found(wanted.arguments, name, "input")
    if not data.exists():
        raise ValueError(f"there is no file {str(data)!r}")
    with data.open(encoding="utf-8", errors="replace") as file:
        sparse = {match[1] for line, _ in zip(file, range(100), strict=False) for match in _SPARSE.finditer(line)}
    streams = {}
    for i, v in enumerate(wanted.arguments):
        field = renamed.get(v.name or v.uid, v.name)
        if not field:
            raise ValueError(f"input {v.uid!r} has no name: say which field it takes, --field {v.uid}=FIELD")
        streams[_key(i)] = C.io.StreamDef(field, int(np.prod(v.shape)), is_sparse=field in sparse)
    return C.io.CTFDeserializer(str(data), C.io.StreamDefs(**streams))


def _key(number: int) -> str:
    return f"input{number}"


def _found(variables: Any, name: str, what: str) -> Any:
    for v in variables:
        if name in (v.name, v.uid):
            return v
    there = ", ".join(v.name or v.uid for v in variables)
    raise ValueError(f"the model has no {what} {name!r}; it has {there}")


def _rows(variable: Any, value: Any, sequence: int) -> list[Any]:
    """What a variable gives for one sequence, step by step."""
    if not variable.dynamic_axes:
        return [value] if sequence == 0 else []
    own = value[sequence]
    dense = own.toarray() if hasattr(own, "toarray") else np.asarray(own)
    return list(dense) if isinstance(value, list) else [dense]


def _text(sample: Any) -> str:
    return " ".join(f"{x:.9g}" for x in np.ravel(sample))


__all__ = ["lines", "run"]
