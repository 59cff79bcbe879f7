"""Evaluation metrics."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..graph.arguments import public_operation
from ..graph.axis import ALL_STATIC, Axis
from ..graph.errors import explain
from ..graph.shape import is_known
from ..ops._blocks import as_one_block, node
from ..ops._elementwise import equal, greater_equal, minus, not_equal
from ..ops._operand import Operand, as_variables
from ..ops._product import times_transpose
from ..ops._reduce import along, as_axis, hardmax
from ..ops.functions import Function
from ..primitives import loss
from ..primitives.reduce import ReduceElements
from ..variables import Constant, Variable


@public_operation
def classification_error(
    output_vector: Operand, target_vector: Operand, axis: int | Axis | None = -1, topN: int = 1, name: str = ""
) -> Function:
    """Classification error: 1 where the target class is not the largest output, otherwise 0.

    With `topN` above 1, the target class must not be among the `topN` largest outputs, all elements of a sample being
    classes, and the errors are counted over the minibatch. Along an axis other than the last one, the result is the
    error rate over the other axes.

    Shapes: [n] twice -> [1]; one number for the minibatch with `topN` above 1; [] along another axis.
    Errors: ValueError for topN < 1, or for topN > 1 along an axis other than the last one.

    >>> classification_error([[1, 2, 3]], [[0, 1, 0]]).eval()
    array([[1.]], dtype=float32)
    """
    output_vector, target_vector = as_variables(output_vector, target_vector)
    at, count = as_axis(axis), int(topN)
    if count < 1:
        raise ValueError(f"classification_error: topN must be at least 1, got {topN}")
    classes = prod(output_vector.shape)
    if is_known(output_vector.shape) and classes < count:
        raise ValueError(explain(
            f"classification_error: topN = {topN} of {classes} classes", {"output_vector": output_vector},
            "give topN at most the number of classes",
        ))
    if at != Axis(-1):
        if topN != 1:
            raise ValueError(explain(
                "classification_error: topN is supported along the last axis only",
                fix="move the classes to the last axis with cntk.transpose",
            ))
        return as_one_block(
            "ClassificationError", lambda o, t: _error_along(o, t, at), [output_vector, target_vector], name
        )
    if topN != 1:
        operands = output_vector, target_vector, Constant(count, dtype=output_vector.dtype)
        return node(loss.ClassificationError, operands, name=name)

    def inner(output: Variable, target: Variable) -> Function:
        return minus(1, times_transpose(hardmax(output), target))

    return as_one_block("ClassificationError", inner, [output_vector, target_vector], name)


def _error_along(output: Variable, target: Variable, axis: Axis) -> Function:
    largest = along("Max", output, axis)
    wrong = greater_equal(along("Sum", not_equal(target, equal(output, largest)), axis), 1)
    attributes = {"axis": ALL_STATIC, "reductionOpName": "Mean", "reductionKeepDimensions": False}
    return node(ReduceElements, [wrong.output], attributes)


@public_operation
def edit_distance_error(
    input_a: Operand, input_b: Operand, subPen: float = 1, delPen: float = 1, insPen: float = 1,
    squashInputs: bool = False, tokensToIgnore: Sequence[int] = [], name: str = "",
) -> Function:
    """The edit distance between two sequences of one-hot tokens, summed over the minibatch.

    `subPen`, `delPen` and `insPen` are the costs of substituting, deleting and inserting a token. With `squashInputs`
    repeated tokens count as one; `tokensToIgnore` are removed. The sum is multiplied by the number of samples divided
    by the number of remaining tokens of `input_b`, so that a mean over samples is a mean over tokens.

    Shapes: [tokens] twice, each with a sequence axis -> [], one number for the minibatch.
    Errors: ValueError for a negative cost; AxisError without a sequence axis.

    >>> import cntkjax as C
    >>> a, b = C.sequence.input_variable(4), C.sequence.input_variable(4)
    >>> tokens = C.Value.one_hot([[0, 1, 2]], 4), C.Value.one_hot([[0, 3, 2]], 4)
    >>> edit_distance_error(a, b).eval(dict(zip((a, b), tokens)))
    array(1., dtype=float32)
    """
    if min(subPen, delPen, insPen) < 0:
        raise ValueError(f"edit_distance_error: penalties must be non-negative, got {subPen}, {delPen} and {insPen}")
    attributes = {
        "SubstitutionPenalty": float(subPen), "DeletionPenalty": float(delPen), "InsertionPenalty": float(insPen),
        "SquashInputs": bool(squashInputs), "TokensToIgnore": [int(t) for t in tokensToIgnore],
    }
    return node(loss.EditDistanceError, as_variables(input_a, input_b), attributes, name)


@public_operation
def ndcg_at_1(output: Operand, gain: Operand, group: Operand, name: str = "") -> Function:
    """NDCG at rank 1: 100 n times the gain of the top-scored item relative to the highest gain, averaged over groups.

    n is the number of samples. The items of a group must be neighbors in the minibatch, sorted by decreasing gain.

    Shapes: output (the score), gain and group (the number of the group) [1] -> one number for the minibatch.

    >>> import cntkjax as C
    >>> score, gain, group = (C.input_variable(1) for _ in range(3))
    >>> ndcg_at_1(score, gain, group).eval({score: [[2], [1]], gain: [[3], [1]], group: [[7], [7]]})
    array(200., dtype=float32)
    """
    return node(loss.NDCG, as_variables(output, gain, group), name=name)
