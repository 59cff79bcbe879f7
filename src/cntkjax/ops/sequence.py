"""Operations along the sequence axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .._typing import ElementType, Measured, ShapeLike
from ..default_options import default_override_or
from ..graph.arguments import checked
from ..graph.axis import SEQUENCE, Axis
from ..graph.build import apply
from ..primitives.delay import FutureValue, PastValue
from ..primitives.sequence import UnpackSequenceOp
from ..variables import Variable
from ._blocks import as_one_block
from ._elementwise import element_divide, exp, minus
from ._operand import Operand, as_variable, as_variables
from ._sequence import (
    Typeinfo,
    delayed,
    gathered,
    needs_sequence,
    reconcile_dynamic_axes,
    reduced,
    scattered,
    sliced,
    where_steps,
    within,
)
from ._structure import alias, combine
from ._variables import sequence_input
from .functions import Function

F = TypeVar("F", bound=Callable[..., Any])


def _operation(f: F) -> F:
    """A public operation, whose errors name it as users do."""
    return checked(f, f"sequence.{f.__name__}", operands=True)


@_operation
def input_variable(
    shape: ShapeLike,
    dtype: ElementType | default_override_or | None = default_override_or(np.float32),
    needs_gradient: bool = False,
    is_sparse: bool = False,
    sequence_axis: Axis = SEQUENCE,
    name: str = "",
) -> Variable:
    """An input whose data are sequences.

    Shapes: ``shape`` is that of one step, an int or a tuple.

    >>> input_variable(3, name='x')
    Input('x', [#, *], [3])
    """
    return sequence_input(shape, dtype, needs_gradient, is_sparse, sequence_axis, name)


@_operation
def input(
    shape: ShapeLike,
    dtype: ElementType | default_override_or | None = default_override_or(np.float32),
    needs_gradient: bool = False,
    is_sparse: bool = False,
    sequence_axis: Axis = SEQUENCE,
    name: str = "",
) -> Variable:
    """The old name of `input_variable`.

    Shapes: see `input_variable`.

    >>> input(3, name='x')
    Input('x', [#, *], [3])
    """
    return sequence_input(shape, dtype, needs_gradient, is_sparse, sequence_axis, name)


@_operation
def past_value(x: Operand, initial_state: Operand | None = None, time_step: int = 1, name: str = "") -> Function:
    """The value `time_step` steps ago; `initial_state` (by default 0) at the first `time_step` steps of a sequence.

    Shapes: x [*shape] with a sequence axis; initial_state broadcasts to it and may have the batch axis -> [*shape].
    Errors: AxisError if x has no sequence axis; ValueError for a negative time_step.

    >>> x = input_variable(1)
    >>> past_value(x, 9).eval({x: [[[1], [2], [3]]]})
    [array([[9.],
           [1.],
           [2.]], dtype=float32)]
    """
    return delayed(PastValue, x, initial_state, time_step, name)


@_operation
def future_value(x: Operand, initial_state: Operand | None = None, time_step: int = 1, name: str = "") -> Function:
    """The value `time_step` steps ahead; `initial_state` at the last `time_step` steps of a sequence.

    Shapes: x [*shape] with a sequence axis; initial_state broadcasts to it and may have the batch axis -> [*shape].
    Errors: AxisError if x has no sequence axis; ValueError for a negative time_step.

    >>> x = input_variable(1)
    >>> future_value(x, 9).eval({x: [[[1], [2], [3]]]})
    [array([[2.],
           [3.],
           [9.]], dtype=float32)]
    """
    return delayed(FutureValue, x, initial_state, time_step, name)


@_operation
def delay(x: Operand, initial_state: Operand | None = None, time_step: int = 1, name: str = "") -> Operand:
    """`past_value` for a positive `time_step`, `future_value` for a negative one; x itself for 0, or its alias `name`.

    Shapes: x [*shape] with a sequence axis -> [*shape].
    Errors: those of `past_value`.

    >>> x = input_variable(1)
    >>> delay(x, 9, time_step=-2).eval({x: [[[1], [2], [3]]]})
    [array([[3.],
           [9.],
           [9.]], dtype=float32)]
    """
    if time_step == 0:
        return alias(x, name) if name else x
    if time_step < 0:
        return future_value(x, initial_state, -time_step, name)
    return past_value(x, initial_state, time_step, name)


@_operation
def is_first(seq: Operand, name: str = "") -> Function:
    """1 at the first step of each sequence, 0 at the others.

    Shapes: seq with a sequence axis -> [].

    >>> x = input_variable(1)
    >>> is_first(x).eval({x: [[[5], [6], [7]]]})
    [array([1., 0., 0.], dtype=float32)]
    """
    return as_one_block("Sequence::IsFirst", lambda s: within(PastValue, s, 1), [as_variable(seq)], name)


@_operation
def is_last(seq: Operand, name: str = "") -> Function:
    """1 at the last step of each sequence, 0 at the others.

    Shapes: seq with a sequence axis -> [].

    >>> x = input_variable(1)
    >>> is_last(x).eval({x: [[[5], [6], [7]]]})
    [array([0., 0., 1.], dtype=float32)]
    """
    return as_one_block("Sequence::IsLast", lambda s: within(FutureValue, s, 1), [as_variable(seq)], name)


@_operation
def slice(seq: Operand, begin_index: int, end_index: int, name: str = "") -> Function:
    """The steps of each sequence from `begin_index` up to but excluding `end_index`.

    Negative indices count from the end; an `end_index` of 0 is the end. The name of the new axis is derived from the
    old one and the change of length, so that slices of equal length can be combined. A slice of one step has only the
    batch axis.

    Shapes: seq [*shape] with a sequence axis -> [*shape].
    Errors: AxisError if seq has no sequence axis.

    >>> x = input_variable(1)
    >>> slice(x, 1, 0).eval({x: [[[1], [2], [3]]]})
    [array([[2.],
           [3.]], dtype=float32)]
    """
    if begin_index == 0 and end_index == 0:
        return combine([seq], name=name)
    return as_one_block("Sequence::Slice", lambda s: sliced(s, begin_index, end_index), [as_variable(seq)], name)


@_operation
def first(seq: Operand, name: str = "") -> Function:
    """The first step of each sequence.

    Shapes: seq [*shape] with a sequence axis -> [*shape] with the batch axis only.
    Errors: AxisError if seq has no sequence axis.

    >>> x = input_variable(1)
    >>> first(x).eval({x: [[[1], [2], [3]]]})
    array([[1.]], dtype=float32)
    """
    return slice(seq, 0, 1, name)


@_operation
def last(seq: Operand, name: str = "") -> Function:
    """The last step of each sequence.

    Shapes: seq [*shape] with a sequence axis -> [*shape] with the batch axis only.
    Errors: AxisError if seq has no sequence axis.

    >>> x = input_variable(1)
    >>> last(x).eval({x: [[[1], [2], [3]]]})
    array([[3.]], dtype=float32)
    """
    return slice(seq, -1, 0, name)


@_operation
def where(condition: Operand, name: str = "") -> Function:
    """The indices of the steps at which a condition is nonzero, as a new sequence.

    Each such step occurs once, unless the condition is a constant broadcast along the sequence: then it occurs as often
    as the value of the condition, and fractions accumulate from step to step.

    Shapes: condition of one element ([], [1], [1, 1], ...) with a sequence axis -> [] with a new sequence axis.
    Errors: AxisError if the condition has no sequence axis, ShapeError if it has another shape.

    >>> x = input_variable(())
    >>> where(x).eval({x: [[0, 1, 0, 1]]})
    [array([1., 3.], dtype=float32)]
    """
    return where_steps(as_variable(condition), None, name)


@_operation
def gather(seq: Operand, condition: Operand, new_sequence_axis_typeinfo: Typeinfo = None, name: str = "") -> Function:
    """The steps of a sequence at which a condition is nonzero.

    `new_sequence_axis_typeinfo` = (a, b) declares that a sequence of n steps becomes one of a·n + b steps; results with
    the same declaration share a sequence axis and can be combined.

    Shapes: seq [*shape], condition of one element ([], [1], ...) with the same sequence axis -> [*shape] with a new
            sequence axis.
    Errors: see `where`.

    >>> x, c = input_variable(1), input_variable(())
    >>> gather(x, c).eval({x: [[[1], [2], [3]]], c: [[1, 0, 1]]})
    [array([[1.],
           [3.]], dtype=float32)]
    """
    operands = [as_variable(seq), as_variable(condition)]
    return as_one_block("Sequence::Gather", lambda s, c: gathered(s, c, new_sequence_axis_typeinfo), operands, name)


@_operation
def scatter(seq: Operand, condition: Operand, new_sequence_axis_typeinfo: Typeinfo = None, name: str = "") -> Function:
    """Place the steps of a sequence, in order, where a condition is nonzero; zeros elsewhere. The inverse of `gather`.

    Shapes: seq [*shape], condition of one element ([], [1], ...) with a sequence axis -> [*shape] with the sequence
            axis of the condition.
    Errors: see `where`.

    >>> x, c = input_variable(1), input_variable(())
    >>> scatter(gather(x, c), c).eval({x: [[[1], [2], [3]]], c: [[1, 0, 1]]})
    [array([[1.],
           [0.],
           [3.]], dtype=float32)]
    """
    operands = [as_variable(seq), as_variable(condition)]
    return as_one_block("Sequence::Scatter", lambda s, c: scattered(s, c, new_sequence_axis_typeinfo), operands, name)


@_operation
def broadcast_as(operand: Operand, broadcast_as_operand: Operand, name: str = "") -> Function:
    """Broadcast one value for each sequence, or one for all sequences, to every step of another operand.

    Shapes: operand [*shape] -> [*shape] with the dynamic axes of broadcast_as_operand.
    Errors: AxisError if broadcast_as_operand has no dynamic axes.

    >>> x = input_variable(1)
    >>> broadcast_as(last(x), x).eval({x: [[[1], [2]]]})
    [array([[2.],
           [2.]], dtype=float32)]
    """
    operands = as_variables(operand, broadcast_as_operand)
    return as_one_block("Sequence::BroadcastAs", reconcile_dynamic_axes, operands, name)


@_operation
def reduce_sum(seq: Operand, name: str = "") -> Function:
    """The sum over the steps of each sequence.

    Shapes: seq [*shape] with a sequence axis -> [*shape] with the batch axis only.
    Errors: AxisError if seq has no sequence axis.

    >>> x = input_variable(1)
    >>> reduce_sum(x).eval({x: [[[1], [2], [3]], [[4]]]})
    array([[6.],
           [4.]], dtype=float32)
    """
    return reduced("Sum", 0.0, seq, name)


@_operation
def reduce_max(seq: Operand, name: str = "") -> Function:
    """The maximum over the steps of each sequence.

    Shapes: seq [*shape] with a sequence axis -> [*shape] with the batch axis only.
    Errors: AxisError if seq has no sequence axis.

    >>> x = input_variable(1)
    >>> reduce_max(x).eval({x: [[[1], [3], [2]], [[4]]]})
    array([[3.],
           [4.]], dtype=float32)
    """
    return reduced("Max", float("-inf"), seq, name)


@_operation
def softmax(seq: Operand, name: str = "") -> Function:
    """Softmax along the sequence: exp(x) / sum(exp(x)), where the sum runs over the steps of each sequence.

    Shapes: seq [*shape] with a sequence axis -> [*shape].
    Errors: AxisError if seq has no sequence axis.

    >>> x = input_variable(1)
    >>> softmax(x).eval({x: [[[1], [2]]]})[0].round(4)
    array([[0.2689],
           [0.7311]], dtype=float32)
    """

    def over_steps(x: Variable) -> Function:
        powers = exp(minus(x, broadcast_as(reduce_max(x), x)))
        return element_divide(powers, broadcast_as(reduce_sum(powers), x))

    return as_one_block("Sequence::Softmax", over_steps, [needs_sequence(as_variable(seq), "softmax along it")], name)


@_operation
def unpack(x: Operand, padding_value: Measured, no_mask_output: bool = False, name: str = "") -> Function:
    """Convert sequences to arrays: the steps become the first static axis, padded with `padding_value`.

    Shapes: x [*shape] with a sequence axis -> [longest, *shape] with the batch axis only, and unless `no_mask_output`
            a second output [longest] that is 1 at the steps of the sequence and 0 in the padding.
    Errors: AxisError if x has no sequence axis.

    >>> x = input_variable(1)
    >>> unpack(x, 0, no_mask_output=True).eval({x: [[[1], [2]], [[3]]]})
    array([[[1.],
            [2.]],
    <BLANKLINE>
           [[3.],
            [0.]]], dtype=float32)
    """
    attributes = {
        "sequenceUnpackPaddingValue": float(padding_value), "sequenceUnpackSuppressMaskOutput": bool(no_mask_output),
    }
    return apply(UnpackSequenceOp, [as_variable(x)], attributes, name)  # type: ignore[return-value]




__all__ = [
    "Axis", "broadcast_as", "default_override_or", "delay", "first", "future_value", "gather", "input",
    "input_variable", "is_first", "is_last", "last", "np", "past_value", "reduce_max", "reduce_sum", "scatter",
    "slice", "softmax", "unpack", "where",
]
