"""Random inputs of a model, and its outputs for them, as the test of a port reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.axis import Axis
from ..graph.function import nodes
from ..graph.shape import is_known
from ..graph.variable import Edge, outside
from ..ops.functions import Function
from .source import Weights
from .tree import PortError

_LENGTHS = ([7, 3, 5], [4, 6, 3], [5, 3, 6], [6, 5, 4])  # along the first sequence axis, the second, ...


def recorded_values(model: Function) -> Weights:
    """Arrays by name: the inputs, with the lengths of sequences after them, and the outputs with theirs.

    Sequences are padded with zeros; the lengths of an output that is one are "output.N.lengths".
    Errors: PortError for an input of free size.
    """
    random = np.random.default_rng(1)
    axes = dict.fromkeys(v.sequence_axis for v in model.arguments if v.sequence_axis is not None)
    lengths = {axis: _LENGTHS[i % len(_LENGTHS)] for i, axis in enumerate(axes)}
    limits = _index_limits(model) | _step_counts(model)
    feeds = {v: _samples(v, random, lengths, limits.get(v)) for v in model.arguments}
    arrays = {f"input.{i}": _padded(feed) for i, feed in enumerate(feeds.values())}
    for axis in axes:
        arrays[f"input.{len(arrays)}"] = np.array(lengths[axis], np.int32)
    outputs = model.forward(feeds, model.outputs)[1]
    created: dict[Axis, np.ndarray] = {}
    for i, v in enumerate(model.outputs):
        value = outputs[v].toarray() if hasattr(outputs[v], "toarray") else outputs[v]  # sparse, as of samples
        arrays[f"output.{i}"] = _padded(value) if v.sequence_axis is not None else np.asarray(value)
        if v.sequence_axis is not None:
            arrays[f"output.{i}.lengths"] = np.array([len(x) for x in value], np.int32)
            if v.sequence_axis not in axes:
                created[v.sequence_axis] = arrays[f"output.{i}.lengths"]
    return arrays | {f"output.{len(model.outputs) + i}": value for i, value in enumerate(created.values())}


def _index_limits(model: Function) -> dict[Edge, int]:
    """The arguments that are indices, and what they have to stay below."""
    limits: dict[Edge, int] = {}
    for node in nodes([model.root_function], into_blocks=True):
        if node.block_composite is None and node.primitive.index_operand is not None:
            classes = node.node_attributes.get("numClass")
            limit = classes if classes is not None else node.primitive.index_limit(node)
            index = outside(node.node_inputs[node.primitive.index_operand])
            limits[index] = min(limit, limits.get(index, limit))
    return limits


def _step_counts(model: Function) -> dict[Edge, int]:
    """The arguments that are lengths of sequences made of arrays, and the lengths of these."""
    conversions = (n for n in nodes([model.root_function], into_blocks=True) if n.op_name == "ToSequenceOp")
    return {outside(n.node_inputs[1]): n.node_inputs[0].shape[0] + 1 for n in conversions if len(n.node_inputs) > 1}


def _samples(v: Edge, random: np.random.Generator, lengths: dict[Axis, list[int]], limit: int | None) -> Any:
    """A batch, or a list of sequences."""
    if not is_known(v.shape):
        raise PortError(v, "an input of free size cannot be ported", "clone the model with an input of a fixed size")

    def draw(*lead: int) -> np.ndarray:
        if limit is not None:
            return random.integers(limit, size=(*lead, *v.shape)).astype(v.dtype)
        if v.is_sparse:  # one-hot, as most sparse data are
            return np.eye(v.shape[-1], dtype=v.dtype)[random.integers(v.shape[-1], size=(*lead, *v.shape[:-1]))]
        return random.standard_normal((*lead, *v.shape)).astype(v.dtype)

    if v.sequence_axis is not None:
        return [draw(n) for n in lengths[v.sequence_axis]]
    return draw(*([3] if v.dynamic_axes else []))


def _padded(value: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Sequences as one array."""
    if isinstance(value, np.ndarray):
        return value
    padded = np.zeros((len(value), max(map(len, value)), *value[0].shape[1:]), value[0].dtype)
    for row, sequence in zip(padded, value, strict=True):
        row[: len(sequence)] = sequence
    return padded


__all__ = ["recorded_values"]
