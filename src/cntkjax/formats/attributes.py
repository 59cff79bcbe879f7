"""Shapes, axes, element types and attributes: conversion between a model file and the graph.

Static axis i of a file (it counts column-major dimensions from 0) is axis -i-1 of the graph; a file lists dynamic axes
with the batch axis last, the graph with the batch axis first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import DTypeLike
from ..graph.axis import ALL_AXES, ALL_STATIC, END_STATIC, UNKNOWN, Axis
from ..graph.build import BlockPrimitive
from ..primitives.base import Attribute, Primitive
from .dictionary import AxisRecord, FormatError, SizeT, StoredShape

DYNAMIC = 2**31 - 1  # the number of every dynamic axis
_SPECIAL = {DYNAMIC - 1: ALL_STATIC, DYNAMIC - 2: UNKNOWN, DYNAMIC - 3: END_STATIC, DYNAMIC - 4: ALL_AXES}
_NUMBERS = {axis: number for number, axis in _SPECIAL.items()}

DTYPES: dict[int, type | None] = {0: None, 1: np.float32, 2: np.float64, 4: np.float16, 5: np.int8, 6: np.int16}
_DTYPE_NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


def axis_of(record: AxisRecord) -> Axis:
    """The graph's axis for an axis in a file.

    >>> axis_of(AxisRecord(0, "staticAxisIdx=0", True)), axis_of(AxisRecord(DYNAMIC, "words", True))
    (Axis('staticAxisIdx=-1'), Axis('words'))
    """
    if record.number == DYNAMIC:
        return Axis(record.name, record.ordered)
    return _SPECIAL.get(record.number) or Axis(-record.number - 1)


def axis_record(axis: Axis) -> AxisRecord:
    """The inverse of :func:`axis_of`.

    >>> axis_record(Axis(-1))
    AxisRecord(number=0, name='staticAxisIdx=0', ordered=True)
    """
    if axis in _NUMBERS:
        return AxisRecord(_NUMBERS[axis], axis.name, False)
    if not axis.is_static_axis:
        return AxisRecord(DYNAMIC, axis.name, axis.is_ordered)
    number = -axis.static_axis_index() - 1
    return AxisRecord(number, f"staticAxisIdx={number}", True)


def dynamic_axes_of(records: Sequence[AxisRecord]) -> tuple[Axis, ...]:
    """The dynamic axes of a variable in the graph's order, the batch axis first."""
    return tuple(axis_of(record) for record in reversed(records))


def dynamic_axis_records(axes: Sequence[Axis]) -> list[AxisRecord]:
    """The inverse of :func:`dynamic_axes_of`: in the file's order, the batch axis last."""
    return [axis_record(axis) for axis in reversed(axes)]


def dtype_of(number: int, where: str) -> type | None:
    """The NumPy type for a number in a file; None for a type that is not inferred yet.

    Errors: FormatError for a number that is no element type.
    """
    if number not in DTYPES:
        raise FormatError(f"{where}: unknown element type {number}")
    return DTYPES[number]


def dtype_number(dtype: DTypeLike | None) -> SizeT:
    """The inverse of :func:`dtype_of`."""
    return SizeT(_DTYPE_NUMBERS[None if dtype is None else np.dtype(dtype).type])


_KINDS: dict[str, Any] = {
    "Bool": (bool, bool, bool),
    "Int": (int, int, int),
    "Size": (int, int, SizeT),
    "Float": (np.floating, float, np.float32),
    "Double": (float, float, float),
    "String": (str, str, str),
    "Shape": (StoredShape, tuple, StoredShape),
    "Axis": (AxisRecord, axis_of, axis_record),
    "DType": (int, None, lambda dtype: int(dtype_number(dtype))),
}  # kind -> type in the file, conversion into the graph, conversion back


def attributes_of(primitive: Primitive | BlockPrimitive, stored: dict[str, Any], where: str) -> dict[str, Any]:
    """The attributes of a node in the graph, from those in a file.

    Unknown attributes are kept unchanged; attributes that an older file lacks get their defaults.
    Errors: FormatError for a value of another type, or if a required attribute is missing.
    """
    known = declared(primitive)
    values = {
        name: _from_file(known[name], value, f"{where}, attribute {name}") if name in known else _undeclared(value)
        for name, value in stored.items()
    }
    if isinstance(primitive, BlockPrimitive) or not known:
        return values
    try:
        return values | primitive.complete({name: value for name, value in values.items() if name in known})
    except TypeError as error:
        raise FormatError(f"{where}: {error}") from error


def attribute_records(primitive: Primitive | BlockPrimitive, attributes: dict[str, Any]) -> dict[str, Any]:
    """The inverse of :func:`attributes_of`: the attributes as a file stores them."""
    known = declared(primitive)
    return {
        name: _to_file(known[name], value) if name in known else _undeclared_record(value)
        for name, value in attributes.items()
    }


def declared(primitive: Primitive | BlockPrimitive) -> dict[str, Attribute]:
    """The attributes that an operation has. Those of a block only record the arguments of the layer."""
    return getattr(primitive, "attributes", {})


def _from_file(attribute: Attribute, value: object, where: str) -> object:
    if not attribute.many:
        return _one_from_file(attribute.kind, value, where)
    if not isinstance(value, list):
        raise FormatError(f"{where} is {value!r}, not a list")
    return [_one_from_file(attribute.kind, item, where) for item in value]


def _one_from_file(kind: str, value: Any, where: str) -> object:
    stored, convert, _ = _KINDS[kind]
    if not isinstance(value, stored) or (stored is int and isinstance(value, bool)):
        raise FormatError(f"{where} is {value!r}, which is no {kind}")
    return dtype_of(value, where) if kind == "DType" else convert(value)


def _to_file(attribute: Attribute, value: Any) -> object:
    convert = _KINDS[attribute.kind][2]
    return [convert(item) for item in value] if attribute.many else convert(value)


def _undeclared(value: object) -> object:
    """A value of undeclared type, which keeps the type it has in the file, so that it is written back unchanged."""
    if isinstance(value, list):
        return [_undeclared(item) for item in value]
    return axis_of(value) if isinstance(value, AxisRecord) else value


def _undeclared_record(value: object) -> object:
    if isinstance(value, list):
        return [_undeclared_record(item) for item in value]
    return axis_record(value) if isinstance(value, Axis) else value
