"""Layers made of layers: one after the other, side by side, with shortcuts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from ..ops.functions import Function, identity
from .blocks import _inject_name

Layer = Callable[..., Any]  # a Function, or a Python function of variables


def Sequential(layers: Layer | Sequence[Any], name: str = "") -> Function:
    """Layers applied one after the other; a tuple of layers is applied side by side, and gives several outputs.

    Errors: TypeError for an item that cannot be called.

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
            raise TypeError(f"Sequential{name and f' {name!r}'}: item {i} is no layer, but {layer!r}")
        composed = composed >> (Sequential(layer) if isinstance(layer, list) else layer)
    return _inject_name(composed, name)


def For(what_range: Iterable[Any], constructor: Callable[..., Layer], name: str = "") -> Function:
    """One layer for each item of a range, one after the other: `constructor` makes them, of the item if it takes one.

    Errors: TypeError for a constructor that is no Python function.

    >>> import cntkjax as C
    >>> [p.shape for p in For(range(2), lambda i: C.layers.Dense(3 + i))(C.input_variable(2)).parameters]
    [(3, 4), (4,), (2, 3), (3,)]
    """
    if not isinstance(constructor, (FunctionType, MethodType, partial, type)):
        raise TypeError(f"For: needs a Python function that makes a layer, not {constructor!r}")
    takes_item = bool(inspect.signature(constructor).parameters)
    return Sequential([constructor(item) if takes_item else constructor() for item in what_range], name)


def SequentialClique(functions: Sequence[Layer], name: str = "") -> Layer:
    """Layers one after the other, each given the sum of the input and the outputs of all layers before it."""

    def clique(x: Any) -> Any:
        *others, last = functions
        for f in others:
            x = x + f(x)
        return _inject_name(last(x), name)

    return clique


def ResNetBlock(f: Layer, name: str = "") -> Layer:
    """A layer with a shortcut: ``f(x) + x``."""

    def residual(x: Any) -> Any:
        return _inject_name(f(x) + x, name)

    return residual
