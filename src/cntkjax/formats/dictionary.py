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

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from . import foreign
from .wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Buffer,
    Buffers,
    FormatError,
    Wire,
    put_bytes,
    put_double,
    put_float,
    put_message,
    put_varint,
    signed,
)

__all__ = ["AxisRecord", "FormatError", "SizeT", "StoredShape", "buffers", "decode", "decode_value", "encode",
           "encode_value", "kind_of"]

LARGEST = 2**31 - 1  # bytes of a protocol-buffer message; in a larger file the arrays follow the message
MAGIC = b"ktnc"  # such a file begins with this and the size of the message
VERSION = 2  # of DictionaryValue and Dictionary, in field 1 of each
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
    out: Buffers = []
    if _put_dictionary(out, content, "") <= LARGEST:
        return out
    split = _Split()
    size = _put_dictionary(split, content, "")
    return [MAGIC, size.to_bytes(4, "little"), *split, *split.values] if split.values else out


def encode_value(value: object) -> bytes:
    """The bytes of a single value, as encoded in a Dictionary. Errors: those of :func:`buffers`.

    >>> len(encode_value(np.zeros((16, 4), np.int8)))
    82
    """
    out: Buffers = []
    _put_value(out, value, "the value", 0)
    return b"".join(out)


def kind_of(value: object) -> int:
    """The number of a value's type in the table above. Errors: TypeError for a value the format cannot hold."""
    return 0 if value is None else _writer(value, "the value", 0)[0]


def decode_value(data: bytes | memoryview, name: str = "<bytes>") -> object:
    """The value that :func:`encode_value` encoded. Errors: those of :func:`decode`."""
    view = memoryview(data).cast("B")
    return _value(Wire(view, 0, len(view), name), 0)


# ---- reading ---------------------------------------------------------------------------------------------------------


