"""The executables of one computation, by the shapes of its inputs: a table of what is ready and what is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from typing import Any

import jax
import numpy as np

from ..._best_effort import BestEffort
from ..._interrupts import deferred_interrupts
from ..._threads import check_running
from ..._typing import PyTree
from ..xla.background import compilations
from ..xla.devices import default_device
from ..xla.memory import fits, is_out_of_memory, out_of_memory
from ..xla.platform import matmul_precision
from ..xla.versions import double_precision
from .compiling import Compiler, Computation, Executable, Inputs
from .handover import Captures, captured, copied

_KEPT = 64  # executables of a function, of 3 MB each for a small network, where images of a free size have hundreds
_uses = count()

_COMPILING = BestEffort("compile in the background", "it is compiled when it is needed")
_REPLACING = BestEffort("begin to compile a program thoroughly", "that is done when it is needed")


class Executables:
    """The executables of a function, by signature: a key that decides on the shapes and types of all inputs.

    `jit_options`: of `jax.jit`; the first input may be donated. `is_double`: whether jax has to keep float64.
    `quick_start`: what is needed now is compiled quickly, and again with all optimizations when the runs of the first
    version have taken as much longer as that takes (see `quick_starts.py`). `communicates`: with other devices, while
    it computes. Threads may share an object. Of many, those that ran last are kept.
    """

    def __init__(
        self, function: Callable[..., PyTree], is_double: bool = False, quick_start: bool = False,
        computation: Computation = Computation(), communicates: bool = False, **jit_options: Any,
    ) -> None:
        self.compiler = Compiler(function, is_double, computation, communicates, jit_options)
        self._is_double, self._quick_start = is_double, quick_start
        self._executables: dict[Hashable, Executable] = {}
        self._pending: dict[Hashable, Future[Executable | None]] = {}  # in the background
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._executables)

    def __iter__(self) -> Iterator[Executable]:
        return iter(list(self._executables.values()))

    # ---- running
    def run(
        self, signature: Hashable, inputs: Inputs, outputs: Captures, copy: Callable[[PyTree], PyTree] = copied,
        step: int | None = None,
    ) -> None:
        """Append what the function returns, in one call into C once the executable has run before.

        `copy`: makes what is donated to the first run. `step`: the number of a training's step that starts quickly.
        """
        check_running()
        executable = self.ready(signature, step)
        if executable is None or not executable.has_run:
            self._run_first(signature, inputs, outputs, copy, step)
            return
        self._spend(executable, signature, inputs)
        try:
            # Were there bytecode between the program and the list, an exception could come there, and what is donated
            # would be lost.
            outputs.extend(map(executable.run, *((a,) for a in inputs)))
        except (TypeError, ValueError):  # from jax, before it runs: arrays of other types, or on another device
            with deferred_interrupts():
                outputs.append(self.compiler.jitted(copy(inputs[0]), *inputs[1:]))
        except jax.errors.JaxRuntimeError as error:
            self._explain(error, executable, inputs)
            raise

    def call(self, signature: Hashable, inputs: Inputs, step: int | None = None, **static: Hashable) -> PyTree:
        """What the function returns, if it donates nothing. What interrupts this thread may end its run.

        `step`: see `run`. `static`: arguments of the function that only say, to jax, which of its traces is meant.
        """
        executable = self.ready(signature, step)
        if executable is None:
            with deferred_interrupts():
                executable = self.get(signature, inputs, step)
        executable.allowance.spend()
        if executable.run is not self.compiler.jitted:
            with suppress(TypeError, ValueError):  # as above
                return executable.run(*inputs)
        return self.compiler.jitted(*inputs, **static)

    def _spend(self, executable: Executable, signature: Hashable, inputs: Inputs) -> None:
        """Count a run, and begin to compile a better version if it is time."""
        if executable.allowance.spend():
            _REPLACING.attempt(self.compile_in_background, signature, inputs)

    def _run_first(
        self, signature: Hashable, inputs: Inputs, outputs: Captures, copy: Callable[[PyTree], PyTree],
        step: int | None,
    ) -> None:
        with deferred_interrupts():
            executable = self.get(signature, inputs, step)
            if executable.has_begun and executable.again is not None:
                executable.run = executable.again()  # jax calls from Python for ever what was interrupted at first
            executable.has_begun = True
            # In its first run jax calls it from Python, so copies are donated. What is interrupted then leaves state as
            # it was, and so does a lack of memory, which shows when the program has run.
            try:
                outputs.append(_waited_for(executable.run(copy(inputs[0]), *inputs[1:])))
            except (TypeError, ValueError):
                outputs.append(self.compiler.jitted(copy(inputs[0]), *inputs[1:]))
            except jax.errors.JaxRuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if not fits(executable.needs(), default_device()):
                    self._explain(error, executable, inputs)
                self._run_without_copy(executable, inputs, outputs)
            executable.has_run = True
            self._spend(executable, signature, inputs)

    def _run_without_copy(self, executable: Executable, inputs: Inputs, outputs: Captures) -> None:
        try:
            outputs.append(_waited_for(executable.run(*inputs)))
        except jax.errors.JaxRuntimeError as error:
            self._explain(error, executable, inputs)
            raise

    def _explain(self, error: Exception, executable: Executable, inputs: Inputs) -> None:
        """Where memory was not enough, raise an error that says what would have been."""
        if is_out_of_memory(error):
            text = self.compiler.computation.text(inputs)
            raise out_of_memory(text, executable.needs(), default_device()) from error

    # ---- compiling
    def ready(self, signature: Hashable, step: int | None = None) -> Executable | None:
        """The executable of a signature; None if there is none yet."""
        executable = self._executables.get((signature, self.compiler.options()))
        if executable is None:
            return None
        if step is not None:
            executable.allowance.reach(step)
        if executable.allowance.left <= 0:
            return None
        executable.last_use = next(_uses)
        return executable

    def is_final(self, signature: Hashable, step: int) -> bool:
        """Whether the executable of a training's step is there and stays."""
        executable = self.ready(signature, step)
        return executable is not None and executable.allowance.is_unlimited

    def get(self, signature: Hashable, inputs: Inputs, step: int | None = None) -> Executable:
        """The executable of a signature, which is compiled now if need be.

        `inputs`: arrays, or their shapes (`jax.ShapeDtypeStruct`). `step`: see `run`.
        """
        key = signature, self.compiler.options()
        with self._lock:
            pending = self._pending.get(key)
        # What fails in the background is tried again here, so that it fails where the user sees it.
        if pending is not None and not pending.cancel():
            with self.compiler.announced(inputs):
                executable = pending.result()
            if executable is not None:
                self._add(key, executable)
        executable = self.ready(signature, step)
        if executable is None:
            before = self._executables.get(key)
            run = step or 1 if before is None and (self._quick_start or step is not None) else None
            executable = self.compiler.prepare(inputs, run, before=before)
            if step is None:  # trainings go on, but few evaluations run so often as to need the other version
                executable.lowered = None
            self._add(key, executable)
        return executable

    def compile_in_background(
        self, signature: Hashable, inputs: Inputs, step: int | None = None
    ) -> Future[Executable | None] | None:
        """Begin to compile for a signature in another thread; None if that has been done or is under way.

        `step`: that of a training, which may start quickly; otherwise it is compiled thoroughly.

        The future is cancelled if `get` needs the executable before its turn comes; its result is None if compiling
        failed. An executable that was compiled quickly is replaced when it has no runs left.
        """
        options = self.compiler.options()
        key = signature, options
        with self._lock:
            existing = self._executables.get(key)
            if key in self._pending or (existing is not None and existing.allowance.is_unlimited):
                return None
            with double_precision(self._is_double):
                shapes = _abstract(inputs)

            def prepare() -> Executable:
                with matmul_precision():
                    if self.compiler.options() != options:
                        raise RuntimeError("options of jax that are set in one thread only")
                    return self.compiler.prepare(shapes, step, in_background=True, before=existing)

            self._pending[key] = future = compilations.submit(_COMPILING.attempt, prepare)
        future.add_done_callback(lambda done: self._take(key, done))
        return future

    def _take(self, key: Hashable, future: Future[Executable | None]) -> None:
        if not future.cancelled() and (executable := future.result()) is not None:
            self._add(key, executable)
            return
        with self._lock:
            self._pending.pop(key, None)

    def _add(self, key: Hashable, executable: Executable) -> None:
        """Use an executable from now on, unless that in use has still runs left; then it remains pending."""
        with self._lock:
            before = self._executables.get(key)
            if before is None or before.allowance.left <= 0:
                executable.last_use = next(_uses)
                self._executables[key] = executable
                self._pending.pop(key, None)
            if len(self._executables) > _KEPT:
                self._executables.pop(min(self._executables, key=lambda key: self._executables[key].last_use))


