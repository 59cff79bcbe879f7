"""Rows of the table for indices, borders, constants in the shape of something, and criteria."""

from __future__ import annotations

from math import prod

import numpy as np

from ..graph.axis import ALL_STATIC, Axis
from ..graph.function import Node
from ..graph.shape import is_known
from ..graph.variable import Edge, Leaf, outside, value_of
from ..primitives.pooling import windows_of
from .table import aligned, inserted, ports, reshaped
from .tree import Expression, Layer, Op, member, refuse
from .walk import Body


def _dtype(v: Edge) -> str:
    return np.dtype(v.dtype).name


# ---- indices
def _one_hot(index: Expression, classes: int, axis: int, dtype: str) -> Op:
    return Op("one_hot", (index,), {"classes": classes, "axis": axis, "dtype": dtype})


@ports("OneHotOp")
def _one_hot_row(body: Body, node: Node) -> Expression:
    (x,), a = node.node_inputs, node.node_attributes
    return _one_hot(body.value(x), int(a["numClass"]), a["onehotAxis"].static_axis_index(), _dtype(x))


@ports("Hardmax")
def _hardmax(body: Body, node: Node) -> Expression:
    (x,) = node.node_inputs
    axis: Axis = node.node_attributes.get("axis", ALL_STATIC)
    at = axis.static_axis_index() % len(x.shape) if axis.is_static_axis else 0
    whole = axis.is_static_axis or len(x.shape) == 1
    value = body.value(x) if whole else reshaped(body.value(x), body.lead(x), (prod(x.shape),), node)
    classes = x.shape[at] if whole else prod(x.shape)
    largest = Op("argmax", (value,), {"axis": body.lead(x) + at, "keepdims": False})
    result = _one_hot(largest, classes, body.lead(x) + at, _dtype(x))
    return result if whole else reshaped(result, body.lead(x), x.shape, node)


@ports("Gather")
def _gather(body: Body, node: Node) -> Expression:
    reference, indices = node.node_inputs
    if body.lead(reference) and body.lead(indices):
        raise refuse(node, "a gather from what differs between samples, by computed indices, cannot be ported")
    index = Op("to_index", (body.value(indices),))
    return Op("gather", (body.value(reference), index), {"lead": body.lead(reference)})


@ports("TopK")
def _top_k(body: Body, node: Node) -> list[Expression]:
    (x,), a = node.node_inputs, node.node_attributes
    if not x.shape:
        raise refuse(node, "the largest of one element cannot be ported")
    both = body.assigned(Op("top_k", (body.value(x),), {"count": int(a["numItems"])}), node)
    values, indices = (Op("item", (both,), {"index": i}) for i in range(2))
    return [values, Op("cast", (indices,), {"dtype": _dtype(node.node_outputs[1])})]


# ---- parts and borders
@ports("Pad")
def _pad(body: Body, node: Node) -> Expression:
    (x,), a = node.node_inputs, node.node_attributes
    widths = list(zip(a["paddingHead"], a["paddingFoot"], strict=True))[::-1]
    mode = int(a["paddingMode"])
    if mode == 0:
        options = {"widths": widths, "lead": body.lead(x), "value": float(a["paddingConstantValue"])}
        return Op("pad", (body.value(x),), options)
    result = body.value(x)
    for axis, (size, width) in enumerate(zip(x.shape, widths, strict=True)):
        if any(width):
            cells = np.pad(np.arange(size), width, node.primitive.modes[mode]).tolist()
            result = Op("take", (result,), {"axis": body.lead(x) + axis, "cells": cells})
    return result


@ports("Crop")
def _crop(body: Body, node: Node) -> Expression:
    x, referent = node.node_inputs[:2]
    first = list(node.node_attributes.get("offset") or node.primitive.offset(node.node_inputs))[::-1]
    slices = [f"{begin}:{begin + n}" for begin, n in zip(first, referent.shape[-2:], strict=True)]
    return Op("slice", (body.value(x),), {"slices": ", ".join(["...", *slices])})


