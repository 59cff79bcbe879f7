"""Sequence operations, composed of primitives and blocks as in CNTK."""

from __future__ import annotations

from operator import index
from typing import Any

from ..graph.arguments import public_operation
from ..graph.axis import Axis
from ..graph.build import apply
from ..graph.errors import AxisError, explain
from ..graph.variable import is_undetermined
from ..primitives.delay import FutureValue, PastValue
from ..primitives.reduce import ReduceElements
from ..primitives.sequence import (
    GatherPacked,
    PackedIndex,
    ReconcileDynamicAxis,
    ScatterPacked,
    ToSequenceLikeOp,
    ToSequenceOp,
    UnpackSequenceOp,
    Where,
)
from ..variables import Variable
from ._blocks import as_one_block
from ._elementwise import element_times, minus
from ._operand import Operand, as_variable, number
from .functions import Function

__all__ = [
    "reconcile_dynamic_axes", "to_sequence", "to_sequence_like",
]

Typeinfo = tuple[int, int] | None  # (factor, summand): the new length is factor * old length + summand


@public_operation
def reconcile_dynamic_axes(x: Operand, dynamic_axes_as: Operand, name: str = "") -> Function:
    """Give x the dynamic axes of another operand, broadcasting it along the axes that it lacks.

    Shapes: x [*shape] without dynamic axes, with the batch axis only, or with a sequence axis whose sequences are as
            long as those of `dynamic_axes_as` -> [*shape].
    Errors: AxisError if `dynamic_axes_as` has no dynamic axes.

    >>> import cntkjax as C
    >>> a, b = C.sequence.input_variable(2), C.sequence.input_variable(3, sequence_axis=C.Axis('b'))
    >>> C.reconcile_dynamic_axes(b, a).dynamic_axes == a.dynamic_axes
    True
    """
    return apply(ReconcileDynamicAxis, [as_variable(x), as_variable(dynamic_axes_as)], name=name)  # type: ignore[return-value]


@public_operation
def to_sequence(
    x: Operand, sequence_lengths: Operand | None = None, sequence_axis_name_prefix: str = "toSequence_", name: str = ""
) -> Function:
    """Convert arrays to sequences: the first static axis becomes a sequence axis. The inverse of ``sequence.unpack``.

    Shapes: x [steps, *shape] with the batch axis only, sequence_lengths of one element (default: all steps) ->
            [*shape].
    Errors: AxisError if x has other dynamic axes or no static axis.

    >>> import cntkjax as C, numpy as np
    >>> x = C.input_variable((3, 1))
    >>> C.to_sequence(x).eval({x: np.arange(3).reshape(1, 3, 1)})
    [array([[0.],
           [1.],
           [2.]], dtype=float32)]
    """
    operands = [as_variable(x)] + ([] if sequence_lengths is None else [as_variable(sequence_lengths)])
    return apply(ToSequenceOp, operands, {"sequenceAxis": sequence_axis_name_prefix}, name)  # type: ignore[return-value]


@public_operation
def to_sequence_like(x: Operand, dynamic_axes_like: Operand, name: str = "") -> Function:
    """Convert arrays to sequences along the sequence axis of another operand, with the lengths of its sequences.

    Shapes: x [steps, *shape] with the batch axis only -> [*shape].
    Errors: AxisError if x has other dynamic axes or no static axis, or the other operand has no sequence axis;
            ShapeError if the longest sequence that is fed has not as many steps as the arrays, as in CNTK.

    >>> import cntkjax as C
    >>> x, y = C.input_variable((2, 1)), C.sequence.input_variable(1)
    >>> to_sequence_like(x, y).eval({x: [[[1], [2]], [[3], [4]]], y: [[[0], [0]], [[0]]]})
    [array([[1.],
           [2.]], dtype=float32), array([[3.]], dtype=float32)]
    """
    operands = [as_variable(x), as_variable(dynamic_axes_like)]
    return apply(ToSequenceLikeOp, operands, name=name)  # type: ignore[return-value]


def delayed(primitive: Any, x: Operand, initial_state: Operand | None, time_step: int, name: str) -> Function:
    """A delay by `time_step` steps, for 0 the same values; `primitive` is PastValue or FutureValue.

    Errors: ValueError for a negative time_step.
    """
    steps = index(time_step)
    if steps < 0:
        raise ValueError(f"{primitive.name}: time_step must be at least 0, got {time_step}; see sequence.delay")
    x = as_variable(x)
    state = number(0, x.dtype) if initial_state is None else as_variable(initial_state, x.dtype)
    return apply(primitive, [x, state], {"offset": steps}, name)  # type: ignore[return-value]


