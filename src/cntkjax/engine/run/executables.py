"""The executables of one computation, each compiled for its own set of input shapes: when needed, or ahead of that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np

from ..._best_effort import BestEffort
from ..._typing import PyTree
from ...graph.origin import user_line
from ..lower.boundaries import bounded
from ..xla import autotuning
from ..xla.allocator import count_program
from ..xla.background import compilations
from ..xla.compiler import (
    LARGE_SUM,
    collective_options,
    compiler_options,
    large_sum_options,
    quick_options,
    small_options,
)
from ..xla.descriptions import NoDescription, digest
from ..xla.devices import default_device
from ..xla.fork_guard import check_not_forked
from ..xla.memory import Needs, fits, is_out_of_memory, needs, out_of_memory
from ..xla.nvidia import warn_of_unused_gpus
from ..xla.platform import matmul_precision
from ..xla.private_names import available, c_function, called_functions, forget_traces
from ..xla.versions import double_precision, option, options
from ..xla.work import elements, largest_sum, operations
from .compilations import Compilation, Subject, announced, record
from .handover import Captures, captured, copied, deferred_interrupts
from .stored_executables import (
    Stored,
    key_of_computation,
    key_of_program,
    load_computation,
    load_program,
    save_computation,
    save_program,
)

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr  # slow to import

Inputs: TypeAlias = tuple[PyTree, ...]

_COMPILING = BestEffort("compile in the background", "it is compiled when it is needed")
_REPLACING = BestEffort("begin to compile a program thoroughly", "that is done when it is needed")
_DESCRIBING = BestEffort("describe a program", "it is compiled in each process")
_CHOOSING = BestEffort("choose the options of a program by its size", "it is compiled with those of all programs")
_BOUNDING = BestEffort("store values that kernels would repeat", "a deep program takes longer to compile")
_OPTIMIZING = BestEffort("compile with options that suit this package", "it is compiled with XLA's own")
_CALLING = BestEffort("call an executable without Python in between", "jax.jit calls and compiles it")
_REPORTING = BestEffort("report what is compiled", "nothing is said of it")
_TIDYING = BestEffort("return memory that compiling left", "it is kept")
_MEASURING = BestEffort("keep what is measured to choose kernels", "it is measured in each process")

# What a program that was compiled quickly may compute, in elements of the results of its operations. On two cores of an
# Intel Xeon compiling it thoroughly pays from 1e8 elements (an LSTM of 128 cells) to 2e9 (a convolutional network).
_QUICK_ELEMENTS = 200_000_000
# What a program computes and has at most if it is compiled by the options for small ones.
_SMALL_ELEMENTS, _SMALL_OPERATIONS = 20_000_000, 1000
_KEPT_TRACES = 256  # programs, after which jax forgets the functions that were traced within them
_traces = count(1)
_OPTIONS = attrgetter(*{
    "jax_default_matmul_precision", "jax_default_device", "jax_disable_jit", "jax_enable_x64"
}.intersection(options()))


@dataclass
class Executable:
    """A compiled computation.

    `run` is a function in C, so no bytecode runs between the computation and what keeps its outputs, except when it is
    called for the first time: then `has_run` is false. `seconds`: how long it took to compile, in this process or, if
    it is `stored`, in an earlier one. `runs_left`: how often one that was compiled quickly may run before compiling it
    thoroughly pays; that begins in the background when `prepare_at` are left. `needs`: what it takes of the device's
    memory, for the error where that is not enough.
    """

    run: Callable[..., PyTree]
    seconds: float
    stored: bool
    needs: Callable[[], Needs | None] = lambda: None
    has_run: bool = False
    runs_left: float = inf
    prepare_at: int = -1


@dataclass(frozen=True)
class Computation:
    """What a function computes, in terms of the graph.

    `description` returns values that determine it in any process (see `xla/descriptions.py`), or raises NoDescription;
    then it is traced in each process. `text` tells users what is compiled for some inputs; `compiled` is called when
    that is done. `operations`: how many the graph has.
    """

    description: Callable[[], object] = object
    text: Callable[[Inputs], str] = lambda inputs: "a program"
    compiled: Callable[[Inputs, Executable], object] = lambda inputs, executable: None
    operations: Callable[[], int] = lambda: 0


class Executables:
    """The executables of a function, by signature: a key that decides on the shapes and types of all inputs.

    `jit_options`: of `jax.jit`; the first input may be donated. `is_double`: whether jax has to keep float64.
    `quick_start`: what is needed now is compiled quickly, and again with all optimizations when the runs of the first
    version have taken as much longer as that takes. This is decided by the size of the computation, never by a clock,
    so a script computes the same numbers each time, with and without stored executables. `communicates`: with other
    devices, while it computes. Threads may share an object.
    """

    def __init__(
        self, function: Callable[..., PyTree], is_double: bool = False, quick_start: bool = False,
        computation: Computation = Computation(), communicates: bool = False, **jit_options: Any,
    ) -> None:
        self._function, self._jit_options = function, jit_options
        self.jitted = self._newly_jitted(function)
        self._is_double = is_double
        self._quick_start = quick_start
        self._communicates = communicates
        self._computation = computation
        self._executables: dict[Hashable, Executable] = {}
        self._pending: dict[Hashable, Future[Executable | None]] = {}  # in the background
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._executables)

    def __iter__(self) -> Iterator[Executable]:
        return iter(list(self._executables.values()))

    # ---- running
    def run(
        self, signature: Hashable, inputs: Inputs, outputs: Captures, copy: Callable[[PyTree], PyTree] = copied
    ) -> None:
        """Append what the function returns, in one call into C once the executable has run before.

        `copy`: makes what is donated to the first run.
        """
        executable = self.ready(signature)
        if executable is None or not executable.has_run:
            self._run_first(signature, inputs, outputs, copy)
            return
        executable.runs_left -= 1
        if executable.runs_left == executable.prepare_at:
            _REPLACING.attempt(self.compile_in_background, signature, inputs)
        try:
            # Were there bytecode between the program and the list, an exception could come there, and what is donated
            # would be lost.
            outputs.extend(map(executable.run, *((a,) for a in inputs)))
        except (TypeError, ValueError):  # from jax, before it runs: arrays of other types, or on another device
            with deferred_interrupts():
                outputs.append(self.jitted(copy(inputs[0]), *inputs[1:]))
        except jax.errors.JaxRuntimeError as error:
            self._explain(error, executable, inputs)
            raise

    def call(self, signature: Hashable, inputs: Inputs, **static: Hashable) -> PyTree:
        """What the function returns, if it donates nothing. What interrupts this thread may end its run.

        `static`: arguments of the function that only say, to jax, which of its traces is meant.
        """
        executable = self.ready(signature)
        if executable is None:
            with deferred_interrupts():
                executable = self.get(signature, inputs)
        executable.runs_left -= 1
        if executable.run is not self.jitted:
            with suppress(TypeError, ValueError):  # as above
                return executable.run(*inputs)
        return self.jitted(*inputs, **static)

    def _run_first(
        self, signature: Hashable, inputs: Inputs, outputs: Captures, copy: Callable[[PyTree], PyTree]
    ) -> None:
        with deferred_interrupts():
            executable = self.get(signature, inputs)
            # In its first run jax calls it from Python, so copies are donated. What is interrupted then leaves state as
            # it was, and so does a lack of memory, which shows when the program has run.
            try:
                outputs.append(_waited_for(executable.run(copy(inputs[0]), *inputs[1:])))
            except (TypeError, ValueError):
                outputs.append(self.jitted(copy(inputs[0]), *inputs[1:]))
            except jax.errors.JaxRuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if not fits(executable.needs(), default_device()):
                    self._explain(error, executable, inputs)
                self._run_without_copy(executable, inputs, outputs)
            executable.has_run = True
            executable.runs_left -= 1

    def _run_without_copy(self, executable: Executable, inputs: Inputs, outputs: Captures) -> None:
        try:
            outputs.append(_waited_for(executable.run(*inputs)))
        except jax.errors.JaxRuntimeError as error:
            self._explain(error, executable, inputs)
            raise

    def _explain(self, error: Exception, executable: Executable, inputs: Inputs) -> None:
        """Where memory was not enough, raise an error that says what would have been."""
        if is_out_of_memory(error):
            text = self._computation.text(inputs)
            raise out_of_memory(text, executable.needs(), default_device()) from error

    # ---- compiling
    def ready(self, signature: Hashable) -> Executable | None:
        """The executable of a signature; None if there is none yet."""
        executable = self._executables.get((signature, self._lowering_options()))
        return None if executable is None or executable.runs_left <= 0 else executable

    def get(self, signature: Hashable, inputs: Inputs) -> Executable:
        """The executable of a signature, which is compiled now if need be.

        `inputs`: arrays, or their shapes (`jax.ShapeDtypeStruct`).
        """
        key = signature, self._lowering_options()
        with self._lock:
            pending = self._pending.get(key)
        # What fails in the background is tried again here, so that it fails where the user sees it.
        if pending is not None and not pending.cancel() and (executable := pending.result()) is not None:
            self._add(key, executable)
        if self.ready(signature) is None:
            self._add(key, self._prepare(inputs, quickly=self._quick_start and key not in self._executables))
        return self._executables[key]

    def compile_in_background(self, signature: Hashable, inputs: Inputs) -> Future[Executable | None] | None:
        """Begin to compile for a signature in another thread, thoroughly; None if that has been done or is under way.

        The future is cancelled if `get` needs the executable before its turn comes; its result is None if compiling
        failed. An executable that was compiled
        quickly is replaced when it has no runs left.
        """
        options = self._lowering_options()
        key = signature, options
        with self._lock:
            existing = self._executables.get(key)
            if key in self._pending or (existing is not None and existing.runs_left == inf):
                return None
            with double_precision(self._is_double):
                shapes = _abstract(inputs)

            def prepare() -> Executable:
                with matmul_precision():
                    if self._lowering_options() != options:
                        raise RuntimeError("options of jax that are set in one thread only")
                    return self._prepare(shapes, in_background=True)

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
            if before is None or before.runs_left <= 0:
                self._executables[key] = executable
                self._pending.pop(key, None)

    def _lowering_options(self) -> Hashable:
        """Options of jax that decide on what the function is compiled to, besides its inputs."""
        with double_precision(self._is_double):
            return _OPTIONS(jax.config)

    def _key(self, inputs: Inputs, quickly: bool) -> str | None:
        """The key under which the executable is stored; None if it is not."""
        try:
            return key_of_computation(digest(self._computation.description(), quickly), inputs)
        except NoDescription:
            return None

    def _prepare(self, inputs: Inputs, quickly: bool = False, in_background: bool = False) -> Executable:
        """A new executable: compiled, or loaded if an earlier process has compiled it."""
        if option("jax_disable_jit"):
            return Executable(self.jitted, 0.0, stored=False)
        check_not_forked()
        warn_of_unused_gpus()
        begin, text = time.perf_counter(), _REPORTING.attempt(self._computation.text, inputs, otherwise="a program")
        with double_precision(self._is_double), ExitStack() as waiting:
            if not in_background:
                _REPORTING.attempt(self._announce, text, waiting)
            key = _DESCRIBING.attempt(self._key, inputs, quickly)
            stored = load_computation(key, inputs)
            executable, is_stored = (stored, True) if stored else self._trace_and_compile(inputs, quickly)
            if not stored and key == _DESCRIBING.attempt(self._key, inputs, quickly):  # nobody has edited the graph
                save_computation(key, executable)
            function = _CALLING.attempt(c_function, executable.compiled) if available().calls else None
        _TIDYING.attempt(count_program)
        seconds, line = time.perf_counter() - begin, "" if in_background else user_line()
        size = self._computation.operations()
        record(Compilation(text, seconds, is_stored, in_background, size, line, executable.seconds))
        runs_left, prepare_at = (executable.runs, executable.runs // 2) if executable.runs else (inf, -1)
        prepared = Executable(
            function or self.jitted, executable.seconds, is_stored, partial(needs, executable.compiled),
            runs_left=runs_left, prepare_at=prepare_at,
        )  # fmt: skip
        self._computation.compiled(inputs, prepared)
        return prepared

    def _announce(self, text: str, scope: ExitStack) -> None:
        scope.enter_context(announced(Subject(text, self._computation.operations())))

    def _newly_jitted(self, function: Callable[..., PyTree]) -> jax.stages.Wrapped:
        """A function under an identity of its own: jax keeps traces and modules of MLIR (1.4 MB for a few operations)
        as long as what was jitted lives.
        """
        return jax.jit(partial(function), **self._jit_options)

    def _trace_and_compile(self, inputs: Inputs, quickly: bool) -> tuple[Stored, bool]:
        """The executable of the program that the function is traced to, and whether it was stored."""
        begin = time.perf_counter()
        if next(_traces) % _KEPT_TRACES == 0:
            _TIDYING.attempt(forget_traces)
        traced = self._newly_jitted(self._function).trace(*inputs)
        traced = _BOUNDING.attempt(self._bounded, traced, inputs, otherwise=traced)
        options, runs = _CHOOSING.attempt(self._options_for, traced.jaxpr.jaxpr, quickly, otherwise=({}, 0))
        lowered = traced.lower()
        program = key_of_program(lowered, inputs, options)
        executable = program and load_program(program, inputs, lowered.out_tree, called_functions(lowered))
        is_stored = bool(executable)
        if not executable:
            compiled = _OPTIMIZING.attempt(_compiled, lowered, options)
            if compiled is None:
                program, runs, compiled = None, 0, self._compiled_by_default(inputs)
            executable = Stored(compiled, time.perf_counter() - begin)
            save_program(program, executable)
        return executable._replace(program=program, runs=runs), is_stored

    def _bounded(self, traced: jax.stages.Traced, inputs: Inputs) -> jax.stages.Traced:
        """A trace whose kernels repeat little of one another."""
        function = bounded(traced)
        return traced if function is None else self._newly_jitted(function).trace(*inputs)

    def _options_for(self, jaxpr: Jaxpr, quickly: bool) -> tuple[dict[str, str], int]:
        options, runs = _options_for(jaxpr, quickly)
        return options | (collective_options() if self._communicates else {}), runs

    def _compiled_by_default(self, inputs: Inputs) -> jax.stages.Compiled:
        """The executable that XLA makes without options that are for speed, which `jitted` has none of from now on."""
        self._jit_options["compiler_options"] = large_sum_options()  # without which results may be wrong
        self.jitted = self._newly_jitted(self._function)
        return self._newly_jitted(self._function).trace(*inputs).lower().compile()


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
        )  # fmt: skip

    def __call__(self, outputs: Captures, key: Hashable, donated: PyTree, *arguments: PyTree) -> None:
        """Append a function that returns what the function returns. `key` decides on the shapes of the arguments."""
        self._executables.run(key, (donated, *arguments), outputs, self._copy)


def _options_for(jaxpr: Jaxpr, quickly: bool) -> tuple[dict[str, str], int]:
    """The options to compile a trace with, and how often it may run if they are the quick ones, otherwise 0.

    Sizes decide, so a trace is compiled in the same way in each process: training resumes bit for bit.
    """
    computed = max(1, elements(jaxpr))
    quick = quick_options() if quickly else {}
    more = large_sum_options() if largest_sum(jaxpr) > LARGE_SUM else {}
    if quick and computed <= _QUICK_ELEMENTS:
        return quick | more, _QUICK_ELEMENTS // computed
    is_small = computed <= _SMALL_ELEMENTS and operations(jaxpr) <= _SMALL_OPERATIONS
    return (small_options() if is_small else compiler_options()) | more, 0


def _waited_for(outputs: PyTree) -> PyTree:
    """What a program returns, after it has run; it is not waited for where it takes other processes, too."""
    if all(getattr(array, "is_fully_addressable", True) for array in jax.tree.leaves(outputs)):
        jax.block_until_ready(outputs)
    return outputs


def _compiled(lowered: jax.stages.Lowered, options: Mapping[str, str]) -> jax.stages.Compiled:
    """The executable of a program; what is measured to choose its kernels is kept."""
    measured = _MEASURING.attempt(autotuning.results)
    if measured is None:
        return lowered.compile({**options})
    compiled = lowered.compile({**options, autotuning.OPTION: str(measured.folder)})
    _MEASURING.attempt(measured.save)
    return compiled


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


__all__ = ["Computation", "DonatingFunction", "Executable", "Executables", "Inputs"]
