"""CNTK's Dictionary, the container format of its model files and checkpoints, as plain Python values and back.

A file is one Dictionary: names with typed values; dictionaries and lists may nest. The types of values, their numbers
in the file (``value_type``; the value itself is in field ``value_type + 2``), and their Python types:

    0 None          None
    1 Bool          bool
    2 Int           int                                signed, 64 bits
    3 SizeT         SizeT, an int                      unsigned, 64 bits
    4 Float         np.float32
    5 Double        float
    6 String        str
    7 NDShape       Shape, a tuple                     row-major, as in CNTK's Python (the file has the reverse order)
    8 Axis          AxisRecord(number, name, ordered)  the number as in the file
    9 Vector        list
    10 Dictionary   dict
    11 NDArrayView  np.ndarray                         row-major; float32, float64, float16, int8 or int16

Source: files written by CNTK 2.7 (tests/golden/models and tests/golden/checkpoints).

>>> decode(encode({"a": 1, "b": [SizeT(2), "x"], "s": StoredShape((3, 4))}))
{'a': 1, 'b': [2, 'x'], 's': Shape((3, 4))}
"""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import foreign
from .wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Body,
    Buffers,
    FormatError,
    Wire,
    buffers_of,
    field,
    message,
    signed,
    tag,
    varint,
)

__all__ = ["AxisRecord", "FormatError", "SizeT", "StoredShape", "buffers", "decode", "decode_value", "encode",
           "encode_value", "kind_of"]

LARGEST = 2**31 - 1  # bytes of a protocol-buffer message; in a larger file the arrays follow the message
MAGIC = b"ktnc"  # such a file begins with this and the size of the message
VERSION = 2  # of DictionaryValue and Dictionary, in field 1 of each
_VERSION_FIELD = tag(1, VARINT) + varint(VERSION)
MAX_DEPTH = 64  # levels of dictionaries and lists; CNTK's own files have fewer than ten


class SizeT(int):
    """An unsigned number, which the format distinguishes from a signed one."""


class StoredShape(tuple):  # with type arguments it could not be used in match statements
    """Dimensions of a tensor, row-major. -1 is an inferred dimension, -3 a free one; (-2,) is an unknown shape."""

    def __repr__(self) -> str:
        return f"Shape({super().__repr__()})"


class AxisRecord(NamedTuple):
    """An axis as in the file: a static one counts the dimensions of the column-major shape, from 0."""

    number: int
    name: str
    ordered: bool


def decode(data: bytes | memoryview, name: str = "<bytes>") -> dict[str, Any]:
    """The content of a file. Arrays are read-only views of ``data``.

    Errors: FormatError with ``name``, the position and the reason if the bytes are damaged. Sizes have been checked
    against the number of bytes, and array shapes against the number of values.
    """
    view = memoryview(data).cast("B")
    if not len(view):
        raise FormatError(f"{name} is empty")
    if kind := foreign.kind_of(view):
        raise FormatError(
            f"{name} is {kind}, and no model or checkpoint of CNTK",
            "give a .model file of CNTK 2, a .dnn file of CNTK 1 or, as ModelFormat.ONNX, an .onnx file",
        )
    if view[:4] != MAGIC:
        return _dictionary(Wire(view, 0, len(view), name), 0)
    size = int.from_bytes(view[4:8], "little")
    if len(view) < 8 + size:
        raise FormatError(f"{name}, byte 4: the message says it has {size} bytes, but only {len(view) - 8} are left")
    trailing = [8 + size]
    content = _dictionary(Wire(view, 8, 8 + size, name, trailing), 0)
    if trailing[0] != len(view):
        raise FormatError(f"{name}, byte {trailing[0]}: {len(view) - trailing[0]} bytes that belong to no array")
    return content


def encode(content: Mapping[str, Any]) -> bytes:
    """The bytes of a file. See :func:`buffers`."""
    return b"".join(buffers(content))


def buffers(content: Mapping[str, Any]) -> Buffers:
    """The bytes of a file, as buffers to be written one after another, so that large arrays are not copied.

    Errors: TypeError for a value that the format cannot hold, ValueError for an int beyond 64 bits or nesting (or a
    cycle) deeper than 64 levels; both say which entry.
    """
    whole = _Encoder().dictionary(content, None)
    if len(whole) <= LARGEST:
        return buffers_of(whole)
    values: Buffers = []
    split = _Encoder(values).dictionary(content, None)
    return [MAGIC, len(split).to_bytes(4, "little"), *buffers_of(split), *values] if values else buffers_of(whole)


def encode_value(value: object) -> bytes:
    """The bytes of a single value, as encoded in a Dictionary. Errors: those of :func:`buffers`.

    >>> len(encode_value(np.zeros((16, 4), np.int8)))
    82
    """
    return b"".join(buffers_of(_Encoder().value(value, _VALUE, 0)))


