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

from .....formats.dictionary import FormatError
from .....formats.wire import BYTES, Wire, signed

_BLANKS = re.compile(r"(?:\s|#[^\n]*)*")
_TOKEN = re.compile(r"""[{}<>:;,\[\]]|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[^\s#"'{}<>:;,\[\]]+""")
_ENDS = {"{": "}", "<": ">"}
_OLD_TYPES = {
    "INNER_PRODUCT": "InnerProduct", "RELU": "ReLU", "LRN": "LRN", "TANH": "TanH", "ABSVAL": "AbsVal",
    "SOFTMAX_LOSS": "SoftmaxWithLoss", "HDF5_DATA": "HDF5Data", "ARGMAX": "ArgMax", "BNLL": "BNLL",
}


class Message(dict[str, list[Any]]):
    """The fields of a message: each name with the list of its values."""

    def one(self, name: str, default: object = None) -> Any:
        """The value of a field, the last one if there are several."""
        return self[name][-1] if name in self else default

    def many(self, name: str) -> list[Any]:
        """All values of a field."""
        return self.get(name, [])

    def part(self, name: str) -> Message:
        """The message in a field; an empty one if the field is missing."""
        return self.one(name, Message())


def read_network(path: str | os.PathLike[str]) -> Message:
    """The network in a text file, with all of its layers in ``layer``. Errors: FormatError with the line, OSError."""
    with open(path, encoding="utf-8") as file:
        network = _parse(os.fspath(path), file.read())
    old = network.pop("layers", [])
    for layer in old:
        kind = str(layer.one("type"))
        layer["type"] = [_OLD_TYPES.get(kind) or "".join(word.capitalize() for word in kind.split("_"))]
    network["layer"] = [*old, *network.many("layer")]
    return network


def _parse(path: str, text: str) -> Message:
    parser = _Parser(path, text)
    position = _skip_blanks(text, 0)
    while match := _TOKEN.match(text, position):
        parser.position = position
        parser.add(match[0])
        position = _skip_blanks(text, match.end())
    parser.position = position
    if position < len(text):
        raise parser.error(f"{text[position : position + 30]!r} is not understood")
    if parser.enclosing or parser.name:
        raise FormatError(f"{path}: the text ends within {parser.name or 'a message'!r}")
    return parser.message


def _skip_blanks(text: str, position: int) -> int:
    """The position after blanks and comments."""
    blanks = _BLANKS.match(text, position)
    return blanks.end() if blanks else position


class _Parser:
    """The state of parsing: the message that is being read, and those around it, each with the token that ends it."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text, self.position = path, text, 0
        self.message, self.end = Message(), ""
        self.enclosing: list[tuple[Message, str]] = []
        self.name, self.in_list = "", False  # of the field whose value follows

    def error(self, reason: str) -> FormatError:
        """The exception to raise, with the file and the line."""
        return FormatError(f"{self.path}, line {self.text.count(chr(10), 0, self.position) + 1}: {reason}")

    def add(self, token: str) -> None:
        """Process one token. Errors: FormatError if it is out of place."""
        if token in _ENDS:
            if not self.name:
                raise self.error(f"{token!r} has no name before it")
            self.enclosing.append((self.message, self.end))
            inner = Message()
            self.message.setdefault(self.name, []).append(inner)
            self.message, self.end, self.name = inner, _ENDS[token], ""
        elif token in "}>":
            if token != self.end or self.name:
                raise self.error(f"{token!r} ends nothing" if token != self.end else f"{self.name!r} has no value")
            self.message, self.end = self.enclosing.pop()
        elif token in ":;,[]":
            self.in_list = token == "[" or (self.in_list and token != "]")
            self.name = "" if token == "]" else self.name
        elif not self.name:
            self.name = token
        else:
            self.message.setdefault(self.name, []).append(_value(token))
            self.name = self.name if self.in_list else ""


def _value(token: str) -> str | bool | int | float:
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
    weights = {}
    for number, kind, layer in Wire(data, 0, len(data), os.fspath(path)).fields():
        numbers = {100: (1, 7), 2: (4, 6)}.get(number)  # of a layer's name and of its arrays
        if numbers is None or kind != BYTES or not isinstance(layer, Wire):
            continue
        parts = [(n, part) for n, k, part in layer.fields() if k == BYTES and isinstance(part, Wire) and n in numbers]
        name = "".join(part.text() for n, part in parts if n == numbers[0])
        weights[name] = [_array(part) for n, part in parts if n == numbers[1]]
    return weights


def _array(blob: Wire) -> np.ndarray:
    parts: list[np.ndarray] = []
    shape: list[int] | None = None
    legacy_shape = {}
    for number, _, value in blob.fields():
        if number in (5, 8) and isinstance(value, Wire):
            width = "<f4" if number == 5 else "<f8"
            if len(value.bytes()) % np.dtype(width).itemsize:
                value.fail("an array of numbers is cut off")
            parts.append(np.frombuffer(value.bytes(), width))
        elif number == 7 and isinstance(value, Wire):
            shape = list(_dimensions(value))
        elif number in (1, 2, 3, 4) and isinstance(value, int):
            legacy_shape[number] = signed(value)
    values = np.concatenate([np.zeros(0, np.float32), *parts]).astype(np.float32)
    shape = [legacy_shape.get(i, 1) for i in (1, 2, 3, 4)] if shape is None else shape
    if np.prod(shape, dtype=np.int64) != len(values) or min(shape, default=0) < 0:
        blob.fail(f"{len(values)} numbers are there for an array of the shape {tuple(shape)}")
    return values.reshape(shape)


def _dimensions(shape: Wire) -> Iterator[int]:
    for number, _, value in shape.fields():
        if number == 1:
            yield from [signed(value)] if isinstance(value, int) else (signed(int(n)) for n in value.varints())


__all__ = ["Message", "read_network", "read_weights"]