@ports("ROIPooling")
def _region_pooling(body: Body, node: Node) -> Expression:
    (x, regions), a = node.node_inputs, node.node_attributes
    if body.lead(x) != 1 or body.lead(regions) != 1:
        raise refuse(node, "regions that each image does not have of its own cannot be ported")
    options = {"shape": tuple(a["roiOutputShape"]), "scale": float(a["spatialScale"])}
    return Op("region_maxima", (body.value(x), body.value(regions)), options)


@ports("Unpooling")
def _unpooling(body: Body, node: Node) -> Expression:
    """Windows as the last axis, the values at their maxima, and back."""
    (values, source), a = node.node_inputs, node.node_attributes
    shape, lead = source.shape, body.lead(source)
    windows = windows_of(a, a["unpoolingWindowShape"], shape) if is_known(shape) else ()
    if body.lead(values) != lead or not windows or not all(
        w.stride == w.size and w.count * w.size == n for w, n in zip(windows, shape, strict=True)
    ):
        raise refuse(node, "unpooling of windows that overlap or leave out cells cannot be ported")
    counts, sizes = [w.count for w in windows], [w.size for w in windows]
    rank, size = len(shape), prod(sizes)
    pairs = tuple(n for pair in zip(counts, sizes, strict=True) for n in pair)
    order = [*range(lead), *range(lead, lead + 2 * rank, 2), *range(lead + 1, lead + 2 * rank, 2)]  # sizes last
    split = Op("transpose", (reshaped(body.value(source), lead, pairs, node),), {"order": tuple(order)})
    cells = reshaped(split, lead, (*counts, size), node)
    at = _one_hot(Op("argmax", (cells,), {"axis": -1, "keepdims": False}), size, -1, _dtype(source))
    whole = Op("multiply", (at, inserted(body.value(values), [lead + rank])))
    back = {"order": tuple(int(i) for i in np.argsort(order))}
    return reshaped(Op("transpose", (reshaped(whole, lead, (*counts, *sizes), node),), back), lead, shape, node)


# ---- in the shape of something
@ports("ConstantOp")
def _constant(body: Body, node: Node) -> Expression:
    return Op("full_like", (body.value(node.node_inputs[0]),), {"value": float(node.node_attributes["fillValue"])})


@ports("EyeLikeOp")
def _eye(body: Body, node: Node) -> Expression:
    return Op("eye_like", (body.value(node.node_inputs[0]),), {"dtype": _dtype(node.node_outputs[0])})


@ports("TransposeTimes")
def _transpose_times(body: Body, node: Node) -> Expression:
    """A product with the transpose of the second operand, a layer if that is a parameter."""
    x, y = node.node_inputs
    rank = int(node.node_attributes["outputRank"])
    *out, n = (1,) * (rank + 1 - len(y.shape)) + y.shape
    kept, m = x.shape[:-1], prod(out)
    weight = outside(y)
    if isinstance(weight, Leaf) and not isinstance(outside(x), Leaf):
        array = np.asarray(value_of(weight)).reshape(m, n).T
        layer = Layer("Linear", {"inputs": n, "outputs": m, "bias": False}, {"weight": array})
        name = body.layer(node, [weight], layer)
        product: Expression = member(name, body.value(x))
        return product if len(out) == 1 else reshaped(product, body.lead(x), (*kept, *out), node)
    if body.lead(x) != body.lead(y) and 0 not in (body.lead(x), body.lead(y)):
        raise refuse(node, "a product of a sequence and a single sample cannot be ported")
    left = reshaped(body.value(x), body.lead(x), (prod(kept), n), node)
    right = reshaped(body.value(y), body.lead(y), (m, n), node)
    order = (*range(body.lead(y)), body.lead(y) + 1, body.lead(y))
    product = Op("matmul", (left, Op("transpose", (right,), {"order": order})))
    return reshaped(product, body.lead(node.node_outputs[0]), (*kept, *out), node)


