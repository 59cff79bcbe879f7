"""Operations along the sequence axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..default_options import default_override_or
from ..graph.axis import SEQUENCE, Axis
from ..graph.build import apply
from ..primitives.delay import FutureValue, PastValue
from ..variables import Variable
from ._operand import Operand, as_variables
from ._variables import sequence_input
from .functions import Function


def input_variable(
    shape: Any,
    dtype: Any = default_override_or(np.float32),
    needs_gradient: bool = False,
    is_sparse: bool = False,
    sequence_axis: Axis = SEQUENCE,
    name: str = "",
) -> Variable:
    """An argument that is fed with sequences of samples of this shape.

    >>> input_variable(3, name='x')
    Input('x', [#, *], [3])
    """
    return sequence_input(shape, dtype, needs_gradient, is_sparse, sequence_axis, name)


def input(  # noqa: A001 - CNTK's name
    shape: Any,
    dtype: Any = default_override_or(np.float32),
    needs_gradient: bool = False,
    is_sparse: bool = False,
    sequence_axis: Axis = SEQUENCE,
    name: str = "",
) -> Variable:
    """The old name of `input_variable`."""
    return sequence_input(shape, dtype, needs_gradient, is_sparse, sequence_axis, name)


def past_value(x: Operand, initial_state: Operand = None, time_step: int = 1, name: str = "") -> Function:
    """The value of `time_step` steps ago, and `initial_state` (0) where the sequence begins."""
    return _delayed(PastValue, x, initial_state, time_step, name)


def future_value(x: Operand, initial_state: Operand = None, time_step: int = 1, name: str = "") -> Function:
    """The value `time_step` steps ahead, and `initial_state` (0) where the sequence ends."""
    return _delayed(FutureValue, x, initial_state, time_step, name)


def _delayed(primitive: Any, x: Operand, initial_state: Operand, time_step: int, name: str) -> Function:
    if int(time_step) < 1:
        raise ValueError(f"{primitive.name}: time_step has to be at least 1, not {time_step}")
    operands = as_variables(x, 0 if initial_state is None else initial_state)
    return apply(primitive, operands, {"offset": int(time_step)}, name)  # type: ignore[return-value]
