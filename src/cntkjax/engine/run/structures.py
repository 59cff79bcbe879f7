"""Structures of the outputs of programs in JSON, for programs that are stored: only classes of known packages."""

from __future__ import annotations

import dataclasses
import importlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, TypeAlias

import jax
import numpy as np

from .handover import Captured, captured

Structure: TypeAlias = "jax.tree_util.PyTreeDef"
_LEAF = object()
_PACKAGES = ("cntkjax.", "optax.")


def encoded(structure: Structure) -> Any:
    """What `decoded` makes the structure of. Errors: ValueError if a class of it is not known to this module."""
    return _encoded(structure.unflatten([_LEAF] * structure.num_leaves))


def decoded(value: Any) -> Structure:
    """The structure of which `encoded` returned this. Errors: any, if it did not."""
    return jax.tree.structure(_decoded(value))


def _encoded(value: Any) -> Any:
    kind = type(value)
    if value is _LEAF:
        return "leaf"
    if value is None or kind is bool or kind is int or kind is float:
        return value
    if kind is str:
        return ["str", value]
    if kind is Captured:
        return ["captured", _encoded(value())]
    if kind is tuple or kind is list:
        return [kind.__name__, *map(_encoded, value)]
    if kind is dict or kind is OrderedDict:
        return [kind.__name__, *([_encoded(k), _encoded(v)] for k, v in value.items())]
    if isinstance(value, np.dtype):
        return ["dtype", value.name]
    if _is_record(kind):
        return ["record", kind.__module__, kind.__qualname__, *map(_encoded, _fields(value))]
    raise ValueError(f"{kind.__module__}.{kind.__qualname__}")


def _decoded(value: Any) -> Any:
    if not isinstance(value, list):
        return _LEAF if value == "leaf" else value
    kind, *parts = value
    if kind == "str":
        return parts[0]
    if kind == "dtype":
        return np.dtype(parts[0])
    if kind == "record":
        module, name, *fields = parts
        record = _class(module, name)
        return record(*map(_decoded, fields))
    if kind in _MAPPINGS:
        return _MAPPINGS[kind]((_decoded(k), _decoded(v)) for k, v in parts)
    return _CONTAINERS[kind](map(_decoded, parts))


_MAPPINGS: dict[str, Any] = {"dict": dict, "OrderedDict": OrderedDict}
_CONTAINERS: dict[str, Any] = {"tuple": tuple, "list": list, "captured": lambda trees: captured(next(trees))}


def _class(module: str, name: str) -> type:
    kind = getattr(importlib.import_module(module), name) if module.startswith(_PACKAGES) else object
    if not _is_record(kind):
        raise ValueError(f"{module}.{name}")
    return kind


def _is_record(kind: type) -> bool:
    is_record = dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    return is_record and kind.__module__.startswith(_PACKAGES)


def _fields(value: Any) -> Iterable[Any]:
    return value if isinstance(value, tuple) else [getattr(value, f.name) for f in dataclasses.fields(value)]


__all__ = ["decoded", "encoded"]
