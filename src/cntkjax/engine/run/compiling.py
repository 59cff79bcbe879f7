"""Compiles a function for sets of input shapes: traced, with options that suit what it computes, stored and loaded."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import numpy as np

from ..._best_effort import BestEffort
from ..._interrupts import awaited
from ..._typing import PyTree
from ..._user_code import user_line
from ...graph.errors import OutOfMemoryError, explain
from ..convolutions.rewriting import rewrite
from ..lower.boundaries import bounded
from ..xla import autotuning
from ..xla.allocator import count_program
from ..xla.background import beside
from ..xla.compiler import (
    LARGE_SUM,
    collective_options,
    compiler_options,
    large_sum_options,
    loop_barrier_options,
    quick_options,
    small_options,
)
from ..xla.descriptions import NoDescription, digest
from ..xla.fork_guard import check_not_forked
from ..xla.memory import MemoryNeeds, Needs, memory, needs
from ..xla.nvidia import warn_of_unused_gpus
from ..xla.platform import convolutions_by, lowering
from ..xla.private_names import (
    available,
    c_function,
    called_functions,
    forget_traces,
    import_dialects,
    shared_context,
)
from ..xla.versions import double_precision, option, options
from ..xla.work import elements, largest_sum, lost_time, operations, stores_in_loops
from .compilations import Compilation, Subject, announced, record
from .quick_starts import Allowance, affordable_runs
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

_DESCRIBING = BestEffort("describe a program", "it is compiled in each process")
_CHOOSING = BestEffort("choose the options of a program by its size", "it is compiled with those of all programs")
_BOUNDING = BestEffort("store values that kernels would repeat", "a deep program takes longer to compile")
_SHARING = BestEffort("build small programs in one context of MLIR", "each is built in its own")
_REWRITING = BestEffort("compute convolutions by a library", "XLA computes them")
_OPTIMIZING = BestEffort("compile with options that suit this package", "it is compiled with XLA's own")
_CALLING = BestEffort("call an executable without Python in between", "jax.jit calls and compiles it")
_REPORTING = BestEffort("report what is compiled", "nothing is said of it")
_TIDYING = BestEffort("return memory that compiling left", "it is kept")
_MEASURING = BestEffort("keep what is measured to choose kernels", "it is measured in each process")

# What a program computes and has at most if it is compiled by the options for small ones.
_SMALL_ELEMENTS, _SMALL_OPERATIONS = 20_000_000, 1000
_BYTES = 30_000  # for each operation of a program of different ones, while it is compiled; measured up to 155,000
_MUCH = 10**9  # bytes that are looked for before they are taken
_LONG = 300  # operations of a graph: XLA may take a second or more for them
_KEPT_TRACES = 256  # programs, after which jax forgets the functions that were traced within them
_traces = count(1)
_OPTIONS = attrgetter(*{
    "jax_default_matmul_precision", "jax_default_device", "jax_disable_jit", "jax_enable_x64"
}.intersection(options()))


class Choice(NamedTuple):
    """Options of XLA for a program: those of all optimizations, and quick ones, by which it may run so often (or 0)."""

    thorough: dict[str, str]
    quick: dict[str, str]
    runs: int


class Lowered(NamedTuple):
    """A program that can be compiled in both ways. `description`: that of the computation."""

    program: jax.stages.Lowered
    choice: Choice
    description: str | None


@dataclass
class Executable:
    """A compiled computation.

    `run` is a function in C, so no bytecode runs between the computation and what keeps its outputs, except when it is
    called for the first time: then `has_run` is false. `again`: makes another such function, for where this was
    interrupted (`has_begun`, and not `has_run`). `seconds`: how long it took to compile, in this process or, if it is
    `stored`, in an earlier one. `needs`: what it takes of the device's memory, for the error where that is not enough.
    `allowance`: how often it may run. `lowered`: what its successor is compiled from. `last_use`: larger for what was
    used later.
    """

    run: Callable[..., PyTree]
    seconds: float
    stored: bool
    needs: Callable[[], Needs | None] = lambda: None
    again: Callable[[], Callable[..., PyTree]] | None = None
    has_begun: bool = False
    has_run: bool = False
    allowance: Allowance = field(default_factory=Allowance)
    lowered: Lowered | None = None
    last_use: int = 0


@dataclass(frozen=True)
class Computation:
    """What a function computes, in terms of the graph.

    `description` returns values that determine it in any process (see `xla/descriptions.py`), or raises NoDescription;
    then it is traced in each process. `text` tells users what is compiled for some inputs; `compiled` is called when
    that is done. `operations`: how many the graph has. `options`: of XLA, instead of those that its size decides.
    """

    description: Callable[[], object] = object
    text: Callable[[Inputs], str] = lambda inputs: "a program"
    compiled: Callable[[Inputs, Executable], object] = lambda inputs, executable: None
    operations: Callable[[], int] = lambda: 0
    options: Callable[[], dict[str, str]] | None = None


class Compiler:
    """Makes the executables of one function; see `Executables` for the arguments."""

    def __init__(
        self, function: Callable[..., PyTree], is_double: bool, computation: Computation, communicates: bool,
        jit_options: dict[str, Any],
    ) -> None:
        self._function, self._is_double, self._jit_options = function, is_double, jit_options
        self.computation, self._communicates = computation, communicates

    @cached_property
    def jitted(self) -> jax.stages.Wrapped:
        """The function as jax calls and compiles it: what runs where there is no executable."""
        return self._newly_jitted(self._function)

    def options(self) -> Hashable:
        """Options of jax that decide on what the function is compiled to, besides its inputs."""
        with double_precision(self._is_double):
            return _OPTIONS(jax.config)

    def _description(self) -> str | None:
        """A digest of what is computed, which is equal in all processes; None if there is none."""
        try:
            return digest(self.computation.description())
        except NoDescription:
            return None

    def prepare(
        self, inputs: Inputs, run: int | None = None, in_background: bool = False, before: Executable | None = None
    ) -> Executable:
        """A new executable: compiled, or loaded if an earlier process has compiled it.

        `run`: the number of the run, or of the training's step, that it is for. Then it is compiled quickly if it may
        run as often as that; without a number, thoroughly. `before`: that whose place it will take.
        """
        if option("jax_disable_jit"):
            return Executable(self.jitted, 0.0, stored=False)
        check_not_forked()
        warn_of_unused_gpus()
        begin, text = time.perf_counter(), self._text(inputs)
        with double_precision(self._is_double), ExitStack() if in_background else self.announced(inputs):
            executable, is_stored, lowered = self._executable(inputs, run, None if before is None else before.lowered)
        _TIDYING.attempt(count_program)
        seconds, line = time.perf_counter() - begin, "" if in_background else user_line()
        size = self.computation.operations()
        record(Compilation(text, seconds, is_stored, in_background, size, line, executable.seconds))
        callable_again = partial(self._callable, executable.compiled)
        prepared = Executable(
            callable_again(), executable.seconds, is_stored, partial(needs, executable.compiled), callable_again,
            allowance=Allowance.of(executable.runs), lowered=lowered if executable.runs else None,
        )
        self.computation.compiled(inputs, prepared)
        return prepared

    def _callable(self, compiled: jax.stages.Compiled) -> Callable[..., PyTree]:
        with double_precision(self._is_double):
            return (_CALLING.attempt(c_function, compiled) if available().calls else None) or self.jitted

    def _executable(
        self, inputs: Inputs, run: int | None, lowered: Lowered | None
    ) -> tuple[Stored, bool, Lowered | None]:
        """An executable, whether it was stored, and what it was compiled from; `lowered`: what it may be."""
        description = _DESCRIBING.attempt(self._description)
        stored = load_computation(self._key(description, inputs, run), inputs)
        if stored and _is_late(run, stored.runs):
            run, stored = None, load_computation(self._key(description, inputs, None), inputs)
        if stored:
            return stored, True, None
        begin = time.perf_counter()
        if lowered is None or lowered.description != description:
            with _collecting_later():
                lowered = self._lowered(inputs, description)
        runs = 0 if run is None else lowered.choice.runs
        if _is_late(run, runs):
            run, runs = None, 0
        options = lowered.choice.quick if runs else lowered.choice.thorough
        executable, is_stored = self._compile(lowered.program, inputs, options, runs, begin)
        if description == _DESCRIBING.attempt(self._description):  # nobody has edited the graph
            save_computation(self._key(description, inputs, run), executable)
        return executable, is_stored, lowered

    def _key(self, description: str | None, inputs: Inputs, run: int | None) -> str | None:
        return description and _DESCRIBING.attempt(key_of_computation, description, inputs, run is not None)

    def _text(self, inputs: Inputs) -> str:
        return _REPORTING.attempt(self.computation.text, inputs, otherwise="a program")

    def announced(self, inputs: Inputs) -> ExitStack:
        """A scope in which the user waits for an executable, and is told so if it takes long."""
        scope = ExitStack()
        _REPORTING.attempt(self._announce, self._text(inputs), scope)
        return scope

    def _announce(self, text: str, scope: ExitStack) -> None:
        scope.enter_context(announced(Subject(text, self.computation.operations())))

    def _newly_jitted(self, function: Callable[..., PyTree]) -> jax.stages.Wrapped:
        """A function under an identity of its own: jax keeps traces and modules of MLIR (1.4 MB for a few operations)
        as long as what was jitted lives.
        """
        return jax.jit(partial(function), **self._jit_options)

    def _lowered(self, inputs: Inputs, description: str | None) -> Lowered:
        """The program that the function is traced to."""
        import_dialects()
        if next(_traces) % _KEPT_TRACES == 0:
            _TIDYING.attempt(forget_traces)
        by = "xla" if self._communicates else lowering().convolutions  # else each device would compute the whole
        with convolutions_by(by):
            traced = self._newly_jitted(self._function).trace(*inputs)
        traced = _BOUNDING.attempt(self._bounded, traced, inputs, otherwise=traced)
        jaxpr, consts = traced.jaxpr.jaxpr, traced.jaxpr.consts
        size = operations(jaxpr)
        choice = _CHOOSING.attempt(self._choice, jaxpr, size, otherwise=Choice({}, {}, 0))
        _check_memory(size)
        with ExitStack() as scope:
            if max(size, sum(map(np.size, consts))) <= _SMALL_OPERATIONS:  # few things are left of it in the context
                _SHARING.attempt(scope.enter_context, shared_context())
            program = traced.lower()
            if by != "xla":
                _REWRITING.attempt(rewrite, program, by)
        return Lowered(program, choice, description)

    def _compile(
        self, lowered: jax.stages.Lowered, inputs: Inputs, options: Mapping[str, str], runs: int, begin: float
    ) -> tuple[Stored, bool]:
        program = key_of_program(lowered, inputs, options)
        executable = program and load_program(program, inputs, lowered.out_tree, called_functions(lowered))
        if executable:
            return executable._replace(program=program, runs=runs), True
        compiled = _OPTIMIZING.attempt(self._optimized, lowered, options)
        if compiled is None:
            program, runs, compiled = None, 0, self._compiled_by_default(inputs)
        executable = Stored(compiled, time.perf_counter() - begin, runs, program)
        save_program(program, executable)
        return executable, False

    def _optimized(self, lowered: jax.stages.Lowered, options: Mapping[str, str]) -> jax.stages.Compiled:
        """See `_compiled`. XLA cannot be interrupted: what takes long runs in another thread, whose end users need not
        await.
        """
        def compiled() -> jax.stages.Compiled:
            with double_precision(self._is_double):
                return _compiled(lowered, options)

        is_long = self.computation.operations() > _LONG and threading.current_thread() is threading.main_thread()
        return awaited(beside(compiled)) if is_long else compiled()

    def _bounded(self, traced: jax.stages.Traced, inputs: Inputs) -> jax.stages.Traced:
        """A trace whose kernels repeat little of one another."""
        function = bounded(traced)
        return traced if function is None else self._newly_jitted(function).trace(*inputs)

    def _choice(self, jaxpr: Jaxpr, size: int) -> Choice:
        more = collective_options() if self._communicates else {}
        if self.computation.options is None:
            choice = _choice_for(jaxpr, size)
        else:
            choice = Choice(self.computation.options() | _needed_options(jaxpr), {}, 0)
        return choice._replace(thorough=choice.thorough | more, quick=choice.quick | more)

    def _compiled_by_default(self, inputs: Inputs) -> jax.stages.Compiled:
        """The executable that XLA makes without options that are for speed, which `jitted` has none of from now on."""
        self._jit_options["compiler_options"] = large_sum_options()  # without which results may be wrong
        self.jitted = self._newly_jitted(self._function)
        return self._newly_jitted(self._function).trace(*inputs).lower().compile()


def _check_memory(size: int) -> None:
    """Compiling a program of so many operations must fit into memory: the system kills processes that take more.

    Where it fits only if other processes give up what they have, a warning says so.
    """
    needed = size * _BYTES
    has = memory(jax.devices("cpu")[0]) if needed > _MUCH else MemoryNeeds(0, 0)
    if not has.total or needed <= has.free:
        return
    what = f"compiling {size:,} operations may take {needed / 1e9:.1f} GB of memory"
    fix = "evaluate or train parts of the graph one after the other, or repeat them in a recurrence"
    if needed > has.total:
        raise OutOfMemoryError(explain(f"{what}, and there are {has.total / 1e9:.1f} GB", fix=fix))
    warnings.warn(f"{what}, and {has.free / 1e9:.1f} GB are free; {fix}", stacklevel=2)


@contextmanager
def _collecting_later() -> Iterator[None]:
    """No garbage is searched for in the meantime: what tracing creates lives until its end, and there is much of it."""
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()


def _is_late(run: int | None, runs: int) -> bool:
    """Whether what may run so often, as it is compiled quickly, is too late for this run."""
    return run is not None and 0 < runs < run


def _choice_for(jaxpr: Jaxpr, size: int) -> Choice:
    """The options to compile a trace with; `size`: the number of its operations.

    Sizes alone decide, so a trace is compiled in the same way in each process: training resumes bit for bit.
    """
    is_small = elements(jaxpr) <= _SMALL_ELEMENTS and size <= _SMALL_OPERATIONS
    thorough, quick, more = small_options() if is_small else compiler_options(), quick_options(), _needed_options(jaxpr)
    return Choice(thorough | more, quick | more, affordable_runs(lost_time(jaxpr), size) if quick else 0)


def _needed_options(jaxpr: Jaxpr) -> dict[str, str]:
    """Options that what a trace computes needs."""
    sums = large_sum_options() if largest_sum(jaxpr) > LARGE_SUM else {}
    return sums | (loop_barrier_options() if stores_in_loops(jaxpr) else {})


def _compiled(lowered: jax.stages.Lowered, options: Mapping[str, str]) -> jax.stages.Compiled:
    """The executable of a program; what is measured to choose its kernels is kept."""
    measured = _MEASURING.attempt(autotuning.results)
    if measured is None:
        return lowered.compile({**options})
    compiled = lowered.compile({**options, autotuning.OPTION: str(measured.folder)})
    _MEASURING.attempt(measured.save)
    return compiled


__all__ = ["Compiler", "Computation", "Executable", "Inputs"]
