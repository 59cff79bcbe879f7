"""Operations of ai.onnx.ml, as scikit-learn's exporter writes them for networks and linear models."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import ops
from ....variables import Constant, Parameter
from .table import Node, reads
from .values import INT


@reads("ZipMap")
def _zip_map(node: Node) -> Any:
    """Probabilities as they are, not as dictionaries."""
    return ops.alias(node.x())


@reads("ArrayFeatureExtractor")
def _extract(node: Node) -> Any:
    """Elements of the last axis."""
    x, indices = node.tensor(0), node.x(1)
    if len(indices.shape) > 1:
        indices = ops.reshape(indices, (-1,))
    if len(x.shape) != 1 and x.shape[:-1] != (1,):
        raise node.fail("elements of one row can be chosen")
    vector = ops.reshape(x.variable, (-1,)) if len(x.shape) > 1 else x.variable
    chosen = ops.gather(vector, indices if indices.dtype is vector.dtype else ops.cast(indices, vector.dtype))
    return node.of_kind(ops.expand_dims(chosen, -2), x.kind)


@reads("Scaler")
def _scaler(node: Node) -> Any:
    x = node.x()
    offset, scale = (Constant(np.asarray(node.attribute(k, []), x.dtype), dtype=x.dtype) for k in ("offset", "scale"))
    return ops.element_times(ops.minus(x, offset), scale)


@reads("Normalizer")
def _normalizer(node: Node) -> Any:
    x, norm = node.x(), node.text("norm", "L2")
    made = {"L1": ops.reduce_l1, "L2": ops.reduce_l2, "MAX": ops.reduce_max}
    if norm not in made:
        raise node.fail(f"the norm {norm!r} is not known")
    return ops.element_divide(x, made[norm](x, -1))


@reads("LinearRegressor", "LinearClassifier")
def _linear(node: Node) -> Any:
    """Scores x W' + b; a classifier gives the number or label of the class first, then probabilities or scores."""
    x = node.x()
    coefficients = np.asarray(node.attribute("coefficients", []), x.dtype)
    targets = node.whole("targets", 1)
    bias = np.asarray(node.attribute("intercepts", []), x.dtype)
    rows = targets if node.op == "LinearRegressor" else max(len(bias), 1)
    if not rows or coefficients.size != rows * x.shape[-1] or bias.size not in (0, rows):
        raise node.fail(f"{coefficients.size} coefficients for {x.shape[-1]} features and {rows} scores")
    weights = Parameter(init=np.ascontiguousarray(coefficients.reshape(rows, -1).T), dtype=x.dtype, name="coefficients")
    scores = ops.times(x, weights)
    if bias.size:
        scores = ops.plus(scores, Parameter(init=bias, dtype=x.dtype, name="intercepts"))
    after = {"NONE": ops.alias, "LOGISTIC": ops.sigmoid, "SOFTMAX": lambda v: ops.softmax(v, axis=-1)}
    how = node.text("post_transform", "NONE")
    if how not in after:
        raise node.fail(f"the transformation {how!r} cannot be read")
    if node.op == "LinearRegressor":
        return after[how](scores)
    labels = node.attribute("classlabels_ints", None)
    if labels is None:
        raise node.fail("only classes that are numbered can be read")
    if rows == 1:  # one score for two classes
        scores = ops.splice(ops.negate(scores), scores, axis=-1)
    index = ops.argmax(scores, -1)
    names = Constant(np.asarray(labels, x.dtype), dtype=x.dtype)
    return [node.of_kind(ops.gather(names, ops.squeeze(index, [len(index.shape) - 1])), INT), after[how](scores)]
