"""Files and bytes: what a caller names to read from, and writing that is all or nothing."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ._wire import Buffer


def read(source: Any, what: str) -> tuple[bytes | memoryview, str]:
    """All bytes of a path, of bytes (or what has their buffer), or of an open binary file; and what to call them.

    Errors: ValueError, as CNTK has it, if there is no such file; RuntimeError if it cannot be read; TypeError for text.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return memoryview(source), f"<{len(source)} bytes>"
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "<file object>"))
        data = source.read()
        if not isinstance(data, bytes):
            raise TypeError(f"{name} is open as text; a {what} is binary: open it with mode 'rb'")
        return data, name
    path = Path(source)
    if not path.exists():
        raise ValueError(f"cannot load the {what} {str(path)!r}: there is no such file")
    try:
        return path.read_bytes(), str(path)
    except OSError as error:
        raise RuntimeError(f"cannot read the {what} {str(path)!r}: {error.strerror}") from error


def write(*files: tuple[str | os.PathLike[str], Iterable[Buffer]]) -> None:
    """Writes files whole or not at all: beside their places first, and all of them put there at the end.

    A file that somebody is reading, or that a crash interrupts, is never seen half-written. Folders that are missing
    are made. Where a path is no file but a device or a pipe, the bytes go there directly.
    """
    written: list[tuple[str, Path]] = []
    try:
        for path, buffers in files:
            target = Path(os.path.realpath(path))
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists() and not target.is_file():
                with target.open("wb") as out:
                    out.writelines(buffers)
                continue
            handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
            written.append((beside, target))
            with open(handle, "wb") as out:
                out.writelines(buffers)
                out.flush()
                os.fsync(out.fileno())
            os.chmod(beside, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        for beside, target in written:
            os.replace(beside, target)
    finally:
        for beside, _ in written:
            Path(beside).unlink(missing_ok=True)


def remove_leftovers(*paths: Path) -> None:
    """Removes what writers of these files that were killed left beside them; not for files with several writers."""
    for path in paths:
        for file in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            file.unlink(missing_ok=True)


def _umask() -> int:
    """The mask that new files are made with: the system only tells it when it is set."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
