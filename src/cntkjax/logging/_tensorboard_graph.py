"""Describes a graph for TensorBoard, which draws nodes whose names begin with the same folder as one box."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..graph.function import Node, native_inputs
from ..graph.shape import is_unknown
from ..graph.variable import Edge, block_operand, kind_of
from ..graph.walk import source_of

if TYPE_CHECKING:
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

Vertex = Node | Edge

# The numbers of TensorFlow's element types; 0 is an unknown one.
_ELEMENT_TYPES = {np.dtype(np.float32): 1, np.dtype(np.float64): 2, np.dtype(np.float16): 19}


def graph_definition(model: Node) -> GraphDef:
    """The primitives and leaves of a graph, those inside a block in a folder with the name or uid of the block.

    Shapes and operands are in CNTK's own order: those that a block receives come last.
    Source: nodes, names and attributes are those of CNTK 2.7's event files, but a name that occurred before ends with
    the uid: TensorBoard tells nodes apart by their names.
    """
    from tensorboardX.proto.graph_pb2 import GraphDef

    definition = GraphDef()
    names = _names(model.root_function)
    position = {vertex: i for i, vertex in enumerate(names)}
    for vertex, name in names.items():
        if isinstance(vertex, Node):
            operation, outputs = vertex.op_name, list(vertex.outputs)
            inputs = sorted(native_inputs(vertex), key=lambda v: position[_source(v)] if _is_argument(v) else -1)
            operands = [names[_source(v)] for v in inputs]
        else:
            kind = kind_of(vertex).name
            operation, outputs, operands = "Const" if kind == "Constant" else kind, [vertex], []
        node = definition.node.add(name=name, op=operation, input=operands)
        _set_shape(node.attr["shape"].shape, outputs[0])
        for output in outputs:
            _set_shape(node.attr["_output_shapes"].list.shape.add(), output)
        node.attr["dtype"].type = _ELEMENT_TYPES.get(np.dtype(outputs[0].dtype), 0)
    return definition


def _names(root: Node) -> dict[Vertex, str]:
    """The vertices in CNTK's order: depth first, the inside of a block before the operands of the block."""
    names: dict[Vertex, str] = {}
    taken: set[str] = set()
    blocks: set[Node] = set()
    waiting: list[tuple[Vertex, str]] = [(root, "")]
    while waiting:
        vertex, folder = waiting.pop()
        if vertex in names or vertex in blocks or (isinstance(vertex, Edge) and _is_argument(vertex)):
            continue  # arguments of a block are visited as its operands
        name = folder + (vertex.name or vertex.uid)
        if isinstance(vertex, Node):
            waiting.extend((source_of(operand), folder) for operand in reversed(native_inputs(vertex)))
            if vertex.block_composite is not None:
                blocks.add(vertex)
                waiting.append((vertex.block_composite.root_function, name + "/"))
                continue
        names[vertex] = f"{name}_{vertex.uid}" if name in taken else name
        taken.add(name)
    return names


def _is_argument(variable: Edge) -> bool:
    return block_operand(variable) is not None


def _source(variable: Edge) -> Vertex:
    """What computes a variable: a primitive, also if that is inside a block, or a leaf outside all blocks."""
    vertex: Vertex = variable
    while True:
        if isinstance(vertex, Edge):
            operand = block_operand(vertex)
            if operand is None and source_of(vertex) is vertex:
                return vertex
            vertex = source_of(vertex) if operand is None else operand
        elif vertex.block_composite is not None:
            vertex = vertex.block_composite.root_function
        else:
            return vertex


def _set_shape(described: TensorShapeProto, variable: Edge) -> None:
    if is_unknown(variable.shape):
        described.unknown_rank = True
    else:
        described.dim.extend(described.Dim(size=size) for size in reversed(variable.shape))
