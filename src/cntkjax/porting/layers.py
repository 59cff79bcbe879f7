"""Rows of the table for operations that are layers where they have parameters: products, convolution, normalization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ..graph.function import Node
from ..graph.shape import Shape, is_known, is_unknown
from ..graph.variable import Edge, Leaf, outside, producer, value_of
from ..primitives._window import Window
from ..primitives.pooling import windows_of
from .table import inserted, ports, reshaped
from .tree import Expression, Layer, Op, member, refuse
from .walk import Body


# ---- products
@ports("Times")
def _times(body: Body, node: Node) -> Expression:
    x, y = node.node_inputs
    inner = len(y.shape) - int(node.node_attributes["outputRank"])
    kept, contracted, out = x.shape[: len(x.shape) - inner], x.shape[len(x.shape) - inner :], y.shape[inner:]
    weight = outside(y)
    if isinstance(weight, Leaf) and not isinstance(outside(x), Leaf):
        return _linear(body, node, weight, kept, contracted, out)
    if body.lead(x) != body.lead(y) and 0 not in (body.lead(x), body.lead(y)):
        raise refuse(node, "a product of a sequence and a single sample cannot be ported")
    left = _merged(body, x, (prod(kept), prod(contracted)), node)
    right = _merged(body, y, (prod(contracted), prod(out)), node)
    product = Op("matmul", (left, right))
    if (*kept, *out) == (prod(kept), prod(out)):
        return product
    return reshaped(product, body.lead(node.node_outputs[0]), (*kept, *out), node)


def _merged(body: Body, v: Edge, shape: Shape, node: Node) -> Expression:
    return body.value(v) if v.shape == shape else reshaped(body.value(v), body.lead(v), shape, node)


def _linear(body: Body, node: Node, weight: Leaf, kept: Shape, contracted: Shape, out: Shape) -> Expression:
    n, m = prod(contracted), prod(out)
    bias = body.bias_after(node, out)
    weights: dict[str, np.ndarray] = {"weight": np.asarray(value_of(weight)).reshape(n, m)}
    x = node.node_inputs[0]
    if not bias and x.is_sparse and producer(outside(x)) is None and len(x.shape) == len(out) == 1:
        name = body.layer(node, [weight], Layer("Embedding", {"inputs": n, "outputs": m}, weights))
        return Op("embedding", (body.value(x),), {"name": name})
    if bias:
        weights["bias"] = np.asarray(value_of(bias[0])).reshape(m)
    name = body.layer(node, [weight, *bias], Layer("Linear", {"inputs": n, "outputs": m, "bias": bool(bias)}, weights))
    operand = body.value(x)
    if len(contracted) != 1:
        operand = reshaped(operand, body.lead(x), (*kept, n), node)
    result = _of_rows(operand, body.lead(x) + len(kept), lambda rows: member(name, rows))
    return result if len(out) == 1 else reshaped(result, body.lead(x), (*kept, *out), node)


def _of_rows(x: Expression, lead: int, call: Callable[[Expression], Expression]) -> Expression:
    """A layer of vectors, of which there may be one without other dimensions."""
    return call(x) if lead else Op("item", (call(inserted(x, [0])),), {"index": 0})


# ---- windows
@ports("Convolution")
def _convolution(body: Body, node: Node) -> Expression:
    kernel, x = node.node_inputs
    a, source, weight = node.node_attributes, x.shape, outside(kernel)
    if not isinstance(weight, Leaf):
        raise refuse(node, "a convolution whose kernel is computed cannot be ported")
    array = np.asarray(value_of(weight))
    array = array.reshape((1,) * (len(source) + 1 - array.ndim) + array.shape)
    out = node.node_outputs[0].shape
    if a["transpose"]:
        return _transposed_convolution(body, node, weight, array)
    channels, *windows = node.primitive.windows(a, array.shape[1:], source)
    groups = int(a["groups"])
    if groups == 1 and not channels.is_whole:
        raise refuse(node, "a convolution whose window moves along the channels cannot be ported")
    options = {"inputs": source[0], "outputs": out[0], "groups": groups, **geometry(windows, source[1:])}
    return _convolved(body, node, "Conv", weight, array, options | {"dilation": [w.dilation for w in windows]})


def _convolved(
    body: Body, node: Node, kind: str, weight: Leaf, array: np.ndarray, options: dict[str, Any]
) -> Expression:
    """A layer of this kind, with the bias that is added to it."""
    x = node.node_inputs[1]
    bias = body.bias_after(node, (options["outputs"], *(1,) * (len(x.shape) - 1)))
    weights: dict[str, np.ndarray] = {"weight": array}
    if bias:
        weights["bias"] = np.asarray(value_of(bias[0])).reshape(-1)
    name = body.layer(node, [weight, *bias], Layer(kind, options | {"bias": bool(bias)}, weights))
    return _on_samples(body, body.value(x), x, lambda samples: member(name, samples))


def _transposed_convolution(body: Body, node: Node, weight: Leaf, array: np.ndarray) -> Expression:
    """The sums of filters at all places: `before` and `after` cells of it are left out."""
    x, out, a = node.node_inputs[1], node.node_outputs[0].shape, node.node_attributes
    if not is_known((*x.shape, *out)):
        raise refuse(node, "a transposed convolution of free size cannot be ported")
    windows = node.primitive.windows(a, array.shape[1:], (array.shape[1], *out[1:]))[1:]
    options = {
        "inputs": x.shape[0], "outputs": array.shape[1], "groups": 1, "sizes": [w.size for w in windows],
        "strides": [w.stride for w in windows], "dilation": [w.dilation for w in windows],
        "padding": [(w.before, w.after) for w in windows],
    }
    return _convolved(body, node, "ConvTranspose", weight, array, options)


def geometry(windows: Sequence[Window], lengths: Shape) -> dict[str, Any]:
    """Sizes, strides and padding at both ends of windows; `symmetric`: what suffices at each end, None if they differ;
    `spread`: if it is what TensorFlow and Keras call "same".

    Cells after the last position need not be removed. With equal padding at the end another position must not appear.
    """
    padding = [(w.before, 0 if -w.stride < w.after < 0 else w.after) for w in windows]
    counts = [(n + 2 * w.before - w.extent) // w.stride + 1 for w, n in zip(windows, lengths, strict=True)]
    same = is_known(lengths) and all(w.count == count for w, count in zip(windows, counts, strict=True))
    return {
        "sizes": [w.size for w in windows], "strides": [w.stride for w in windows], "padding": padding,
        "symmetric": [w.before for w in windows] if same else None,
        "spread": all(_is_spread(w, n) for w, n in zip(windows, lengths, strict=True)),
    }


def _is_spread(w: Window, length: int) -> bool:
    """True for as much padding as makes one position for each stride, half of it, rounded down, in front."""
    if length < 0 and w.stride != 1:
        return False
    total = max((-(-length // w.stride) - 1) * w.stride + w.extent - length, 0)
    return w.before == total // 2 and (length < 0 or w.count == -(-length // w.stride))


def _on_samples(body: Body, x: Expression, v: Edge, call: Callable[[Expression], Expression]) -> Expression:
    """A layer of [samples, channels, ...] for any number of leading dimensions."""
    if body.lead(v) == 1:
        return call(x)
    if body.lead(v) == 0:
        return _of_rows(x, 0, call)
    return Op("unflatten", (call(Op("flatten", (x,))), x))


@ports("Pooling")
def _pooling(body: Body, node: Node) -> Expression:
    (x,), a = node.node_inputs, node.node_attributes
    sizes, largest = a["poolingWindowShape"], a["poolingType"] == 0
    rank, start = len(x.shape), body.lead(x)
    if is_unknown(sizes) or (sizes == x.shape[1:] and not any(a["autoPadding"]) and rank > 1):
        spatial = tuple(range(start + 1, start + rank))
        return Op("max" if largest else "mean", (body.value(x),), {"axis": spatial, "keepdims": True})
    if not is_known(x.shape):
        raise refuse(node, "a pooling of free size cannot be ported")
    channels, *windows = windows_of(a, sizes, x.shape)
    if not windows or channels.size != 1 or channels.stride != 1:
        raise refuse(node, "a pooling along the channels cannot be ported")
    if any(p < 0 for w in windows for p in (w.before, w.after) if not -w.stride < p):
        raise refuse(node, "a pooling that omits cells cannot be ported")
    options = geometry(windows, x.shape[1:]) | {"include_padding": bool(a["includePad"])}
    op = "max_pool" if largest else "avg_pool"
    return _on_samples(body, body.value(x), x, lambda s: Op(op, (s,), options))


@ports("BatchNormalization")
def _batch_normalization(body: Body, node: Node) -> Expression:
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
        return _on_samples(body, body.value(x), x, lambda samples: member(name, samples))
    flat = reshaped(body.value(x), body.lead(x), (prod(x.shape),), node)
    normalized = _on_samples(body, flat, x, lambda samples: member(name, samples))
    return reshaped(normalized, body.lead(x), x.shape, node)
