"""Compiled programs: a computation on a plan, as one XLA executable for each set of shapes.

Graphs of the same structure share a program. All state is explicit: parameters and constants are inputs, and new values
of those that were assigned are outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import jax

from ..._typing import Array, PyTree
from ...graph.errors import BatchSizeError
from ...graph.settings import Settings
from ..data.layout import Batch, Layout
from ..lower.carry import Memory
from ..lower.values import Context, Environment, Value
from ..plan.plan import Plan
from ..xla.cache import persistent
from ..xla.compiler import compiler_options
from ..xla.fork_guard import check_not_forked
from ..xla.versions import double_precision
from . import profiler
from .context import make_context
from .minibatch import Feed, Minibatch, MinibatchPacker, PackedArray
from .python_callbacks import run_until_sizes_settle
from .random_streams import RandomInputs, random_state_of
from .trace_log import log_compilation

Body: TypeAlias = Callable[[Plan, Context, Environment, PyTree, PyTree], PyTree]
"""``body(plan, ctx, env, donated, extra)`` computes outputs from the leaves and arguments in `env`."""


class Program:
    """One computation on a plan, compiled for each set of shapes that it is called with.

    `name` is that of profiles and compilation logs. `donate`: the buffers of `donated` are reused for the outputs,
    unless user code is called, which may fail and then has to leave everything as it was.
    """

    def __init__(self, plan: Plan, name: str, body: Body, training: bool, donate: bool = False) -> None:
        self.plan, self.name, self.body, self.training = plan, name, body, training
        self.packer = MinibatchPacker(plan)
        self.compiled: set[Hashable] = set()
        self.needs_stages = False  # a user function returned another number of samples than it got
        donated = (0,) if donate and not plan.calls_python else ()
        self._run = jax.jit(
            self._trace, donate_argnums=donated, static_argnames="sizes", compiler_options=compiler_options()
        )

    def _trace(
        self, donated: PyTree, leaves: Sequence[Array | None], arguments: Sequence[PackedArray], batch: Batch | None,
        layouts: Sequence[Layout], random: RandomInputs | None, past: Sequence[Array | None], extra: PyTree,
        sizes: Hashable = (),
    ) -> PyTree:
        ctx = make_context(
            self.plan, self.training, batch, dict(zip(self.packer.axes, layouts, strict=True)), random, past
        )
        env = {v: Value(d, v.dynamic_axes) for v, d in zip(self.plan.arguments, arguments, strict=True)}
        env |= {v: Value(d, ()) for v, d in zip(self.plan.leaves, leaves, strict=True) if d is not None}
        return self.body(self.plan, ctx, env, donated, extra)

    def pack(self, plan: Plan, feeds: Sequence[Feed], memory: Memory) -> Minibatch:
        """Pack feeds for this program; see `MinibatchPacker.pack`.

        Errors: BatchSizeError also if the program is known to need several stages (`run/staged_execution.py`).
        """
        if self.needs_stages:
            raise BatchSizeError("user functions return other numbers of samples than they get")
        return self.packer.pack(plan, feeds, memory)

    def __call__(
        self, minibatch: Minibatch, leaves: Sequence[Array | None], random: RandomInputs | None, donated: PyTree = (),
        extra: PyTree = (),
    ) -> PyTree:
        """Run the program, compiling it first if the shapes are new. Returns what `body` returns."""
        if not profiler.is_recording():
            return self._call(minibatch, leaves, random, donated, extra)
        begin = time.perf_counter()
        outputs = jax.block_until_ready(self._call(minibatch, leaves, random, donated, extra))
        profiler.add("Programs", self.name, begin, time.perf_counter())
        return outputs

    def _call(
        self, minibatch: Minibatch, leaves: Sequence[Array | None], random: RandomInputs | None, donated: PyTree,
        extra: PyTree,
    ) -> PyTree:
        inputs = (
            donated, leaves, minibatch.arguments, minibatch.batch, minibatch.layouts, random, minibatch.past, extra
        )
        with double_precision(self.plan.is_double):
            if self.plan.calls_python:
                return self._run_with_callbacks(inputs, minibatch, random)
            if minibatch.signature in self.compiled:
                return self._run(*inputs)
            check_not_forked()
            begin = time.perf_counter()
            with persistent():
                outputs = self._run(*inputs)
            self.compiled.add(minibatch.signature)
            if Settings.trace_level > 0:
                log_compilation(self.name, self.plan, minibatch.arguments, time.perf_counter() - begin)
            return outputs

    def _run_with_callbacks(
        self, inputs: tuple[PyTree, ...], minibatch: Minibatch, random: RandomInputs | None
    ) -> PyTree:
        try:
            return run_until_sizes_settle(
                lambda: self._run(*inputs, sizes=self.plan.free_dimension_sizes), minibatch.callback_results
            )
        except BatchSizeError as error:
            self.needs_stages, error.random_state = True, random_state_of(self.plan, random)
            raise


__all__ = ["Body", "Program"]
