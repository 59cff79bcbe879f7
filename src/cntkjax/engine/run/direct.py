"""The short way of an evaluation: from data of known sizes to the executable, with what is bound to these sizes, or to
NumPy for dense layers (`few_rows.py`).

Only for what the long way (`evaluation.py`) does nothing else for: nothing is written, no user code is called, nothing
but sizes is checked. Leaves are read in each call, so assignments and training show at once, and a graph that is edited
has another plan.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..._best_effort import BestEffort
from ..._typing import Array
from ...graph.cells import commit
from ...graph.settings import Settings
from ...graph.variable import Edge
from ..data.feeds import exact
from ..data.ragged import Ragged
from ..data.sparse import Sparse
from ..lower.carry import Memory
from ..plan.plan import Plan
from ..xla.platform import matmul_precision
from ..xla.versions import double_precision
from . import profiler
from .few_rows import FewRows, few_rows
from .handover import STATE, Captures, settle
from .minibatch import Feed, PackedMinibatch, size_key
from .program import Program
from .program_cache import plan_of
from .random_streams import RandomInputs, after_drawing, draw_random_state, random_inputs
from .result import Result, collect_results
from .state import arrays_of

_MOST_SIZES = 256
_BINDING = BestEffort("bind an executable to the sizes of its data", "evaluations take the long way")
_ANSWERING = BestEffort("evaluate by what is bound to the sizes of the data", "the evaluation takes the long way")


class _Bound:
    """A program, and a minibatch without its data: others of the same sizes are packed like it."""

    def __init__(self, plan: Plan, program: Program, minibatch: PackedMinibatch, feeds: Sequence[Feed]) -> None:
        self.plan, self.program = plan, program
        self._minibatch = replace(minibatch, arguments=[], alternative=None)
        self._choice = program.packer.choice(plan, feeds, minibatch)
        self._cuts = [_cut(v, self._minibatch) for v in program.plan.outputs if not plan.needs_exact_batch]

    def packed(self, feeds: Sequence[Feed]) -> PackedMinibatch | None:
        """A minibatch of these sizes; None if such minibatches may get another shape by now."""
        return self.program.packer.packed_like(self._minibatch, feeds) if self.program.repeats(self._choice) else None

    def run(self, minibatch: PackedMinibatch, leaves: Sequence[Array], random: RandomInputs | None) -> Captures:
        """A list with a function that waits for what the program returns."""
        outputs: Captures = []
        with double_precision(self.plan.is_double), matmul_precision():
            inputs = self.program.inputs(minibatch, leaves, random)
            self.program.executables.run(minibatch.signature, inputs, outputs)
        return outputs

    def values(self, variables: Sequence[Edge], minibatch: PackedMinibatch, outputs: Captures) -> list[Any]:
        """The outputs, in the form of `Result.numpy`."""
        data = outputs[0]()[0]
        if not self._cuts or None in self._cuts or any(isinstance(array, Sparse) for array in data):
            return [result.numpy() for result in self.results(variables, minibatch, outputs)]
        return [cut(np.asarray(array)) for cut, array in zip(self._cuts, data, strict=True) if cut]

    def results(self, variables: Sequence[Edge], minibatch: PackedMinibatch, outputs: Captures) -> list[Result]:
        """The outputs."""
        data, layouts, _ = outputs[0]()
        return collect_results(variables, self.program.plan, minibatch, data, layouts)


def _cut(output: Edge, minibatch: PackedMinibatch) -> Callable[[np.ndarray], Any] | None:
    """What `Result.numpy` does with a dense output of such a minibatch; None if its sequences are known later."""
    axis, count = output.sequence_axis, minibatch.count
    if axis is None:
        return lambda array: array[:count].copy() if output.dynamic_axes else array.copy()
    grid = minibatch.grids.get(axis)
    if grid is None:
        return None
    begins, lengths, rows = (array[:count].tolist() for array in (grid.start, grid.length, grid.row))
    places = [(slice(begin, begin + length), row) for begin, length, row in zip(begins, lengths, rows, strict=True)]
    return lambda array: [array[place].copy() for place in places]


class Bindings:
    """What is bound for one plan, by the sizes of what is fed. Threads may share it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._bound: dict[Hashable, _Bound | None] = {}  # None: seen once
        self.by_numpy: dict[int, FewRows] = {}  # by the number of samples

    def get(self, feeds: Sequence[Feed]) -> _Bound | None:
        """What is bound to the sizes of these feeds, which are in the order of the plan's arguments."""
        return self._bound.get(tuple(map(size_key, feeds)))

    def note(self, program: Program, minibatch: PackedMinibatch, feeds: Sequence[Feed]) -> None:
        """Bind the program of a minibatch to its sizes if they come again, and its runs are not timed any more."""
        if self.plan.only_computes and minibatch.alternative is None and program.prices.is_settled(minibatch.signature):
            _BINDING.attempt(self._note, program, minibatch, feeds)

    def _note(self, program: Program, minibatch: PackedMinibatch, feeds: Sequence[Feed]) -> None:
        key = tuple(map(size_key, feeds))
        if None in key:
            return
        bound = None
        if key in self._bound:
            with double_precision(self.plan.is_double):
                bound = _Bound(self.plan, program, minibatch, feeds)
            if (layers := few_rows(self.plan, minibatch.count)) is not None:
                self.by_numpy[minibatch.count] = layers
        self._bound[key] = bound
        while len(self._bound) > _MOST_SIZES:
            self._bound.pop(next(iter(self._bound)), None)