def kind_of(value: object) -> int:
    """The number of a value's type in the table above. Errors: TypeError for a value the format cannot hold."""
    return _type_of(value, _VALUE)


def decode_value(data: bytes | memoryview, name: str = "<bytes>") -> object:
    """The value that :func:`encode_value` encoded. Errors: those of :func:`decode`."""
    view = memoryview(data).cast("B")
    return _value(Wire(view, 0, len(view), name), 0)


# ---- reading ---------------------------------------------------------------------------------------------------------


def _dictionary(wire: Wire, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        wire.fail(f"dictionaries and lists are nested deeper than {MAX_DEPTH} levels")
    out: dict[str, Any] = {}
    for number, _, item in wire.fields(_DICTIONARY):
        if number == 1:
            _check_version(wire, item)
            continue
        octets = bytes(item.bytes()) if item.end - item.start <= _SHORT else None
        key, value = _READ_BEFORE.get(octets) or _entry(item, octets, depth)
        if key in out:
            item.fail(f"a dictionary has the key {key!r} twice")
        out[key] = value
    return out


# Short entries by their bytes, without those that can change: a model of many operations has the same ones in each.
_READ_BEFORE: dict[bytes | None, tuple[str, object]] = {}
_SHORT, _MANY = 64, 1000  # bytes, entries


def _entry(wire: Wire, octets: bytes | None, depth: int) -> tuple[str, object]:
    fields = {number: item for number, _, item in wire.fields(_ENTRY_FIELDS)}
    if fields.keys() != {1, 2}:
        wire.fail("an entry of a dictionary lacks its name or its value")
    entry = sys.intern(fields[1].text()), _value(fields[2], depth)
    if octets is not None and not isinstance(entry[1], (list, dict, np.ndarray)):
        if len(_READ_BEFORE) >= _MANY:
            _READ_BEFORE.clear()
        _READ_BEFORE[octets] = entry
    return entry


def _value(wire: Wire, depth: int) -> object:
    read = _BY_START.get(bytes(wire.data[wire.start : wire.start + 5]))  # fields in the order in which they are written
    if read is not None and (item := wire.rest(wire.start + 5)) is not None:
        return read(item, depth)
    fields = {number: item for number, _, item in wire.fields(_VALUE_FIELDS)}
    _check_version(wire, fields.pop(1, VERSION))
    kind = fields.pop(2, 0)
    if fields.keys() != ({kind + 2} if kind else set()):
        values = " and ".join(f"a value of type {number - 2}" for number in fields) or "nothing"
        wire.fail(f"an entry says its type is {kind}, but {values} follows")
    return _READ[kind + 2](fields[kind + 2], depth) if kind else None


def _vector(wire: Wire, depth: int) -> list[Any]:
    if depth > MAX_DEPTH:
        wire.fail(f"dictionaries and lists are nested deeper than {MAX_DEPTH} levels")
    return [_value(item, depth) for _, _, item in wire.fields(_ITEMS)]


def _shape(wire: Wire) -> StoredShape:
    dims = [wire.varints() for _, _, wire in wire.fields(_ITEMS)]
    flat = np.concatenate(dims).view(np.int64)[::-1].tolist() if dims else []
    if len(flat) > 32 or min(flat, default=0) < -3:
        wire.fail(f"a shape has {len(flat)} dimensions, the smallest {min(flat)}")
    return StoredShape(flat)


def _axis(wire: Wire) -> AxisRecord:
    axis, name, ordered = 0, "", False
    for number, _, item in wire.fields(_AXIS):
        if number == 1:
            axis = signed(item)
        elif number == 2:
            name = item.text()
        else:
            ordered = bool(item)
    return AxisRecord(axis, name, ordered)


# data type in the file -> NumPy's, the field that holds the values, and their encoding there (float16 as float32)
_ARRAYS = {
    1: ("<f4", 4, "<f4"),
    2: ("<f8", 5, "<f8"),
    4: ("<f2", 4, "<f4"),
    5: ("i1", 6, "i1"),
    6: ("<i2", 7, "zigzag"),
}
_ARRAY_FIELDS = {1: VARINT, 2: VARINT} | dict.fromkeys(range(3, 8), BYTES)
_DTYPES = {np.dtype(row[0]): kind for kind, row in _ARRAYS.items()}


def _array(wire: Wire) -> np.ndarray:
    fields = {number: item for number, _, item in wire.fields(_ARRAY_FIELDS)}
    kind = fields.get(1, 0)
    if kind not in _ARRAYS:
        wire.fail(f"an array has the unknown data type {kind}")
    if fields.get(2, 0):
        wire.fail("an array is stored as a sparse matrix, which CNTK 2.7 never writes")
    dtype, number, stored = _ARRAYS[kind]
    shape = _shape(fields[3]) if 3 in fields else StoredShape()
    count = math.prod(shape)
    if wire.trailing is not None and number not in fields and min(shape, default=0) >= 0:
        values = np.frombuffer(wire.trailing_bytes(count * np.dtype(dtype).itemsize), dtype)
        return values.reshape(shape)
    flat = _array_values(wire, fields.get(number), stored, dtype)
    if min(shape, default=0) < 0 or count != flat.size:
        wire.fail(f"an array of shape {tuple(shape)} has {flat.size} values")
    return flat.reshape(shape).astype(dtype, copy=False)


def _array_values(wire: Wire, values: Wire | None, stored: str, dtype: str) -> np.ndarray:
    """The values of an array's field, which may be split into several runs."""
    runs = [run for _, _, run in values.fields(_ITEMS)] if values is not None else []
    try:
        parts = [_zigzag(run.varints()) if stored == "zigzag" else np.frombuffer(run.bytes(), stored) for run in runs]
    except FormatError:
        raise
    except ValueError as error:
        wire.fail(f"the values of an array are cut off ({error})")
    return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.empty(0, dtype)])


