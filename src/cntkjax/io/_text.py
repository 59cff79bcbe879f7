"""The text of a part of a file, read piece by piece: what is parsed needs no memory as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ._files import open_binary

_LINE = 2**16  # bytes that are searched at once


class TextRows(Protocol):
    """Rows of text. ``bytes`` is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, piece: slice, /) -> bytes: ...

    def find(self, part: bytes, begin: int, /) -> int:
        """Where the part is next, or -1."""


@dataclass(frozen=True)
class FileText:
    """The bytes from ``begin`` to ``end`` of a file. The last row may lack a newline; it is added.

    Errors: OSError.
    """

    path: str
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def __getitem__(self, piece: slice) -> bytes:
        """Read a piece, which has to begin within the text."""
        with open_binary(self.path) as file:
            file.seek(self.begin + piece.start)
            text = file.read(piece.stop - piece.start)
        return text if piece.stop < len(self) or text.endswith(b"\n") else text + b"\n"

    def find(self, part: bytes, begin: int) -> int:
        """Where a part of one byte is next, or -1."""
        for start in range(begin, len(self), _LINE):
            place = self[start : min(start + _LINE, len(self))].find(part)
            if place >= 0:
                return start + place
        return -1