def bindings(plan: Plan) -> Bindings:
    """Those of the evaluations of a plan."""
    if plan.direct is None:
        plan.direct = Bindings(plan)
    return plan.direct


def answer(outputs: Sequence[Edge], arguments: object, memory: Memory) -> list[Any] | None:
    """The outputs for {argument: data}, as `Result.numpy` gives them; None if that takes the long way."""
    if type(arguments) is not dict or not outputs or Settings.checked or Settings.timed:
        return None
    return _ANSWERING.attempt(_answer, outputs, plan_of(outputs), arguments, memory)


def _answer(outputs: Sequence[Edge], plan: Plan, arguments: Mapping[Any, Any], memory: Memory) -> list[Any] | None:
    if plan.direct is None or len(arguments) != len(plan.arguments):
        return None
    feeds = [feed for v in plan.arguments if (feed := exact(v, arguments.get(v))) is not None]
    if len(feeds) < len(arguments):
        return None
    if (values := _by_numpy(plan, feeds)) is not None:
        return values
    run = _run(plan, feeds, memory)
    return None if run is None else run[0].values(outputs, *run[1:])


def results(outputs: Sequence[Edge], plan: Plan, feeds: Sequence[Feed], memory: Memory) -> list[Result] | None:
    """The outputs for feeds, which are in the order of the plan's arguments; None if that takes the long way."""
    values = _ANSWERING.attempt(_by_numpy, plan, feeds)
    if values is not None:
        return [Result(v, array, len(array), None) for v, array in zip(outputs, values, strict=True)]
    run = _ANSWERING.attempt(_run, plan, feeds, memory)
    return None if run is None else run[0].results(outputs, *run[1:])


def _by_numpy(plan: Plan, feeds: Sequence[Feed]) -> list[np.ndarray] | None:
    """What takes no executable for samples of a number that came before, with the values that leaves have now."""
    if plan.direct is None or not plan.direct.by_numpy or profiler.is_recording():
        return None
    arrays = [np.ascontiguousarray(feed.data) for feed in feeds if isinstance(feed, Ragged)]
    layers = plan.direct.by_numpy.get(len(arrays[0]))
    if layers is None or any(len(array) != len(arrays[0]) for array in arrays):
        return None
    with STATE:
        settle()
        compute = layers.latest(arrays_of(plan.leaves))
    return None if compute is None else compute(arrays)


def _run(plan: Plan, feeds: Sequence[Feed], memory: Memory) -> tuple[_Bound, PackedMinibatch, Captures] | None:
    """Run what is bound to these sizes, with the values that leaves have now, and the next random numbers."""
    bound: _Bound | None = None if plan.direct is None or profiler.is_recording() else plan.direct.get(feeds)
    minibatch = None if bound is None else bound.packed(feeds)
    if bound is None or minibatch is None:
        return None
    with STATE:
        settle()
        leaves = arrays_of(plan.leaves)
        drawn = draw_random_state(plan, memory.streams, False, bound.program.columns(minibatch)) if plan.random else {}
        captured = bound.run(minibatch, leaves, random_inputs(plan, drawn))
        if plan.random:
            commit(after_drawing(drawn, memory.streams, False))
    return bound, minibatch, captured


__all__ = ["Bindings", "answer", "bindings", "results"]
