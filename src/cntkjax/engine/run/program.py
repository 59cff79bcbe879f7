"""Compiled programs: a computation on a plan, as one XLA executable for each set of shapes.

Graphs of the same structure share a program. All state is explicit: parameters and constants are inputs, and new values
of those that were assigned are outputs.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from copy import copy
from functools import partial
from typing import NamedTuple, TypeAlias

import jax

from ..._best_effort import BestEffort
from ..._typing import Array, PyTree
from ...graph.build import edits
from ...graph.errors import BatchSizeError
from ...graph.settings import Settings
from ..data.layout import Batch, Layout
from ..data.shapes import MinibatchShape
from ..lower.carry import Memory
from ..lower.values import Context, Environment, Traced
from ..plan.plan import Plan
from ..xla.compiler import compiler_options, large_sum_options, quick_options
from ..xla.descriptions import NoDescription, digest
from ..xla.materialize import storing_values
from ..xla.platform import matmul_precision
from ..xla.versions import double_precision
from . import profiler
from .compiling import Computation, Executable, Inputs
from .context import make_context, value_of_argument
from .devices import Devices
from .executables import Executables
from .handover import Captures, captured
from .minibatch import Agree, Feed, MinibatchPacker, PackedArray, PackedMinibatch
from .prices import MeasuredPrices
from .python_callbacks import run_until_sizes_settle
from .random_streams import AllColumns, RandomInputs, columns_to_draw, random_inputs_of_cells, random_state_of
from .shape_choice import Choice
from .trace_log import log_compilation
from .transfers import joined, received, sent, shapes_of

Body: TypeAlias = Callable[[Plan, Context, Environment, PyTree, PyTree], PyTree]
"""``body(plan, ctx, env, donated, extra)`` computes outputs from the leaves and arguments in `env`."""


class _Fed(NamedTuple):
    """Inputs of a program that are others in each run."""

    arguments: Sequence[PackedArray]
    batch: Batch | None
    layouts: Sequence[Layout]
    random: RandomInputs | None
    past: Sequence[Array | None]
    extra: PyTree


_TAKING = BestEffort("use programs for better fitting shapes", "minibatches run in the programs that there are")
_BUYING = BestEffort(
    "begin to compile a program for better fitting shapes", "minibatches run in the programs that there are"
)
_PRICING = BestEffort("measure what a program costs", "shapes are chosen by what is known")
_JOINING = BestEffort("send data to the device as few arrays", "they are sent one by one")

_TASKS = {
    "train": "the training step", "test": "the test step", "evaluate": "an evaluation", "gradients": "gradients",
}


class Program:
    """One computation on a plan, compiled for each set of shapes that it is called with.

    `name` is that of profiles and compilation logs. `variant`: what else `body` depends on; it needs a description
    (`xla/descriptions.py`), or the program is traced in each process. `donate`: the buffers of `donated` are reused for
    the outputs, unless user code is called, which may fail and then has to leave everything as it was. `quick_start`:
    see `Executables`. `sizing`: a body that computes the `free_results` of the plan.
    """

    options: Callable[[], dict[str, str]] | None = None  # see `Computation`

    def __init__(
        self, plan: Plan, name: str, body: Body, training: bool, variant: object = (), donate: bool = False,
        quick_start: bool = False, sizing: Body | None = None,
    ) -> None:
        self.plan, self.name, self.body, self.training, self.variant = plan, name, body, training, variant
        self.prices = MeasuredPrices(in_background=not plan.calls_python)
        self.packer = MinibatchPacker(plan, self.prices)
        self._packing = threading.RLock()
        self._compiling: list[tuple[Hashable, MinibatchShape, Future[Executable | None]]] = []  # in the background
        self._described_at, self._digest = -1, ""  # the number of edits then, and the description
        self._current_at = edits()
        self.needs_stages = False  # a user function returned another number of samples than it got
        self._devices: Devices | None = None
        donated = (0,) if donate and not plan.calls_python else ()
        computation = Computation(
            self._description, self._text, self._note_compilation, self._operations, self.options
        )
        self.executables = Executables(
            self._trace, plan.is_double, quick_start, computation,
            donate_argnums=donated, static_argnames="sizes", compiler_options=compiler_options() | large_sum_options(),
        )
        self._sizing = self._finding_sizes(sizing) if sizing is not None and plan.free_results else None

    def over(self, devices: Devices, body: Body) -> Program:
        """The program of another body that runs on several devices, and donates; both choose shapes together.

        What `donated` returns has to be made of the mesh's arrays, by `devices`. Not for plans that call Python.
        """
        program = copy(self)
        program.body, program._devices = body, devices
        computation = Computation(
            text=program._text, compiled=program._note_compilation, operations=program._operations
        )
        program.executables = Executables(
            devices.over(program._trace), self.plan.is_double, computation=computation,
            communicates=devices.count > 1, donate_argnums=0, compiler_options=compiler_options() | large_sum_options(),
        )
        return program

    def _finding_sizes(self, body: Body) -> Executables:
        """Programs that compute what functions of the user return with free dimensions.

        The thorough program is compiled when they have said how large these are. They are compiled quickly, and run
        once: what the functions return here, for operands that are rounded differently, is what the step goes on with.
        """
        computation = Computation(
            text=lambda inputs: f"sizes of results for {self._text(inputs)}", operations=self._operations,
            options=quick_options,
        )
        return Executables(
            partial(self._computed, body), self.plan.is_double, computation=computation, static_argnames="sizes",
            compiler_options=compiler_options() | large_sum_options(),
        )

    def _trace(
        self, donated: PyTree, leaves: Sequence[Array | None], sent: PyTree, sizes: Hashable = ()
    ) -> PyTree:
        return self._computed(self.body, donated, leaves, sent)

    @storing_values(True)
    def _computed(
        self, body: Body, donated: PyTree, leaves: Sequence[Array | None], sent: PyTree, sizes: Hashable = ()
    ) -> PyTree:
        fed: _Fed = received(sent)
        layouts = dict(zip(self.packer.axes, fed.layouts, strict=True))
        ctx = make_context(self.plan, self.training, fed.batch, layouts, fed.random, fed.past)
        env = {v: value_of_argument(v, d) for v, d in zip(self.plan.arguments, fed.arguments, strict=True)}
        env |= {v: Traced(d, ()) for v, d in zip(self.plan.leaves, leaves, strict=True) if d is not None}
        return captured(body(self.plan, ctx, env, donated, fed.extra))

    def _description(self) -> object:
        """A digest of what is computed, in any process: by the nodes as they are now, since users may edit them."""
        if self.plan.calls_python:
            raise NoDescription("code of the user")
        if self._described_at != edits():
            self._digest, self._described_at = self._describe(), edits()
        return self._digest

    def _describe(self) -> str:
        body = getattr(self.body, "__func__", self.body)
        primitives = [type(node.primitive) for node in self.plan.nodes]  # users may define some
        axes = [v.dynamic_axes for v in self.plan.arguments]  # attributes of nodes may refer to one by its name
        try:
            structure = self.plan.structure()
        except KeyError:
            raise NoDescription("an edited graph") from None
        return digest(self.name, body, self.variant, self.training, structure, primitives, axes)

    def is_current(self) -> bool:
        """True unless an edit has changed what the program's own graph computes, after others came to share it."""
        if self._current_at != edits():
            try:
                if self.plan.structure() != self.plan.key:
                    return False
            except KeyError:
                return False
            self._current_at = edits()
        return True

    def _text(self, inputs: Inputs) -> str:
        """What is compiled, for users to read."""
        fed: _Fed = shapes_of(inputs[2])
        sizes = [f"{layout.time} x {layout.rows}" for layout in fed.layouts]
        sizes = sizes or ([str(fed.batch.size)] if fed.batch else [])
        minibatches = f" for minibatches of up to {' and '.join(sizes)}" if sizes else ""
        return f"{_TASKS.get(self.name, self.name)}{minibatches}"

    def _operations(self) -> int:
        return len(self.plan.nodes)

    def _note_compilation(self, inputs: Inputs, executable: Executable) -> None:
        _PRICING.attempt(self.prices.note_compilation, executable.seconds)
        if Settings.trace_level > 0:
            log_compilation(self.name, self.plan, shapes_of(inputs[2]).arguments, executable)

    def pack(
        self, plan: Plan, feeds: Sequence[Feed], memory: Memory, variant: Hashable = (), in_background: bool = True,
        shares: int = 1, agree: Agree | None = None,
    ) -> PackedMinibatch:
        """Pack feeds for this program; see `MinibatchPacker.pack`.

        Errors: BatchSizeError also if the program is known to need several stages (`run/staged_execution.py`).
        """
        if self.needs_stages:
            raise BatchSizeError("user functions return other numbers of samples than they get")
        in_background = in_background and not self.plan.calls_python and not Settings.deterministic
        with self._packing:
            if self._compiling:
                _TAKING.attempt(self._take_compiled)
            return self.packer.pack(plan, feeds, memory, variant, in_background and shares == 1, shares, agree)

    def columns(self, minibatch: PackedMinibatch) -> AllColumns:
        """For each random node the columns of a minibatch that the host draws numbers for; see `columns_to_draw`."""
        return columns_to_draw(self.plan, minibatch.columns, self.training)

    def repeats(self, choice: Choice) -> bool:
        """See `ShapeChoice.repeats`."""
        with self._packing:
            return not self._compiling and self.packer.shapes.repeats(choice)

    def _take_compiled(self) -> None:
        """Use the shapes for which the program has been compiled in the background."""
        for variant, shape, future in self._compiling:
            if not future.done():
                continue
            policy = self.packer.shapes.policy(variant)
            if future.cancelled() or future.result() is not None:  # cancelled: it was needed before its turn came
                policy.add(shape)
            else:
                policy.reject(shape)
        self._compiling[:] = [c for c in self._compiling if not c[2].done()]

    def __call__(
        self, minibatch: PackedMinibatch, leaves: Sequence[Array | None], random: RandomInputs | None,
        donated: PyTree = (), extra: PyTree = (), capture: Captures | None = None, step: int | None = None,
    ) -> PyTree:
        """Run the program, compiling it first if the shapes are new. Returns what `body` returns.

        `capture`: append a function that returns that instead. Required if anything is donated; see `handover.py`.
        `step`: the number of a training's step that starts quickly.
        """
        outputs: Captures = [] if capture is None else capture
        shares = minibatch, *minibatch.others
        inputs, *others = (self.inputs(share, leaves, random, donated, extra) for share in shares)
        if minibatch.alternative is not None:
            _BUYING.attempt(self.compile_in_background, minibatch.alternative, leaves, random, donated, extra)
        run = -1
        if step is None or self.executables.is_final(minibatch.signature, step):
            run = _PRICING.attempt(self.prices.next_run, minibatch.signature, otherwise=-1)
        is_priced = run > 0  # first runs are timed while they compile
        if is_priced:
            jax.block_until_ready(inputs)  # what they wait for is not part of the run
        begin = time.perf_counter()
        with double_precision(self.plan.is_double), matmul_precision():
            if self.plan.calls_python:
                result = self._run_with_callbacks(inputs, minibatch, random, step)
                outputs.append(lambda: result)
            elif self._devices is None:
                self.executables.run(minibatch.signature, inputs, outputs, step=step)
            else:
                spread = self._devices.spread(inputs, *others)
                self.executables.run(minibatch.signature, spread, outputs, self._devices.copied)
        if is_priced or profiler.is_recording():
            jax.block_until_ready(outputs[0]())
            end = time.perf_counter()
            profiler.add("Programs", self.name, begin, end)
            if is_priced:
                _PRICING.attempt(self.prices.note_run, minibatch.work, end - begin)
        return None if capture is not None else outputs[0]()

    def compile_in_background(
        self, minibatch: PackedMinibatch, leaves: Sequence[Array | None], random: RandomInputs | None,
        donated: PyTree = (), extra: PyTree = (),
    ) -> None:
        """Begin to compile for what would be the inputs of a call, and use these shapes from then on."""
        if not self.plan.calls_python:
            future = self.expect(minibatch, leaves, random, donated, extra)
            with self._packing:
                self.packer.shapes.policy(minibatch.variant).add(minibatch.shape, pending=future is not None)
                if future is not None:
                    self._compiling.append((minibatch.variant, minibatch.shape, future))

    def expect(
        self, minibatch: PackedMinibatch, leaves: Sequence[Array | None], random: RandomInputs | None,
        donated: PyTree = (), extra: PyTree = (), step: int | None = None,
    ) -> Future[Executable | None] | None:
        """Begin to compile for what may be the inputs of a call; of arrays, only shapes and types matter.

        `step`: see `__call__`. Not for plans that call Python.
        """
        inputs = self.inputs(minibatch, leaves, random, donated, extra)
        with matmul_precision():
            return self.executables.compile_in_background(minibatch.signature, inputs, step)

    def inputs(
        self, minibatch: PackedMinibatch, leaves: Sequence[Array | None], random: RandomInputs | None,
        donated: PyTree = (), extra: PyTree = (),
    ) -> Inputs:
        """What the executable for a minibatch takes."""
        random = random_inputs_of_cells(self.plan, random, minibatch, self.training)
        fed = _Fed(minibatch.arguments, minibatch.batch, minibatch.layouts, random, minibatch.past, extra)
        places_later = self._devices is not None and len(self._devices.local) > 1
        with double_precision(self.plan.is_double):  # otherwise the joined arrays are of single precision
            return donated, leaves, joined(fed) if places_later else _JOINING.attempt(sent, fed, otherwise=fed)

    def _run_with_callbacks(
        self, inputs: Inputs, minibatch: PackedMinibatch, random: RandomInputs | None, step: int | None
    ) -> PyTree:
        def run(executables: Executables) -> PyTree:
            sizes = self.plan.free_dimension_sizes
            return executables.call((minibatch.signature, sizes), inputs, step, sizes=sizes)()

        results = minibatch.callback_results
        try:
            if self._sizing is not None and self.plan.has_unknown_sizes and not Settings.deterministic:
                results = defaultdict(list) if results is None else results
                sizing, self._sizing = self._sizing, None
                run_until_sizes_settle(partial(run, sizing), results)
            return run_until_sizes_settle(partial(run, self.executables), results)
        except BatchSizeError as error:
            self.needs_stages, error.random_state = True, random_state_of(self.plan, random)
            raise


__all__ = ["Body", "Program"]
