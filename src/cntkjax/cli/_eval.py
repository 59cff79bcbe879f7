"""``cntkjax eval``: evaluates a model for data in CNTK's text format."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from .._typing import ArrayLike
from ..graph.variable import Edge, producer
from ..io import MinibatchSource
from ..ops import combine
from ..ops.functions import Function
from ._data import by_name, deserializer, stream_name
from ._files import load

MINIBATCH_SIZE = 1024  # samples


def run(options: argparse.Namespace) -> None:
    """Print the outputs for each sequence of the data."""
    for line in lines(load(options.model), options.data, options.field, options.output):
        print(line)


def lines(model: Function, data: Path, fields: list[str], names: list[str]) -> Iterator[str]:
    """Rows of the text format: number of the sequence, and ``|name value ...`` for each output.

    Outputs without a batch axis follow those of a minibatch, with a comment that says what they are; sums over the
    minibatch are added up, and follow at the end.

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
    of_minibatch = {v: _meaning(v) for v in function.outputs if not v.dynamic_axes}
    at_end: dict[Edge, Any] = {}
    sequence = 0
    while minibatch := source.next_minibatch(MINIBATCH_SIZE, input_map=streams):
        values = function.eval(minibatch)
        values = values if isinstance(values, dict) else {function.outputs[0]: values}
        first, sequence = sequence, sequence + next(iter(minibatch.values())).num_sequences
        for i in range(first, sequence):
            rows = {_name(v): _steps(values[v], i - first) for v in function.outputs if v.dynamic_axes}
            for step in range(max(map(len, rows.values()), default=0)):
                texts = (f"|{name} {_text(steps[step])}" for name, steps in rows.items() if step < len(steps))
                yield f"{i} {' '.join(texts)}"
        for v, meaning in of_minibatch.items():
            if meaning is Meaning.OF_MINIBATCH:
                yield f"|{_name(v)} {_text(values[v])} |# of the minibatch of the sequences {first} to {sequence - 1}"
            else:
                before = at_end.get(v, 0) if meaning is Meaning.SUM else 0
                at_end[v] = before + np.asarray(values[v], np.float64)
    for v, value in at_end.items():
        is_sum = of_minibatch[v] is Meaning.SUM
        comment = f"the sum over all {sequence} sequences of {data}" if is_sum else "independent of the data"
        yield f"|{_name(v)} {_text(value)} |# {comment}"


def _name(variable: Edge) -> str:
    return variable.name or variable.uid


class Meaning(Enum):
    """What the value of a variable without a batch axis is."""

    FIXED, SUM, OF_MINIBATCH = range(3)


def _meaning(variable: Edge) -> Meaning:
    """The meaning of a variable without a batch axis: fixed, a sum over the minibatch, or something else of it."""
    if not any(v.dynamic_axes for v in combine([variable]).arguments):
        return Meaning.FIXED
    owner = producer(variable)
    while owner is not None and owner.block_composite is not None:
        inner = owner.block_composite.outputs[owner.node_outputs.index(variable)]
        variable, owner = inner, producer(inner)
    if owner is None or owner.op_name != "ReduceElements" or owner.node_attributes["reductionOpName"] != "Sum":
        return Meaning.OF_MINIBATCH
    return Meaning.SUM if owner.node_inputs[0].dynamic_axes else Meaning.OF_MINIBATCH


def _steps(value: Any, sequence: int) -> list[np.ndarray]:
    """The value of a variable for one sequence, step by step."""
    steps = value[sequence]
    dense = steps.toarray() if hasattr(steps, "toarray") else np.asarray(steps)
    return list(dense) if isinstance(value, list) else [dense]


def _text(sample: ArrayLike) -> str:
    return " ".join(f"{x:.9g}" for x in np.ravel(sample))


__all__ = ["lines", "run"]
