"""Batch normalization with statistics that stay, folded into the products before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from ..engine.plan.parts import resolve
from ..engine.run.program_cache import plan_of
from ..graph.build import note_edit
from ..graph.function import Node
from ..graph.shape import is_known
from ..graph.variable import Edge, producer, value_of
from ..ops.functions import Function
from ..primitives.elementwise import ELEMENTWISE
from ..variables import Constant

Readers: TypeAlias = Mapping[Edge, int]


class _Scaled(NamedTuple):
    """An operand that a node is to have in the place of the one that it has."""

    node: Node
    place: int
    array: np.ndarray


def fold_batch_normalization(function: Function) -> None:
    """Change a frozen graph, which has to be the caller's own: fewer operations compute the same, but for rounding.

    Normalization is ``factor * x + shift``. Where nothing else reads x, and a product, a convolution or another
    normalization computes it, maybe with constants added, these are multiplied by the factor, and the shift is added.
    """
    plan = plan_of(function.outputs)
    readers = Counter([*(resolve(v) for node in plan.nodes for v in node.node_inputs), *plan.outputs])
    for node in plan.nodes:
        if node.primitive.name == "BatchNormalization":
            _fold(node, readers)
    note_edit()


def _fold(node: Node, readers: Readers) -> None:
    x = resolve(node.node_inputs[0])
    parameters = [_constant(v, x) for v in node.node_inputs[1:5]]
    if any(array is None for array in parameters) or not is_known(x.shape):
        return
    scale, bias, mean, variance = (np.asarray(array, np.float64).reshape(-1) for array in parameters)
    shape = (-1, *(1,) * (len(x.shape) - 1)) if node.node_attributes["spatial"] else x.shape
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + node.node_attributes["epsilon"])
        shift = (bias - mean * factor).reshape(shape)
        scaled = _scaled(x, factor.reshape(shape), readers)
    if scaled is None or not all(np.isfinite(array).all() for array in (shift, *(s.array for s in scaled))):
        return
    for product, place, array in scaled:
        product.node_inputs[place] = Constant(array, dtype=x.dtype)
    node.primitive, node.node_attributes = ELEMENTWISE["Plus"], {}
    node.node_inputs = [node.node_inputs[0], Constant(shift, dtype=x.dtype)]


def _constant(v: Edge, like: Edge) -> np.ndarray | None:
    """The value of a constant in the type of another variable, float32 or float64; None for other variables."""
    leaf = resolve(v)
    if not leaf.is_constant or leaf.dtype != like.dtype or leaf.dtype not in (np.float32, np.float64):
        return None
    return np.asarray(value_of(leaf))  # type: ignore[arg-type]


def _scaled(v: Edge, factor: np.ndarray, readers: Readers) -> list[_Scaled] | None:
    """The operands with which a variable is multiplied by a factor; None if there is nothing to multiply.

    Shapes: factor like `v`, with axes of size 1 where it is the same for all elements.
    """
    node = producer(v)
    if node is None or readers[v] != 1:
        return None
    if node.primitive.name == "Plus":
        return _scaled_sum(node, v, factor, readers)
    if node.primitive.name == "BatchNormalization":
        return _scaled_normalization(node, v, factor)
    place, scale = _PRODUCTS.get(node.primitive.name, (0, None))
    weight = None if scale is None else _constant(node.node_inputs[place], v)
    array = None if scale is None or weight is None else scale(node, weight, factor)
    return None if array is None else [_Scaled(node, place, array)]


def _scaled_sum(node: Node, v: Edge, factor: np.ndarray, readers: Readers) -> list[_Scaled] | None:
    for place in (0, 1):
        term, other = _constant(node.node_inputs[place], v), resolve(node.node_inputs[1 - place])
        if term is not None and (other.shape, other.dynamic_axes) == (v.shape, v.dynamic_axes):
            scaled = _scaled(other, factor, readers)
            return None if scaled is None else [*scaled, _Scaled(node, place, term * factor)]
    return None


def _scaled_normalization(node: Node, v: Edge, factor: np.ndarray) -> list[_Scaled] | None:
    scaled = []
    for place in (1, 2):  # scale and bias
        parameter = _constant(node.node_inputs[place], v)
        if parameter is None:
            return None
        shape = v.shape if parameter.size != v.shape[0] else (v.shape[0], *(1,) * (len(v.shape) - 1))
        if np.broadcast_shapes(shape, factor.shape) != shape:  # one for each channel, a factor for each element
            return None
        scaled.append(_Scaled(node, place, parameter * np.broadcast_to(factor, shape).reshape(parameter.shape)))
    return scaled


def _times(node: Node, weight: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
    """Shapes: weight [*inner, *out], factor [*map, *out], which must not vary along `map`."""
    rank = node.node_attributes["outputRank"]
    mapped = factor.ndim - rank
    return weight * factor.reshape(factor.shape[mapped:]) if set(factor.shape[:mapped]) <= {1} else None


def _transpose_times(node: Node, weight: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
    """Shapes: weight [*out, inner], factor [*map, *out], which must not vary along `map`."""
    mapped = factor.ndim - node.node_attributes["outputRank"]
    if weight.ndim != factor.ndim - mapped + 1 or not set(factor.shape[:mapped]) <= {1}:
        return None
    return weight * factor.reshape(*factor.shape[mapped:], 1)


def _convolution(node: Node, kernel: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
    """Shapes: kernel [O, C, *window], transposed [C, O, *window]; factor [O, 1, ...]."""
    axis = int(node.node_attributes["transpose"])
    leading = kernel.ndim - len(node.node_attributes["kernelShape"])
    if leading != 1 or kernel.shape[axis] != factor.size or factor.shape[0] != factor.size:
        return None
    return kernel * factor.reshape([-1 if k == axis else 1 for k in range(kernel.ndim)])


# the place of the weight, and how it is multiplied: None where it cannot be
_PRODUCTS: dict[str, tuple[int, Callable[[Node, np.ndarray, np.ndarray], np.ndarray | None]]] = {
    "Times": (1, _times), "TransposeTimes": (1, _transpose_times), "Convolution": (0, _convolution),
}

__all__ = ["fold_batch_normalization"]
