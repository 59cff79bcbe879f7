"""Shapes, axes, element types and attributes: as a model file has them, and as the graph does.

What a file calls static axis i (it counts column-major dimensions from 0) is axis -i-1 of the graph; dynamic axes
stand in a file with the batch axis last, in the graph with it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.axis import ALL_AXES, ALL_STATIC, END_STATIC, UNKNOWN, Axis
from .dictionary import AxisRecord, FormatError, Shape, SizeT

DYNAMIC = 2**31 - 1  # the number of every dynamic axis
_SPECIAL = {DYNAMIC - 1: ALL_STATIC, DYNAMIC - 2: UNKNOWN, DYNAMIC - 3: END_STATIC, DYNAMIC - 4: ALL_AXES}
_NUMBERS = {axis: number for number, axis in _SPECIAL.items()}

DTYPES: dict[int, Any] = {0: None, 1: np.float32, 2: np.float64, 4: np.float16, 5: np.int8, 6: np.int16}
_DTYPE_NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


def axis_of(record: AxisRecord) -> Axis:
    """
    >>> axis_of(AxisRecord(0, "staticAxisIdx=0", True)), axis_of(AxisRecord(DYNAMIC, "words", True))
    (Axis('staticAxisIdx=-1'), Axis('words'))
    """
    if record.number == DYNAMIC:
        return Axis(record.name, record.ordered)
    return _SPECIAL.get(record.number) or Axis(-record.number - 1)


def axis_record(axis: Axis) -> AxisRecord:
    """
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
    return tuple(axis_of(record) for record in reversed(records))


def dynamic_axis_records(axes: Sequence[Axis]) -> list[AxisRecord]:
    return [axis_record(axis) for axis in reversed(axes)]


def dtype_of(number: int, where: str) -> Any:
    """The NumPy type that a file has a number for; None for one that is not known yet."""
    if number not in DTYPES:
        raise FormatError(f"{where}: unknown element type {number}")
    return DTYPES[number]


def dtype_number(dtype: Any) -> SizeT:
    return SizeT(_DTYPE_NUMBERS[None if dtype is None else np.dtype(dtype).type])


_KINDS: dict[str, Any] = {
    "Bool": (bool, bool, bool),
    "Int": (int, int, int),
    "Size": (int, int, SizeT),
    "Float": (np.floating, float, np.float32),
    "Double": (float, float, float),
    "String": (str, str, str),
    "Shape": (Shape, tuple, Shape),
    "Axis": (AxisRecord, axis_of, axis_record),
    "DType": (int, None, lambda dtype: int(dtype_number(dtype))),
}  # kind -> type in the file, the way into the graph, the way back


def attributes_of(primitive: Any, stored: dict[str, Any], where: str) -> dict[str, Any]:
    """The attributes of a node as the graph has them.

    One that this version does not know is kept; one that an older file lacks gets its default.
    Errors: FormatError for a value of another type, or if one that the operation cannot do without is missing.
    """
    known = getattr(primitive, "attributes", {})  # a block's attributes say what was asked for, and compute nothing
    made = {
        name: _from_file(known[name], value, f"{where}, attribute {name}") if name in known else _kept(value)
        for name, value in stored.items()
    }
    if not known:
        return made
    try:
        return made | primitive.complete({name: value for name, value in made.items() if name in known})
    except TypeError as error:
        raise FormatError(f"{where}: {error}") from error


def attribute_records(primitive: Any, attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a node as a file has them."""
    known = getattr(primitive, "attributes", {})
    return {
        name: _to_file(known[name], value) if name in known else _kept_record(value)
        for name, value in attributes.items()
    }


def _from_file(attribute: Any, value: Any, where: str) -> Any:
    if not attribute.many:
        return _one_from_file(attribute.kind, value, where)
    if not isinstance(value, list):
        raise FormatError(f"{where} is {value!r}, not a list")
    return [_one_from_file(attribute.kind, item, where) for item in value]


def _one_from_file(kind: str, value: Any, where: str) -> Any:
    stored, convert, _ = _KINDS[kind]
    if not isinstance(value, stored) or (stored is int and isinstance(value, bool)):
        raise FormatError(f"{where} is {value!r}, which is no {kind}")
    return dtype_of(value, where) if kind == "DType" else convert(value)


def _to_file(attribute: Any, value: Any) -> Any:
    convert = _KINDS[attribute.kind][2]
    return [convert(item) for item in value] if attribute.many else convert(value)


def _kept(value: Any) -> Any:
    """A value whose type only the file tells: it keeps that type, so that it is written back the same."""
    if isinstance(value, list):
        return [_kept(item) for item in value]
    return axis_of(value) if isinstance(value, AxisRecord) else value


def _kept_record(value: Any) -> Any:
    if isinstance(value, list):
        return [_kept_record(item) for item in value]
    return axis_record(value) if isinstance(value, Axis) else value
