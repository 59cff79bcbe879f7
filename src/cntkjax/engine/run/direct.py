"""The short way of an evaluation: from arrays of known shapes to the executable, with what is bound to these shapes.

Only for what the long way (`evaluation.py`) does nothing else for: dense samples, which the program takes as they are,
no random numbers, no state that is written. Leaves are read in each call, so assignments and training show at once, and
a graph that is edited has another plan.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..._best_effort import BestEffort
from ...graph.settings import Settings
from ...graph.variable import Edge
from ..data.ragged import Ragged
from ..plan.plan import Plan
from ..xla.platform import lowering, matmul_precision
from ..xla.versions import double_precision
from . import profiler
from .compiling import Inputs
from .handover import STATE, Captures, settle
from .minibatch import PackedMinibatch
from .program import Program
from .program_cache import plan_of
from .state import leaf_array

_MOST_SHAPES = 256
_BINDING = BestEffort("bind an executable to the shapes of its arguments", "evaluations take the long way")
_ANSWERING = BestEffort("evaluate by what is bound to the shapes of the arguments", "the evaluation takes the long way")

Shapes = tuple[tuple[int, ...], ...]  # of the arguments, in the order of the plan


class DirectEvaluation:
    """The evaluations of one plan by the shapes of their arguments. Threads may share it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.dtypes = [np.dtype(v.dtype) for v in plan.arguments]
        self._bound: dict[Shapes, tuple[Program, Hashable, Callable[[Sequence[np.ndarray]], Inputs]]] = {}

    def bind(self, program: Program, minibatch: PackedMinibatch) -> None:
        """Bind the program of a minibatch to its shapes, if it has no padding and its runs are not timed any more."""
        shapes = tuple([array.shape for array in minibatch.arguments])
        batch, signature = minibatch.batch, minibatch.signature
        if batch is None or batch.size != minibatch.count or not program.prices.is_settled(signature):
            return
        if shapes not in self._bound and len(self._bound) < _MOST_SHAPES:
            with double_precision(self.plan.is_double):
                if not lowering().joined_transfers:
                    batch = jax.device_put(batch)  # once, not in each call
                others = replace(minibatch, batch=batch, arguments=[])
                self._bound[shapes] = program, signature, program.inputs_for(others, (), None)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        """The outputs, arrays of their own; None if nothing is bound to these shapes."""
        bound = self._bound.get(tuple([array.shape for array in arrays]))
        if bound is None:
            return None
        program, signature, inputs_for = bound
        outputs: Captures = []
        # As `hand_over`, but nothing follows from what is computed.
        with STATE:
            settle()
            leaves = [leaf_array(leaf) for leaf in self.plan.leaves]
            with double_precision(self.plan.is_double), matmul_precision():
                donated, _, fed = inputs_for(arrays)
                program.executables.run(signature, (donated, leaves, fed), outputs)
        return [np.asarray(data).copy() for data in outputs[0]()[0]]  # the program's own memory is read-only


def answer(outputs: Sequence[Edge], arguments: object) -> list[np.ndarray] | None:
    """The outputs for {argument: array}, as `Result.numpy` gives them; None if that takes the long way."""
    if type(arguments) is not dict or not outputs or Settings.checked or Settings.timed or profiler.is_recording():
        return None
    return _ANSWERING.attempt(_answer, plan_of(outputs), arguments)


def _answer(plan: Plan, arguments: Mapping[Any, Any]) -> list[np.ndarray] | None:
    direct: DirectEvaluation | None = plan.direct
    if direct is None or len(arguments) != len(direct.dtypes):
        return None
    arrays = [arguments.get(v) for v in plan.arguments]
    for array, dtype in zip(arrays, direct.dtypes, strict=True):
        if type(array) is not np.ndarray or array.dtype != dtype:
            return None
    return direct(arrays)  # type: ignore[arg-type]


def bind(plan: Plan, program: Program, minibatch: PackedMinibatch, feeds: Sequence[object]) -> None:
    """Take the short way for minibatches like this one, once nothing about it is measured any more."""
    if plan.is_of_samples and not plan.random and not plan.delays and plan.arguments:
        _BINDING.attempt(_bind, plan, program, minibatch, feeds)


def _bind(plan: Plan, program: Program, minibatch: PackedMinibatch, feeds: Sequence[object]) -> None:
    if all(isinstance(feed, Ragged) and isinstance(feed.data, np.ndarray) for feed in feeds):
        direct = plan.direct
        if direct is None:
            plan.direct = direct = DirectEvaluation(plan)
        direct.bind(program, minibatch)


__all__ = ["DirectEvaluation", "answer", "bind"]
