"""Values in files that NumPy and Python of any toolkit can read: arrays as .npy, everything else pickled as .pkl.

Pickles may come from anybody, and unpickling runs what a pickle names. So only arrays, numbers, texts, containers and
the tuples of this package are read.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np

_ALLOWED = {
    **{(f"{package}.multiarray", name): name for package in ("numpy.core", "numpy._core") for name in
       ("_reconstruct", "scalar")},
    ("numpy.core.numeric", "_frombuffer"): "_frombuffer",
    ("numpy._core.numeric", "_frombuffer"): "_frombuffer",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("builtins", "bytearray"): "bytearray",
    ("collections", "OrderedDict"): "OrderedDict",
    ("_codecs", "encode"): "encode",  # bytes, in the protocols that Python 2 writes
}
_PACKAGES = "cntk.contrib.crosstalk", __package__


class _Pickler(pickle.Pickler):
    """Writes what CNTK's Python 3.6 and its NumPy read: NumPy 2 would name functions that NumPy 1 does not have."""

    def reducer_override(self, value: object) -> Any:
        """An array as its shape, type and bytes, which can be changed once they are loaded."""
        if type(value) is np.ndarray:
            return np.ndarray, (value.shape, value.dtype.str, bytearray(value.tobytes()))
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Loads data only. Errors: UnpicklingError for a pickle that names any other function or class."""

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle may name."""
        if module in _PACKAGES and name in ("Conv2DArgs", "RnnArgs"):
            return super().find_class(_PACKAGES[1], name)
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(
                f"the file wants to use {module}.{name}, but only arrays, numbers, texts and containers of them are "
                "read, since a pickle can run any code; convert it to such values where you trust it"
            )
        return super().find_class(module, name)


def save(path: str, value: object) -> None:
    """Write ``path`` + .npy for an array, otherwise .pkl."""
    if isinstance(value, np.ndarray):
        np.save(path + ".npy", value)
        return
    with open(path + ".pkl", "wb") as file:
        _Pickler(file, protocol=3).dump(value)


def load(path: str, name: str) -> Any:
    """Read ``path`` + .npy or .pkl.

    Errors: FileNotFoundError if there is neither; UnpicklingError for a pickle of anything but data; ValueError for
            arrays of Python objects.
    """
    if os.path.exists(path + ".npy"):
        return np.load(path + ".npy", allow_pickle=False)
    if not os.path.exists(path + ".pkl"):
        raise FileNotFoundError(f"file not found for name {name}: neither {path}.npy nor {path}.pkl; save it first")
    with open(path + ".pkl", "rb") as file:
        return _Unpickler(file).load()
