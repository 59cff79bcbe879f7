"""``cntkjax info``: from the records of a file, so that it tells what it can about one that does not load."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..formats import files, v1
from ..formats.attributes import dtype_of, dynamic_axes_of
from ..formats.dictionary import FormatError, decode
from ..formats.writing import record_of
from ..graph.axis import axes_text
from ..graph.shape import shape_text
from ..primitives import BY_ID
from ._files import load

Record = dict[str, Any]
INPUT, PARAMETER, CONSTANT = 0, 2, 3


def run(options: argparse.Namespace) -> None:
    """Prints the contents of a file."""
    try:
        for line in lines(options.model):
            print(line)
    except (KeyError, AttributeError) as error:  # records are read here as they are, without the loader's checks
        raise FormatError(f"{options.model} is damaged: a record lacks {error}") from error


def lines(path: Path) -> Iterator[str]:
    """What is in a file, line by line.

    Errors: FormatError if it is none of CNTK's, or damaged.
    """
    model = None
    if path.suffix == ".onnx":
        model = load(path)
        kind, content = "ONNX", record_of(model)
    else:
        data, name = files.read(path, "model")
        view = memoryview(data)
        old = view[: len(v1.MAGIC)] == v1.MAGIC
        kind, content = ("CNTK 1", v1.record_of(view, name)) if old else ("CNTK 2", decode(view, name))
    if "Learners" in content:
        yield from _checkpoint(path, content)
        return
    if content.get("primitive_functions") is None:
        raise FormatError(f"{path} holds no model, but a dictionary with {', '.join(content) or 'nothing'}")
    yield f"{path}: a model of {kind}, {path.stat().st_size:,} bytes"
    leaves = content["inputs"]
    yield from _section("inputs", (_leaf(v) for v in leaves if v["kind"] == INPUT and v["uid"] in _fed(content)))
    try:
        outputs = list((model or load(path)).outputs)
        yield from _section("outputs", (_variable(v.name or v.uid, v.shape, v.dtype, v.dynamic_axes) for v in outputs))
        problem = None
    except (ValueError, RuntimeError, ImportError) as error:
        problem = str(error)
    for kind, number in (("parameters", PARAMETER), ("constants", CONSTANT)):
        own = [v for v in leaves if v["kind"] == number]
        total = sum(v["value"].size for v in own)
        yield from _section(f"{kind}, {total:,} numbers in all", map(_leaf, own))
    counted = Counter(map(_operation, content["primitive_functions"]))
    yield from _section("operations", (f"{count:4} {op}" for op, count in sorted(counted.items())))
    if problem is not None:
        yield f"It does not load: {problem}"


def _checkpoint(path: Path, content: Record) -> Iterator[str]:
    yield f"{path}: the state of a trainer of CNTK 2; its model is {path.with_suffix('').name!r}"
    for i, learner in enumerate(content["Learners"]):
        own = learner.get("localLearners", learner)
        arrays = [shape_text(a.shape) for a in own["smoothed_gradients"]]
        yield f"learner {i}: {own['sample_count']} samples, {own['minibatchCount']} minibatches"
        yield f"  learning rates {own['learnig_rate_schedule']['schedule']}"
        yield f"  state {', '.join(arrays)}"
    yield f"external state: {', '.join(content.get('ExternalState', {})) or 'none'}"


def _section(title: str, items: Iterable[str]) -> Iterator[str]:
    listed = list(items)
    yield f"{title}:{'' if listed else ' none'}"
    yield from (f"  {item}" for item in listed)


def _fed(content: Record) -> set[str]:
    """What operands name; blocks have arguments of their own, which are no inputs of the model."""
    return {uid for function in content["primitive_functions"] for uid in function.get("inputs", ())}


def _leaf(record: Record) -> str:
    dtype = dtype_of(record["data_type"], record["uid"])
    axes = dynamic_axes_of(record["dynamic_axis"])
    sparse = ", sparse" if record["is_sparse"] else ""
    return _variable(record.get("name") or record["uid"], record["shape"], dtype, axes) + sparse


def _variable(name: str, shape: Any, dtype: Any, axes: Any) -> str:
    parts = [name, shape_text(tuple(shape)), np.dtype(dtype).name if dtype else "", axes_text(axes) if axes else ""]
    return " ".join(filter(None, parts))


def _operation(function: Record) -> str:
    """The name of an operation; a note where it is not known here."""
    if function.get("type") == "UserDefinedFunction":
        state = function.get("user_defined_state", {})
        return f"{state.get('module')}.{state.get('class')} (Python code of the user)"
    number = function["op"]
    if function.get("block_function_op_name"):
        return f"{function['block_function_op_name']} (a block)"
    return BY_ID[number].name if number in BY_ID else f"operation {number} (unknown to this package)"


__all__ = ["lines", "run"]
