"""Opening files of data."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from ..graph.errors import explain

_IRREGULAR = "it is a folder, a device or a pipe; only regular files are read"


def cannot_open(path: str | os.PathLike[str], error: OSError) -> RuntimeError:
    """The error for a data file that a reader needs."""
    reason = f"Input file '{path}' is not open: {error.strerror}"
    if os.fspath(path).startswith("~"):  # a shell has replaced it, but no system call does
        reason = explain(reason, fix="~ is not replaced in names: pass os.path.expanduser(path)")
    return RuntimeError(reason)


def open_binary(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading. Data files name other files, so a name may be anything.

    Errors: OSError, also for a device, a pipe or a folder, and for a name with a NUL character.
    """
    if "\0" in os.fspath(path):
        raise OSError(errno.EINVAL, "the name contains a NUL character", path)
    if os.path.exists(path) and not os.path.isfile(path):  # to open a device may change its state
        raise OSError(errno.EINVAL, _IRREGULAR, path)
    file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # replaced meanwhile
        file.close()
        raise OSError(errno.EINVAL, _IRREGULAR, path)
    return file


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a pipe without waiting for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
