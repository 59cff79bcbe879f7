"""Inputs, placeholders, parameters and constants."""

from __future__ import annotations

import numpy as np

from .._typing import ElementType, ShapeLike
from ..default_options import default_override_or, get_default_override
from ..device import Device
from ..graph.arguments import public_operation
from ..graph.axis import BATCH, UNKNOWN_AXES, AxesLike, Axis
from ..graph.shape import FREE, UNKNOWN_SHAPE, as_shape
from ..graph.variable import VariableKind, default_axes
from ..variables import Constant, Init, Parameter, Variable

__all__ = [
    "constant", "input", "input_variable", "output_variable", "parameter", "placeholder",
]


@public_operation
def input_variable(
    shape: ShapeLike,
    dtype: ElementType | default_override_or | None = default_override_or(np.float32),
    needs_gradient: bool = False,
    is_sparse: bool = False,
    dynamic_axes: AxesLike = [BATCH],  # noqa: B006 - CNTK's signature; never changed
    name: str = "",
) -> Variable:
    """An input: an argument of the graph that is fed with data.

    Shapes: ``shape`` is that of one sample, an int or a tuple; FreeDimension (-3) is a size that the data determine.
            Dynamic axes are not part of it: the batch axis by default, none with ``dynamic_axes=[]``.
    Errors: ValueError for a size that is neither positive nor FreeDimension.

    >>> input_variable((2, 3), name='x')
    Input('x', [#], [2 x 3])
    """
    dtype = get_default_override(input_variable, dtype=dtype)
    shape = as_shape(shape)
    if any(d == 0 or d < FREE for d in shape):
        raise ValueError(f"input_variable {name!r}: invalid shape {shape}: use positive sizes or FreeDimension (-3)")
    return Variable._new(
        VariableKind.Input, shape, np.float32 if dtype is None else dtype, default_axes(dynamic_axes), name=name,
        needs_gradient=needs_gradient, is_sparse=is_sparse,
    )


@public_operation
def input(
    shape: ShapeLike,
    dtype: ElementType | default_override_or | None = default_override_or(np.float32),
    needs_gradient: bool = False,
    is_sparse: bool = False,
    dynamic_axes: AxesLike = [BATCH],  # noqa: B006
    name: str = "",
) -> Variable:
    """The old name of `input_variable`.

    Shapes: see `input_variable`.

    >>> input(3, name='x')
    Input('x', [#], [3])
    """
    return input_variable(shape, dtype, needs_gradient, is_sparse, dynamic_axes, name)


@public_operation
def output_variable(
    shape: ShapeLike, dtype: ElementType | None, dynamic_axes: AxesLike, needs_gradient: bool = True, name: str = ""
) -> Variable:
    """An output of a user-defined function, to be returned by its ``infer_outputs``.

    Shapes: `shape` is that of one sample.
    Errors: those of `input_variable`.

    >>> import numpy as np
    >>> output_variable((2, 3), np.float32, []).shape
    (2, 3)
    """
    return Variable._new(
        VariableKind.Output, as_shape(shape), dtype, default_axes(dynamic_axes), name=name,
        needs_gradient=needs_gradient,
    )


@public_operation
def placeholder(shape: ShapeLike | str | None = None, dynamic_axes: AxesLike = None, name: str = "") -> Variable:
    """A stand-in for a variable that ``replace_placeholders`` supplies later; undeclared properties are then inferred.

    Shapes: unknown until it is replaced, unless `shape` is given.

    >>> placeholder(name='h')
    Placeholder('h', [???], [???])
    """
    if isinstance(shape, str):  # CNTK accepts a name as the first argument
        name, shape = shape, None
    axes = UNKNOWN_AXES if dynamic_axes is None else default_axes(dynamic_axes)
    return Variable._new(
        VariableKind.Placeholder, UNKNOWN_SHAPE if shape is None else as_shape(shape), None, axes, name=name
    )


@public_operation
def parameter(
    shape: ShapeLike | None = None, init: Init = None, dtype: ElementType | None = None, device: Device = None,
    name: str = "",
) -> Parameter:
    """A trainable value; `init` is an initializer, a number, or an array.

    Shapes: sizes of InferredDimension (-1) are inferred at first use. If `init` is an array, its shape is used.

    >>> parameter((2, 3), init=1, name='W')
    Parameter('W', [], [2 x 3])
    """
    return Parameter(shape, init, dtype, device, name)


@public_operation
def constant(
    value: Init = None, shape: ShapeLike | None = None, dtype: ElementType | None = None, device: Device = None,
    name: str = "",
) -> Constant:
    """A value that training does not change.

    Shapes: that of `value`, or `shape` if `value` is a number.

    >>> constant([[1, 2]]).value
    array([[1., 2.]], dtype=float32)
    """
    return Constant(value, shape, dtype, device, name)


def sequence_input(
    shape: ShapeLike, dtype: ElementType | default_override_or | None, needs_gradient: bool, is_sparse: bool,
    sequence_axis: Axis, name: str,
) -> Variable:
    """An input with the batch axis and the given sequence axis."""
    return input_variable(shape, dtype, needs_gradient, is_sparse, [BATCH, sequence_axis], name)
