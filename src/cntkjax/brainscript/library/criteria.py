"""Loss functions and metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..network import LATTICES
from .table import direct, integers, operation

operation("SquareError")(direct("squared_error"))
operation("CosDistance")(direct("cosine_distance"))
operation("LambdaRank")(direct("lambda_rank", 1, 0, 2))
operation("NDCG1Eval")(direct("ndcg_at_1", 1, 0, 2))
operation("PerDimMeanVarNormalization")(direct("per_dim_mean_variance_normalize"))


@operation("CrossEntropyWithSoftmax")
def cross_entropy_with_softmax(C: Any, labels: Any, z: Any, *, axis: float = 0.0, name: str) -> Any:
    """The cross entropy of labels and softmax outputs, along an axis or of all elements (axis 0)."""
    z, labels, axis = _with_axis(C, axis, z, labels)
    return C.cross_entropy_with_softmax(z, labels, axis=axis, name=name)


def _with_axis(C: Any, axis: float, z: Any, labels: Any) -> tuple[Any, Any, int]:
    """Operands and an axis as Python's criteria take them: of columns the only one, of others not the last one."""
    if axis == 0:
        z, labels = (C.reshape(each, (-1,)) if len(each.shape) > 1 else each for each in (z, labels))
    elif axis == 1 and len(z.shape) > 1:
        return C.swapaxes(z, -1, -2), C.swapaxes(labels, -1, -2), -2
    return z, labels, -int(axis or 1)


@operation("ClassificationError", "ErrorPrediction")
def classification_error(
    C: Any, labels: Any, z: Any, *top: Any, axis: float = 0.0, topN: float = 1.0, name: str,
) -> Any:
    """1 where the largest output, along an axis or of all elements (axis 0), is not the label's."""
    count = int(top[0].value.item()) if top else int(topN)
    z, labels, axis = _with_axis(C, axis, z, labels)
    return C.classification_error(z, labels, axis=axis, topN=count, name=name)


@operation("ClassBasedCrossEntropyWithSoftmax")
def class_based_cross_entropy(C: Any, labels: Any, x: Any, weights: Any, groups: Any, *, name: str) -> Any:
    """The cross entropy of a word's class, and of the word among those of its class, from products with x.

    Shapes, of CNTK: labels [4]: word, class, and the first word and the end of the class; x [n], weights [n x words],
    groups [classes], before their softmax.
    """
    def indices(count: int) -> Any:
        return C.Constant(np.arange(count, dtype=np.float32))

    word, group, begin, end = (C.slice(labels, -1, i, i + 1) for i in range(4))
    z = C.times(C.reshape(x, (-1,)), C.swapaxes(weights, -1, -2))
    words = indices(weights.shape[0])
    inside = C.element_times(C.greater_equal(words, begin), C.less(words, end))
    z = C.element_select(inside, z, C.Constant(-1e30))
    groups = C.reshape(groups, (-1,))
    return C.plus(
        C.cross_entropy_with_softmax(groups, C.equal(indices(groups.shape[0]), group)),
        C.cross_entropy_with_softmax(z, C.equal(words, word)), name=name,
    )


@operation("CrossEntropy")
def cross_entropy(C: Any, labels: Any, probabilities: Any, *, name: str) -> Any:
    """The negative expectation of a log probability."""
    return C.negate(C.reduce_sum(C.element_times(labels, C.log(probabilities))), name=name)


@operation("Logistic", "WeightedLogistic")
def logistic(C: Any, labels: Any, probabilities: Any, *weights: Any, name: str) -> Any:
    """Binary cross entropy, summed over the elements."""
    if weights:
        return C.weighted_binary_cross_entropy(probabilities, labels, weights[0], name=name)
    return C.reduce_sum(C.binary_cross_entropy(probabilities, labels), axis=C.Axis.all_static_axes(), name=name)


@operation("MatrixL1Reg")
def l1(C: Any, x: Any, *, name: str) -> Any:
    """The sum of absolute values, of all samples."""
    return C.reduce_sum(C.abs(x), axis=C.Axis.all_axes(), name=name)