def within(primitive: Any, like: Variable, steps: int) -> Function:
    """1 at the first (PastValue) or last (FutureValue) `steps` steps of each sequence, 0 at the others."""
    zeros, one = reconcile_dynamic_axes(number(0, like.dtype), like), number(1, like.dtype)
    return apply(primitive, [zeros.output, one], {"offset": steps})  # type: ignore[return-value]


def where_steps(condition: Variable, typeinfo: Typeinfo, name: str = "") -> Function:
    """The indices of the steps at which a condition holds.

    Errors: TypeError for a malformed `typeinfo`.
    """
    attributes = {}
    if typeinfo is not None:
        try:
            factor, summand = map(index, typeinfo)
        except (TypeError, ValueError):
            factor = summand = -1
        if factor < 0:
            raise TypeError(
                "new_sequence_axis_typeinfo must be a pair (non-negative factor, summand) of integers, "
                f"got {typeinfo!r}"
            )
        attributes = {
            "newSequenceAxisLengthScalingFactor": factor, "newSequenceAxisLengthAdditiveFactor": summand,
        }
    return apply(Where, [condition], attributes, name)  # type: ignore[return-value]


def gathered(seq: Variable, condition: Variable, typeinfo: Typeinfo) -> Function:
    """The steps of a sequence at which a condition holds."""
    index = apply(PackedIndex, [seq, where_steps(condition, typeinfo).output])
    return apply(GatherPacked, [seq, index.outputs[0]])  # type: ignore[return-value]


def scattered(seq: Variable, condition: Variable, typeinfo: Typeinfo) -> Function:
    """The steps of a sequence, placed at the steps at which a condition holds; zeros elsewhere."""
    index = apply(PackedIndex, [condition, where_steps(condition, typeinfo).output])
    return apply(ScatterPacked, [seq, index.outputs[0], condition])  # type: ignore[return-value]


def sliced(seq: Variable, begin: int, end: int) -> Function:
    """The steps from `begin` up to but excluding `end`; negative ones count from the end, an `end` of 0 is the end."""
    flags = [_before_end(seq, end), _from_begin(seq, begin)]
    parts = [f for f in reversed(flags) if f is not None]
    condition = element_times(*parts) if len(parts) == 2 else parts[0]
    length = end - begin
    return gathered(seq, condition.output, (0, length) if length > 0 else (1, length))


def _from_begin(seq: Variable, begin: int) -> Function | None:
    if begin == 0:
        return None
    return within(FutureValue, seq, -begin) if begin < 0 else _not(within(PastValue, seq, begin))


def _before_end(seq: Variable, end: int) -> Function | None:
    if end == 0:
        return None
    return within(PastValue, seq, end) if end > 0 else _not(within(FutureValue, seq, -end))


def _not(flag: Function) -> Function:
    return minus(number(1, flag.dtype), flag)


def reduced(op: str, padding: float, seq: Operand, name: str) -> Function:
    """A reduction along the sequence axis; `padding` is its neutral element."""

    def over_steps(seq: Variable) -> Function:
        attributes = {"sequenceUnpackPaddingValue": padding, "sequenceUnpackSuppressMaskOutput": True}
        steps = apply(UnpackSequenceOp, [seq], attributes, name)
        whole = {"reductionOpName": op, "axis": Axis(0), "reductionKeepDimensions": False}
        return apply(ReduceElements, [steps.outputs[0]], whole)  # type: ignore[return-value]

    operand = needs_sequence(as_variable(seq), "a reduction along it")
    return as_one_block("Sequence::ReduceElements", over_steps, [operand], name)


def needs_sequence(x: Variable, what: str) -> Variable:
    """Return the variable if it has a sequence axis, or if its axes are still unknown.

    Errors: AxisError for a variable without a sequence axis.
    """
    if x.sequence_axis is None and not is_undetermined(x):
        raise AxisError(explain(
            f"the operand has no sequence axis, as {what} needs", {"operand": x},
            "declare the input with cntk.sequence.input_variable",
        ))
    return x
