"""Types of the arguments that layers share, and checks of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Annotated, Any, TypeAlias

from .._typing import ArrayLike, Fix
from ..default_options import default_override_or
from ..graph.errors import OperandError, explain
from ..graph.function import Function as GraphFunction
from ..graph.variable import Variable as GraphVariable
from ..initializer import Initializer
from ..internal.sanitize import _as_tuple

Layer: TypeAlias = Callable[..., Any]  # a Function, or a Python function of variables
Activation: TypeAlias = Annotated[
    Layer | default_override_or | None,
    Fix("pass the operation itself, such as activation=cntk.relu; for none leave it out"),
]
Init: TypeAlias = Initializer | ArrayLike | default_override_or | None
Flag: TypeAlias = bool | default_override_or
Number: TypeAlias = float | default_override_or
Axes: TypeAlias = int | Sequence[int]  # one value for all axes of a window, or one for each
AxisFlags: TypeAlias = bool | Sequence[bool] | default_override_or
Operand: TypeAlias = GraphVariable | GraphFunction
State: TypeAlias = Operand | ArrayLike | None
InitialState: TypeAlias = State | tuple[State, ...] | default_override_or


def shape_of(layer: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    """The shape that a layer is given, as a tuple.

    Errors: OperandError if it is neither a number nor a sequence of numbers.
    """
    is_operand = isinstance(shape, (GraphVariable, GraphFunction))
    sizes = (shape,) if is_operand or shape is None else _as_tuple(shape)
    if not all(isinstance(size, Real) and float(size) >= 0 for size in sizes):
        raise OperandError(explain(
            f"{layer}: the shape is a number or a tuple of numbers from 0 on, not {shape!r}",
            fix=f"make the layer with a shape, then apply it to its input: {layer}(10)(x)",
        ))
    return sizes


def check_activation(layer: str, activation: object) -> None:
    """Errors: TypeError if it is not a function."""
    if not callable(activation):
        raise TypeError(explain(
            f"{layer}: activation: a function is needed, not {activation!r}",
            fix="pass the operation itself, such as activation=cntk.relu; for none leave it out",
        ))
