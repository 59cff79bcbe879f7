"""``cntkjax info``: lists the content of a file, from its records, as far as possible if it cannot be loaded."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._typing import DTypeLike
from ..formats import files, v1
from ..formats.attributes import dtype_of, dynamic_axes_of
from ..formats.dictionary import FormatError, decode
from ..formats.writing import record_of
from ..graph.axis import Axis, axes_text
from ..graph.names import leaf_paths
from ..graph.shape import shape_text
from ..ops.functions import Function
from ..primitives import BY_ID
from ._files import load

Record = dict[str, Any]
INPUT, PARAMETER, CONSTANT = 0, 2, 3


def run(options: argparse.Namespace) -> None:
    """Print the content of a file.

    Errors: FormatError for an unknown format or a damaged file.
    """
    try:
        for line in lines(options.model):
            print(line)
    except (KeyError, AttributeError) as error:  # records are read without the validation of the loader
        raise FormatError(f"{options.model} is damaged: a record lacks {error}; save the model again") from error


def lines(path: Path) -> Iterator[str]:
    """The content of a file, line by line.

    Errors: FormatError for an unknown format or a damaged file.
    """
    kind, content, model = _read(path)
    if "Learners" in content:
        yield from _checkpoint(path, content)
        return
    if content.get("primitive_functions") is None:
        raise FormatError(
            f"{path} contains no model, but a dictionary with {', '.join(content) or 'no items'}; give a model or the "
            ".ckp file of a trainer"
        )
    yield f"{path}: a model of {kind}, {path.stat().st_size:,} bytes"
    leaves, operands = content["inputs"], _operands(content)
    yield from _section("inputs", (_leaf(v) for v in leaves if v["kind"] == INPUT and v["uid"] in operands))
    problem, paths = None, dict[str, str]()
    try:
        model = model or load(path)
        outputs, paths = list(model.outputs), {leaf.uid: at for leaf, at in leaf_paths(model.root_function).items()}
        yield from _section("outputs", (_variable(v.name or v.uid, v.shape, v.dtype, v.dynamic_axes) for v in outputs))
    except (ValueError, RuntimeError, ImportError) as error:
        problem = str(error)
    for title, number in (("parameters", PARAMETER), ("constants", CONSTANT)):
        records = [v for v in leaves if v["kind"] == number]
        total = sum(v["value"].size for v in records)
        yield from _section(f"{title}, {total:,} numbers in all", _leaves(records, paths))
    counts = Counter(map(_operation, content["primitive_functions"]))
    yield from _section("operations", (f"{count:4} {op}" for op, count in sorted(counts.items())))
    if problem is not None:
        yield f"The model cannot be loaded: {problem}"


def _read(path: Path) -> tuple[str, Record, Function | None]:
    """Format and content of a file, and the model if it had to be loaded."""
    if path.suffix == ".onnx":
        model = load(path)
        return "ONNX", record_of(model), model
    data, name = files.read(path, "model")
    view = memoryview(data)
    if view[: len(v1.MAGIC)] == v1.MAGIC:
        return "CNTK 1", v1.record_of(view, name), None
    return "CNTK 2", decode(view, name), None


def _checkpoint(path: Path, content: Record) -> Iterator[str]:
    yield f"{path}: the state of a trainer of CNTK 2; its model is {path.with_suffix('').name!r}"
    for i, learner in enumerate(content["Learners"]):
        state = learner.get("localLearners", learner)
        arrays = [shape_text(a.shape) for a in state["smoothed_gradients"]]
        yield f"learner {i}: {state['sample_count']} samples, {state['minibatchCount']} minibatches"
        yield f"  learning rates {state['learnig_rate_schedule']['schedule']}"
        yield f"  state {', '.join(arrays)}"
    yield f"external state: {', '.join(content.get('ExternalState', {})) or 'none'}"


def _section(title: str, items: Iterable[str]) -> Iterator[str]:
    rows = list(items)
    yield f"{title}:{'' if rows else ' none'}"
    yield from (f"  {row}" for row in rows)


def _operands(content: Record) -> set[str]:
    """The uids of all operands; those of arguments of blocks, which are no inputs of the model, are not among them."""
    return {uid for function in content["primitive_functions"] for uid in function.get("inputs", ())}


def _leaves(records: Sequence[Record], paths: Mapping[str, str]) -> Iterator[str]:
    """Parameters or constants; names that repeat with the path of the blocks around them, as far as it is known."""
    counts = Counter(record.get("name") for record in records)
    for record in records:
        name, path = record.get("name"), paths.get(record["uid"])
        yield _leaf(record | {"name": f"{path}.{name}"} if name and path and counts[name] > 1 else record)


def _leaf(record: Record) -> str:
    dtype = dtype_of(record["data_type"], record["uid"])
    axes = dynamic_axes_of(record["dynamic_axis"])
    sparse = ", sparse" if record["is_sparse"] else ""
    return _variable(record.get("name") or record["uid"], record["shape"], dtype, axes) + sparse


def _variable(name: str, shape: Sequence[int], dtype: DTypeLike | None, axes: Sequence[Axis] | None) -> str:
    parts = [name, shape_text(tuple(shape)), np.dtype(dtype).name if dtype else "", axes_text(axes) if axes else ""]
    return " ".join(filter(None, parts))


def _operation(function: Record) -> str:
    """The name of an operation, with a note if it is unknown."""
    if function.get("type") == "UserDefinedFunction":
        state = function.get("user_defined_state", {})
        return f"{state.get('module')}.{state.get('class')} (Python code of the user)"
    number = function["op"]
    if function.get("block_function_op_name"):
        return f"{function['block_function_op_name']} (a block)"
    return BY_ID[number].name if number in BY_ID else f"operation {number} (unknown to this package)"


__all__ = ["lines", "run"]
