"""Keras 2 scripts on their CNTK backend: ``python -m cntkjax.keras2 script.py``, or `prepare` before Keras is imported.

Keras has a CNTK backend up to version 2.3.1 of 2019. What it takes from Python, NumPy and h5py has been removed since:
`cntkjax.legacy` puts back the names, and this module the behaviour of h5py.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import os
import sys
from typing import Any

import numpy as np

from . import legacy
from .graph.errors import explain

_VERSION = "2.3.1"  # the last with the backend


def _as_bytes(value: Any) -> Any:
    """Texts as h5py 2 reads them; Keras 2.2 asks whether there are any, which is an error for an empty array."""
    if isinstance(value, np.ndarray) and not value.size:
        return value.tolist()
    if isinstance(value, np.ndarray) and value.dtype == object:
        return np.array([_as_bytes(element) for element in value])
    return value.encode() if isinstance(value, str) else value


def _read_attributes_as_bytes() -> None:
    """Let h5py return texts of attributes as it did up to version 2: Keras decodes them."""
    try:
        from h5py import AttributeManager
    except ImportError:
        return  # Keras too works without it, but for its files
    read = getattr(AttributeManager.__getitem__, "__wrapped__", AttributeManager.__getitem__)  # prepared only once

    @functools.wraps(read)
    def as_before(self: Any, name: str) -> Any:
        return _as_bytes(read(self, name))

    AttributeManager.__getitem__ = as_before


def _use_files_as_before() -> None:
    """Let h5py open a file without a mode as it did up to version 2, so that it is created if it is not there."""
    try:
        from h5py import File
    except ImportError:
        return
    legacy.restore(File, {"fid": property(lambda file: file.id)})
    initialize = File.__init__
    if inspect.signature(initialize).parameters["mode"].default is None:  # prepared already
        return

    def as_before(self: Any, name: Any, mode: str | None = None, *arguments: Any, **options: Any) -> None:
        is_path = isinstance(name, str | bytes | os.PathLike)
        is_fixed = is_path and os.path.exists(name) and not os.access(name, os.W_OK)
        initialize(self, name, mode or ("r" if is_fixed else "a"), *arguments, **options)

    File.__init__ = as_before


def _check_version() -> None:
    try:
        version = importlib.metadata.version("keras")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    if not version or tuple(map(int, version.split(".")[:2])) > (2, 3):
        problem = f"Keras {version} has no CNTK backend" if version else "Keras is not installed"
        raise ImportError(explain(f"cntkjax.keras2: {problem}", fix=f"pip install keras=={_VERSION}"))


def prepare() -> None:
    """Choose the backend, and put back what Keras needs, in this process (`cntkjax.legacy.prepare` included).

    Errors: ImportError if the Keras that is installed has no CNTK backend.
    """
    _check_version()
    os.environ["KERAS_BACKEND"] = "cntk"
    legacy.prepare()
    _read_attributes_as_bytes()
    _use_files_as_before()


def main(arguments: list[str]) -> None:
    """Prepare, and run a script, which gets the other arguments."""
    if not arguments:
        raise SystemExit("usage: python -m cntkjax.keras2 SCRIPT [ARGUMENT ...]")
    prepare()
    legacy.run(arguments[0], arguments[1:])


__all__ = ["main", "prepare"]

if __name__ == "__main__":
    main(sys.argv[1:])
