"""What an annotation accepts, decided at run time: the checks behind `arguments`."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from numbers import Real
from typing import Any

import numpy as np

from .._typing import Bounds, Fix, NaN
from .function import Node
from .variable import Edge

_PLAIN = (type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set)
_CONCRETE = (*_PLAIN, np.generic)
EXACT: set[type] = {os.PathLike}  # classes that nothing else behaves like; modules above add theirs
_UNSIGNED = 2**64  # CNTK's largest integers, such as the seeds that mean "choose one", have 64 bits


@dataclass(frozen=True)
class Annotation:
    """One annotation: what a value is called that fits it, and whether a value does.

    `exact`: nothing but the annotated types fits. Otherwise other objects may behave like them. `bounded`: a range.
    """

    words: str
    accepts: Callable[[Any], bool]
    exact: bool = False
    bounded: bool = False
    fix: str = ""

    def rejects(self, value: object) -> bool:
        """True for a value that cannot fit, whatever it behaves like: the check before a call."""
        return (self.exact or isinstance(value, _CONCRETE)) and not self.accepts(value)


@dataclass(frozen=True)
class ParameterTypes:
    """The parameters of a function: which can be positional, and what is known about each one's values."""

    positional: Sequence[str]
    annotations: Mapping[str, Annotation]


@functools.cache
def parameters_of(f: Callable[..., Any]) -> ParameterTypes:
    """The parameters of a function. Those that admit anything, or cannot be resolved, have no annotation here."""
    parameters = inspect.signature(f).parameters.values()
    annotations = {}
    for p in parameters:
        if p.annotation is not p.empty and p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD:
            try:
                annotation = _understood(p.annotation, f.__globals__)
            except (NameError, TypeError, AttributeError):  # of a name that only mypy sees
                continue
            if annotation:
                annotations[p.name] = _or_none(annotation) if p.default == "" and type(p.default) is str else annotation
    positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    if f.__code__.co_flags & inspect.CO_VARARGS:  # a wrapper that takes more operands than the function it wraps
        positional = positional[: f.__code__.co_argcount]
    return ParameterTypes(positional, annotations)


def _or_none(annotation: Annotation) -> Annotation:
    """The annotation of a text that may be left out: None means none, as in CNTK."""
    return replace(annotation, accepts=lambda v: v is None or annotation.accepts(v))


def _understood(hint: Any, names: Mapping[str, Any]) -> Annotation | None:
    """An annotation as a check; None if it admits anything."""
    if isinstance(hint, str):
        hint = eval(hint, dict(names))
    if isinstance(hint, typing.ForwardRef):
        hint = eval(hint.__forward_arg__, dict(names))
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _union(typing.get_args(hint), names)
    if hasattr(hint, "__value__"):  # an alias, as those of NumPy 2.5 are on Python 3.12
        return _union([hint], names)
    if origin is typing.Annotated:
        base, limit, *_ = typing.get_args(hint)
        return _narrowed(base, limit, names)
    if origin is typing.Literal:
        choices = typing.get_args(hint)
        return Annotation(
            " or ".join(map(repr, choices)), lambda v: any(type(v) is type(c) and v == c for c in choices), exact=True
        )
    return _simple(hint, origin, names)


def _union(members: Iterable[Any], names: Mapping[str, Any]) -> Annotation | None:
    members = list(members)
    arrays = [m for m in members if _is_of_numpy_typing(m)]
    if arrays and not any("SupportsArray" in str(m) or "ArrayLike" in str(m) for m in arrays):
        return None  # names and objects of element types, which NumPy reads
    if arrays:  # what can be an array; NumPy lists texts and complex numbers too
        arrays += [str, bytes, complex]
    understood = [_understood(m, names) for m in members if m not in arrays] + [_ARRAY] * bool(arrays)
    if None in understood:
        return None
    words = dict.fromkeys(a.words for a in understood if a and a.words)
    fix = next((a.fix for a in understood if a and a.fix), "")
    exact = all(a.exact for a in understood if a)
    bounded = any(a.bounded for a in understood if a)
    return Annotation(" or ".join(words), lambda v: any(a.accepts(v) for a in understood if a), exact, bounded, fix)


def _is_of_numpy_typing(hint: Any) -> bool:
    return "numpy" in (getattr(hint, "__module__", "") or "") and hint is not np.ndarray


