"""The executables of one computation, each compiled for its own set of input shapes: when needed, or ahead of that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Any, TypeAlias

import jax
import numpy as np

from ..._typing import PyTree
from ..xla.background import background
from ..xla.cache import persistent
from ..xla.compiler import quick_options
from ..xla.fork_guard import check_not_forked
from ..xla.versions import c_function, double_precision
from ..xla.work import elements

Inputs: TypeAlias = tuple[PyTree, ...]

# What a program that was compiled quickly may compute, in elements of the results of its operations. On two cores of an
# Intel Xeon compiling it thoroughly pays from 1e8 elements (an LSTM of 128 cells) to 2e9 (a convolutional network).
_QUICK_ELEMENTS = 200_000_000
_OPTIONS = attrgetter("jax_default_matmul_precision", "jax_default_device", "jax_enable_x64")


@dataclass
class Executable:
    """A compiled computation.

    `run` is a function in C, so no bytecode runs between the computation and what keeps its outputs, except when it is
    called for the first time: then `has_run` is false. `seconds`: how long it took to compile. `runs_left`: how often
    one that was compiled quickly may run before compiling it thoroughly pays.
    """

    run: Callable[..., PyTree]
    seconds: float
    has_run: bool = False
    runs_left: float = inf


class Executables:
    """The executables of a jitted function, by signature: a key that decides on the shapes and types of all inputs.

    `is_double`: whether jax has to keep float64. `quick_start`: what is needed now is compiled quickly, and again with
    all optimizations when the runs of the first version have taken as much longer as that takes. This is decided by
    the size of the computation, never by a clock, so a script computes the same numbers each time. Threads may share
    an object.
    """

    def __init__(self, jitted: jax.stages.Wrapped, is_double: bool, quick_start: bool = False) -> None:
        self._jit = jitted
        self._is_double = is_double
        self._quick_start = quick_start
        self._executables: dict[Hashable, Executable] = {}
        self._pending: dict[Hashable, Future[Executable]] = {}  # in the background
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._executables)

    def __iter__(self) -> Iterator[Executable]:
        return iter(list(self._executables.values()))

    def ready(self, signature: Hashable) -> Executable | None:
        """The executable of a signature; None if there is none yet."""
        executable = self._executables.get((signature, lowering_options()))
        return None if executable is None or executable.runs_left <= 0 else executable

    def get(self, signature: Hashable, inputs: Inputs) -> Executable:
        """The executable of a signature, which is compiled now if need be.

        `inputs`: arrays, or their shapes (`jax.ShapeDtypeStruct`).
        """
        key = signature, lowering_options()
        with self._lock:
            pending = self._pending.get(key)
        # What fails in the background is tried again here, so that it fails where the user sees it.
        if pending is not None and not pending.cancel() and pending.exception() is None:
            self._add(key, pending.result())
        if self.ready(signature) is None:
            self._add(key, self._compile(inputs, quickly=self._quick_start and key not in self._executables))
        return self._executables[key]

    def compile_in_background(self, signature: Hashable, inputs: Inputs) -> None:
        """Begin to compile for a signature in another thread, unless that has been done or is under way."""
        options = lowering_options()
        key = signature, options
        with self._lock:
            if key in self._executables or key in self._pending:
                return
            with double_precision(self._is_double):
                shapes = abstract(inputs)

            def compile() -> Executable:
                if lowering_options() != options:
                    raise RuntimeError("options of jax that are set in one thread only")
                return self._compile(shapes)

            self._pending[key] = future = background.submit(compile)
        future.add_done_callback(lambda done: self._take(key, done))

    def _take(self, key: Hashable, future: Future[Executable]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._add(key, future.result())
        with self._lock:
            self._pending.pop(key, None)

    def _add(self, key: Hashable, executable: Executable) -> None:
        with self._lock:
            before = self._executables.get(key)
            if before is None or before.runs_left <= 0:
                self._executables[key] = executable

    def _compile(self, inputs: Inputs, quickly: bool = False) -> Executable:
        check_not_forked()
        begin = time.perf_counter()
        with double_precision(self._is_double):
            traced = self._jit.trace(*inputs)
            options = quick_options() if quickly else {}
            runs = _QUICK_ELEMENTS // max(1, elements(traced.jaxpr.jaxpr)) if options else 0
            lowered = traced.lower()
            with persistent():
                compiled = lowered.compile(options if runs else None)
        return Executable(c_function(compiled) or self._jit, time.perf_counter() - begin, runs_left=runs or inf)


def lowering_options() -> Hashable:
    """Options of jax that decide on what a function is compiled to, besides its inputs."""
    return _OPTIONS(jax.config)


def abstract(inputs: PyTree) -> PyTree:
    """The inputs with shapes and types in the place of arrays; in the scope of the precision that is to be used."""

    def describe(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            sharding = leaf.sharding if leaf.committed else None
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)
        if isinstance(leaf, np.ndarray | np.generic):
            return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
        return leaf

    return jax.tree.map(describe, inputs)


__all__ = ["Executable", "Executables", "Inputs", "abstract", "lowering_options"]
