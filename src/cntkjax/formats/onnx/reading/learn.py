"""Operations of ai.onnx.ml that scikit-learn's exporter writes for networks and linear models."""

from __future__ import annotations

import numpy as np

from .... import ops
from ....variables import Constant, Parameter
from .table import OnnxNode, reads
from .values import INT, Outputs


@reads("ZipMap")
def _zip_map(node: OnnxNode) -> Outputs:
    """Probabilities stay a tensor, not a list of dictionaries."""
    return ops.alias(node.operand())


@reads("ArrayFeatureExtractor")
def _extract(node: OnnxNode) -> Outputs:
    """Elements of the last axis."""
    x, indices = node.tensor(0), node.operand(1)
    if len(indices.shape) > 1:
        indices = ops.reshape(indices, (-1,))
    if len(x.shape) != 1 and x.shape[:-1] != (1,):
        raise node.error("only elements of a single row can be extracted")
    vector = ops.reshape(x.variable, (-1,)) if len(x.shape) > 1 else x.variable
    elements = ops.gather(vector, indices if indices.dtype is vector.dtype else ops.cast(indices, vector.dtype))
    return node.of_kind(ops.expand_dims(elements, -2), x.kind)


@reads("Scaler")
def _scaler(node: OnnxNode) -> Outputs:
    x = node.operand()
    offset, scale = (Constant(np.asarray(node.attribute(k, []), x.dtype), dtype=x.dtype) for k in ("offset", "scale"))
    return ops.element_times(ops.minus(x, offset), scale)


@reads("Normalizer")
def _normalizer(node: OnnxNode) -> Outputs:
    x, norm = node.operand(), node.string("norm", "L2")
    norms = {"L1": ops.reduce_l1, "L2": ops.reduce_l2, "MAX": ops.reduce_max}
    if norm not in norms:
        raise node.error(f"the norm {norm!r} is not known")
    return ops.element_divide(x, norms[norm](x, -1))


@reads("LinearRegressor", "LinearClassifier")
def _linear(node: OnnxNode) -> Outputs:
    """Scores x W' + b; the outputs of a classifier are the label of the class, and probabilities or scores."""
    x = node.operand()
    coefficients = np.asarray(node.attribute("coefficients", []), x.dtype)
    targets = node.integer("targets", 1)
    bias = np.asarray(node.attribute("intercepts", []), x.dtype)
    rows = targets if node.op == "LinearRegressor" else max(len(bias), 1)
    if not rows or coefficients.size != rows * x.shape[-1] or bias.size not in (0, rows):
        raise node.error(f"{coefficients.size} coefficients for {x.shape[-1]} features and {rows} scores")
    weights = Parameter(init=np.ascontiguousarray(coefficients.reshape(rows, -1).T), dtype=x.dtype, name="coefficients")
    scores = ops.times(x, weights)
    if bias.size:
        scores = ops.plus(scores, Parameter(init=bias, dtype=x.dtype, name="intercepts"))
    transforms = {"NONE": ops.alias, "LOGISTIC": ops.sigmoid, "SOFTMAX": lambda v: ops.softmax(v, axis=-1)}
    transform = node.string("post_transform", "NONE")
    if transform not in transforms:
        raise node.error(f"the transformation {transform!r} cannot be read")
    if node.op == "LinearRegressor":
        return transforms[transform](scores)
    labels = node.attribute("classlabels_ints", None)
    if labels is None:
        raise node.error("only integer class labels can be read")
    if rows == 1:  # one score for two classes
        scores = ops.splice(ops.negate(scores), scores, axis=-1)
    index = ops.argmax(scores, -1)
    names = Constant(np.asarray(labels, x.dtype), dtype=x.dtype)
    labels_of_samples = ops.gather(names, ops.squeeze(index, [len(index.shape) - 1]))
    return [node.of_kind(labels_of_samples, INT), transforms[transform](scores)]
