"""The protocol-buffer wire format, as far as CNTK's files use it: tagged varints, fixed words and byte ranges.

Reading never copies: a :class:`Wire` is a range of the file's bytes, and each of its fields is a number or a smaller
range. Writing makes bytes of small messages and lists of buffers of large ones, so large arrays are not copied.

Source: https://protobuf.dev/programming-guides/encoding (wire types, varints, zigzag, packed fields).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ..graph.errors import explain

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WORD = {FIXED64: 8, FIXED32: 4}
_OCTETS = [bytes((value,)) for value in range(128)]  # of numbers that one takes

_JOINED = 4096  # bytes: smaller messages become one buffer, as an operation would have a hundred

Buffer = bytes | memoryview
Buffers = list[Buffer]


DAMAGED = "the file is damaged or of another kind: copy, download or save it again"


class FormatError(ValueError, RuntimeError):
    """A file that is damaged, or not of the expected kind. CNTK raises both base types for such files.

    The message has the file, the position and the reason; ``fix`` says what the user can do about it.
    """

    def __init__(self, message: str, fix: str = DAMAGED) -> None:
        super().__init__(explain(message, fix=fix))


class Wire:
    """One message, or one run of packed values: the bytes ``start`` to ``end`` of the file ``name``.

    ``trailing``: if arrays follow the message, a list with the position of the next one; shared by all of its fields.
    """

    __slots__ = ("data", "end", "name", "start", "trailing")

    def __init__(self, data: memoryview, start: int, end: int, name: str, trailing: list[int] | None = None) -> None:
        self.data, self.start, self.end, self.name, self.trailing = data, start, end, name, trailing

    def fail(self, reason: str, at: int | None = None, fix: str = DAMAGED) -> NoReturn:
        """Errors: always a FormatError, with the file and the position."""
        raise FormatError(f"{self.name}, byte {self.start if at is None else at}: {reason}", fix)

    def bytes(self) -> memoryview:
        """All bytes of the range, as a view."""
        return self.data[self.start : self.end]

    def fields(self, kinds: Mapping[int, int] | None = None) -> Iterator[tuple[int, int, Any]]:
        """Field number, wire type and value of each field: a number for a varint, otherwise the range of its bytes.

        `kinds`: the numbers of the known fields and their wire types; others are skipped, as protocol buffers require.
        Errors: FormatError for an unknown or another wire type, and for a field longer than the message.
        """
        data, at, end = self.data, self.start, self.end
        while at < end:
            head, begin = data[at], at + 1
            if head > 127:
                head, begin = self._varint(at)
            number, kind = head >> 3, head & 7
            if number == 0:
                self.fail("a field has number 0", at)
            size = _WORD.get(kind)
            if size is None:
                if kind != VARINT and kind != BYTES:
                    self.fail(f"field {number} has the unknown wire type {kind}", at)
                if begin < end and data[begin] < 128:  # as most are, and a file of many operations is nothing else
                    size, begin = data[begin], begin + 1
                else:
                    size, begin = self._varint(begin)
            value: int | Wire = size
            if kind != VARINT:
                if size > end - begin:
                    self.fail(f"field {number} says it has {size} bytes, but only {end - begin} are left", at)
                value = Wire(data, begin, begin + size, self.name, self.trailing)
                begin += size
            at = begin
            if kinds is not None:
                if number not in kinds:
                    continue
                if kind != kinds[number]:
                    self.fail(f"field {number} has wire type {kind} instead of {kinds[number]}")
            yield number, kind, value

    def rest(self, at: int) -> Wire | None:
        """The range whose size a varint at this position says, if it is all that follows."""
        if at >= self.end or (size := self.data[at]) > 127:
            size, at = self._varint(at)
        else:
            at += 1
        return Wire(self.data, at, self.end, self.name, self.trailing) if at + size == self.end else None

    def trailing_bytes(self, size: int) -> memoryview:
        """The next ``size`` bytes after the message. Errors: FormatError if fewer are left."""
        assert self.trailing is not None
        begin = self.trailing[0]
        if size > len(self.data) - begin:
            self.fail(f"{size} bytes of values should follow the message, but only {len(self.data) - begin} are left")
        self.trailing[0] = begin + size
        return self.data[begin : begin + size]

    def text(self) -> str:
        """The range as text. Errors: FormatError if it is not UTF-8."""
        try:
            return str(self.bytes(), "utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"text is not UTF-8 ({error.reason})")

    def word(self) -> float:
        """The IEEE number of a fixed field of 32 or 64 bits."""
        return struct.unpack("<f" if self.end - self.start == 4 else "<d", self.bytes())[0]

    def varints(self) -> np.ndarray:
        """All values of a packed field. Shapes: uint64 [count]. Errors: FormatError if the last one is cut off."""
        octets = np.frombuffer(self.bytes(), np.uint8)
        if not octets.size:
            return np.empty(0, np.uint64)
        last = np.flatnonzero(octets < 128)
        first = np.concatenate([[0], last[:-1] + 1])
        if not last.size or last[-1] != octets.size - 1 or (lengths := last - first + 1).max() > 10:
            self.fail("a packed list of numbers is cut off")
        shifts = np.arange(octets.size) - np.repeat(first, lengths)
        return np.add.reduceat((octets & 127).astype(np.uint64) << (7 * shifts).astype(np.uint64), first)

    def _varint(self, at: int) -> tuple[int, int]:
        """The varint at a position and the position after it."""
        value = 0
        for shift in range(0, 70, 7):
            if at >= self.end:
                self.fail("the file is cut off within a number", at)
            octet = self.data[at]
            at += 1
            value |= (octet & 127) << shift
            if octet < 128:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
        self.fail("a number has more than ten bytes", at)


def signed(value: int) -> int:
    """The signed number whose 64-bit two's complement is ``value``.

    >>> signed(2**64 - 1), signed(5)
    (-1, 5)
    """
    return value - (1 << 64) if value >> 63 else value


class Pieces:
    """More bytes than are joined, as buffers that follow one another: large arrays are not copied."""

    __slots__ = ("buffers", "size")

    def __init__(self, buffers: Buffers, size: int) -> None:
        self.buffers, self.size = buffers, size

    def __len__(self) -> int:
        return self.size


Body = Buffer | Pieces  # of a message or of a field


def varint(value: int) -> bytes:
    """A number as a varint; a negative one by its 64-bit two's complement.

    >>> varint(300), varint(-1)
    (b'\\xac\\x02', b'\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x01')
    """
    if 0 <= value < 128:
        return _OCTETS[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, kind: int) -> bytes:
    """What a field begins with: its number and its wire type."""
    return varint(number << 3 | kind)


def field(begin: bytes, body: Body) -> Body:
    """A field of some length: its tag, and what precedes that in a message, then the size of its body, and the body."""
    size = len(body)
    begin += _OCTETS[size] if size < 128 else varint(size)
    if size < _JOINED:
        return begin + body  # type: ignore[operator]
    return Pieces([begin, *body.buffers] if isinstance(body, Pieces) else [begin, body], len(begin) + size)


def message(fields: Sequence[Body]) -> Body:
    """The fields of a message, one after the other.

    >>> message([field(tag(1, BYTES), b"text"), tag(2, VARINT) + varint(3)])
    b'\\n\\x04text\\x10\\x03'
    """
    size = sum(map(len, fields))
    if size < _JOINED:
        return b"".join(fields)  # type: ignore[arg-type]
    out: Buffers = []
    for body in fields:
        if isinstance(body, Pieces):
            out += body.buffers
        else:
            out.append(body)
    return Pieces(out, size)


def buffers_of(body: Body) -> Buffers:
    """The buffers of a body, to be written one after the other."""
    return body.buffers if isinstance(body, Pieces) else [body]
