"""A function as an ONNX model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from ....graph.axis import BATCH
from ....graph.function import Function
from ....graph.variable import Variable
from ... import files
from .._onnx import onnx
from . import elementwise, image, loss, product, random, reduce, rnnstack, sequence, shape  # noqa: F401  (fill the table)
from .cells import write_cell
from .graph import ExportError, Writer
from .loops import write_loop
from .order import Order, Recurrence
from .table import BLOCKS, PRIMITIVES, operands

CNTK_OPSET = 9  # what CNTK 2.7 writes
OPSETS = range(9, 22)
_LARGEST = 2**31 - 2**20  # a protocol buffer takes no more than 2 GB
_SMALL = 1024  # bytes: smaller tensors stay in the model itself


def save(
    function: Function, path: str | os.PathLike[str], opset: int = CNTK_OPSET, external: bool = False
) -> None:
    """Writes a function as an ONNX model: inputs, outputs and nodes keep their names.

    `opset` 9, as CNTK writes: the batch axis is of size 1. From 10 on it is the symbolic dimension `batch`, and so a
    model takes batches of any size. A sequence axis is the first dimension, the batch axis the second one.
    `external`: tensors go to `<path>.data`, which they do anyway where a model is larger than 2 GB.

    Errors: ImportError without the package onnx; ValueError for an opset that is not written; ExportError (a
    ValueError and RuntimeError) that names the node for what ONNX has no operation for. No file is written then.
    """
    made = model_of(function, opset)
    if external or sum(t.ByteSize() for t in made.graph.initializer) > _LARGEST:
        data = list(_external(made, os.path.basename(os.fspath(path)) + ".data"))
        files.write((os.fspath(path) + ".data", data), (path, [made.SerializeToString(deterministic=True)]))
    else:
        files.write((path, [made.SerializeToString(deterministic=True)]))


def model_of(function: Function, opset: int = CNTK_OPSET) -> Any:
    """The ModelProto of a function, checked by onnx."""
    if opset not in OPSETS:
        raise ValueError(f"opset {opset} is not supported: it is one of {OPSETS.start} to {OPSETS.stop - 1}")
    helper = onnx().helper
    order = Order(function.outputs)
    w = Writer(opset, order)
    inputs = [_input(w, v, opset) for v in _arguments(function, order)]
    for part in order.parts:
        _write(w, part, order)
    outputs = [_output(w, v, resolved) for v, resolved in zip(function.outputs, order.outputs, strict=True)]
    nodes, used = _needed(w.nodes, [o.name for o in outputs])
    graph = helper.make_graph(
        nodes, "CNTKGraph", inputs, outputs, [t for name, t in w.initializers.items() if name in used],
        doc_string=_names(w),
    )
    made = helper.make_model(
        graph, producer_name="CNTK", producer_version="cntkjax", opset_imports=[helper.make_opsetid("", opset)]
    )
    made.ir_version = helper.find_min_ir_version_for(made.opset_import, True)
    made.ir_version = max(made.ir_version, 4)
    if made.ByteSize() < _LARGEST:
        onnx().checker.check_model(made)
    return made


def _arguments(function: Function, order: Order) -> list[Variable]:
    nodes = [n for part in order.parts for n in (part.members if isinstance(part, Recurrence) else [part])]
    used = {v for n in nodes for v in order.inputs(n)} | set(order.outputs)
    for v in used:
        if v.is_placeholder:
            raise ExportError(f"placeholder {v.name or v.uid!r} has not been replaced, so there is nothing to write")
    return [v for v in function.arguments if v in used]


def _input(w: Writer, v: Variable, opset: int) -> Any:
    name = w.unique(v.name or v.uid)
    w.tensors[v] = name
    return w.info(name, v, _dimensions(w, v, opset, name))


def _dimensions(w: Writer, v: Variable, opset: int, name: str) -> list[Any]:
    """Sizes, and names for those that are open."""
    lead: list[Any] = []
    if v.sequence_axis is not None:
        lead.append(w.dimension(v.sequence_axis))
    if BATCH in v.dynamic_axes:
        lead.append(1 if opset == CNTK_OPSET else "batch")
    return [*lead, *(d if d >= 0 else w.dimension((name, i)) for i, d in enumerate(v.shape))]


def _output(w: Writer, v: Variable, resolved: Variable) -> Any:
    name = w.known(resolved)
    if name is None or resolved._owner is None or name in w.initializers or name in w.results:
        w.label = v.name or v.uid
        given = w.of(resolved)
        name = w.node("Identity", [given])
        w.tensors[resolved] = given
    dimensions = _dimensions(w, v, w.opset, name)
    if resolved._owner is not None and resolved._owner.op_name == "ImageScaler" and not v.dynamic_axes:
        # As in CNTK, a scaled image without batch axis is written as a batch of one: without the Squeeze at the end.
        last = next(n for n in w.nodes if name in n.output)
        image = next(n for n in w.nodes if last.input[0] in n.output)
        image.name, name, dimensions = last.name, image.output[0], [1, *dimensions]
    w.results.add(name)
    w.uids[v.uid] = name
    return w.info(name, v, dimensions)


# ---- nodes
def _write(w: Writer, part: Function | Recurrence, order: Order) -> None:
    if isinstance(part, Function):
        _emit(w, part)
    elif part.cell is not None:
        block = part.cell.block
        w.label, begun = block._name or block.uid, len(w.nodes)
        made = write_cell(w, part.cell, order.resolve)
        w.finish(_Output(block, block.node_outputs[0]), [made], begun)  # type: ignore[arg-type]
    else:
        inside = {v for n in part.members for v in n.node_outputs}
        used = {v for p in order.parts for n in _members(p) if n not in part.members for v in order.inputs(n)}
        wanted = [v for v in dict.fromkeys(v for n in part.members for v in n.node_outputs)
                  if v in used or v in order.outputs]
        assert inside
        write_loop(w, part, order, wanted, _emit)


class _Output:
    """A node with only one of its outputs."""

    def __init__(self, node: Function, output: Variable) -> None:
        self._name, self.uid, self.node_outputs = node._name, node.uid, [output]


def _members(part: Function | Recurrence) -> Sequence[Function]:
    return part.members if isinstance(part, Recurrence) else [part]


def _emit(w: Writer, node: Function) -> None:
    """One primitive or block by its entry in the table."""
    w.label, begun = node._name or node.uid, len(w.nodes)
    if node.block_composite is not None:
        emitter, given = BLOCKS[node.op_name].emit, [w.resolved(v) for v in operands(node)]
    elif node.op_name in PRIMITIVES:
        emitter, given = PRIMITIVES[node.op_name], w.inputs(node)
    else:
        raise ExportError(f"{node!r}: ONNX has no operation for {node.op_name}")
    made = emitter(w, node, *(w.of(v) for v in given))
    w.finish(node, [made] if isinstance(made, str) else made, begun)


def _needed(nodes: Sequence[Any], outputs: Sequence[str]) -> tuple[list[Any], set[str]]:
    """The nodes that outputs depend on, and all names that these use."""
    used, kept = set(outputs), []
    for node in reversed(nodes):
        if used & set(node.output):
            kept.append(node)
            used.update(_uses(node))
    return kept[::-1], used


def _uses(node: Any) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _uses(inner)
        yield from (o.name for o in attribute.g.output)


def _names(w: Writer) -> str:
    """CNTK's uids and what they are called here, as CNTK notes them down."""
    return "<<<Uid, ONNXNodeName>>> pair: " + " ".join(f"<<<{uid}, {name}>>>" for uid, name in w.uids.items()) + " "


def _external(made: Any, file: str) -> Iterator[bytes]:
    """The bytes of a second file; the tensors then say where theirs stand."""
    at = 0
    for tensor in made.graph.initializer:
        data = tensor.raw_data
        if len(data) < _SMALL:
            continue
        tensor.ClearField("raw_data")
        tensor.data_location = onnx().TensorProto.EXTERNAL
        for key, value in (("location", file), ("offset", str(at)), ("length", str(len(data)))):
            tensor.external_data.add(key=key, value=value)
        at += len(data)
        yield data


__all__ = ["model_of", "save"]
