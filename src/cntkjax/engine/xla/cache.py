"""Compiled programs of earlier processes: a folder of entries, each checked before it is used.

The folder is `CNTKJAX_CACHE_DIR` (an empty value turns the cache off), by default `~/.cache/cntkjax/xla`. Its entries
are machine code, so they and the folder have to belong to the user, and nobody else may write to them. Where the folder
cannot be used, everything is compiled in each process, after one warning.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..._cache_folder import directory
from ..._user_code import warn
from .versions import option

_MAGIC = b"cntkjax program 1\n"
_ENTRY = re.compile(r"[0-9a-f]{64}\.program|jit_.*-(cache|atime)")  # the latter by earlier versions of this package
_TEMPORARY_PREFIX = ".program-"
_ABANDONED_SECONDS = 3600  # a temporary file this old was left by a process that was killed
_DEFAULT_GIGABYTES = 2.0


class Usage(NamedTuple):
    """What a folder holds. Units: bytes."""

    entries: int
    size: int


class Store:
    """A folder of entries by key, a SHA-256 digest in hexadecimal. Processes may share it.

    Units: limit is in bytes; the entries that were not used for longest are removed first.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._is_writable = True
        self._size: int | None = None  # of the folder at least, as far as this process knows

    def read(self, key: str) -> bytes | None:
        """The content of an entry; None if there is none, or not as it was written."""
        path = self._path(key)
        try:
            with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
                is_trusted = _is_of_user(os.fstat(file.fileno()), stat.S_IWGRP | stat.S_IWOTH)
                data = file.read() if is_trusted else b""
        except OSError:
            return None
        content = _content(key, data)
        with suppress(OSError):
            if content is None:
                path.unlink()
            else:
                os.utime(path)  # it was used now
        return content

    def write(self, key: str, content: bytes) -> None:
        """Store an entry, whole or not at all."""
        data = _entry(key, content)
        if not self._is_writable or len(data) > self.limit:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=_TEMPORARY_PREFIX)
            try:
                with open(handle, "wb") as file:
                    file.write(data)
                os.replace(temporary, self._path(key))
            finally:
                Path(temporary).unlink(missing_ok=True)
            self._keep_limit(len(data))
        except OSError as error:
            self._is_writable = False
            _warn(f"{error.strerror or error} in {self.folder}")

    def usage(self) -> Usage:
        """The number of entries, and their size."""
        sizes = [info.st_size for _, info in self._entries()]
        return Usage(len(sizes), sum(sizes))

    def clear(self) -> Usage:
        """Remove all entries; returns how many these were."""
        entries = list(self._entries())
        for path, _ in entries:
            path.unlink(missing_ok=True)
        return Usage(len(entries), sum(info.st_size for _, info in entries))

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.program"

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        with suppress(FileNotFoundError), os.scandir(self.folder) as files:
            for file in files:
                with suppress(FileNotFoundError):  # another process has removed it
                    info = file.stat(follow_symlinks=False)
                    if not stat.S_ISREG(info.st_mode):
                        continue
                    if _ENTRY.fullmatch(file.name):
                        yield Path(file.path), info
                    elif file.name.startswith(_TEMPORARY_PREFIX) and time.time() - info.st_mtime > _ABANDONED_SECONDS:
                        os.unlink(file.path)

    def _keep_limit(self, added: int) -> None:
        if self._size is not None:
            self._size += added
            if self._size <= self.limit:
                return
        entries = sorted(self._entries(), key=lambda entry: entry[1].st_mtime)
        self._size = sum(info.st_size for _, info in entries)
        for path, info in entries:
            if self._size <= self.limit:
                break
            path.unlink(missing_ok=True)
            self._size -= info.st_size


def store() -> Store | None:
    """The store of compiled programs; None if there is none.

    A user who has set jax's own cache folder, and none for this package, gets all programs stored there, by jax.
    """
    folder = os.environ.get("CNTKJAX_CACHE_DIR")
    if folder == "" or (folder is None and option("jax_compilation_cache_dir")):
        return None
    return _store(folder, os.environ.get("CNTKJAX_CACHE_GB"))


@cache
def _store(folder: str | None, gigabytes: str | None) -> Store | None:
    try:
        path = Path(directory()).absolute()
        if path.exists() and not (path.is_dir() and _is_of_user(path.stat(), stat.S_IWOTH)):
            _warn(f"{path} is not a folder of this user, or everybody can write to it")
            return None
    except (OSError, RuntimeError) as error:  # RuntimeError: this user has no home
        _warn(str(error))
        return None
    return Store(path, int(1e9 * _gigabytes(gigabytes)))


def _gigabytes(text: str | None) -> float:
    with suppress(ValueError):
        if text is not None and 0 <= float(text) < math.inf:
            return float(text)
    if text is not None:
        warn(
            f"CNTKJAX_CACHE_GB={text!r} is no number of gigabytes; it is taken as {_DEFAULT_GIGABYTES}",
            RuntimeWarning,
        )
    return _DEFAULT_GIGABYTES


def _is_of_user(info: os.stat_result, forbidden: int) -> bool:
    """True for a file or folder that belongs to this user and has none of the forbidden permissions."""
    return not hasattr(os, "geteuid") or (info.st_uid == os.geteuid() and not info.st_mode & forbidden)


def _entry(key: str, content: bytes) -> bytes:
    body = bytes.fromhex(key) + content
    return _MAGIC + hashlib.sha256(body).digest() + body


def _content(key: str, data: bytes) -> bytes | None:
    """The content of the entry with this key; None if the data are damaged, or another entry."""
    head, body = data[: len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
    is_whole = head == _MAGIC + hashlib.sha256(body).digest() and body[:32] == bytes.fromhex(key)
    return body[32:] if is_whole else None


@cache
def _warn(reason: str) -> None:
    """Warn of a reason, once."""
    warn(
        f"compiled programs are not stored for later processes: {reason}. Fix: set CNTKJAX_CACHE_DIR to a private "
        "folder, or to '' for none",
        RuntimeWarning,
    )


__all__ = ["Store", "Usage", "store"]