@operation("MatrixL2Reg")
def l2(C: Any, x: Any, *, name: str) -> Any:
    """The square root of the sum of squares, of all samples."""
    return C.sqrt(C.reduce_sum(C.square(x), axis=C.Axis.all_axes()), name=name)


@operation("EditDistanceError", sequences=True)
def edit_distance_error(
    C: Any, labels: Any, z: Any, *, subPen: float = 1.0, delPen: float = 1.0, insPen: float = 1.0,
    squashInputs: bool = False, tokensToIgnore: Any = "", name: str,
) -> Any:
    """The edit distance of label sequences, per label."""
    ignored = [] if tokensToIgnore == "" else integers(tokensToIgnore)
    costs = float(subPen), float(delPen), float(insPen)
    return C.edit_distance_error(labels, z, *costs, bool(squashInputs), ignored, name=name)


@operation("EpochAccumulator")
def epoch_accumulator(C: Any, x: Any, *, name: str) -> Any:
    """The average over all samples of the epoch so far; `Network.forget_epoch` begins anew."""

    def all_of(value: Any) -> Any:
        value = C.sequence.reduce_sum(value) if len(value.dynamic_axes) > 1 else value
        return C.reduce_sum(value, axis=C.Axis.default_batch_axis())

    total, count = (C.Constant(0.0, shape=x.shape, name=f"{name}.{part}") for part in ("sum", "count"))
    return C.element_divide(
        C.assign(total, total + all_of(x)), C.assign(count, count + all_of(C.ones_like(x))), name=name
    )


@operation("LatticeSequenceWithSoftmax", sequences=True)
def lattice_sequence_with_softmax(
    C: Any, labels: Any, z: Any, likelihood: Any, lattice: Any, *, symListPath: str, phonePath: str,
    stateListPath: str, transProbPath: str, latticeConfigPath: str = "LatticeNode.config",
    hSmoothingWeight: float = 0.95, frameDropThresh: float = 1e-10, doReferenceAlign: bool = False,
    seqGammarUsesMBR: bool = False, seqGammarAMF: float = 14.0, seqGammarLMF: float = 14.0,
    seqGammarBMMIFactor: float = 0.0, seqGammarWordPen: float = 0.0, name: str,
) -> Any:
    """The log probability of labels relative to the hypotheses in a lattice."""
    files = symListPath, phonePath, stateListPath, transProbPath, latticeConfigPath
    numbers = float(hSmoothingWeight), float(frameDropThresh), bool(doReferenceAlign), bool(seqGammarUsesMBR)
    scores = float(seqGammarAMF), float(seqGammarLMF), float(seqGammarBMMIFactor), float(seqGammarWordPen)
    return C.lattice_sequence_with_softmax(labels, z, likelihood, lattice, *files, *numbers, *scores, name=name)


@operation("SequenceWithSoftmax", sequences=True)
def sequence_with_softmax(C: Any, labels: Any, z: Any, likelihood: Any, *, name: str) -> Any:
    """The same with lattices of the reader, whose files `C.lattice_options` names; "" as long as there is no reader."""
    lattices = C.sequence.input_variable(1, sequence_axis=C.Axis(LATTICES), name=LATTICES)
    return C.lattice_sequence_with_softmax(labels, z, likelihood, lattices, **C.lattice_options(), name=name)


@operation("CosDistanceWithNegativeSamples")
def negative_samples(C: Any, x: Any, y: Any, *, numShifts: float, numNegSamples: float, name: str) -> Any:
    """Cosine distances to the partner and to those of other samples."""
    return C.cosine_distance_with_negative_samples(x, y, int(numShifts), int(numNegSamples), name=name)


@operation("PerDimMeanVarDeNormalization")
def denormalize(C: Any, x: Any, mean: Any, inverse: Any, *, name: str) -> Any:
    """The inverse of PerDimMeanVarNormalization."""
    return C.plus(C.element_divide(x, inverse), mean, name=name)
