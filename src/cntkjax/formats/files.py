"""Reading from paths, bytes and open files, and writing files atomically."""

from __future__ import annotations

import errno
import glob
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from ..graph.errors import MissingFileError, UnwritableFileError, explain, working_directory
from .wire import Buffer

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Readable(Protocol):
    """A file that is open for reading."""

    def read(self) -> bytes | str:
        """All of its content."""


@dataclass(frozen=True)
class Content:
    """What a file contained when it was read."""

    data: bytes
    name: str

    def read(self) -> bytes:
        """All of it."""
        return self.data


Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | Readable


def read(source: Source, what: str) -> tuple[bytes | memoryview, str]:
    """All bytes of a path, a bytes-like object or an open binary file, and a name for them in error messages.

    ``what`` is the kind of file, such as "model", also for error messages.
    Errors: MissingFileError if the file does not exist; RuntimeError if it cannot be read; TypeError for a file
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
    if not os.fspath(source) or not path.exists():
        raise MissingFileError(explain(
            f"cannot load the {what} {os.fspath(source)!r}: there is no such file",
            fix=f"check the path; {working_directory()}",
        ))
    try:
        return path.read_bytes(), str(path)
    except OSError as error:
        raise RuntimeError(explain(
            f"cannot read the {what} {str(path)!r}: {error.strerror}",
            fix="pass the path of a file that this user may read",
        )) from error


File: TypeAlias = tuple[str | os.PathLike[str], Iterable[Buffer]]  # a path and the bytes to write


def write(*files: File) -> None:
    """Write files atomically: under temporary names in the same folders first, then all of them renamed.

    Neither a reader nor a crash ever sees a half-written file. Missing folders are created. If a path is a device or a
    pipe, the bytes are written to it directly.
    Errors: UnwritableFileError.
    """
    regular: list[File] = []
    for path, buffers in files:
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            with _naming(path), open(path, "wb") as out:
                out.writelines(buffers)
        else:
            regular.append((path, buffers))
    with staged(*regular) as temporaries:
        for temporary, (path, _) in zip(temporaries, regular, strict=True):
            os.replace(temporary, os.path.realpath(path))


@contextmanager
def staged(*files: File) -> Iterator[list[str]]:
    """A scope in which the files lie completely written under temporary names, to be renamed; others are removed.

    The temporary files are locked, so that `remove_leftovers` can distinguish them from those of killed processes.
    """
    temporaries: list[str] = []
    with ExitStack() as opened:
        try:
            for path, buffers in files:
                target = check_writable(path)
                with _naming(target):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    handle, temporary = _temporary(target)
                    out = opened.enter_context(open(handle, "wb"))
                    temporaries.append(temporary)
                    try:
                        out.writelines(buffers)
                        out.flush()
                        os.fsync(handle)
                    except OSError:
                        out.raw.close()  # closing the file itself would try again, and fail without the name
                        raise
                if fcntl is None:  # an open file cannot be renamed there
                    out.close()
                os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
            yield temporaries
        finally:
            for temporary in temporaries:
                Path(temporary).unlink(missing_ok=True)


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """A scope whose errors name the file: those of a full disk do not, others name a temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise UnwritableFileError(error.errno, error.strerror, os.fspath(path)) from error


def remove_leftovers(*paths: Path) -> None:
    """Remove the temporary files that killed writers of these files left."""
    for path in paths:
        for file in path.parent.glob(f".{glob.escape(path.name)}.{'?' * 8}.tmp"):
            with suppress(OSError), file.open("r+b") as opened:
                if _try_lock(opened.fileno()):
                    file.unlink()


def _temporary(target: Path) -> tuple[int, str]:
    """Descriptor and name of a new file beside a target, locked."""
    while True:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
        if _try_lock(handle) is not False and os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)  # another process took it for a leftover before it was locked


@contextmanager
def locked(folder: Path, timeout: float = 60, strict: bool = False) -> Iterator[None]:
    """A scope that one thread at a time of all processes enters, for each folder. It leaves no file behind.

    Where the file system has no such locks, it is entered anyway unless ``strict``.
    Errors: TimeoutError if others stay in it; OSError if ``strict`` and there are no locks.
    """
    if fcntl is None and not strict:  # a folder cannot be opened there
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + timeout
        while (is_locked := _try_lock(handle)) is False:
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process is saving here, and does not end", str(folder))
            time.sleep(0.005)
        if strict and not is_locked:
            raise OSError(errno.ENOLCK, "files cannot be locked here", str(folder))
        yield
    finally:
        if fcntl is not None:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)  # a process forked meanwhile has the folder open, too
        os.close(handle)


def _try_lock(handle: int) -> bool | None:
    """Lock an open file. False if it is locked already; None if the system, or the file system, has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def check_writable(path: str | os.PathLike[str]) -> Path:
    """The file to which a path leads, links followed.

    Errors: UnwritableFileError if it is empty, a folder or a device, or it or its folder may not be written to.
    """
    name = os.fspath(path)
    if not name:
        raise UnwritableFileError(errno.ENOENT, "the name of the file is empty; pass a path", name)
    target = Path(os.path.realpath(name))
    if target.is_dir() or name.endswith(os.sep):
        raise UnwritableFileError(errno.EISDIR, "this is a folder; pass the path of a file in it", name)
    if target.exists():
        if not target.is_file():
            raise UnwritableFileError(errno.EINVAL, "this is a device or a pipe; pass the path of a file", name)
        if not os.access(target, os.W_OK):
            raise UnwritableFileError(errno.EACCES, "this file is write-protected; pass another path", name)
    folder = next(parent for parent in target.parents if parent.exists())
    if not folder.is_dir():
        raise UnwritableFileError(errno.ENOTDIR, f"{str(folder)!r} is no folder; pass another path", name)
    if not os.access(folder, os.W_OK | os.X_OK):
        what = f"the folder {str(folder)!r} cannot be written to; pass another path"
        raise UnwritableFileError(errno.EACCES, what, name)
    return target


def _umask() -> int:
    """The permission mask of new files, which the system only returns when it is set."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
