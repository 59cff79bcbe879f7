"""Losses for very many classes: hierarchical softmax and noise-contrastive estimation."""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np

from .._typing import ArrayLike, Seed
from ..graph.arguments import public_operation
from ..graph.axis import ALL_STATIC
from ..graph.errors import explain
from ..graph.seed import AUTO_SEED
from ..graph.shape import INFERRED
from ..graph.variable import infer_shape
from ..initializer import glorot_normal
from ..ops._blocks import as_one_block, node
from ..ops._elementwise import element_divide, element_times, floor, log_add_exp, minus, plus, round
from ..ops._operand import Operand, as_variable, as_variables
from ..ops._product import times, times_transpose
from ..ops._random import random_sample, random_sample_inclusion_frequency
from ..ops._reduce import softmax
from ..ops._shape import one_hot, reshape
from ..ops.functions import Function
from ..primitives.reduce import ReduceElements
from ..variables import Constant, Parameter, Variable


@public_operation
def hierarchical_softmax_layer(
    input_var: Operand, label_index: Operand, label_dim: int, label_classes: int | None = None
) -> tuple[Function, Function, list[Function]]:
    """Two-level hierarchical softmax: P(label) = P(group of the label) P(label | group).

    A label needs only the weights of its group, so the cost grows with the square root of `label_dim`. There are
    `label_classes` groups, by default the square root of `label_dim`, rounded up.

    Returns: the probability of the label, the probabilities of the groups, and for each group those of its labels.
    Shapes: input_var [n], label_index [1] in [0, label_dim) -> probability [1, 1], groups [label_classes], and a list
            of `label_classes` vectors.
    Errors: ValueError for fewer than one group, or more groups than labels.
    Source: Goodman, "Classes for fast maximum entropy training", ICASSP 2001.

    >>> import cntkjax as C
    >>> x, label = C.input_variable(5), C.input_variable(1)
    >>> probability, groups, labels = hierarchical_softmax_layer(x, label, label_dim=9)
    >>> probability.shape, groups.shape, [f.shape for f in labels]
    ((1, 1), (3,), [(3,), (3,), (3,)])
    """
    x, label = as_variable(input_var), as_variable(label_index)
    if label_dim < 1 or (label_classes is not None and not 1 <= label_classes <= label_dim):
        raise ValueError(explain(
            f"hierarchical_softmax_layer: {label_dim} labels cannot be divided into {label_classes} groups",
            fix="omit label_classes, or pass a number from 1 to label_dim",
        ))
    n = x.shape[0]
    groups = ceil(sqrt(label_dim)) if label_classes is None else int(label_classes)
    size = ceil(label_dim / groups)
    w1, b1, w2, b2 = (
        Parameter(shape, glorot_normal(), x.dtype, name=f"hsoftmax_{name}")
        for name, shape in (("w1", (n, groups)), ("b1", (groups,)), ("w2s", (groups, n, size)), ("b2s", (groups, size)))
    )
    group = floor(element_divide(plus(label, 0.5), size))
    place = round(minus(label, element_times(group, size)))
    group_probabilities = softmax(plus(b1, times(x, w1)))

    chosen = one_hot(group, groups)
    w = reshape(times(chosen, w2, output_rank=2), (n, -1))
    b = reshape(times(chosen, b2), (-1,))
    in_group = times_transpose(one_hot(place, size), softmax(plus(b, times(x, w))))
    # CNTK chooses the group anew here, in a node of its own.
    probability = element_times(in_group, times_transpose(one_hot(group, groups), group_probabilities))
    label_probabilities = [
        _probabilities_in_group(x, Constant(i, dtype=x.dtype), groups, w2, b2, group_probabilities)
        for i in range(groups)
    ]
    return probability, group_probabilities, label_probabilities


def _probabilities_in_group(
    x: Variable, group: Constant, groups: int, w2: Parameter, b2: Parameter, group_probabilities: Function
) -> Function:
    """The probabilities of the labels in one group."""
    chosen = one_hot(group, groups)
    in_group = softmax(plus(times(chosen, b2), times(x, times(chosen, w2, output_rank=2))))
    return element_times(in_group, times_transpose(chosen, group_probabilities))


