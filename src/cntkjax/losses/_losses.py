"""Loss functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.arguments import public_operation
from ..graph.axis import ALL_STATIC, Axis
from ..ops._blocks import as_one_block, node
from ..ops._elementwise import element_divide, element_times, log, minus, negate, plus
from ..ops._operand import Operand, as_variables
from ..ops._product import times_transpose
from ..ops._reduce import along, as_axis, reduce_sum
from ..ops.functions import Function
from ..primitives import loss
from ..primitives.reduce import ReduceElements
from ..variables import Constant, Variable


@public_operation
def cross_entropy_with_softmax(
    output_vector: Operand, target_vector: Operand, axis: int | Axis | None = -1, name: str = ""
) -> Function:
    """Softmax cross entropy along an axis: -sum(target log(softmax(output))) for targets that sum to 1.

    Sparse targets are not converted to dense ones.

    Shapes: [*map, n] twice -> [1] for vectors; along an axis other than the last one, that axis gets size 1; None: [].
    Errors: ShapeError if the sizes of the operands differ.

    >>> cross_entropy_with_softmax([[1, 1, 1, 50]], [[0, 0, 0, 1]]).eval()
    array([[0.]], dtype=float32)
    """
    output_vector, target_vector = as_variables(output_vector, target_vector)
    at = as_axis(axis)

    def inner(output: Variable, target: Variable) -> Function:
        last = at == Axis(-1)
        chosen = times_transpose(output, target) if last else along("Sum", element_times(target, output), at)
        return minus(along("LogSum", output, at), chosen)

    return as_one_block("CrossEntropyWithSoftmax", inner, [output_vector, target_vector], name)


@public_operation
def binary_cross_entropy(output: Operand, target: Operand, name: str = "") -> Function:
    """Binary cross entropy of probabilities: -target log(output) - (1 - target) log(1 - output), element by element.

    Shapes: [*shape] twice -> [*shape]; the operands broadcast.
    Errors: ShapeError if the operands do not broadcast.

    >>> binary_cross_entropy([0.5], [1]).eval()
    array([0.69314516], dtype=float32)
    """
    output, target = as_variables(output, target)

    def inner(p: Variable, t: Variable) -> Function:
        limits = (float(np.float32(limit)) for limit in (1e-6, 1, 1 + 1e-6))  # CNTK's, of single precision in any case
        offset, one, bound = (Constant(limit, dtype=p.dtype) for limit in limits)  # avoids the logarithm of 0
        hit = element_times(t, log(plus(offset, p)))
        miss = element_times(minus(one, t), log(minus(bound, p)))
        return negate(plus(hit, miss))

    return as_one_block("BinaryCrossEntropy", inner, [output, target], name)


@public_operation
def weighted_binary_cross_entropy(output: Operand, target: Operand, weight: Operand, name: str = "") -> Function:
    """Binary cross entropy with a weight for each sample, as one number for the minibatch.

    The value is n sum(w loss) / sum(w) for n samples; the gradient is that of sum(w loss).

    Shapes: output, target and weight [*shape] -> [], one number for the minibatch.
    Errors: ShapeError if the operands differ in shape.

    >>> import cntkjax as C
    >>> p, t, w = C.input_variable(1), C.input_variable(1), C.input_variable(1)
    >>> weighted_binary_cross_entropy(p, t, w).eval({p: [[0.5], [0.9]], t: [[1], [1]], w: [[1], [0]]}).round(4)
    np.float32(1.3863)
    """
    return node(loss.Logistic, as_variables(output, target, weight), name=name)


@public_operation
def squared_error(output: Operand, target: Operand, name: str = "") -> Function:
    """The sum of squared differences over all static axes.

    Shapes: [*shape] twice -> []; the operands broadcast.
    Errors: ShapeError if the operands do not broadcast.

    >>> squared_error([4, 6], [2, 3]).eval()
    array(13., dtype=float32)
    """
    output, target = as_variables(output, target)

    def inner(a: Variable, b: Variable) -> Function:
        difference = minus(a, b)
        attributes = {"axis": ALL_STATIC, "reductionOpName": "Sum", "reductionKeepDimensions": False}
        return node(ReduceElements, [element_times(difference, difference).output], attributes)

    return as_one_block("SquaredError", inner, [output, target], name)


@public_operation
def cosine_distance(x: Operand, y: Operand, name: str = "") -> Function:
    """Cosine similarity: the cosine of the angle between corresponding samples; 0 if one of them is zero.

    Shapes: [*shape] twice -> [].
    Errors: ShapeError if the operands differ in shape.

    >>> cosine_distance([3, 4], [4, 3]).eval()
    array(0.96, dtype=float32)
    """
    return node(loss.CosDistance, as_variables(x, y), name=name)


@public_operation
def cosine_distance_with_negative_samples(
    x: Operand, y: Operand, shift: int, num_negative_samples: int, name: str = ""
) -> Function:
    """Cosine similarity of x with y of the same sample, and of `num_negative_samples` later ones starting at `shift`.

    Shapes: [*shape] twice -> [1 + num_negative_samples]. Samples wrap around at the end of the minibatch.
    Errors: ShapeError if the operands differ in shape.

    >>> import cntkjax as C
    >>> x, y = C.input_variable(2), C.input_variable(2)
    >>> f = cosine_distance_with_negative_samples(x, y, shift=1, num_negative_samples=1)
    >>> f.eval({x: [[1, 0], [0, 1]], y: [[1, 0], [1, 0]]})
    array([[1., 1.],
           [0., 0.]], dtype=float32)
    """
    x, y = as_variables(x, y)
    constants: list[Any] = [Constant(int(n), dtype=x.dtype) for n in (shift, num_negative_samples)]
    return node(loss.CosDistanceWithNegativeSamples, [x, y, *constants], name=name)


@public_operation
def lambda_rank(output: Operand, gain: Operand, group: Operand, name: str = "") -> Function:
    """LambdaRank: 100 n (1 - NDCG) for n items, averaged over groups of items, with the LambdaRank gradient.

    The items of a group must be neighbors in the minibatch, sorted by decreasing gain.

    Shapes: output (the score), gain and group (the number of the group) [1] -> one number for the minibatch.
    Source: Burges, "From RankNet to LambdaRank to LambdaMART" (MSR-TR-2010-82); the scale is CNTK's.

    >>> import cntkjax as C
    >>> score, gain, group = (C.input_variable(1) for _ in range(3))
    >>> loss = lambda_rank(score, gain, group)
    >>> items = {gain: [[3], [1]], group: [[7], [7]]}
    >>> loss.eval({score: [[2], [1]], **items}).round(3), bool(loss.eval({score: [[1], [2]], **items}) > 0)
    (np.float32(0.0), True)
    """
    return node(loss.LambdaRank, as_variables(output, gain, group), name=name)


@public_operation
def fmeasure(output: Operand, target: Operand, beta: float = 1) -> Function:
    """1 - F-measure of outputs that are 0 or 1; `beta` weights recall relative to precision.

    Shapes: [C, H, W] twice -> [C, 1, 1], one for each channel; other shapes -> [], over all static axes.
    Errors: ShapeError if the operands do not broadcast.

    >>> fmeasure([0, 1, 0, 1], [1, 1, 0, 0]).eval()
    array(0.5, dtype=float32)
    """
    output, target = as_variables(output, target)
    axes = (1, 2) if len(output.shape) == 3 else Axis.all_static_axes()
    correct = reduce_sum(element_times(output, target), axes)
    precision = element_divide(correct, reduce_sum(output, axes))
    recall = element_divide(correct, reduce_sum(target, axes))
    weighted = element_times(element_times(1 + beta**2, precision), recall)
    return minus(1, element_divide(weighted, plus(element_times(beta**2, precision), recall)))
