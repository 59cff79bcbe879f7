"""Functions of BrainScript on numbers, strings, arrays and functions, written in Python."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from .values import Applied, Array, Builtin, Fields, Thunk, check_length, kind_of, parameters_of

NONE = Fields(None, "BS.Constants.None")
NOTHING = Array([])


def _typed(name: str, kinds: tuple[Any, ...], function: Callable[..., Any]) -> Builtin:
    """A function of values of these types."""

    def call(call: Applied) -> Any:
        if len(call.arguments) != len(kinds):
            raise call.error(f"'{name}' has {len(kinds)} arguments, {len(call.arguments)} are given")
        values = call.values()
        for value, kind in zip(values, kinds, strict=True):
            if not isinstance(value, kind):
                raise call.error(f"'{name}' does not apply to {kind_of(value)}")
        try:
            return function(*values)
        except (ValueError, TypeError, OverflowError, ZeroDivisionError) as error:
            raise call.error(f"'{name}': {error}") from error

    return Builtin(name, call)


def _length(call: Applied) -> float:
    (value,) = call.values() if len(call.arguments) == 1 else (None,)
    if isinstance(value, Array):
        return float(len(value.elements))
    if isinstance(value, str):
        return float(len(value))
    if isinstance(value, float):
        return 1.0
    raise call.error(f"'Length' has one argument, an array or a string, not {kind_of(value)}")


def _sequential(call: Applied) -> Builtin:
    """A function that applies functions one after another; what each gets is evaluated when it needs it."""
    if len(call.arguments) != 1:
        raise call.error("'Sequential' has one argument, an array of functions: Sequential (f : g : h)")
    functions = call.evaluator.elements(call.values()[0])

    def compose(inner: Applied) -> Any:
        if len(inner.arguments) != 1:
            raise inner.error(f"what 'Sequential' made has one argument, {len(inner.arguments)} are given")
        return _composed(inner, functions, inner.path)

    return Builtin("Sequential", compose, ("x",))


def _composed(call: Applied, functions: list[Any], path: str) -> Any:
    """The last function, applied to the composition of the others."""
    if not functions:
        return call.evaluator.force(call.arguments[0])
    *others, last = functions
    if others:
        argument = Thunk(lambda where: _composed(call, others, where), None, f"{path}.{parameters_of(last)[0]}")
    else:
        argument = call.arguments[0]
    return call.evaluator.apply(last, [argument], {}, path, call.place)


def _same(call: Applied) -> bool:
    left, right = call.values()
    return left is right or (isinstance(left, float | str | bool) and type(left) is type(right) and left == right)


def _fail(call: Applied) -> Any:
    raise call.error("; ".join(str(value) for value in call.values()))


def _format(value: Any, pattern: str) -> str:
    """A number in printf's format, or as BrainScript prints it."""
    if re.search(r"\d{4}", pattern):
        raise ValueError(f"the width in '{pattern}' has more than 3 digits")
    if isinstance(value, float):
        return pattern % value if pattern else _number(value)
    return str(value)


def _replaced(text: str, old: str, new: str) -> str:
    """The text with one part in the place of another."""
    check_length(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _image_shape(width: float, height: float, channels: float, layout: str) -> Array:
    dimensions = (channels, width, height) if layout.lower() in ("hwc", "legacy") else (width, height, channels)
    return Array([Thunk(None, None, "", dimension) for dimension in dimensions])


def _repeat(call: Applied) -> Array:
    """``Repeat (n, x)``: an array of n times the same value."""
    count, value = call.values()
    if not isinstance(count, float) or not 0 <= count <= 100_000:
        raise call.error("'Repeat' needs a number of elements from 0 to 100,000, and a value")
    return Array([Thunk(None, None, "", value)] * int(count))


_NUMBER = (float,)
_PAIR = (float, float)
_FUNCTIONS = [
    Builtin("Length", _length), Builtin("Sequential", _sequential, ("arrayOfFunctions",)), Builtin("Fail", _fail),
    Builtin("IsSameObject", _same), Builtin("Repeat", _repeat),
    _typed("Format", ((float, str, bool), str), _format),
    _typed("Replace", (str, str, str), _replaced),
    _typed("Substr", (str, float, float), lambda text, begin, count: text[int(begin) :][: int(count)]),
    _typed("Chr", _NUMBER, lambda code: chr(int(code))),
    _typed("Mod", _PAIR, math.fmod), _typed("IntDiv", _PAIR, lambda x, y: float(x // y)),
    _typed("Fac", _NUMBER, lambda n: float(math.factorial(int(n) if n <= 170 else 171)) if n >= 0 else math.nan),
    _typed("Sign", _NUMBER, lambda x: float((x > 0) - (x < 0))),
]
_BUILT_IN = [
    Builtin("IsNumber", lambda call: isinstance(call.values()[0], float)),
    Builtin("IsFlag", lambda call: isinstance(call.values()[0], bool)),
    _typed("Ceil", _NUMBER, lambda x: float(math.ceil(x))),
    _typed("Floor", _NUMBER, lambda x: float(math.floor(x))),
    _typed("Round", _NUMBER, lambda x: float(math.floor(x + 0.5))),
    _typed("Min", _PAIR, min), _typed("Max", _PAIR, max),
    _typed("ImageShape", (float, float, float, str), _image_shape),
]


def built_in(root: Fields, further: list[Builtin]) -> None:
    """Add these functions to the outermost scope; `further` to the record ``BuiltIn``."""
    hidden = Fields(root, "BuiltIn")
    hidden.members = {each.name: Thunk(None, None, "", each) for each in (*_BUILT_IN, *further)}
    hidden.members |= {"None": Thunk(None, None, "", NONE), "Nothing": Thunk(None, None, "", NOTHING)}
    root.members |= {each.name: Thunk(None, None, "", each) for each in _FUNCTIONS}
    root.members["BuiltIn"] = Thunk(None, None, "", hidden)


__all__ = ["NONE", "built_in"]