@public_operation
def nce_loss(
    weights: Operand, biases: Operand, inputs: Operand, labels: Operand, noise_distribution: ArrayLike | Constant,
    num_samples: int = 32, allow_duplicates: bool = True, seed: Seed = AUTO_SEED, name: str = "",
) -> Function:
    """Noise-contrastive estimation of a softmax over very many classes, from the label and a few sampled classes.

    The noise distribution need not sum to 1. All samples of a minibatch share the sampled classes.

    Shapes: weights [classes, n], biases [classes, 1], inputs [n], labels [classes] (preferably sparse),
            noise_distribution [classes] -> [].
    Errors: ValueError for shapes that do not fit.
    Source: Gutmann and Hyvarinen, AISTATS 2010; value and normalization as in CNTK 2.7.

    >>> import cntkjax as C
    >>> x, label = C.input_variable(3), C.input_variable(100, is_sparse=True)
    >>> W, b = C.parameter((100, C.InferredDimension), init=C.glorot_uniform()), C.parameter((100, 1))
    >>> nce_loss(W, b, x, label, noise_distribution=np.ones(100), num_samples=5).shape, W.shape
    ((), (100, 3))
    """
    w, b, *operands = as_variables(weights, biases, inputs, labels)
    noise = np.asarray(getattr(noise_distribution, "value", noise_distribution))
    _check_noise(w, b, noise)
    if isinstance(w, Parameter) and w.has_inferred:
        infer_shape(w, (len(noise), *operands[0].shape))
    dtype = operands[0].dtype or np.float32
    noise = (noise / noise.sum()).astype(dtype)
    expected = random_sample_inclusion_frequency(Constant(noise, dtype=dtype), num_samples, allow_duplicates).eval()
    log_prior = np.log(num_samples * noise)

    def inner(x: Variable, label: Variable) -> Function:
        classes = Constant(noise, dtype=dtype, name="noise")
        prior = Constant(log_prior[:, None], dtype=dtype, name="logNoisePrior")
        sampled = random_sample(classes, num_samples, allow_duplicates, seed, "negativeSamples")
        product = element_times(x, times(label, w, name="positiveWeights")).output
        bias = reshape(times(label, b, name="positiveBiases"), (), 0, 1)
        total = {"axis": ALL_STATIC, "reductionOpName": "Sum", "reductionKeepDimensions": False}
        score = plus(node(ReduceElements, [product], total), bias, name="positiveLogits")
        hit = minus(log_add_exp(score, reshape(times(label, prior), (), 0, 1)), score, name="lossOnPositives")
        offsets = reshape(times(sampled, b, name="negativeBiases"), (-1,), 0, 2)
        others = plus(times_transpose(x, times(sampled, w, name="negativeWeights")), offsets, name="negativeLogits")
        misses = log_add_exp(others, reshape(times(sampled, prior), (-1,), 0, 2))
        rarity = Constant(noise / expected, dtype=dtype, name="importanceWeights")
        importance = times_transpose(rarity, sampled, name="sampledImportanceWeights")
        missed = node(ReduceElements, [element_times(importance, misses).output], total)
        entropy = Constant(num_samples * np.sum(noise * log_prior), dtype=dtype, name="noisePriorEntropy")
        return plus(hit, minus(element_times(Constant(num_samples, dtype=dtype), missed), entropy))

    return as_one_block("NCE", inner, operands, name)


def _check_noise(weights: Variable, biases: Variable, noise: np.ndarray) -> None:
    if noise.ndim != 1:
        raise ValueError(f"nce_loss: noise_distribution must be a vector [classes], got shape {noise.shape}")
    if len(biases.shape) != 2:
        raise ValueError(f"nce_loss: biases must have two axes, [classes, 1], got shape {biases.shape}")
    for what, variable in (("weights", weights), ("biases", biases)):
        if variable.shape[0] not in (len(noise), INFERRED):
            raise ValueError(explain(
                f"nce_loss: {what} of shape {variable.shape} do not fit a noise distribution over {len(noise)} classes",
                fix=f"give {what} and noise_distribution the same first axis",
            ))
