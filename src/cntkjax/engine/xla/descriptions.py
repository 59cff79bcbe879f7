"""Descriptions of Python values that are the same in all processes: what keys of stored programs are made of.

A value whose description would not determine what it computes has none, such as a function that the user wrote: its
code may be another one tomorrow. Code of this package, jax and optax is described by its name and what it captured;
the versions of these packages are part of every key (`environment.py`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import types
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any

import jax
import numpy as np

_PACKAGES = frozenset({"builtins", "cntkjax", "functools", "jax", "math", "ml_dtypes", "numpy", "operator", "optax"})
_LITERALS = frozenset({type(None), bool, int, float, complex, str, bytes, type(...)})


class NoDescription(Exception):
    """A value has no description that is the same in all processes."""


def digest(*values: Any) -> str:
    """The SHA-256 digest of the values' descriptions, in hexadecimal. Errors: NoDescription."""
    return hashlib.sha256(describe(values).encode()).hexdigest()


def describe(value: Any) -> str:
    """A text that is equal, in any process, only for values that compute the same. Errors: NoDescription.

    >>> describe((1, np.float32, {"axis": [0, 1]}))
    "builtins.tuple(1, numpy.float32, dict(builtins.tuple('axis', list(0, 1))))"
    """
    return _describe(value, ())


def _describe(value: Any, enclosing: tuple[int, ...]) -> str:
    if type(value) in _LITERALS:
        return repr(value)
    if id(value) in enclosing:  # a function that refers to itself
        return f"<{enclosing[::-1].index(id(value))} levels up>"
    name = _name(value)
    if name is not None:
        return name
    label, parts = _parts(value)
    return f"{label}({', '.join([_describe(part, (*enclosing, id(value))) for part in parts])})"


def _name(value: Any) -> str | None:
    """The name of a class or function of a package; None if that does not determine it."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not _is_in_package(module):
        return None
    if isinstance(value, type) and "<locals>" not in name:  # a decorator may have replaced it in its module
        return f"{module}.{name}"
    target: Any = sys.modules.get(module)
    for part in name.split("."):
        target = getattr(target, part, None)
    return f"{module}.{name}" if target is value else None


def _parts(value: Any) -> tuple[str, Iterable[Any]]:
    """What a value consists of, and a name for its kind."""
    for kind, parts in _KINDS:
        if isinstance(value, kind):
            return type(value).__name__, parts(value)
    kind = type(value)
    fields = _fields(value) if _is_in_package(kind.__module__) else None
    if fields is None:
        raise NoDescription(f"{kind.__module__}.{kind.__qualname__}")
    return f"{kind.__module__}.{kind.__qualname__}", fields


def _fields(value: Any) -> Iterable[Any] | None:
    """All that an instance of a package's class consists of; None if that is not known."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    if isinstance(value, Enum):
        return [value.name]
    if isinstance(value, int | float | str):
        return [next(base for base in (int, float, str) if isinstance(value, base))(value)]
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    slots = getattr(type(value), "__slots__", ())
    return [getattr(value, name) for name in slots] if slots and not hasattr(value, "__dict__") else None


def _is_in_package(module: str) -> bool:
    return module.partition(".")[0] in _PACKAGES


def _of_array(value: Any) -> Iterable[Any]:
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise NoDescription("an array of objects")
    return array.shape, array.dtype.name, hashlib.sha256(array.tobytes()).hexdigest()


def _of_function(value: types.FunctionType) -> Iterable[Any]:
    if not _is_in_package(value.__module__ or ""):
        raise NoDescription(f"{value.__module__}.{value.__qualname__}")
    captured = [cell.cell_contents for cell in value.__closure__ or ()]
    return value.__module__, value.__qualname__, value.__code__, captured, value.__defaults__, value.__kwdefaults__


def _of_code(value: types.CodeType) -> Iterable[Any]:  # distinguishes lambdas of one name
    return value.co_code, value.co_consts, value.co_names, value.co_varnames, value.co_freevars


_KINDS: Iterable[tuple[Any, Callable[[Any], Iterable[Any]]]] = (
    (list, list),
    (dict | types.MappingProxyType, lambda value: sorted(value.items(), key=repr)),
    (set | frozenset, lambda value: sorted(value, key=repr)),
    (np.ndarray | np.generic | jax.Array, _of_array),
    (np.dtype, lambda value: [value.name]),
    (types.FunctionType, _of_function),
    (types.CodeType, _of_code),
    (types.MethodType, lambda value: [value.__func__, value.__self__]),
    (jax.Device, lambda value: [value.platform, value.device_kind, value.id]),
)

__all__ = ["NoDescription", "describe", "digest"]