def _dictionary(wire: Wire, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        wire.fail(f"dictionaries and lists are nested deeper than {MAX_DEPTH} levels")
    out: dict[str, Any] = {}
    for number, item in _known_fields(wire, {1: VARINT, 2: BYTES}):
        if number == 1:
            _check_version(wire, item)
            continue
        entry = dict(_known_fields(item, {1: BYTES, 2: BYTES}))
        if entry.keys() != {1, 2}:
            item.fail("an entry of a dictionary lacks its name or its value")
        key = entry[1].text()
        if key in out:
            item.fail(f"a dictionary has the key {key!r} twice")
        out[key] = _value(entry[2], depth)
    return out


def _value(wire: Wire, depth: int) -> object:
    fields = dict(_known_fields(wire, _VALUE_FIELDS))
    _check_version(wire, fields.pop(1, VERSION))
    kind = fields.pop(2, 0)
    if fields.keys() != ({kind + 2} if kind else set()):
        values = " and ".join(f"a value of type {number - 2}" for number in fields) or "nothing"
        wire.fail(f"an entry says its type is {kind}, but {values} follows")
    return _READ[kind + 2](fields[kind + 2], depth) if kind else None


def _vector(wire: Wire, depth: int) -> list[Any]:
    if depth > MAX_DEPTH:
        wire.fail(f"dictionaries and lists are nested deeper than {MAX_DEPTH} levels")
    return [_value(item, depth) for _, item in _known_fields(wire, {1: BYTES})]


def _shape(wire: Wire) -> StoredShape:
    dims = [wire.varints() for _, wire in _known_fields(wire, {1: BYTES})]
    flat = np.concatenate(dims).view(np.int64)[::-1].tolist() if dims else []
    if len(flat) > 32 or min(flat, default=0) < -3:
        wire.fail(f"a shape has {len(flat)} dimensions, the smallest {min(flat)}")
    return StoredShape(flat)


def _axis(wire: Wire) -> AxisRecord:
    axis, name, ordered = 0, "", False
    for number, item in _known_fields(wire, {1: VARINT, 2: BYTES, 3: VARINT}):
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
_DTYPES = {np.dtype(row[0]): kind for kind, row in _ARRAYS.items()}


def _array(wire: Wire) -> np.ndarray:
    fields = dict(_known_fields(wire, {1: VARINT, 2: VARINT, 3: BYTES, 4: BYTES, 5: BYTES, 6: BYTES, 7: BYTES}))
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


def _array_values(wire: Wire, field: Wire | None, stored: str, dtype: str) -> np.ndarray:
    """The values of an array's field, which may be split into several runs."""
    runs = [run for _, run in _known_fields(field, {1: BYTES})] if field is not None else []
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


def _known_fields(wire: Wire, kinds: Mapping[int, int]) -> list[tuple[int, Any]]:
    """The known fields of a message; unknown ones are skipped, as protocol buffers require."""
    out = []
    for number, kind, item in wire.fields():
        if number in kinds:
            if kind != kinds[number]:
                wire.fail(f"field {number} has wire type {kind} instead of {kinds[number]}")
            out.append((number, item))
    return out


def _check_version(wire: Wire, version: int) -> None:
    if not 1 <= version <= VERSION:
        wire.fail(
            f"a dictionary has version {version}; this package reads versions up to {VERSION}",
            fix="save the file with CNTK 2.7",
        )


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


# ---- writing ---------------------------------------------------------------------------------------------------------


class _Split(list[Buffer]):
    """The buffers of a message and, separately, those of the values of its arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.values: Buffers = []


def _put_dictionary(out: Buffers, content: Mapping[str, Any], path: str, depth: int = 0) -> int:
    _check_depth(depth, path)
    size = put_varint(out, 1, VERSION)
    for key, value in content.items():
        if not isinstance(key, str):
            raise TypeError(f"{path or 'the dictionary'} has the key {key!r} of type {type(key).__name__}, not str")
        where = f"{path}.{key}" if path else key
        size += put_message(out, 2, partial(_put_entry, key=key, value=value, path=where, depth=depth))
    return size


def _put_entry(out: Buffers, key: str, value: object, path: str, depth: int) -> int:
    name = put_bytes(out, 1, key.encode())
    return name + put_message(out, 2, partial(_put_value, value=value, path=path, depth=depth))


def _put_vector(out: Buffers, items: list[Any] | tuple[Any, ...], path: str, depth: int) -> int:
    _check_depth(depth, path)
    size = 0
    for i, item in enumerate(items):
        size += put_message(out, 1, partial(_put_value, value=item, path=f"{path}[{i}]", depth=depth))
    return size


def _put_value(out: Buffers, value: object, path: str, depth: int) -> int:
    size = put_varint(out, 1, VERSION)
    if value is None:
        return size
    kind, put = _writer(value, path, depth)
    return size + put_varint(out, 2, kind) + put(out, kind + 2)


def _writer(  # noqa: C901 - one case for each type of the format
    value: object, path: str, depth: int
) -> tuple[int, Callable[[Buffers, int], int]]:
    """The number of a value's type, and a function that writes it into the field of a given number."""

    def message(body: Callable[..., int], *args: Any) -> Callable[[Buffers, int], int]:
        return lambda out, number: put_message(out, number, lambda out: body(out, value, *args))

    match value:
        case bool() | np.bool_():
            return 1, lambda out, number: put_varint(out, number, int(value))
        case SizeT():
            _check_range(value, 0, 2**64, path)
            return 3, lambda out, number: put_varint(out, number, value)
        case int() | np.integer():
            _check_range(int(value), -(2**63), 2**63, path)
            return 2, lambda out, number: put_varint(out, number, int(value))
        case np.floating() if value.dtype == np.float32:
            return 4, lambda out, number: put_float(out, number, float(value))
        case float() | np.floating():
            return 5, lambda out, number: put_double(out, number, float(value))
        case str():
            return 6, lambda out, number: put_bytes(out, number, value.encode())
        case StoredShape():
            return 7, message(_put_shape)
        case AxisRecord():
            return 8, message(_put_axis)
        case list() | tuple():
            return 9, message(_put_vector, path, depth + 1)
        case Mapping():
            return 10, message(_put_dictionary, path, depth + 1)
        case np.ndarray() if value.dtype in _DTYPES:
            return 11, message(_put_array)
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(
        f"{path} is of type {kind}, which CNTK's format cannot hold; it holds None, bool, int, float, str, "
        "lists, dictionaries with str keys, and arrays of float32, float64, float16, int8 or int16"
    )


def _put_shape(out: Buffers, shape: tuple[int, ...]) -> int:
    return put_bytes(out, 1, _varints(np.array(shape[::-1], np.int64).view(np.uint64))) if shape else 0


def _put_axis(out: Buffers, axis: AxisRecord) -> int:
    size = put_varint(out, 1, axis.number) if axis.number else 0
    size += put_bytes(out, 2, axis.name.encode())
    return size + (put_varint(out, 3, 1) if axis.ordered else 0)


def _put_array(out: Buffers, array: np.ndarray) -> int:
    kind = _DTYPES[array.dtype]
    dtype, number, stored = _ARRAYS[kind]
    size = put_varint(out, 1, kind) + put_message(out, 3, partial(_put_shape, shape=array.shape))
    if isinstance(out, _Split):
        out.values.append(_octets(array, dtype))
        return size
    if stored == "zigzag":
        wide = array.astype(np.int64).ravel()
        values = memoryview(_varints(((wide << 1) ^ (wide >> 63)).view(np.uint64)))
    else:
        values = _octets(array, stored)
    return size + put_message(out, number, lambda out: put_bytes(out, 1, values) if len(values) else 0)


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


def _check_range(value: int, low: int, end: int, path: str) -> None:
    if not low <= value < end:
        raise ValueError(f"{path} is {value}, which does not fit into the 64 bits that CNTK's format has for it")


def _check_depth(depth: int, path: str) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"{path[:60]}... is nested deeper than {MAX_DEPTH} levels; does it contain itself?")
