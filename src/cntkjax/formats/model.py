"""Functions in CNTK's v2 model files: those saved here load in CNTK 2.7, and vice versa.

docs/formats.md describes the layout of a file. The operations are those of the table of primitives.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from enum import Enum

import numpy as np

from .._terminal import announced
from ..engine.lower.carry import memory_of
from ..graph.errors import explain
from ..graph.function import Node, nodes_inside
from ..graph.shape import matches
from ..graph.variable import Edge, Leaf, infer_shape, kind_of, producer, set_value, value_of
from . import files, v1
from .dictionary import buffers, decode
from .files import Source
from .reading import graph_of
from .writing import record_of


def save(function: Node, path: str | os.PathLike[str], format: Enum | None = None) -> None:
    """Write a function to a model file: graph, parameters, constants, state. The file is never half-written.

    Errors: ValueError if a parameter has no value yet because its shape is still to be inferred, or if `format` is not
    ModelFormat.CNTKv2.
    """
    _check_format(format)
    record = record_of(function)
    with announced(f"saving {path}", f"; {len(record['primitive_functions']):,} operations"):
        files.write((path, buffers(record)))


def load(source: Source, format: Enum | None = None) -> Node:
    """A composite from a path, from bytes, or from an open binary file. Names and uids are those of the file.

    Models of CNTK 1 (``.dnn``) are recognized, and load for evaluation.

    Errors: ValueError if the file does not exist; FormatError, with the file, the position or node and the reason, if
    it is damaged, no model, or of a later version of CNTK. Nothing in a file is executed.
    """
    _check_format(format)
    data, name = files.read(source, "model")
    view = memoryview(data).cast("B")
    with announced(f"loading {name}", f"; {len(view) / 1e6:,.0f} MB"):
        content = v1.record_of(view, name) if view[: len(v1.MAGIC)] == v1.MAGIC else decode(view, name)
        return graph_of(content, name)


def restore(function: Node, source: Source) -> None:
    """Set the state of a function from a model file: values of parameters and constants, states of random numbers.

    The file has to hold the same function: the same operations, names, shapes and types in the same order; uids may
    differ, as they do in another process.
    Errors: those of :func:`load`; ValueError, with the first difference, if the file holds another function. Nothing
    is changed then.
    """
    restore_pairs(pairs_of(function, source))
    memory_of(function).streams.restart()


def pairs_of(function: Node, source: Source) -> list[tuple[Item, Item]]:
    """The nodes and variables of a function, and those of a model file whose state they get. Errors: see `restore`."""
    return list(_Pairing(function, load(source)))


def restore_pairs(pairs: Sequence[tuple[Item, Item]]) -> None:
    """Set the state of the first of each pair to that of the second; it may be repeated."""
    for mine, stored in pairs:
        if isinstance(stored, Leaf) and isinstance(mine, Leaf):
            infer_shape(mine, stored.shape)
            value = value_of(stored)
            set_value(mine, value if mine.dtype == stored.dtype else np.asarray(value, mine.dtype))
        elif isinstance(stored, Node) and isinstance(mine, Node):
            attributes = stored.node_attributes
            mine.node_attributes.update({key: attributes[key] for key in ("rngSeed", "rngOffset") if key in attributes})


def _check_format(format: Enum | None) -> None:
    if getattr(format, "name", "CNTKv2") != "CNTKv2":
        raise ValueError(f"{format} is not supported: models are saved and loaded with ModelFormat.CNTKv2")


Item = Node | Edge
RECONCILED = "ReconcileDynamicAxis"
ORDERED = "Tuple"


class _Pairing:
    """The pairs of nodes and of variables that correspond in two graphs of the same structure."""

    def __init__(self, function: Node, stored: Node) -> None:
        self.partners: dict[Item, Item] = {}
        self.stack: list[tuple[Node, Node]] = [(function.root_function, stored.root_function)]

    def __iter__(self) -> Iterator[tuple[Item, Item]]:
        """Errors: ValueError with the first difference."""
        while self.stack:
            node, stored = self.stack.pop()
            self._pair(node, stored)
            for what, actual, expected in (
                ("is the operation", node.op_name, stored.op_name),
                ("is called", node.name, stored.name),
                ("has this number of inputs:", len(node.node_inputs), len(stored.node_inputs)),
            ):
                if actual != expected:
                    raise _mismatch(node, stored, f"{what} {actual}, not {expected}")
            yield node, stored
            inner, inner_stored = _random_nodes(node), _random_nodes(stored)
            if [n.op_name for n in inner] == [n.op_name for n in inner_stored]:  # other nodes of a block may differ
                yield from zip(inner, inner_stored, strict=True)
            for v, w in zip(map(_passed_on, node.node_inputs), map(_passed_on, stored.node_inputs), strict=True):
                operand, (w, stored_operand) = producer(v), _stored_operand(v, w)
                if operand is not None and stored_operand is not None:
                    self._visit(v, operand, w, stored_operand)
                else:
                    # CNTK gives each number the type of the graph that it is in when it evaluates that.
                    is_number = v.is_constant and not v.shape
                    has_type = v.dtype == w.dtype or is_number
                    if not is_number:
                        self._pair(v, w)
                    if (kind_of(v), v.name) != (kind_of(w), w.name) or not has_type or not matches(v.shape, w.shape):
                        raise _mismatch(v, w, "is of another kind, name, type or shape")
                    yield v, w

    def _pair(self, item: Item, stored: Item) -> None:
        if self.partners.setdefault(item, stored) is not stored:
            raise _mismatch(item, stored, "is shared where that is not")

    def _visit(self, variable: Edge, owner: Node, stored: Edge, stored_owner: Node) -> None:
        """Put the nodes that compute two variables on the stack, unless they have been paired already."""
        if owner not in self.partners:
            self.stack.append((owner, stored_owner))
        elif self.partners[owner] is not stored_owner:
            raise _mismatch(variable, stored, "is shared where that is not")


def _passed_on(variable: Edge) -> Edge:
    """What a block that only puts the arguments of a Function into another order passes on.

    Of those around recurrences CNTK makes two where there is one here.
    """
    owner = producer(variable)
    while owner is not None and owner.block_composite is not None and owner.block_name == ORDERED:
        inside = owner.block_composite.outputs[owner.node_outputs.index(variable)]
        variable = dict(owner.block_map).get(inside, inside)  # constants are inside themselves
        owner = producer(variable)
    return variable


def _stored_operand(operand: Edge, stored: Edge) -> tuple[Edge, Node | None]:
    """The operand and its producer in a file, without the node by which CNTK gives it the axes of another operand."""
    owner, stored_owner = producer(operand), producer(stored)
    if stored_owner is not None and stored_owner.op_name == RECONCILED != (owner and owner.op_name):
        stored = stored_owner.node_inputs[0]
    return stored, producer(stored)


def _random_nodes(block: Node) -> list[Node]:
    """The nodes inside a block that draw random numbers."""
    return [node for node in nodes_inside(block) if "rngSeed" in node.node_attributes]


def _mismatch(item: Item, stored: Item, reason: str) -> ValueError:
    return ValueError(explain(
        f"the file holds another function: {item!r} of this one corresponds to {stored!r} in the file, but {reason}",
        fix="restore a function built by the same code, or read the file with load_model",
    ))
