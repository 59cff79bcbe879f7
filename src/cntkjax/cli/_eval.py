"""``cntkjax eval``: evaluates a model for data in CNTK's text format."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._typing import ArrayLike
from ..formats.containers import Dictionary
from ..graph.variable import Variable
from ..io import CTFDeserializer, MinibatchSource, StreamDef, StreamDefs
from ..ops import combine
from ..ops.functions import Function
from ._files import load

MINIBATCH_SIZE = 1024  # samples
_SPARSE = re.compile(r"\|\s*(\S+)\s+\d+:")


def run(options: argparse.Namespace) -> None:
    """Prints the outputs for each sequence of the data."""
    for line in lines(load(options.model), options.data, options.field, options.output):
        print(line)


def lines(model: Function, data: Path, fields: list[str], names: list[str]) -> Iterator[str]:
    """Rows of the text format: number of the sequence, and ``|name value ...`` for each output.

    Args:
        model: the model
        data: the data
        fields: ``INPUT=FIELD`` for inputs whose fields have other names
        names: the outputs to print; all if empty

    Errors: ValueError for unknown outputs, inputs and fields.
    """
    outputs = [_by_name(model.outputs, name, "output") for name in names] or list(model.outputs)
    function = combine(outputs)
    source = MinibatchSource(_deserializer(function, data, fields), randomize=False, max_sweeps=1)
    streams = {v: source[_key(i)] for i, v in enumerate(function.arguments)}
    sequence = 0
    while minibatch := source.next_minibatch(MINIBATCH_SIZE, input_map=streams):
        values = function.eval(minibatch)
        values = values if isinstance(values, dict) else {function.outputs[0]: values}
        count = next(iter(minibatch.values())).num_sequences
        for i in range(count):
            rows = {v.name or v.uid: _steps(v, values[v], i) for v in function.outputs}
            for step in range(max(map(len, rows.values()))):
                texts = (f"|{name} {_text(steps[step])}" for name, steps in rows.items() if step < len(steps))
                yield f"{sequence} {' '.join(texts)}"
            sequence += 1


def _deserializer(function: Function, data: Path, fields: list[str]) -> Dictionary:
    """Reads the inputs of a function from the file; fields with ``index:value`` are sparse."""
    renamed = dict(entry.partition("=")[::2] for entry in fields)
    for name in renamed:
        _by_name(function.arguments, name, "input")
    if not data.exists():
        raise ValueError(f"there is no file {str(data)!r}; check --data")
    with data.open(encoding="utf-8", errors="replace") as file:
        sparse = {match[1] for line, _ in zip(file, range(100), strict=False) for match in _SPARSE.finditer(line)}
    streams = {}
    for i, v in enumerate(function.arguments):
        field = renamed.get(v.name or v.uid, v.name)
        if not field:
            raise ValueError(f"input {v.uid!r} has no name; select its field with --field {v.uid}=FIELD")
        streams[_key(i)] = StreamDef(field, int(np.prod(v.shape)), is_sparse=field in sparse)
    return CTFDeserializer(str(data), StreamDefs(**streams))


def _key(number: int) -> str:
    return f"input{number}"


def _by_name(variables: Iterable[Variable], name: str, kind: str) -> Variable:
    for v in variables:
        if name in (v.name, v.uid):
            return v
    names = ", ".join(v.name or v.uid for v in variables)
    raise ValueError(f"the model has no {kind} {name!r}; use one of: {names}")


def _steps(variable: Variable, value: Any, sequence: int) -> list[np.ndarray]:
    """The value of a variable for one sequence, step by step; one without axes comes with the first sequence."""
    if not variable.dynamic_axes:
        return [value] if sequence == 0 else []
    steps = value[sequence]
    dense = steps.toarray() if hasattr(steps, "toarray") else np.asarray(steps)
    return list(dense) if isinstance(value, list) else [dense]


def _text(sample: ArrayLike) -> str:
    return " ".join(f"{x:.9g}" for x in np.ravel(sample))


__all__ = ["lines", "run"]
