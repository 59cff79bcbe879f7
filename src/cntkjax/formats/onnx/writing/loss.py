"""Criteria, which are summed over a whole minibatch."""

from __future__ import annotations

import numpy as np

from ....graph.function import Node
from ....graph.variable import Edge
from .graph import OPEN, GraphWriter
from .table import writes


def _rows(w: GraphWriter, x: str, variable: Edge) -> str:
    """[..., elements]: the elements of a sample in the last dimension."""
    lead = w.lead(variable)
    return x if len(variable.shape) == 1 else w.reshape(x, *(0,) * lead, OPEN)


def _total(w: GraphWriter, x: str) -> str:
    """The sum of everything, a scalar."""
    return w.reduce("ReduceSum", w.reshape(x, OPEN), [0], False)


@writes("SumAll")
def _sum(w: GraphWriter, node: Node, x: str) -> str:
    return _total(w, x)


@writes("SquaredError")
def _squared_error(w: GraphWriter, node: Node, *x: str) -> str:
    difference = w.node("Sub", w.broadcastable(w.inputs(node)))
    return _total(w, w.node("Mul", [difference, difference]))


@writes("CrossEntropyWithSoftmax")
def _cross_entropy(w: GraphWriter, node: Node, output: str, label: str) -> str:
    scores, labels = w.inputs(node)
    axis = w.lead(scores)
    logarithm = w.node("LogSoftmax", [_rows(w, output, scores)], axis=axis)
    return w.node("Neg", [_total(w, w.node("Mul", [logarithm, _rows(w, label, labels)]))])


@writes("Logistic")
def _logistic(w: GraphWriter, node: Node, *x: str) -> str:
    """The sum of -w log(y p + (1 - y) (1 - p)), divided by the mean of w."""
    chance, label, *weight = w.inputs(node)
    p, y = w.broadcastable([chance, label])
    one = w.scalar(1, chance)
    right = w.node("Add", [w.node("Mul", [y, p]),
                           w.node("Mul", [w.node("Sub", [one, y]), w.node("Sub", [one, p])])])
    loss = w.node("Neg", [w.node("Log", [right])])
    if not weight:
        return _total(w, loss)
    spread = w.node("Add", [w.broadcastable([*weight, chance])[0], w.node("Mul", [p, w.scalar(0, chance)])])
    mean = w.reduce("ReduceMean", w.reshape(spread, OPEN), [0], False)
    return w.node("Div", [_total(w, w.node("Mul", [loss, spread])), mean])


@writes("ClassificationError")
def _classification_error(w: GraphWriter, node: Node, output: str, label: str, *n: str) -> str:
    """The number of labels that are not among the n largest outputs; of equal outputs the first counts as larger."""
    scores, labels = w.inputs(node)[:2]
    axis, count = max(w.lead(scores), w.lead(labels)), int(np.prod(scores.shape))
    x = _rows(w, output, scores)
    true = w.node("ArgMax", [_rows(w, label, labels)], axis=w.lead(labels), keepdims=1)
    number = w.array(np.arange(count, dtype=scores.dtype))
    label_index = w.cast(true, scores.dtype)
    distance = w.node("Abs", [w.node("Sub", [number, label_index])])
    is_label = w.cast(w.node("Less", [distance, w.scalar(0.5, scores)]), scores.dtype)
    score = w.reduce("ReduceSum", w.node("Mul", [x, is_label]), [axis], True)
    larger = w.cast(w.node("Greater", [x, score]), scores.dtype)
    not_less = w.cast(w.node("Not", [w.node("Less", [x, score])]), scores.dtype)
    ties = w.node("Mul", [not_less, w.cast(w.node("Less", [number, label_index]), scores.dtype)])
    rank = w.reduce("ReduceSum", w.node("Max", [larger, ties]), [axis], True)
    top_n = n[0] if n else w.scalar(1, scores)
    return _total(w, w.from_bool(w.node("Not", [w.node("Less", [rank, top_n])]), scores))