# ---- criteria
def _flat(body: Body, v: Edge, lead: int, node: Node) -> Expression:
    flat = body.value(v) if len(v.shape) == 1 else reshaped(body.value(v), body.lead(v), (prod(v.shape),), node)
    return inserted(flat, [1] if 0 < body.lead(v) < lead else [])


def _total(body: Body, value: Expression, like: Edge, rank: int) -> Expression:
    """The sum over all samples, [*lead] with `rank` more dimensions."""
    if like.sequence_axis is not None and body.lead(like) == 2:
        value = Op("masked", (value, body.lengths(like.sequence_axis)), {"value": 0.0})
    return Op("sum", (value,), {"axis": tuple(range(body.lead(like) + rank)), "keepdims": False})


@ports("ClassificationError")
def _classification_error(body: Body, node: Node) -> Expression:
    """The number of samples whose largest element is at another place than that of the label."""
    output, label, *rest = node.node_inputs
    if rest:
        raise refuse(node, "the error of the best n classes cannot be ported")
    longest = max(output, label, key=body.lead)
    lead = body.lead(longest)
    places = [Op("argmax", (_flat(body, v, lead, node),), {"axis": -1, "keepdims": False}) for v in (output, label)]
    wrong = Op("cast", (Op("not_equal", tuple(places)),), {"dtype": _dtype(node.node_outputs[0])})
    return _total(body, wrong, longest, 0)


@ports("Logistic")
def _logistic(body: Body, node: Node) -> Expression:
    """The sum of -log(yp + (1 - y)(1 - p))."""
    if len(node.node_inputs) > 2:
        raise refuse(node, "a weighted logistic criterion cannot be ported")
    p, y = node.node_inputs
    longest = max(p, y, key=body.lead)
    probability, label = (_flat(body, v, body.lead(longest), node) for v in (p, y))
    one = Op("scalar", (), {"value": 1.0})
    yes = Op("multiply", (label, probability))
    no = Op("multiply", (Op("subtract", (one, label)), Op("subtract", (one, probability))))
    return _total(body, Op("negative", (Op("safe_log", (Op("add", (yes, no)),)),)), longest, 1)


@ports("CosDistance")
def _cosine(body: Body, node: Node) -> Expression:
    x, y = aligned(body, node)
    return _cosines(x, y, body.lead(node.node_outputs[0]), len(node.node_inputs[0].shape))


@ports("CosDistanceWithNegativeSamples")
def _cosine_of_others(body: Body, node: Node) -> Expression:
    """With the sample at the same place of the minibatch, and with those at others, which are negative samples."""
    x, y, first, _ = node.node_inputs
    leaf = outside(first)
    if body.lead(x) != 1 or body.lead(y) != 1 or not isinstance(leaf, Leaf):
        raise refuse(node, "the cosine with other samples of sequences cannot be ported")
    shift = int(value_of(leaf))
    others = [Op("rolled", (body.value(y),), {"steps": -shift - k}) for k in range(node.node_outputs[0].shape[0] - 1)]
    cosines = [_cosines(body.value(x), v, 1, len(x.shape)) for v in (body.value(y), *others)]
    return Op("concatenate", tuple(inserted(v, [1]) for v in cosines), {"axis": 1})


def _cosines(x: Expression, y: Expression, lead: int, rank: int) -> Expression:
    axes = {"axis": tuple(range(lead, lead + rank)), "keepdims": False}

    def sums(a: Expression, b: Expression) -> Op:
        return Op("sum", (Op("multiply", (a, b)),), axes)

    norms = Op("sqrt", (Op("multiply", (sums(x, x), sums(y, y))),))
    return Op("divide", (sums(x, y), Op("maximum", (norms, Op("scalar", (), {"value": 1e-30})))))


__all__: list[str] = []
