"""Evaluations with several batch sizes: in stages, joined by functions of the user that change the number of samples.

A program has one number of samples. Where the data have several, or a user's function returns another number than it
gets, the graph is cut at these functions (`plan/partition.py`): each stage is a program, and between them the functions
run on the host. Gradients go back through the stages in reverse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ...graph.errors import BatchSizeError, explain
from ...graph.function import Function
from ...graph.shape import filled
from ...graph.variable import Leaf, Variable
from ..data.ragged import Ragged
from ..lower.carry import Memory
from ..lower.rows import Rows
from ..plan.partition import Stage
from ..plan.parts import resolve
from ..xla.versions import double_precision
from .gradients import gradients as gradients_at_once
from .program import Feed, Feeds, Result, leaf_array, plan_of
from .program import evaluate as evaluate_at_once
from .python_callbacks import CallbackResults, raising_callback_errors
from .random_streams import RandomState, draw_random_state


def evaluate(
    outputs: Sequence[Variable], feeds: Feeds, training: bool = False, memory: Memory | None = None,
    assign: bool = True, callback_results: CallbackResults | None = None,
) -> list[Result]:
    """As `program.evaluate`, in stages if it has to be."""
    try:
        return evaluate_at_once(outputs, feeds, training, memory, assign, callback_results)
    except BatchSizeError as error:
        stages = Stages(outputs, feeds, error, callback_results=callback_results)
        stages.forward(training, assign)
        return stages.results()


def gradients(
    outputs: Sequence[Variable], roots: Mapping[Variable, Feed | None], wrt: Sequence[Variable], feeds: Feeds,
    random: RandomState | None = None, memory: Memory | None = None, callback_results: CallbackResults | None = None,
) -> tuple[list[Result], list[Result]]:
    """As `gradients.gradients`, in stages if it has to be."""
    try:
        return gradients_at_once(outputs, roots, wrt, feeds, random, memory, callback_results)
    except BatchSizeError as error:
        stages = Stages([*outputs, *roots], feeds, error, random, callback_results)
        stages.forward(True, False, changes=callback_results is None)
        return stages.backward(roots, wrt), stages.results()[: len(outputs)]


class Stages:
    """One evaluation in stages.

    Errors: `error`, which says why it cannot be had in one program, if no function of the user separates batch sizes.
    """

    def __init__(
        self, outputs: Sequence[Variable], feeds: Feeds, error: BatchSizeError, random: RandomState | None = None,
        callback_results: CallbackResults | None = None,
    ) -> None:
        self.outputs, self.plan = outputs, plan_of(outputs)
        if not any(stage.function for stage in self.plan.stages):
            raise error
        if any(n.primitive.recomputes_operands for n in self.plan.nodes):
            raise ValueError(explain("gradients inside of graphs are not computed with several batch sizes")) from error
        if self.plan.delays and any(isinstance(f, Ragged) and f.starts is not None for f in feeds.values()):
            raise ValueError(explain("sequences that are cut are not computed with several batch sizes")) from error
        self.values: dict[Variable, Feed] = {resolve(v): feed for v, feed in feeds.items()}
        self.values |= {v: leaf_array(v) for v in self.plan.leaves}
        self.random = random or error.random_state or draw_random_state(self.plan)
        self.callback_results: CallbackResults = error.callback_results or (
            defaultdict(list) if callback_results is None else callback_results
        )
        self.made: dict[Variable, Result] = {}
        self.states: dict[Stage, Any] = {}  # what functions keep for backward

    def forward(self, training: bool, assign: bool, changes: bool = True) -> None:
        """Compute everything. `assign`: see `program.evaluate`; without `changes` nothing is written at all."""
        for stage in self.plan.stages:
            if stage.function is not None:
                with raising_callback_errors(self.callback_results):
                    state, data = stage.function.primitive.forward_on_host(self._operands(stage.function), training)
                self.states[stage] = state
                self.values.update(zip(stage.outputs, data, strict=True))
            else:
                made = evaluate_at_once(
                    stage.outputs, self.values, training, None, assign, self.callback_results, self.random,
                    stage.inputs,
                    changes,
                )
                self.made.update((r.variable, r) for r in made)
                self.values.update((r.variable, r.ragged()) for r in made)

    def _operands(self, function: Function) -> list[Feed]:
        return [self.values[resolve(v)] for v in function.node_inputs]

    def results(self) -> list[Result]:
        """Of the outputs."""
        return [self._result(v) for v in self.outputs]

    def _result(self, variable: Variable) -> Result:
        own = resolve(variable)
        if own in self.made:
            return replace(self.made[own], variable=variable)
        if own._owner is None:
            return evaluate_at_once([variable], self.values)[0]
        return _as_result(variable, self.values[own])

    def backward(self, roots: Mapping[Variable, Feed | None], wrt: Sequence[Variable]) -> list[Result]:
        """Gradients as `gradients.gradients` gives them, after `forward`."""
        arriving: dict[Variable, Feed] = {}

        def add(variable: Variable, gradient: Feed) -> None:
            arriving[variable] = _sum(arriving[variable], gradient) if variable in arriving else gradient

        for root, gradient in roots.items():
            add(resolve(root), self._constant(resolve(root), 1) if gradient is None else gradient)
        targets = {resolve(v) for v in wrt}
        for stage in reversed(self.plan.stages):
            reached = {v: arriving[v] for v in stage.outputs if v in arriving}
            if stage.function is None:
                for r in self._gradients(stage, reached, targets):
                    add(r.variable, r.data if isinstance(r.variable, Leaf) else r.ragged())
            elif reached:
                given = [reached[v] if v in reached else self._constant(v, 0) for v in stage.outputs]
                operands, state = self._operands(stage.function), self.states[stage]
                found = stage.function.primitive.backward_on_host(state, operands, given)
                for v, gradient in zip(stage.function.node_inputs, found, strict=True):
                    if gradient is not None:
                        add(resolve(v), gradient)
        return [self._gradient(v, arriving.get(resolve(v))) for v in wrt]

    def _gradients(self, stage: Stage, roots: Mapping[Variable, Feed], targets: set[Variable]) -> list[Result]:
        """What flows out of a stage: to other stages, and to what gradients are wanted of."""
        plan = plan_of([*stage.outputs, *roots], stage.inputs)
        if not roots and not plan.assigned:
            return []
        wrt = [v for v in (*plan.arguments, *plan.leaves) if v in targets or v in plan.known]
        dense = [v for v in wrt if v in targets or not _is_sparse(self.values[v])]
        found, _ = gradients_at_once(
            stage.outputs, roots, dense, self.values, self.random, None, self.callback_results, stage.inputs
        )
        return found

    def _gradient(self, variable: Variable, gradient: Feed | None) -> Result:
        own = resolve(variable)
        if gradient is None:
            gradient = np.zeros(own.shape, own.dtype) if isinstance(own, Leaf) else self._constant(own, 0)
        return replace(_as_result(variable, gradient), by_rows=own in self.plan.gathered_leaves)

    def by_rows(self, gradient: Result) -> Any:
        """A gradient as learners take it: of what sparse data look up only the rows that occur."""
        occurring = self._occurring.get(gradient.variable)
        return gradient.data if occurring is None else Rows.of(gradient.data, occurring)

    @cached_property
    def _occurring(self) -> dict[Variable, np.ndarray]:
        def data(node: Function) -> Any:
            return self.values.get(resolve(node.node_inputs[0]))

        found = self.plan.weights_of(lambda node: node.primitive.looks_up_rows(node) and _is_sparse(data(node)))
        return {p: np.unique(np.concatenate([data(n).data.indices for n in nodes])) for p, nodes in found.items()}

    def _constant(self, variable: Variable, number: float) -> Feed:
        """One number everywhere, in the form of a variable's value."""
        feed: Any = self.values[variable]
        if not isinstance(feed, Ragged):
            return np.full(np.shape(feed), number, variable.dtype)
        data: Any = feed.data
        shape: Any = filled(variable.shape, data.width) if feed.is_sparse else data.shape[1:]
        return Ragged(np.full((feed.num_samples, *shape), number, variable.dtype), feed.lengths)


def _is_sparse(feed: Feed | None) -> bool:
    return isinstance(feed, Ragged) and feed.is_sparse


def _sum(a: Any, b: Any) -> Any:
    if isinstance(a, Ragged):
        return replace(a, data=_sum(a.data, b.data))
    with double_precision(a.dtype == np.float64):
        return a + b


def _as_result(variable: Variable, feed: Any) -> Result:
    """What is fed end to end, as a program would have given it."""
    if not isinstance(feed, Ragged):
        return Result(variable, feed, 1, None)
    data: Any = feed.data
    if feed.lengths is None:
        return Result(variable, data, feed.num_samples, None)
    layout = np.zeros_like(feed.lengths), feed.offsets[:-1], feed.lengths
    return Result(variable, data[:, None], feed.num_sequences, layout)