def _zigzag(values: np.ndarray) -> np.ndarray:
    half = (values >> np.uint64(1)).view(np.int64)
    return (half ^ -(values & np.uint64(1)).view(np.int64)).astype(np.int16)


def _check_version(wire: Wire, version: int) -> None:
    if not 1 <= version <= VERSION:
        wire.fail(
            f"a dictionary has version {version}; this package reads versions up to {VERSION}",
            fix="save the file with CNTK 2.7",
        )


_DICTIONARY, _ENTRY_FIELDS, _ITEMS = {1: VARINT, 2: BYTES}, {1: BYTES, 2: BYTES}, {1: BYTES}
_AXIS = {1: VARINT, 2: BYTES, 3: VARINT}
_VALUE_FIELDS = {1: VARINT, 2: VARINT, 3: VARINT, 4: VARINT, 5: VARINT, 6: FIXED32, 7: FIXED64} | dict.fromkeys(
    range(8, 14), BYTES
)
_READ: dict[int, Callable[[Any, int], Any]] = {
    3: lambda item, _: bool(item),
    4: lambda item, _: signed(item),
    5: lambda item, _: SizeT(item),
    6: lambda item, _: np.float32(item.word()),
    7: lambda item, _: item.word(),
    8: lambda item, _: item.text(),
    9: lambda item, _: _shape(item),
    10: lambda item, _: _axis(item),
    11: lambda item, depth: _vector(item, depth + 1),
    12: lambda item, depth: _dictionary(item, depth + 1),
    13: lambda item, _: _array(item),
}
_STARTS = {0: _VERSION_FIELD} | {  # of a value of each type: its version, its type, and the tag of the field it is in
    number - 2: _VERSION_FIELD + tag(2, VARINT) + varint(number - 2) + tag(number, kind)
    for number, kind in _VALUE_FIELDS.items() if number > 2
}
_BY_START = {start: _READ[kind + 2] for kind, start in _STARTS.items() if kind > 5}  # of those that have a size


# ---- writing ---------------------------------------------------------------------------------------------------------

_ENTRY, _NAME, _ENTRY_VALUE, _ITEM = tag(2, BYTES), tag(1, BYTES), tag(2, BYTES), tag(1, BYTES)

# Where a value is, for messages: the path of what contains it, and its key or number there
_Path = tuple[Any, object] | None
_VALUE: _Path = (None, "the value")


class _Encoder:
    """Encodes values. `values`: a list of the values of arrays, if these follow the message in the file."""

    def __init__(self, values: Buffers | None = None) -> None:
        self.values = values

    def dictionary(self, content: Mapping[str, Any], path: _Path, depth: int = 0) -> Body:
        _check_depth(depth, path)
        fields: list[Body] = [_VERSION_FIELD]
        for key, value in content.items():
            if not isinstance(key, str):
                kind = type(key).__name__
                raise TypeError(f"{_text(path) or 'the dictionary'} has the key {key!r} of type {kind}, not str")
            entry = _frequent_entry(key, value) if type(value) in _OFTEN else None
            fields.append(entry or _put_entry(key, self.value(value, (path, key), depth)))
        return message(fields)

    def vector(self, items: Sequence[Any], path: _Path, depth: int) -> Body:
        _check_depth(depth, path)
        return message([field(_ITEM, self.value(item, (path, i), depth)) for i, item in enumerate(items)])

    def value(self, value: Any, path: _Path, depth: int) -> Body:
        kind = _TYPES.get(type(value)) or _type_of(value, path)
        start = _STARTS[kind]
        if kind in _SCALARS:
            return start + _SCALARS[kind](value, path)
        if kind == 9:
            return field(start, self.vector(value, path, depth + 1))
        if kind == 10:
            return field(start, self.dictionary(value, path, depth + 1))
        return field(start, self.array(value) if kind == 11 else _MESSAGES[kind](value))

    def array(self, array: np.ndarray) -> Body:
        kind = _DTYPES[array.dtype]
        dtype, number, stored = _ARRAYS[kind]
        start = [tag(1, VARINT) + varint(kind), field(tag(3, BYTES), _shape_message(array.shape))]
        if self.values is not None:
            self.values.append(_octets(array, dtype))
            return message(start)
        if stored == "zigzag":
            wide = array.astype(np.int64).ravel()
            values = memoryview(_varints(((wide << 1) ^ (wide >> 63)).view(np.uint64)))
        else:
            values = _octets(array, stored)
        return message([*start, field(tag(number, BYTES), field(tag(1, BYTES), values) if len(values) else b"")])


