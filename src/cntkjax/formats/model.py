"""Functions in CNTK's v2 model files: saved here they load in CNTK 2.7, and the other way round.

How a file is laid out stands in docs/formats.md. The operations are those of the table of primitives.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ..graph.function import Function, nodes
from ..graph.shape import matches
from ..graph.variable import Leaf
from . import _files, v1
from ._reading import graph_of
from ._writing import record_of
from .dictionary import buffers, decode


def save(function: Function, path: str | os.PathLike[str], format: Any = None) -> None:
    """Writes a function and all it stands for: graph, parameters, constants, state. The file is whole or not there.

    Errors: ValueError if a parameter has no value yet because its shape is still to be inferred, or for another
    `format` than ModelFormat.CNTKv2.
    """
    _check_format(format)
    _files.write((path, buffers(record_of(function))))


def load(source: Any, format: Any = None) -> Function:
    """A composite from a path, from bytes, or from an open binary file. Names and uids are those of the file.

    What CNTK 1 wrote (``.dnn``) is recognized and loads for evaluation.

    Errors: ValueError if there is no such file; FormatError, with the file, the position or node and the reason, if it
    is damaged, no model, or of a later version of CNTK. Nothing in a file is executed.
    """
    _check_format(format)
    data, name = _files.read(source, "model")
    view = memoryview(data).cast("B")
    content = v1.record_of(view, name) if view[: len(v1.MAGIC)] == v1.MAGIC else decode(view, name)
    return graph_of(content, name)


def restore(function: Function, source: Any) -> None:
    """Gives a function the state that it has in a model file: values of parameters and constants, random numbers.

    The same is a function of the same operations, names, shapes and types in the same order; uids may differ, as they
    do in another process.
    Errors: those of :func:`load`; ValueError, with the first difference, if the file holds another function. Nothing
    is changed then.
    """
    for mine, theirs in list(_paired(function, load(source))):
        if isinstance(theirs, Leaf):
            mine._infer_shape(theirs.shape)
            mine._value = theirs._value
        elif isinstance(theirs, Function):
            stored = theirs.node_attributes
            mine.node_attributes.update({key: stored[key] for key in ("rngSeed", "rngOffset") if key in stored})


def _check_format(format: Any) -> None:
    if getattr(format, "name", "CNTKv2") != "CNTKv2":
        raise ValueError(f"{format} is not supported: models are saved and loaded with ModelFormat.CNTKv2")


def _paired(mine: Function, theirs: Function) -> Iterator[tuple[Any, Any]]:
    """The nodes and the variables of two graphs that correspond to each other."""
    seen: dict[Any, Any] = {}
    stack: list[tuple[Function, Function]] = [(mine.root_function, theirs.root_function)]
    while stack:
        a, b = stack.pop()
        if seen.setdefault(a, b) is not b:
            raise _other(a, b, "is shared where that is not")
        for what, ours, stored in (
            ("is the operation", a.op_name, b.op_name),
            ("is called", a._name, b._name),
            ("has this number of inputs:", len(a.node_inputs), len(b.node_inputs)),
        ):
            if ours != stored:
                raise _other(a, b, f"{what} {ours}, not {stored}")
        yield a, b
        inside, stored = _random_inside(a), _random_inside(b)
        if [n.op_name for n in inside] == [n.op_name for n in stored]:  # the rest may be written otherwise
            yield from zip(inside, stored, strict=True)
        for v, w in zip(a.node_inputs, b.node_inputs, strict=True):
            if v._owner is not None and w._owner is not None:
                if v._owner not in seen:
                    stack.append((v._owner, w._owner))
                elif seen[v._owner] is not w._owner:
                    raise _other(v, w, "is shared where that is not")
            elif seen.setdefault(v, w) is not w:
                raise _other(v, w, "is shared where that is not")
            elif (v._kind, v.name, v.dtype) != (w._kind, w.name, w.dtype) or not matches(v.shape, w.shape):
                raise _other(v, w, "is of another kind, name, type or shape")
            else:
                yield v, w


def _random_inside(block: Function) -> list[Function]:
    """The nodes inside of a block that draw random numbers."""
    if block.block_composite is None:
        return []
    inside = nodes([block.block_composite.root_function], into_blocks=True)
    return [node for node in inside if "rngSeed" in node.node_attributes]


def _other(mine: Any, theirs: Any, why: str) -> ValueError:
    return ValueError(
        f"the file holds another function: {mine!r} of this one corresponds to {theirs!r} there, but {why}"
    )
