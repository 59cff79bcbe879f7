"""User Python code called from compiled programs: its exceptions, and results whose sizes no program knows."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..._typing import AnyArray, Array, PyTree
from ...graph.errors import BatchSizeError

T = TypeVar("T")


class OutputResized(Exception):
    """A user function returned data of another size than the program was compiled for."""


CallbackResults: TypeAlias = defaultdict[object, list[Any]]
"""What each user function returned in a run, in the order of its calls."""


@dataclass(eq=False)  # by identity: results hold arrays, which do not compare to one bool
class _Run:
    """A run of a program that calls Python."""

    results: CallbackResults
    calls: Counter[object] = field(default_factory=Counter)
    error: BaseException | None = None


_RUNS: list[_Run] = []  # a stack, as a user function may run another program
_TURN = threading.RLock()  # held by the thread of the outermost run
_LOCAL = threading.local()  # `in_callback`: whether this thread is inside a callback of XLA's


def call_once(function: object, call: Callable[[], T]) -> T:
    """The result of `call`, or, in a repeated run, what this call of `function` returned the first time."""
    run = _RUNS[-1]
    results, index = run.results[function], run.calls[function]
    run.calls[function] += 1
    if index == len(results):
        results.append(call())
    return results[index]


def callback(call: Callable[..., PyTree], shapes: PyTree, *args: PyTree) -> PyTree:
    """The result of a Python function in a program that runs inside `raising_callback_errors`.

    XLA would pass on only the text of an exception. So after one, no other call is made, and the program continues with
    zeros.
    """

    def guarded(*args: PyTree) -> PyTree:
        run = _RUNS[-1]
        if run.error is None:
            before = getattr(_LOCAL, "in_callback", False)
            _LOCAL.in_callback = True
            try:
                return jax.tree.map(_words, call(*jax.tree.map(_from_words, args, types)))
            except BaseException as error:  # Ctrl-C and sys.exit() too
                run.error = error
            finally:
                _LOCAL.in_callback = before
        return jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), word_shapes)

    # XLA may call from a thread of its own, where jax would convert 64-bit numbers to 32 bits: they travel as words.
    types = jax.tree.map(lambda a: np.dtype(a.dtype), args)
    word_shapes = jax.tree.map(lambda s: jax.eval_shape(_words_of, s), shapes)
    results = jax.pure_callback(guarded, word_shapes, *jax.tree.map(_words_of, args))
    return jax.tree.map(
        lambda r, s: lax.bitcast_convert_type(r, s.dtype) if np.dtype(s.dtype).itemsize == 8 else r, results, shapes
    )


def _words_of(array: Array) -> Array:
    """The words of 64-bit numbers, in a program. Shapes: [...] -> [..., 2]."""
    return lax.bitcast_convert_type(array, jnp.uint32) if np.dtype(array.dtype).itemsize == 8 else array


def _words(array: AnyArray) -> AnyArray:
    """As `_words_of`, on the host."""
    array = np.asarray(array)
    return np.ascontiguousarray(array[..., None]).view(np.uint32) if array.dtype.itemsize == 8 else array


def _from_words(array: AnyArray, dtype: np.dtype) -> AnyArray:
    """The inverse of `_words`. Shapes: [..., 2] -> [...]."""
    return np.ascontiguousarray(array).view(dtype)[..., 0] if dtype.itemsize == 8 else array


@contextmanager
def raising_callback_errors(results: CallbackResults) -> Iterator[None]:
    """A context for running a program that calls Python and waiting for it: on leaving, its first exception is raised.

    `results`: empty, or what user functions returned before the run was repeated. Threads take turns, except one in
    which XLA calls a user function: its run is part of one that has its turn.
    """
    run = _Run(results)
    with nullcontext() if getattr(_LOCAL, "in_callback", False) else _TURN:
        _RUNS.append(run)
        try:
            yield
        finally:
            _RUNS.remove(run)
    if run.error is not None:
        raise run.error


def run_until_sizes_settle(run: Callable[[], PyTree], callback_results: CallbackResults | None = None) -> PyTree:
    """The outputs of a program, which runs again as long as user functions return data of new sizes.

    `callback_results`: what user functions returned in an earlier run on the same data. They are not called again for
    these; what they return in this run is added.
    Errors: those of user functions; a BatchSizeError has the results so far as `callback_results`.
    """
    results: CallbackResults = defaultdict(list) if callback_results is None else callback_results
    while True:
        try:
            with raising_callback_errors(results):
                return jax.block_until_ready(run())
        except OutputResized:
            continue
        except BatchSizeError as error:
            error.callback_results = results
            raise


__all__ = [
    "CallbackResults", "OutputResized", "call_once", "callback", "raising_callback_errors", "run_until_sizes_settle",
]