_TYPES: dict[type, int] = {
    bool: 1, int: 2, SizeT: 3, np.float32: 4, float: 5, str: 6, StoredShape: 7, AxisRecord: 8, list: 9, tuple: 9,
    dict: 10,
}


def _type_of(value: object, path: _Path) -> int:
    """The number of a value's type. Errors: TypeError for a value the format cannot hold."""
    if value is None:
        return 0
    for types, number in (
        ((bool, np.bool_), 1), (SizeT, 3), ((int, np.integer), 2), (np.float32, 4), ((float, np.floating), 5), (str, 6),
        (StoredShape, 7), (AxisRecord, 8), ((list, tuple), 9), (Mapping, 10),
    ):
        if isinstance(value, types):
            return number
    if isinstance(value, np.ndarray) and value.dtype in _DTYPES:
        return 11
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(
        f"{_text(path)} is of type {kind}, which CNTK's format cannot hold; it holds None, bool, int, float, str, "
        "lists, dictionaries with str keys, and arrays of float32, float64, float16, int8 or int16"
    )


def _put_entry(key: str, value: Body) -> Body:
    return field(_ENTRY, message((field(_NAME, key.encode()), field(_ENTRY_VALUE, value))))


_OFTEN = {bool, SizeT, str}  # types of values that a model of many operations has again and again


@functools.lru_cache(1024, typed=True)
def _frequent_entry(key: str, value: bool | SizeT | str) -> Body | None:
    try:
        return _put_entry(key, _Encoder().value(value, (None, key), 0))
    except ValueError:  # the error has to name the whole path, which is not known here
        return None


def _number(value: int, path: _Path, low: int, end: int) -> bytes:
    if not low <= value < end:
        raise ValueError(f"{_text(path)} is {value}, which does not fit into the 64 bits that CNTK's format has for it")
    return varint(value)


def _shape_message(shape: tuple[int, ...]) -> Body:
    return field(tag(1, BYTES), b"".join(map(varint, shape[::-1]))) if shape else b""


def _axis_message(axis: AxisRecord) -> Body:
    number = tag(1, VARINT) + varint(axis.number) if axis.number else b""
    ordered = tag(3, VARINT) + varint(1) if axis.ordered else b""
    return message((number, field(tag(2, BYTES), axis.name.encode()), ordered))


_SCALARS: dict[int, Callable[[Any, _Path], bytes]] = {
    0: lambda value, path: b"",
    1: lambda value, path: varint(int(value)),
    2: lambda value, path: _number(int(value), path, -(2**63), 2**63),
    3: lambda value, path: _number(value, path, 0, 2**64),
    4: lambda value, path: struct.pack("<f", value),
    5: lambda value, path: struct.pack("<d", value),
}
_MESSAGES: dict[int, Callable[[Any], Body]] = {6: str.encode, 7: _shape_message, 8: _axis_message}


def _text(path: _Path) -> str:
    """Where a value is, as in ``state.list[1]``."""
    steps: list[str] = []
    while path is not None:
        path, key = path
        steps.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return "".join(reversed(steps)).removeprefix(".")


def _octets(array: np.ndarray, dtype: str) -> memoryview:
    return np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data


def _varints(values: np.ndarray) -> bytes:
    """Packed varints of uint64 numbers."""
    shifts = np.arange(0, 70, 7, dtype=np.uint64)
    septets = values[:, None] >> shifts
    more = septets[:, 1:] != 0
    octets = (septets & np.uint64(127)).astype(np.uint8)
    octets[:, :-1] |= more.astype(np.uint8) << 7
    used = np.concatenate([np.ones((len(values), 1), bool), more], axis=1)
    return octets[used].tobytes()


def _check_depth(depth: int, path: _Path) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"{_text(path)[:60]}... is nested deeper than {MAX_DEPTH} levels; does it contain itself?")
