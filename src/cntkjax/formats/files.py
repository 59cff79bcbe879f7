"""Reading from paths, bytes and open files, and writing files atomically."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeAlias

from ..graph.errors import explain
from .wire import Buffer


class Readable(Protocol):
    """A file that is open for reading."""

    def read(self) -> bytes | str:
        """All of its content."""


Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | Readable


def read(source: Source, what: str) -> tuple[bytes | memoryview, str]:
    """All bytes of a path, a bytes-like object or an open binary file, and a name for them in error messages.

    ``what`` is the kind of file, such as "model", also for error messages.
    Errors: ValueError, as in CNTK, if the file does not exist; RuntimeError if it cannot be read; TypeError for a file
    that is open as text.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return memoryview(source), f"<{len(source)} bytes>"
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "<file object>"))
        data = source.read()
        if not isinstance(data, bytes):
            raise TypeError(explain(f"{name} is open as text; a {what} is binary", fix="open it with mode 'rb'"))
        return data, name
    path = Path(source)
    if not path.exists():
        raise ValueError(explain(
            f"cannot load the {what} {str(path)!r}: there is no such file",
            fix=f"check the path; the working directory is {os.getcwd()!r}",
        ))
    try:
        return path.read_bytes(), str(path)
    except OSError as error:
        raise RuntimeError(explain(
            f"cannot read the {what} {str(path)!r}: {error.strerror}",
            fix="pass the path of a file that this user may read",
        )) from error


def write(*files: tuple[str | os.PathLike[str], Iterable[Buffer]]) -> None:
    """Write files atomically: under temporary names in the same folders first, then all of them renamed.

    Neither a reader nor a crash ever sees a half-written file. Missing folders are created. If a path is a device or a
    pipe, the bytes are written to it directly.
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
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
            written.append((temporary, target))
            with open(handle, "wb") as out:
                out.writelines(buffers)
                out.flush()
                os.fsync(out.fileno())
            os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        for temporary, target in written:
            os.replace(temporary, target)
    finally:
        for temporary, _ in written:
            Path(temporary).unlink(missing_ok=True)


def remove_leftovers(*paths: Path) -> None:
    """Remove the temporary files that killed writers of these files left; not for files with several writers."""
    for path in paths:
        for file in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            file.unlink(missing_ok=True)


def _umask() -> int:
    """The permission mask of new files, which the system only returns when it is set."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
