"""Scripts of CNTK's time: ``python -m cntkjax.legacy script.py``, or `prepare` in a notebook.

Many take from Python, NumPy, Pillow and pandas what these have removed since, as ``np.float`` or ``time.clock``.
"""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import importlib.util
import inspect
import os
import runpy
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np


class _ArgSpec(NamedTuple):
    """What `inspect.getargspec` returned up to Python 3.10."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def _getargspec(function: Callable[..., Any]) -> _ArgSpec:
    return _ArgSpec(*inspect.getfullargspec(function)[:4])


def _load_source(name: str, path: str) -> ModuleType:
    """`imp.load_source`, up to Python 3.11."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # both only depend on the ending of the path
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _random_integers(low: int, high: int | None = None, size: Any = None) -> Any:
    first, last = (1, low) if high is None else (low, high)
    return np.random.randint(first, last + 1, size)


def _as_matrix(frame: Any, columns: Any = None) -> np.ndarray:
    return (frame if columns is None else frame[columns]).values


def _asfarray(values: Any, dtype: Any = np.float64) -> np.ndarray:
    return np.asarray(values, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


_PYTHON: dict[ModuleType, dict[str, Any]] = {
    collections: {name: getattr(collections.abc, name) for name in collections.abc.__all__},  # up to 3.9
    inspect: {"getargspec": _getargspec, "ArgSpec": _ArgSpec},  # up to 3.10
    time: {"clock": time.process_time},  # up to 3.7
}
_NUMPY = {  # in NumPy 1
    "float": float, "int": int, "bool": bool, "object": object, "complex": complex, "str": str, "unicode": str,
    "long": int, "float_": np.float64, "complex_": np.complex128, "string_": np.bytes_, "unicode_": np.str_,
    "Inf": np.inf, "Infinity": np.inf, "infty": np.inf, "PINF": np.inf, "NINF": -np.inf, "NaN": np.nan, "NAN": np.nan,
    "product": np.prod, "cumproduct": np.cumprod, "alltrue": np.all, "sometrue": np.any, "round_": np.round,
    "row_stack": np.vstack, "rank": np.ndim, "mat": np.asmatrix, "trapz": np.trapezoid,
    "msort": functools.partial(np.sort, axis=0),
    "in1d": lambda values, of, **options: np.isin(np.ravel(values), of, **options),
    "asscalar": lambda array: array.item(),
    "asfarray": _asfarray,
}  # fmt: skip


def restore(module: ModuleType | type, names: dict[str, Any]) -> None:
    """Give a module or class the names that it does not have."""
    for name, value in names.items():
        if name not in vars(module):
            setattr(module, name, value)


def _restore_others() -> None:
    """What Pillow 10 and pandas 1 removed, if they are installed."""
    with contextlib.suppress(ImportError):
        from PIL import Image

        restore(Image, {"ANTIALIAS": Image.Resampling.LANCZOS})
    with contextlib.suppress(ImportError):
        import pandas

        for kind in (pandas.DataFrame, pandas.Series):
            restore(kind, {"as_matrix": _as_matrix})


def _with_ragged(create: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Create an array of objects from lists of several lengths, as sequences are, where NumPy 2 wants a dtype."""

    @functools.wraps(create)
    def as_before(values: Any, dtype: Any = None, **options: Any) -> np.ndarray:
        try:
            return create(values, dtype, **options)
        except ValueError as error:
            if dtype is not None or "inhomogeneous" not in str(error):
                raise
            return create(values, object, **options)

    return as_before


def _with_bytes(fromstring: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Read the bytes of numbers, too, not only their text."""

    @functools.wraps(fromstring)
    def as_before(text: Any, dtype: Any = float, count: int = -1, *, sep: str = "", **options: Any) -> np.ndarray:
        if sep:
            return fromstring(text, dtype, count, sep=sep, **options)
        return np.frombuffer(text.encode("latin1") if isinstance(text, str) else text, dtype, count).copy()

    return as_before


def _wrap(name: str, as_before: Callable[[Callable[..., np.ndarray]], Callable[..., np.ndarray]]) -> None:
    function = getattr(np, name)
    if not hasattr(function, "__wrapped__"):  # not prepared yet
        setattr(np, name, as_before(function))


def prepare() -> None:
    """Put back what scripts of CNTK's time take from Python, NumPy, Pillow and pandas, in this process.

    Nothing that is still there is changed, but that NumPy makes arrays of objects from sequences of several lengths,
    and shows numbers as before its version 2.
    """
    for module, names in _PYTHON.items():
        restore(module, names)
    restore(np, _NUMPY)
    restore(np.lib, {"pad": np.pad})
    restore(np.random, {"random_integers": _random_integers})
    for name in ("array", "asarray"):
        _wrap(name, _with_ragged)
    _wrap("fromstring", _with_bytes)
    if sys.version_info >= (3, 12):
        imp = ModuleType("imp")
        restore(imp, {"reload": importlib.reload, "load_source": _load_source})
        sys.modules.setdefault("imp", imp)
    _restore_others()
    np.set_printoptions(legacy="1.25")  # in lists too numbers are numbers, not np.float32(0.5)


def run(script: str, arguments: list[str]) -> None:
    """Run a script with arguments, as Python does."""
    sys.argv[:] = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


def main(arguments: list[str]) -> None:
    """Prepare, and run a script, which gets the other arguments."""
    if not arguments:
        raise SystemExit("usage: python -m cntkjax.legacy SCRIPT [ARGUMENT ...]")
    prepare()
    run(arguments[0], arguments[1:])


__all__ = ["main", "prepare", "restore", "run"]

if __name__ == "__main__":
    main(sys.argv[1:])
