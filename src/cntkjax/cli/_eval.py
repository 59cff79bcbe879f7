"""``cntkjax eval``: evaluates a model for data in CNTK's text format."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._typing import ArrayLike
from ..graph.variable import Variable
from ..io import MinibatchSource
from ..ops import combine
from ..ops.functions import Function
from ._data import by_name, deserializer, stream_name
from ._files import load

MINIBATCH_SIZE = 1024  # samples


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
    outputs = [by_name(model.outputs, name, "output") for name in names] or list(model.outputs)
    function = combine(outputs)
    source = MinibatchSource(deserializer(function.arguments, data, fields), randomize=False, max_sweeps=1)
    streams = {v: source[stream_name(i)] for i, v in enumerate(function.arguments)}
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
