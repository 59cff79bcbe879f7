"""Rows of the table for operations that are layers where they have parameters: products, convolution, normalization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ..graph.function import Function
from ..graph.shape import Shape, is_known, is_unknown
from ..graph.variable import Leaf, Variable, outside, value_of
from ..primitives._window import Window
from ..primitives.pooling import windows_of
from .table import inserted, lead, ports, reshaped
from .tree import Call, Expression, Layer, member, refuse
from .walk import Body


# ---- products
@ports("Times")
def _times(body: Body, node: Function) -> Expression:
    x, y = node.node_inputs
    inner = len(y.shape) - int(node.node_attributes["outputRank"])
    kept, contracted, out = x.shape[: len(x.shape) - inner], x.shape[len(x.shape) - inner :], y.shape[inner:]
    weight = outside(y)
    if isinstance(weight, Leaf) and not isinstance(outside(x), Leaf):
        return _linear(body, node, weight, kept, contracted, out)
    if lead(x) != lead(y) and 0 not in (lead(x), lead(y)):
        raise refuse(node, "a product of a sequence and a single sample cannot be ported")
    left = _merged(body.value(x), x, (prod(kept), prod(contracted)), node)
    right = _merged(body.value(y), y, (prod(contracted), prod(out)), node)
    product = Call("matmul", (left, right))
    if (*kept, *out) == (prod(kept), prod(out)):
        return product
    return reshaped(product, lead(node.node_outputs[0]), (*kept, *out), node)


@ports("TransposeTimes")
def _transpose_times(body: Body, node: Function) -> Expression:
    raise refuse(node, "a product with a transposed operand cannot be ported")


def _merged(x: Expression, variable: Variable, shape: Shape, node: Function) -> Expression:
    return x if variable.shape == shape else reshaped(x, lead(variable), shape, node)


def _linear(body: Body, node: Function, weight: Leaf, kept: Shape, contracted: Shape, out: Shape) -> Expression:
    n, m = prod(contracted), prod(out)
    bias = body.bias_after(node, out)
    weights: dict[str, np.ndarray] = {"weight": np.asarray(value_of(weight)).reshape(n, m)}
    if bias:
        weights["bias"] = np.asarray(value_of(bias[0])).reshape(m)
    name = body.layer(node, [weight, *bias], Layer("Linear", {"inputs": n, "outputs": m, "bias": bool(bias)}, weights))
    x = node.node_inputs[0]
    operand = body.value(x)
    if len(contracted) != 1:
        operand = reshaped(operand, lead(x), (*kept, n), node)
    result = member(name, operand)
    return result if len(out) == 1 else reshaped(result, lead(x), (*kept, *out), node)


# ---- windows
@ports("Convolution")
def _convolution(body: Body, node: Function) -> Expression:
    kernel, x = node.node_inputs
    a, source, weight = node.node_attributes, x.shape, outside(kernel)
    if not isinstance(weight, Leaf):
        raise refuse(node, "a convolution whose kernel is computed cannot be ported")
    array = np.asarray(value_of(weight))
    array = array.reshape((1,) * (len(source) + 1 - array.ndim) + array.shape)
    out = node.node_outputs[0].shape
    if a["transpose"] or a["sequential"] or not is_known((*source, *out)):
        raise refuse(node, "a transposed or sequential convolution, or one of free size, cannot be ported")
    channels, *windows = node.primitive.windows(a, array.shape[1:], source)
    groups = int(a["groups"])
    if groups == 1 and not channels.is_whole:
        raise refuse(node, "a convolution whose window moves along the channels cannot be ported")
    bias = body.bias_after(node, (out[0], *(1,) * len(windows)))
    options = {
        "inputs": source[0], "outputs": out[0], "bias": bool(bias), "groups": groups,
        "dilation": [w.dilation for w in windows], **geometry(windows, source[1:]),
    }
    weights: dict[str, np.ndarray] = {"weight": array}
    if bias:
        weights["bias"] = np.asarray(value_of(bias[0])).reshape(-1)
    name = body.layer(node, [weight, *bias], Layer("Conv", options, weights))
    return _on_samples(body.value(x), x, lambda samples: member(name, samples))


def geometry(windows: Sequence[Window], lengths: Shape) -> dict[str, Any]:
    """Sizes, strides and padding at both ends of windows; `symmetric`: what suffices at each end, None if they differ.

    Cells after the last position need not be removed. With equal padding at the end another position must not appear.
    """
    padding = [(w.before, 0 if -w.stride < w.after < 0 else w.after) for w in windows]
    counts = [(n + 2 * w.before - w.extent) // w.stride + 1 for w, n in zip(windows, lengths, strict=True)]
    same = all(w.count == count for w, count in zip(windows, counts, strict=True))
    return {
        "sizes": [w.size for w in windows], "strides": [w.stride for w in windows], "padding": padding,
        "symmetric": [w.before for w in windows] if same else None,
    }


def _on_samples(x: Expression, v: Variable, call: Callable[[Expression], Expression]) -> Expression:
    """A layer of [samples, channels, ...] for any number of leading dimensions."""
    if lead(v) == 1:
        return call(x)
    if lead(v) == 0:
        return Call("item", (call(inserted(x, [0])),), {"index": 0})
    return Call("unflatten", (call(Call("flatten", (x,))), x))


@ports("Pooling")
def _pooling(body: Body, node: Function) -> Expression:
    (x,), a = node.node_inputs, node.node_attributes
    sizes, largest = a["poolingWindowShape"], a["poolingType"] == 0
    rank, start = len(x.shape), lead(x)
    if is_unknown(sizes) or (sizes == x.shape[1:] and not any(a["autoPadding"]) and rank > 1):
        spatial = tuple(range(start + 1, start + rank))
        return Call("max" if largest else "mean", (body.value(x),), {"axis": spatial, "keepdims": True})
    if not is_known(x.shape):
        raise refuse(node, "a pooling of free size cannot be ported")
    channels, *windows = windows_of(a, sizes, x.shape)
    if not windows or channels.size != 1 or channels.stride != 1:
        raise refuse(node, "a pooling along the channels cannot be ported")
    if any(p < 0 for w in windows for p in (w.before, w.after) if not -w.stride < p):
        raise refuse(node, "a pooling that omits cells cannot be ported")
    options = geometry(windows, x.shape[1:]) | {"include_padding": bool(a["includePad"])}
    op = "max_pool" if largest else "avg_pool"
    return _on_samples(body.value(x), x, lambda s: Call(op, (s,), options))


@ports("BatchNormalization")
def _batch_normalization(body: Body, node: Function) -> Expression:
    x, *others = node.node_inputs
    leaves = [outside(v) for v in others[:4]]
    if not all(isinstance(v, Leaf) for v in leaves):
        raise refuse(node, "a normalization by computed values cannot be ported")
    names = ("scale", "bias", "mean", "variance")
    weights = {k: np.asarray(value_of(v)).reshape(-1) for k, v in zip(names, leaves, strict=True)}  # type: ignore[arg-type]
    spatial = bool(node.node_attributes["spatial"])
    options = {
        "features": weights["scale"].size, "epsilon": float(node.node_attributes["epsilon"]),
        "rank": len(x.shape) if spatial else 1,
    }
    name = body.layer(node, leaves, Layer("BatchNorm", options, weights))  # type: ignore[arg-type]
    if spatial or len(x.shape) == 1:
        return _on_samples(body.value(x), x, lambda samples: member(name, samples))
    flat = reshaped(body.value(x), lead(x), (prod(x.shape),), node)
    normalized = _on_samples(flat, x, lambda samples: member(name, samples))
    return reshaped(normalized, lead(x), x.shape, node)
