"""Matrix products."""

from __future__ import annotations

from ..graph.arguments import public_operation
from ..graph.build import apply
from ..primitives.product import Times, TransposeTimes
from ._operand import Operand, as_variables
from .functions import Function

__all__ = [
    "TIMES_NO_INFERRED_INPUT_RANK", "TIMES_REDUCE_SEQUENCE_AXIS_WITHOUT_INFERRED_INPUT_RANK", "times",
    "times_transpose",
]

TIMES_NO_INFERRED_INPUT_RANK = -1
TIMES_REDUCE_SEQUENCE_AXIS_WITHOUT_INFERRED_INPUT_RANK = -2


@public_operation
def times(
    left: Operand, right: Operand, output_rank: int = 1, infer_input_rank_to_map: int = TIMES_NO_INFERRED_INPUT_RANK,
    name: str = "",
) -> Function:
    """Matrix product: contracts the trailing axes of left with the leading axes of right.

    With ``TIMES_REDUCE_SEQUENCE_AXIS_WITHOUT_INFERRED_INPUT_RANK`` as `infer_input_rank_to_map` the products are summed
    over the steps of each sequence.

    Shapes: left [*map, *inner], right [*inner, *out] with output_rank axes in out -> [*map, *out].
    Errors: ShapeError if the inner dimensions differ.

    >>> times([[1, 2], [3, 4]], [[5], [6]]).eval()
    array([[17.],
           [39.]], dtype=float32)
    """
    attributes = {"outputRank": output_rank, "inferInputRankToMap": infer_input_rank_to_map}
    return apply(Times, as_variables(left, right), attributes, name)  # type: ignore[return-value]


@public_operation
def times_transpose(left: Operand, right: Operand, name: str = "") -> Function:
    """Matrix product of left with the transpose of right.

    Shapes: left [*map, inner], right [out, inner] (or [inner]) -> [*map, out].
    Errors: ShapeError if the inner dimensions differ, or the right operand has more than two axes.

    >>> times_transpose([[1, 2], [3, 4]], [[1, 0], [1, 1], [0, 1]]).eval()
    array([[1., 3., 2.],
           [3., 7., 4.]], dtype=float32)
    """
    return apply(TransposeTimes, as_variables(left, right), {"outputRank": 1}, name)  # type: ignore[return-value]
