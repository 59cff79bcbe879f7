"""Files that actions write: errors name them."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..configuration import ConfigError


def new_file(name: str) -> Path:
    """The path of a file that is written; its folder is made. Errors: ConfigError if it is a folder itself."""
    path = Path(name)
    if path.is_dir():
        raise ConfigError(f"'{name}' is a folder, and no file that can be written: give the name of one in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


class _NewFile(io.FileIO):
    """A file whose errors name it: a full disk may be that of one of many files."""

    def write(self, data: Any, /) -> int:
        """Write bytes; returns how many were."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.name
            raise


def new_binary(name: str) -> io.BufferedWriter:
    """A file that is written. Errors: as of `new_file`; OSError with the name of the file if it cannot be written."""
    return io.BufferedWriter(_NewFile(str(new_file(name)), "w"))


def new_text(name: str) -> io.TextIOWrapper:
    """The same, of a text in UTF-8."""
    return io.TextIOWrapper(new_binary(name), encoding="utf-8", newline="\n")


def write_lines(name: str, lines: Iterable[str]) -> None:
    """Write a text. Errors: as of `new_binary`."""
    with new_text(name) as file:
        file.writelines(f"{line}\n" for line in lines)


__all__ = ["new_binary", "new_file", "new_text", "write_lines"]
