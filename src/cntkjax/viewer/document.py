"""What a page shows of a model, as a document of plain JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ..graph.axis import UNKNOWN_AXES, Axis, axes_text
from ..graph.function import CUSTOM, Node
from ..graph.names import parents_of
from ..graph.shape import is_known, shape_text
from ..graph.variable import Edge, Leaf, block_operand, kind_of, producer, value_of

Json: TypeAlias = dict[str, Any]

BINS = 40  # of the histogram of a parameter
FIRST_VALUES = 16
_LONGEST_TEXT = 400  # characters of an attribute that are shown


def document(model: Node, title: str = "") -> Json:
    """Nodes, edges and values of a model.

    A node lies in the block that its ``parent`` names. Edges join operations and inputs at the deepest level; a page
    that folds a block moves their ends to the block. Parameters and constants belong to the operations that use them.
    """
    parents = parents_of(model.root_function)
    ids = {node: f"n{i}" for i, node in enumerate(parents)}
    described = [_node(node, ids, parent) for node, parent in parents.items()]
    inputs = _inputs(parents, model)
    ids_of_inputs = {v: f"v{i}" for i, v in enumerate(inputs)}
    edges = [
        edge for node in parents if not node.is_block for edge in _edges(node, ids, ids_of_inputs)
    ]
    outputs = []
    for i, output in enumerate(model.outputs):
        outputs.append({"id": f"o{i}", "kind": "output", "op": "output", "name": output.name, **_type(output)})
        edges.append(_edge(output, f"o{i}", ids, ids_of_inputs))
    leaves = list(dict.fromkeys(v for node in parents for v in map(_operand, node.node_inputs) if isinstance(v, Leaf)))
    return {
        "title": title or str(model),
        "nodes": [*(_input(v, ids_of_inputs[v]) for v in inputs), *described, *outputs],
        "edges": [edge for edge in edges if edge is not None],
        "leaves": {leaf.uid: describe_leaf(leaf) for leaf in leaves},
    }


def _operand(variable: Edge) -> Edge:
    """The variable that is computed: the output of an operation or a leaf, never that of a block or its argument."""
    while True:
        owner, operand = producer(variable), block_operand(variable)
        if owner is not None and owner.block_composite is not None:
            variable = owner.block_composite.outputs[owner.node_outputs.index(variable)]
        elif operand is not None:
            variable = operand
        else:
            return variable


def _inputs(all_nodes: Iterable[Node], model: Node) -> list[Edge]:
    """Inputs and placeholders, those of the model's signature first."""
    operands = [_operand(v) for node in all_nodes if not node.is_block for v in node.node_inputs]
    ordered = dict.fromkeys([*map(_operand, model.arguments), *operands, *map(_operand, model.outputs)])
    return [v for v in ordered if producer(v) is None and not isinstance(v, Leaf)]


def _edges(node: Node, ids: dict[Node, str], inputs: dict[Edge, str]) -> Iterator[Json | None]:
    for operand in node.node_inputs:
        yield _edge(operand, ids[node], ids, inputs)


def _edge(operand: Edge, target: str, ids: dict[Node, str], inputs: dict[Edge, str]) -> Json | None:
    variable = _operand(operand)
    owner = producer(variable)
    if owner is None and variable not in inputs:
        return None
    source = inputs[variable] if owner is None else ids[owner]
    return {"from": source, "to": target, "label": _axes_and_shape(variable), "name": variable.name or variable.uid}


def _node(node: Node, ids: dict[Node, str], parent: Node | None) -> Json:
    return {
        "id": ids[node], "kind": "block" if node.is_block else "operation", "op": node.op_name, "name": node.name,
        "uid": node.uid, "parent": None if parent is None else ids[parent],
        "attributes": {name: _text(value) for name, value in attributes_of(node).items()},
        "operands": [{"name": v.name or v.uid, **_type(v)} for v in node.node_inputs],
        "outputs": [{"name": v.name or v.uid, **_type(v)} for v in node.node_outputs],
        "leaves": [v.uid for v in dict.fromkeys(map(_operand, node.node_inputs)) if isinstance(v, Leaf)],
    }


def _input(variable: Edge, identifier: str) -> Json:
    kind = kind_of(variable).name.lower()
    return {
        "id": identifier, "kind": kind, "op": kind, "name": variable.name, "uid": variable.uid, "parent": None,
        "sparse": variable.is_sparse, **_type(variable),
    }


def attributes_of(node: Node) -> dict[str, Any]:
    """The attributes of a node, and those that the user has set."""
    own = {name: value for name, value in node.node_attributes.items() if name != CUSTOM}
    return own | node.node_attributes.get(CUSTOM, {})


def _type(variable: Edge) -> Json:
    dtype = variable.dtype
    return {"shape": _axes_and_shape(variable), "dtype": np.dtype(dtype).name if dtype is not None else "unknown"}


def _axes_and_shape(variable: Edge) -> str:
    axes = variable.dynamic_axes
    return f"{axes_text(axes) if axes and axes != UNKNOWN_AXES else ''} {shape_text(variable.shape)}".strip()


def _text(value: object) -> str:
    """An attribute, in one line of bounded length."""
    if isinstance(value, np.ndarray) and value.size > FIRST_VALUES:
        return f"array {list(value.shape)} of {value.dtype}"
    text = value.name if isinstance(value, Axis) else str(value)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + " …"


def describe_leaf(leaf: Leaf) -> Json:
    """Shape, type and values of a parameter or constant; values only if its shape is known.

    ``histogram``: the numbers of values in bins of equal width between ``min`` and ``max``. Values that are not finite
    are counted in ``not_finite`` and left out of everything else.
    """
    summary: Json = {
        "name": leaf.name, "uid": leaf.uid, "kind": kind_of(leaf).name.lower(), "size": None, **_type(leaf),
    }
    if not is_known(leaf.shape) or leaf.dtype is None:
        return summary
    values = np.asarray(value_of(leaf)).astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    summary |= {
        "size": values.size, "not_finite": values.size - finite.size,
        "first": [f"{v:.5g}" for v in values[:FIRST_VALUES]],
    }
    with np.errstate(over="ignore", invalid="ignore"):  # of float64 values near the largest
        statistics = {name: float(getattr(finite, name)()) for name in ("min", "max", "mean", "std") if finite.size}
        has_range = finite.size > 1 and np.isfinite(finite.max() - finite.min())
    summary |= {name: value for name, value in statistics.items() if np.isfinite(value)}
    summary["histogram"] = np.histogram(finite, BINS)[0].tolist() if has_range else []
    return summary


__all__ = ["Json", "attributes_of", "describe_leaf", "document"]
