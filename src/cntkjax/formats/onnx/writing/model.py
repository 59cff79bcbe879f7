"""A function as an ONNX model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ....engine.run.handover import STATE, settle
from ....graph.axis import BATCH
from ....graph.function import Node
from ....graph.variable import Edge, producer
from ... import files
from .._onnx import onnx
from . import (  # noqa: F401  (they fill the table)
    elementwise,
    image,
    loss,
    product,
    random,
    reduce,
    rnnstack,
    sequence,
    shape,
)
from .cells import write_cell
from .graph import Dimension, ExportError, GraphWriter
from .loops import ScanWriter
from .order import Order, Recurrence
from .table import conversion_of, operands

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

CNTK_OPSET = 9  # what CNTK 2.7 writes
OPSETS = range(9, 22)
_LARGEST = 2**31 - 2**20  # a protocol buffer takes no more than 2 GB
_SMALL = 1024  # bytes: smaller tensors stay in the model itself


def save(
    function: Node, path: str | os.PathLike[str], opset: int = CNTK_OPSET, external: bool = False
) -> None:
    """Write a function as an ONNX model: inputs, outputs and nodes keep their names.

    `opset` 9, as CNTK writes: the batch axis is of size 1. From 10 on it is the symbolic dimension `batch`, so that the
    model takes batches of any size. A sequence axis is the first dimension, the batch axis the second one.
    `external`: tensors go to the file `<path>.data`, as they always do for a model larger than 2 GB.

    Errors: ImportError without the package onnx; ValueError for an opset that is not supported; ExportError (a
    ValueError and RuntimeError) that names the node for which ONNX has no operation. No file is written then.
    """
    with STATE:
        settle()
        model = model_of(function, opset)
    if external or sum(t.ByteSize() for t in model.graph.initializer) > _LARGEST:
        data = list(_external(model, os.path.basename(os.fspath(path)) + ".data"))
        files.write((os.fspath(path) + ".data", data), (path, [model.SerializeToString(deterministic=True)]))
    else:
        files.write((path, [model.SerializeToString(deterministic=True)]))


def model_of(function: Node, opset: int = CNTK_OPSET) -> ModelProto:
    """The ModelProto of a function, checked by onnx. Errors: those of :func:`save`."""
    if opset not in OPSETS:
        raise ValueError(f"opset {opset} is not supported: it is one of {OPSETS.start} to {OPSETS.stop - 1}")
    helper = onnx().helper
    order = Order(function.outputs)
    w = GraphWriter(opset, order)
    inputs = [_input(w, v, opset) for v in _arguments(function, order)]
    for part in order.parts:
        _write(w, part, order)
    outputs = [_output(w, v, resolved) for v, resolved in zip(function.outputs, order.outputs, strict=True)]
    nodes, used = _needed(w.nodes, [o.name for o in outputs])
    graph = helper.make_graph(
        nodes, "CNTKGraph", inputs, outputs, [t for name, t in w.initializers.items() if name in used],
        doc_string=_names(w),
    )
    model = helper.make_model(
        graph, producer_name="CNTK", producer_version="cntkjax", opset_imports=[helper.make_opsetid("", opset)]
    )
    model.ir_version = helper.find_min_ir_version_for(model.opset_import, True)
    model.ir_version = max(model.ir_version, 4)
    if model.ByteSize() < _LARGEST:
        onnx().checker.check_model(model)
    return model


def _arguments(function: Node, order: Order) -> list[Edge]:
    used = {v for part in order.parts for n in _members(part) for v in order.inputs(n)} | set(order.outputs)
    for v in used:
        if v.is_placeholder:
            raise ExportError(
                f"placeholder {v.name or v.uid!r} has not been replaced, so that the function cannot be saved",
                fix="call replace_placeholders before saving",
            )
    return [v for v in function.arguments if v in used]


def _input(w: GraphWriter, v: Edge, opset: int) -> ValueInfoProto:
    name = w.unique(v.name or v.uid)
    w.tensors[v] = name
    return w.value_info(name, v, _dimensions(w, v, opset, name))


def _dimensions(w: GraphWriter, v: Edge, opset: int, name: str) -> list[Dimension]:
    """Sizes, and names of free dimensions."""
    leading: list[Dimension] = []
    if v.sequence_axis is not None:
        leading.append(w.dimension(v.sequence_axis))
    if BATCH in v.dynamic_axes:
        leading.append(1 if opset == CNTK_OPSET else "batch")
    return [*leading, *(d if d >= 0 else w.dimension((name, i)) for i, d in enumerate(v.shape))]


def _output(w: GraphWriter, v: Edge, resolved: Edge) -> ValueInfoProto:
    name = w.find(resolved)
    if name is None or producer(resolved) is None or name in w.initializers or name in w.results:
        w.label = v.name or v.uid
        tensor = w.tensor(resolved)
        name = w.node("Identity", [tensor])
        w.tensors[resolved] = tensor
    dimensions = _dimensions(w, v, w.opset, name)
    node = producer(resolved)
    conversion = None if node is None else conversion_of(node)
    if conversion is not None and conversion.batch_of_one and not v.dynamic_axes:  # without the Squeeze at the end
        last = next(n for n in w.nodes if name in n.output)
        batch = next(n for n in w.nodes if last.input[0] in n.output)
        batch.name, name, dimensions = last.name, batch.output[0], [1, *dimensions]
    w.results.add(name)
    w.uids[v.uid] = name
    return w.value_info(name, v, dimensions)


# ---- nodes
def _write(w: GraphWriter, part: Node | Recurrence, order: Order) -> None:
    if isinstance(part, Node):
        _write_node(w, part)
    elif part.cell is not None:
        block = part.cell.block
        w.label, first_node = block.name or block.uid, len(w.nodes)
        output = write_cell(w, part.cell, order.resolve)
        w.name_outputs(block, block.node_outputs[:1], [output], first_node)
    else:
        used = {v for p in order.parts for n in _members(p) if n not in part.members for v in order.inputs(n)}
        outputs = [v for v in dict.fromkeys(v for n in part.members for v in n.node_outputs)
                   if v in used or v in order.outputs]
        ScanWriter(w, part, order).write(outputs, _write_node)


def _members(part: Node | Recurrence) -> Sequence[Node]:
    return part.members if isinstance(part, Recurrence) else [part]


def _write_node(w: GraphWriter, node: Node) -> None:
    """Write one primitive or block by its row in the table."""
    w.label, first_node = node.name or node.uid, len(w.nodes)
    conversion = conversion_of(node)
    if conversion is None:
        raise ExportError(
            f"{node!r}: ONNX has no operation for {node.op_name}",
            fix="save a part of the model without it, or register a converter with formats.onnx.writing.table.writes",
        )
    inputs = w.inputs(node) if node.block_composite is None else [w.resolve(v) for v in operands(node)]
    tensors = conversion.convert(w, node, *(w.tensor(v) for v in inputs))
    tensors = [tensors] if isinstance(tensors, str) else tensors
    w.name_outputs(node, node.node_outputs, tensors, first_node, w.block_names.get(node, ""))


def _needed(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> tuple[list[NodeProto], set[str]]:
    """The nodes that outputs depend on, and the names of all tensors that these use."""
    used, needed = set(outputs), []
    for node in reversed(nodes):
        if used & set(node.output):
            needed.append(node)
            used.update(_uses(node))
    return needed[::-1], used


def _uses(node: NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _uses(inner)
        yield from (o.name for o in attribute.g.output)


def _names(w: GraphWriter) -> str:
    """CNTK's uids and the names in this file, in the form in which CNTK records them."""
    return "<<<Uid, ONNXNodeName>>> pair: " + " ".join(f"<<<{uid}, {name}>>>" for uid, name in w.uids.items()) + " "


def _external(model: ModelProto, file: str) -> Iterator[bytes]:
    """The bytes of a second file with the values of tensors; the tensors then hold their positions in it."""
    offset = 0
    for tensor in model.graph.initializer:
        data = tensor.raw_data
        if len(data) < _SMALL:
            continue
        tensor.ClearField("raw_data")
        tensor.data_location = onnx().TensorProto.EXTERNAL
        for key, value in (("location", file), ("offset", str(offset)), ("length", str(len(data)))):
            tensor.external_data.add(key=key, value=value)
        offset += len(data)
        yield data


__all__ = ["model_of", "save"]
