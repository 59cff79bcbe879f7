"""Types of the arguments that layers share, and checks of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Annotated, Any, TypeAlias

from .._typing import ArrayLike, Fix
from .._user_code import user_line
from ..default_options import default_override_or
from ..graph.errors import OperandError, explain
from ..graph.function import Node
from ..graph.variable import Edge
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
Operand: TypeAlias = Edge | Node
State: TypeAlias = Operand | ArrayLike | None
InitialState: TypeAlias = State | tuple[State, ...] | default_override_or


def shape_of(layer: str, shape: int | Sequence[int], argument: str = "shape") -> tuple[int, ...]:
    """The shape that a layer is given as this argument, as a tuple.

    Errors: OperandError if it is neither a number nor a sequence of numbers, or one of them is not positive.
    """
    is_operand = isinstance(shape, (Edge, Node))
    sizes = (shape,) if is_operand or shape is None else _as_tuple(shape)
    if not all(isinstance(size, Real) for size in sizes):
        raise OperandError(explain(
            f"{layer}: the {argument} is a number or a tuple of numbers, not {shape!r}",
            fix=f"make the layer with a shape, then apply it to its input: {layer}(10)(x)",
        ))
    check_positive(layer, argument, sizes, shape)
    return sizes


def check_positive(layer: str, argument: str, sizes: Iterable[float], given: object) -> None:
    """Errors: OperandError, with the value as it was given and the user's line, if a size is not positive."""
    if not all(float(size) > 0 for size in sizes):
        raise OperandError(explain(
            f"{layer}: the {argument} is a positive number or a tuple of such numbers, not {given!r}   {user_line()}",
            fix=f"give {argument} sizes of at least 1",
        ))


def check_activation(layer: str, activation: object) -> None:
    """Errors: TypeError if it is not a function."""
    if not callable(activation):
        raise TypeError(explain(
            f"{layer}: activation: a function is needed, not {activation!r}",
            fix="pass the operation itself, such as activation=cntk.relu; for none leave it out",
        ))
