"""Layers composed of layers: one after the other, side by side, with shortcuts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from ..graph.arguments import public
from ..graph.errors import ShapeError, explain
from ..ops.functions import Function, identity
from ._arguments import Layer, Operand
from .blocks import _inject_name


@public
def Sequential(layers: Layer | Sequence[object], name: str = "") -> Function:
    """Layers applied one after the other; a tuple of layers is applied side by side, with an output for each.

    Shapes: the output of each layer is the input of the next.
    Errors: TypeError for an item that cannot be called, or an operation or layer function that was not called itself.

    >>> import cntkjax as C
    >>> model = Sequential([C.relu, (C.negate, C.square), C.splice])
    >>> x = C.input_variable(2)
    >>> model(x).eval({x: [[-1, 3]]})
    array([[-0., -3.,  0.,  9.]], dtype=float32)
    """
    if not isinstance(layers, list):
        return _inject_name(layers, name)
    composed: Any = identity
    for i, layer in enumerate(layers):
        if not callable(layer) and not isinstance(layer, (list, tuple)):
            raise TypeError(explain(
                f"Sequential{name and f' {name!r}'}: item {i} is not a layer, but {layer!r}",
                fix="pass functions, such as Dense(10) or cntk.relu; a list or tuple of them nests",
            ))
        composed = composed >> (Sequential(layer) if isinstance(layer, list) else layer)
    return _inject_name(composed, name)


@public
def For(what_range: Iterable[object], constructor: Callable[..., Layer], name: str = "") -> Function:
    """One layer for each item of a range, one after the other: ``constructor(item)``, or ``constructor()``.

    Shapes: as `Sequential`.
    Errors: TypeError for a constructor that is not a Python function, or a range that is a number.

    >>> import cntkjax as C
    >>> [p.shape for p in For(range(2), lambda i: C.layers.Dense(3 + i))(C.input_variable(2)).parameters]
    [(3, 4), (4,), (2, 3), (3,)]
    """
    if not isinstance(constructor, (FunctionType, MethodType, partial, type)):
        raise TypeError(explain(
            f"For: needs a Python function that makes a layer, not {constructor!r}",
            fix="put lambda in front, so that each item gets a layer of its own: For(range(3), lambda: Dense(10))",
        ))
    if isinstance(what_range, int):
        raise TypeError(explain(
            f"For: the range is the number {what_range}, which cannot be iterated", fix=f"pass range({what_range})"
        ))
    takes_item = bool(inspect.signature(constructor).parameters)
    return Sequential([constructor(item) if takes_item else constructor() for item in what_range], name)


def _sum(layer: str, left: Any, right: Any) -> Function:
    """The sum of the input and the output of an inner layer. Errors: ShapeError if the layer changes the shape."""
    try:
        return left + right
    except ShapeError as error:
        raise ShapeError(explain(
            f"{layer}: the shapes {left.shape} and {right.shape} of the input and the output of an inner layer cannot "
            "be added", {"left": left, "right": right}, fix="let the inner layers keep the shape of their input",
        )) from error


@public
def SequentialClique(functions: Sequence[Layer], name: str = "") -> Layer:
    """Layers one after the other; the input of each is the sum of x and the outputs of all layers before it.

    Shapes: x [*shape] -> the output of the last layer; all layers before it keep the shape.
    Errors: ValueError without layers; ShapeError for a layer that changes the shape, when it is applied.

    >>> import cntkjax as C
    >>> x = C.input_variable(1)
    >>> SequentialClique([lambda x: 2 * x, lambda x: 10 * x])(x).eval({x: [[1]]})    # 10 (1 + 2)
    array([[30.]], dtype=float32)
    """
    if not functions:
        raise ValueError(explain("SequentialClique: there are no layers", fix="pass at least one layer"))

    def clique(x: Operand) -> Function:
        *others, last = functions
        for f in others:
            x = _sum("SequentialClique", x, f(x))
        return _inject_name(last(x), name)

    return clique


@public
def ResNetBlock(f: Layer, name: str = "") -> Layer:
    """A layer with a shortcut: ``f(x) + x``.

    Shapes: x [*shape] -> [*shape], which f keeps.
    Errors: ShapeError for a layer that changes the shape, when it is applied.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> ResNetBlock(C.square)(x).eval({x: [[1, 3]]})
    array([[ 2., 12.]], dtype=float32)
    """

    def residual(x: Operand) -> Function:
        return _inject_name(_sum("ResNetBlock", f(x), x), name)

    return residual


__all__ = ["For", "FunctionType", "ResNetBlock", "Sequential", "SequentialClique", "identity"]
