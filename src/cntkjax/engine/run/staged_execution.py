"""Evaluations with several batch sizes, in stages.

A program has one number of samples. Where the feeds of independent parts of a graph differ in it, or a user function
returns another number than it gets, the graph is partitioned (`plan/partition.py`): each stage is a program, and the
functions run on the host between them. Gradients pass back through the stages in reverse order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast

import numpy as np

from ..._typing import AnyArray, Array
from ...graph.errors import BatchSizeError, explain
from ...graph.function import Node
from ...graph.shape import filled
from ...graph.streams import Streams
from ...graph.variable import Edge, Leaf, producer
from ..data.ragged import Ragged, SparseRows
from ..lower.carry import Memory
from ..lower.rows import Rows
from ..plan.partition import Stage
from ..plan.parts import resolve
from ..xla.versions import double_precision
from .evaluation import evaluate_in_one_program
from .gradients import gradients_in_one_program
from .handover import STATE, device_copy, replace_state, settle
from .minibatch import Feed, Feeds, MinibatchColumns
from .program_cache import plan_of
from .python_callbacks import CallbackResults, raising_callback_errors
from .random_streams import RandomState, after_drawing, columns_to_draw, draw_random_state
from .result import Result
from .state import leaf_array


def evaluate(
    outputs: Sequence[Edge], feeds: Feeds, training: bool = False, memory: Memory | None = None,
    assign: bool = True, callback_results: CallbackResults | None = None,
) -> list[Result]:
    """As `evaluate_in_one_program`, in stages if necessary.

    Errors: as `StagedExecution` if no stages can be made.
    """
    try:
        return evaluate_in_one_program(outputs, feeds, training, memory, assign, callback_results)
    except BatchSizeError as error:
        streams = None if memory is None else memory.streams
        stages = StagedExecution(outputs, feeds, error, training, streams, callback_results=callback_results)
        stages.forward(assign)
        return stages.results()


def gradients(
    outputs: Sequence[Edge], roots: Mapping[Edge, Feed | None], wrt: Sequence[Edge], feeds: Feeds,
    random: RandomState | None = None, memory: Memory | None = None, callback_results: CallbackResults | None = None,
) -> tuple[list[Result], list[Result]]:
    """As `gradients.gradients`, in stages if necessary.

    Errors: as `StagedExecution` if no stages can be made.
    """
    try:
        return gradients_in_one_program(outputs, roots, wrt, feeds, random, memory, callback_results)
    except BatchSizeError as error:
        streams = None if memory is None else memory.streams
        stages = StagedExecution([*outputs, *roots], feeds, error, True, streams, random, callback_results)
        stages.forward(False, write_state=callback_results is None)
        return stages.backward(roots, wrt), stages.results()[: len(outputs)]


class StagedExecution:
    """One evaluation in stages.

    `error`: why one program cannot do it. `streams`: from which it draws, unless there is a random state already.
    Errors: `error`, if nothing separates the batch sizes; ValueError for what is not supported in stages.
    """

    def __init__(
        self, outputs: Sequence[Edge], feeds: Feeds, error: BatchSizeError, training: bool,
        streams: Streams | None = None, random: RandomState | None = None,
        callback_results: CallbackResults | None = None,
    ) -> None:
        self.outputs, self.plan, self.training = outputs, plan_of(outputs), training
        self._check(feeds, error)
        self.values: dict[Edge, Feed] = {resolve(v): feed for v, feed in feeds.items()}
        with STATE:
            settle()
            # Copies: user functions run between the stages, without the lock, and another thread may train meanwhile.
            self.values |= {v: device_copy(leaf_array(v)) for v in self.plan.leaves}
        self.random = random or error.random_state or self._draw(streams or Streams())
        if callback_results is None:
            callback_results = defaultdict(list)
        self.callback_results: CallbackResults = error.callback_results or callback_results
        self.stage_results: dict[Edge, Result] = {}
        self.user_states: dict[Stage, object] = {}  # what user functions keep for their backward call

    def _draw(self, streams: Streams) -> RandomState:
        fed = MinibatchColumns.of_feeds(self.plan, [self.values[v] for v in self.plan.arguments])
        columns = columns_to_draw(self.plan, fed, self.training)
        drawn = draw_random_state(self.plan, streams, self.training, columns)
        replace_state(after_drawing(drawn, streams, self.training))
        return drawn

    def _check(self, feeds: Feeds, error: BatchSizeError) -> None:
        if not any(stage.function for stage in self.plan.stages) and not _differ_by_axes(feeds):
            raise error
        if any(n.primitive.recomputes_operands for n in self.plan.nodes):
            raise ValueError(explain(
                "several batch sizes in one minibatch do not support gradients inside of graphs",
                fix="compute them outside of the graph, with Function.grad",
            )) from error
        if self.plan.delays and any(isinstance(f, Ragged) and f.starts is not None for f in feeds.values()):
            raise ValueError(explain(
                "several batch sizes in one minibatch do not support sequences that are cut",
                fix="feed whole sequences, without start flags",
            )) from error

    def forward(self, assign: bool, write_state: bool = True) -> None:
        """Compute all stages. `assign`, `write_state`: see `evaluate_in_one_program`."""
        for stage in self.plan.stages:
            if stage.function is not None:
                with raising_callback_errors(self.callback_results):
                    state, data = stage.function.primitive.forward_on_host(
                        self._operands(stage.function), self.training
                    )
                self.user_states[stage] = state
                self.values.update(zip(stage.outputs, data, strict=True))
            else:
                results = evaluate_in_one_program(
                    stage.outputs, self.values, self.training, None, assign, self.callback_results, self.random,
                    stage.inputs, write_state,
                )
                self.stage_results.update((r.variable, r) for r in results)
                self.values.update((r.variable, r.ragged()) for r in results)

    def _operands(self, function: Node) -> list[Feed]:
        return [self.values[resolve(v)] for v in function.node_inputs]

    def results(self) -> list[Result]:
        """The results for the outputs, after `forward`."""
        return [self._result(v) for v in self.outputs]

    def _result(self, variable: Edge) -> Result:
        resolved = resolve(variable)
        if resolved in self.stage_results:
            return replace(self.stage_results[resolved], variable=variable)
        if producer(resolved) is None:
            return evaluate_in_one_program([variable], self.values)[0]
        return _as_result(variable, self.values[resolved])

    def backward(self, roots: Mapping[Edge, Feed | None], wrt: Sequence[Edge]) -> list[Result]:
        """Gradients as `gradients.gradients` computes them, after `forward`."""
        cotangents = _Cotangents()
        for root, cotangent in roots.items():
            resolved = resolve(root)
            cotangents.add(resolved, self._constant(resolved, 1) if cotangent is None else cotangent)
        targets = {resolve(v) for v in wrt}
        for stage in reversed(self.plan.stages):
            of_outputs = {v: cotangents[v] for v in stage.outputs if v in cotangents}
            if stage.function is None:
                for r in self._stage_gradients(stage, of_outputs, targets):
                    cotangents.add(r.variable, cast(Feed, r.data) if isinstance(r.variable, Leaf) else r.ragged())
            elif of_outputs:
                for v, gradient in self._function_gradients(stage, stage.function, of_outputs):
                    cotangents.add(v, gradient)
        return [self._gradient(v, cotangents.get(resolve(v))) for v in wrt]

    def _stage_gradients(
        self, stage: Stage, cotangents: Mapping[Edge, Feed], targets: set[Edge]
    ) -> list[Result]:
        """Gradients that leave a stage: to other stages, and to `targets`."""
        plan = plan_of([*stage.outputs, *cotangents], stage.inputs)
        if not cotangents and not plan.assigned:
            return []
        wrt = [v for v in (*plan.arguments, *plan.leaves) if v in targets or v in plan.known]
        dense = [v for v in wrt if v in targets or not _is_sparse(self.values[v])]
        gradients, _ = gradients_in_one_program(
            stage.outputs, cotangents, dense, self.values, self.random, None, self.callback_results, stage.inputs
        )
        return gradients

    def _function_gradients(
        self, stage: Stage, function: Node, cotangents: Mapping[Edge, Feed]
    ) -> list[tuple[Edge, Feed]]:
        """Gradients of the operands of a user function, except those for which it has none."""
        of_outputs = [cotangents[v] if v in cotangents else self._constant(v, 0) for v in stage.outputs]
        gradients = function.primitive.backward_on_host(self.user_states[stage], self._operands(function), of_outputs)
        operands = map(resolve, function.node_inputs)
        return [(v, gradient) for v, gradient in zip(operands, gradients, strict=True) if gradient is not None]

    def _gradient(self, variable: Edge, gradient: Feed | None) -> Result:
        resolved = resolve(variable)
        if gradient is None and isinstance(resolved, Leaf):
            gradient = np.zeros(resolved.shape, resolved.dtype)
        elif gradient is None:
            gradient = self._constant(resolved, 0)
        return replace(_as_result(variable, gradient), by_rows=resolved in self.plan.gathered_leaves)

    def by_rows(self, gradient: Result) -> AnyArray | Rows:
        """The gradient of a parameter as learners take it: only the rows that occur, if sparse data look them up."""
        indices = self._occurring_rows.get(gradient.variable)
        data = cast(AnyArray, gradient.data)
        return data if indices is None else Rows.of(data, indices)

    @cached_property
    def _occurring_rows(self) -> dict[Edge, np.ndarray]:
        """For each parameter that sparse data look up, the rows that occur in them, ascending."""

        def data(node: Node) -> Feed | None:
            return self.values.get(resolve(node.node_inputs[0]))

        def indices(node: Node) -> np.ndarray:
            return cast(SparseRows, cast(Ragged, data(node)).data).indices

        lookups = self.plan.weights_of(lambda node: node.primitive.looks_up_rows(node) and _is_sparse(data(node)))
        return {p: np.unique(np.concatenate([indices(n) for n in nodes])) for p, nodes in lookups.items()}

    def _constant(self, variable: Edge, number: float) -> Feed:
        """A value of this variable with one number everywhere."""
        feed = self.values[variable]
        if not isinstance(feed, Ragged):
            return np.full(np.shape(feed), number, variable.dtype)
        data = feed.data
        shape = filled(variable.shape, data.width) if isinstance(data, SparseRows) else data.shape[1:]
        assert shape is not None
        return Ragged(np.full((feed.num_samples, *shape), number, variable.dtype), feed.lengths)


class _Cotangents(dict[Edge, Feed]):
    """Cotangents by variable; those from several uses of a variable are summed."""

    def add(self, variable: Edge, cotangent: Feed) -> None:
        """Add what flows back from one use of the variable."""
        self[variable] = _sum(self[variable], cotangent) if variable in self else cotangent


def _differ_by_axes(feeds: Feeds) -> bool:
    """True if arguments with the same dynamic axes are fed with the same number of sequences, as CNTK demands."""
    counts = {(v.dynamic_axes, feed.num_sequences) for v, feed in feeds.items() if isinstance(feed, Ragged)}
    return len({axes for axes, _ in counts}) == len(counts)


def _is_sparse(feed: Feed | None) -> bool:
    return isinstance(feed, Ragged) and feed.is_sparse


def _sum(a: Feed, b: Feed) -> Feed:
    if isinstance(a, Ragged):
        return replace(a, data=cast(np.ndarray, _sum(cast(Array, a.data), cast(Array, cast(Ragged, b).data))))
    with double_precision(a.dtype == np.float64):
        return a + cast(Array, b)


def _as_result(variable: Edge, feed: Feed) -> Result:
    """The result of a program with these data."""
    if not isinstance(feed, Ragged):
        return Result(variable, feed, 1, None)
    data = cast(AnyArray, feed.data)
    if feed.lengths is None:
        return Result(variable, data, feed.num_samples, None)
    layout = np.zeros_like(feed.lengths), feed.offsets[:-1], feed.lengths
    return Result(variable, data[:, None], feed.num_sequences, layout)


__all__ = ["StagedExecution", "evaluate", "gradients"]