def _narrowed(base: Any, limit: object, names: Mapping[str, Any]) -> Annotation | None:
    inner = _understood(base, names)
    if inner and isinstance(limit, NaN):
        return replace(inner, accepts=lambda v: inner.accepts(v) or (isinstance(v, float) and v != v))
    if inner and isinstance(limit, Bounds):
        words = f"{inner.words} {limit}"
        return replace(inner, words=words, accepts=lambda v: inner.accepts(v) and limit.contain(v), bounded=True)
    return replace(inner, fix=limit) if inner and isinstance(limit, Fix) else inner


def _simple(hint: Any, origin: Any, names: Mapping[str, Any]) -> Annotation | None:
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is None and inspect.isclass(hint):
        if issubclass(hint, Enum):
            return Annotation(" or ".join(map(str, hint)), lambda v: isinstance(v, hint), exact=True)
        if not getattr(hint, "_is_protocol", False):
            name = vars(hint).get("public_name", hint.__name__)
            words = "" if name == "default_override_or" else name
            return Annotation(words, lambda v: isinstance(v, hint), exact=hint in EXACT)
        return None
    if Callable in (origin, hint):
        return Annotation("a function", callable)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return Annotation("a dict", lambda v: isinstance(v, Mapping))
    if origin is tuple or (inspect.isclass(origin) and issubclass(origin, Iterable)):
        return _sequence(origin, [a for a in typing.get_args(hint) if a is not Ellipsis], names)
    return _simple(origin, None, names) if inspect.isclass(origin) else None


def _sequence(origin: Any, items: Sequence[Any], names: Mapping[str, Any]) -> Annotation:
    understood = [_understood(item, names) for item in items]
    item = understood[0] if len(set(map(str, items))) == 1 else None

    def accepts(value: Any) -> bool:
        if isinstance(value, (str, bytes, Mapping, Edge)) or not hasattr(value, "__iter__"):
            return False
        if isinstance(value, Node) and len(value.outputs) == 1:  # a tensor too, whose slices nobody means by a list
            return False
        return item is None or not isinstance(value, (list, tuple)) or not any(map(item.rejects, value))

    items_text = f" of {_plural(item.words)}" if item else ""
    return Annotation(f"a {'tuple' if origin is tuple else 'list'}{items_text}", accepts)


def _plural(words: str) -> str:
    return f"{words.removeprefix('a ')}s" if words in ("a whole number", "a number") else f"({words})"


def _is_whole(value: object) -> bool:
    """Whole numbers, also as a float: CNTK accepts 4.0."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if hasattr(value, "__index__") and not isinstance(value, np.ndarray):
        return abs(operator.index(value)) < _UNSIGNED
    return isinstance(value, (float, np.floating)) and float(value).is_integer()


def _is_number(value: object) -> bool:
    """Numbers other than NaN. An array of one element is one, too."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf":
        value = value.item()
    return isinstance(value, (Real, np.number)) and not math.isnan(value) and not _overflows(value)


def _overflows(value: Any) -> bool:
    return isinstance(value, int) and value.bit_length() > 1023


def _is_flag(value: object) -> bool:
    """Flags, also as whole numbers; None means False, as in CNTK."""
    return value is None or isinstance(value, (bool, np.bool_)) or _is_whole(value)


def _is_array(value: object) -> bool:
    """Numbers, also in nested lists."""
    if value is None or isinstance(value, (str, bytes, dict, set)):
        return False
    try:
        return np.asarray(value).dtype.kind in "biuf" if isinstance(value, (list, tuple, *_PLAIN)) else True
    except (ValueError, TypeError):
        return True  # ragged: what reads it says so


_ARRAY = Annotation("numbers", _is_array)
_SCALARS: dict[Any, Annotation | None] = {
    int: Annotation("a whole number", _is_whole, exact=True),
    float: Annotation("a number", _is_number, exact=True),
    bool: Annotation("True or False", _is_flag, exact=True),
    str: Annotation("a str", lambda v: isinstance(v, str), exact=True),
    type(None): Annotation("None", lambda v: v is None, exact=True),
    None: Annotation("None", lambda v: v is None, exact=True),
    Any: None,
    object: None,
}
