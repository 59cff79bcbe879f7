"""Caffe's files: networks as text (prototxt), and their weights (caffemodel), both protocol buffers.

Source: https://protobuf.dev/reference/protobuf/textformat-spec for the text; names and numbers of fields are those of
Caffe's published schema. Layers of the first version (field ``layers``) are read as those of today (``layer``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from .....formats.wire import BYTES, FormatError, Wire, signed

_BETWEEN = re.compile(r"(?:\s|#[^\n]*)*")
_TOKEN = re.compile(r"""[{}<>:;,\[\]]|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[^\s#"'{}<>:;,\[\]]+""")
_ENDS = {"{": "}", "<": ">"}
_OLD_TYPES = {
    "INNER_PRODUCT": "InnerProduct", "RELU": "ReLU", "LRN": "LRN", "TANH": "TanH", "ABSVAL": "AbsVal",
    "SOFTMAX_LOSS": "SoftmaxWithLoss", "HDF5_DATA": "HDF5Data", "ARGMAX": "ArgMax", "BNLL": "BNLL",
}  # fmt: skip


class Message(dict[str, list[Any]]):
    """The fields of a message, each with all of its values."""

    def one(self, name: str, default: Any = None) -> Any:
        """The value of a field, the last one if there are several."""
        return self[name][-1] if name in self else default

    def many(self, name: str) -> list[Any]:
        """All values of a field."""
        return self.get(name, [])

    def part(self, name: str) -> Message:
        """A message in a field; an empty one if it is not there."""
        return self.one(name, Message())


def read_network(path: str | os.PathLike[str]) -> Message:
    """The network in a text file, with all of its layers in ``layer``. Errors: FormatError with the line, OSError."""
    with open(path, encoding="utf-8") as file:
        network = _parsed(os.fspath(path), file.read())
    old = network.pop("layers", [])
    for layer in old:
        kind = str(layer.one("type"))
        layer["type"] = [_OLD_TYPES.get(kind) or "".join(word.capitalize() for word in kind.split("_"))]
    network["layer"] = [*old, *network.many("layer")]
    return network


def _parsed(path: str, text: str) -> Message:
    def fail(reason: str) -> FormatError:
        return FormatError(f"{path}, line {text.count(chr(10), 0, begin) + 1}: {reason}")

    def next_place(at: int) -> int:
        between = _BETWEEN.match(text, at)
        return between.end() if between else at

    top = Message()
    waiting: list[tuple[Message, str]] = []  # messages that are open, and what ends them
    here, end, name, in_list = top, "", "", False
    begin = next_place(0)
    while match := _TOKEN.match(text, begin):
        token = match[0]
        if token in _ENDS:
            if not name:
                raise fail(f"{token!r} has no name before it")
            waiting.append((here, end))
            inner = Message()
            here.setdefault(name, []).append(inner)
            here, end, name = inner, _ENDS[token], ""
        elif token in "}>":
            if token != end or name:
                raise fail(f"{token!r} ends nothing" if token != end else f"{name!r} has no value")
            (here, end) = waiting.pop()
        elif token in ":;,[]":
            in_list = token == "[" or (in_list and token != "]")
            name = "" if token == "]" else name
        elif not name:
            name = token
        else:
            here.setdefault(name, []).append(_value(token))
            name = name if in_list else ""
        begin = next_place(match.end())
    if begin < len(text):
        raise fail(f"{text[begin : begin + 30]!r} is not understood")
    if waiting or name:
        raise FormatError(f"{path}: the text ends within {name or 'a message'!r}")
    return top


def _value(token: str) -> Any:
    if token[0] in "\"'":
        return re.sub(r"\\(.)", r"\1", token[1:-1])
    if token in ("true", "false"):
        return token == "true"
    for kind in (int, float):
        try:
            return kind(token)
        except ValueError:
            continue
    return token


def read_weights(path: str | os.PathLike[str]) -> dict[str, list[np.ndarray]]:
    """The arrays of each layer, by its name. Errors: FormatError with the byte, OSError."""
    with open(path, "rb") as file:
        data = memoryview(file.read())
    found = {}
    for number, kind, layer in Wire(data, 0, len(data), os.fspath(path)).fields():
        places = {100: (1, 7), 2: (4, 6)}.get(number)  # of a layer's name and of its arrays
        if places is None or kind != BYTES or not isinstance(layer, Wire):
            continue
        parts = [(n, part) for n, k, part in layer.fields() if k == BYTES and isinstance(part, Wire) and n in places]
        name = "".join(part.text() for n, part in parts if n == places[0])
        found[name] = [_array(part) for n, part in parts if n == places[1]]
    return found


def _array(blob: Wire) -> np.ndarray:
    parts: list[np.ndarray] = []
    shape: list[int] | None = None
    old = {}
    for number, _, value in blob.fields():
        if number in (5, 8) and isinstance(value, Wire):
            width = "<f4" if number == 5 else "<f8"
            if len(value.bytes()) % np.dtype(width).itemsize:
                value.fail("an array of numbers is cut off")
            parts.append(np.frombuffer(value.bytes(), width))
        elif number == 7 and isinstance(value, Wire):
            shape = list(_dimensions(value))
        elif number in (1, 2, 3, 4) and isinstance(value, int):
            old[number] = signed(value)
    values = np.concatenate([np.zeros(0, np.float32), *parts]).astype(np.float32)
    shape = [old.get(i, 1) for i in (1, 2, 3, 4)] if shape is None else shape
    if np.prod(shape, dtype=np.int64) != len(values) or min(shape, default=0) < 0:
        blob.fail(f"{len(values)} numbers are there for an array of the shape {tuple(shape)}")
    return values.reshape(shape)


def _dimensions(shape: Wire) -> Iterator[int]:
    for number, _, value in shape.fields():
        if number == 1:
            yield from [signed(value)] if isinstance(value, int) else (signed(int(n)) for n in value.varints())


__all__ = ["Message", "read_network", "read_weights"]