class DonatingFunction:
    """A function that is compiled, and donates its first argument, of which `copy` makes a copy.

    `description`: see `Computation`.
    """

    def __init__(
        self, function: Callable[..., PyTree], copy: Callable[[PyTree], PyTree] = copied,
        description: Callable[[], object] = object,
    ) -> None:
        self._copy = copy
        self._executables = Executables(
            lambda *arguments: captured(function(*arguments)),
            computation=Computation(description, lambda inputs: "an update"), donate_argnums=0,
        )

    def __call__(self, outputs: Captures, key: Hashable, donated: PyTree, *arguments: PyTree) -> None:
        """Append a function that returns what the function returns. `key` decides on the shapes of the arguments."""
        self._executables.run(key, (donated, *arguments), outputs, self._copy)


def _waited_for(outputs: PyTree) -> PyTree:
    """What a program returns, after it has run; it is not waited for where it takes other processes, too."""
    if all(getattr(array, "is_fully_addressable", True) for array in jax.tree.leaves(outputs)):
        jax.block_until_ready(outputs)
    return outputs


def _abstract(inputs: PyTree) -> PyTree:
    """The inputs with shapes and types in the place of arrays; in the scope of the precision that is to be used."""

    def describe(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            sharding = leaf.sharding if leaf.committed else None
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)
        if isinstance(leaf, np.ndarray | np.generic):
            return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
        return leaf

    return jax.tree.map(describe, inputs)


__all__ = ["DonatingFunction", "Executables"]
