"""The training step: forward, backward and all learners in one compiled program with donated buffers.

A step is a function from the state of a training (`state.py`) to the next one: it computes changes, and commits them at
once. How gradients reach the learners is the subject of `ways.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, SupportsFloat, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import PyTree
from ...graph.cells import Cell, Changes
from ...graph.errors import AxisError, BatchSizeError, explain
from ...graph.variable import Edge, Leaf, cell_of, value_of
from ..data.ragged import Ragged
from ..debug.checked import check
from ..lower.carry import Memory
from ..plan.plan import Plan
from ..run.handover import STATE, Attempt, Captures, hand_over, replace_state, settle
from ..run.minibatch import Feed, Feeds, MinibatchPacker, PackedMinibatch, arguments_in_order
from ..run.program import Program
from ..run.program_cache import programs
from ..run.random_streams import AllColumns, RandomState, after_drawing, draw_random_state, random_inputs
from ..run.result import Result, collect_results
from ..run.staged_execution import StagedExecution
from ..run.state import changes_of_cells, computed_lengths_error, leaf_array, outliving
from ..xla.versions import double_precision
from .learner import StepLearner
from .sample_counter import SampleCounter
from .state import Accumulated, TrainingState
from .step_body import StepBody, StepOptions, StepOutputs
from .update import Gradients, Hyperparameters
from .ways import Agreement, Exchange, InOneProgram, LocalExchange

T = TypeVar("T")

_NOTICED = 0.5  # seconds


@dataclass(frozen=True)
class Outcome:
    """Sums over the samples of a step or test, still on the device, and the number of samples on the host.

    `learned`, `scalars`: for each learner the number of samples of its update in this step, and the scalars of that,
    None if it made none; empty if gradients are accumulated. `others`: further criteria, as `metric`.
    """

    loss: SupportsFloat
    metric: Any  # SupportsFloat, or None if there is only a loss
    samples: int
    outputs: list[Result]
    learned: Sequence[int] = ()
    scalars: Sequence[Hyperparameters | None] = ()
    others: Sequence[Any] = ()

    @classmethod
    def of_sums(
        cls, sums: Sequence[Any], samples: int, outputs: list[Result], learned: Sequence[int] = (),
        scalars: Sequence[Hyperparameters | None] = (),
    ) -> Outcome:
        """The outcome with the sums of all criteria: the loss, the metric if there is one, others."""
        return cls(sums[0], sums[1] if len(sums) > 1 else None, samples, outputs, learned, scalars, sums[2:])


Conclusion: TypeAlias = "Callable[[Outcome, Changes], Changes]"
"""Extends the changes of a step by those of the counts of who runs it. It changes nothing, and may be called again."""

ConclusionFor: TypeAlias = "Callable[[Agreement], Conclusion]"
"""Called once it is known what a step trains on, before anything has changed; it may wait for other workers."""


def no_conclusion(agreement: Agreement) -> Conclusion:
    """Count nothing."""
    return lambda outcome, changes: changes


@dataclass(frozen=True)
class WorkersPart:
    """What a worker contributes to an update in a program of its own.

    `gradients`: None without data. `sums`: of the criteria. `samples`: of its minibatch. `changes`: what its forward
    pass changes.
    """

    gradients: Gradients | None = None
    sums: Sequence[SupportsFloat] = ()
    samples: int = 0
    outputs: Sequence[Result] = ()
    changes: Changes = field(default_factory=dict)


class Step:
    """Computes criteria over minibatches, and trains if there are learners.

    Units: loss and metric are summed over all elements of all samples of a minibatch. The number of samples is that of
           the loss, or, where that has no dynamic axes, of what it was reduced from; that of `counted`, if given.

    `memory`: what delays carry over where sequences are cut between minibatches. Alternating steps with other outputs
    share it, and `pending`.
    Errors: ValueError for options that the model does not allow.
    """

    def __init__(
        self, criteria: Sequence[Edge], outputs: Sequence[Edge], learners: Sequence[StepLearner],
        memory: Memory | None = None, options: StepOptions = StepOptions(), pending: Cell[Accumulated] | None = None,
        counted: Edge | None = None,
    ) -> None:
        self.criteria, self.outputs, self.learners = list(criteria), list(outputs), list(learners)
        self.memory = Memory() if memory is None else memory
        self.options = options
        self.plan = Plan([*self.criteria, *self.outputs])
        self.sample_counter = SampleCounter(self.criteria[0], self.plan, self.memory, counted)
        self._check_options()
        self.state = TrainingState(self.plan, self.learners, self.memory, pending or Cell(Accumulated()))
        trained = {p for group in self.state.parameters for p in group}
        self.untrained_leaves = [None if leaf in trained else leaf for leaf in self.plan.leaves]
        transforms = [learner.transform for learner in self.learners]
        body = StepBody(len(self.criteria), self.state.parameters, transforms, self.options)
        if self.learners:
            self.program = Program(
                self.plan, "train", body.train, True, self._variant(body), donate=True, sizing=body.results_of_users
            )
        else:
            self.program = programs.program(self.plan, "test", body.test, False, body.num_criteria)
        self._local = LocalExchange(self.learners)
        self._shapes: dict[Hashable, str] = {}  # digests of signatures, equal in all processes

    def _variant(self, body: StepBody) -> object:
        """What the program depends on besides the plan: which leaves are learned, and how."""
        place = {leaf: i for i, leaf in enumerate(self.plan.leaves)}
        places = [[place.get(p) for p in group] for group in self.state.parameters]
        return body.num_criteria, body.options, places, body.transforms

    def _check_options(self) -> None:
        if self.options.narrow is not None and self.plan.is_double:
            raise ValueError(explain(
                "precision= is for models in single precision, but this one has values in double precision",
                fix="leave out precision=",
            ))
        if self.options.rematerialize and self.plan.calls_python:
            raise ValueError(explain(
                "rematerialize= would call the user functions in this model twice", fix="leave out rematerialize="
            ))

    # ---- running
    def run(
        self, feeds: Feeds, number: int | None = None, exchange: Exchange | None = None,
        conclusion_for: ConclusionFor = no_conclusion,
    ) -> Outcome:
        """Take a step: replace parameters and the learners' states, without waiting for the device.

        `number`: that of the minibatch, from 1: first ones run programs that compile quickly. `exchange`: how several
        workers or devices learn from the sums of their gradients; None for one that trains by itself.
        `conclusion_for`: see `ConclusionFor`.
        """
        exchange = exchange or self._local
        try:
            check(self.plan, feeds, bool(self.learners), self.memory, number)
            minibatch, samples, agreement = self._agreed(feeds, exchange)
            if agreement is not None and agreement.joins:
                way = exchange.in_one_program(agreement)
                first = number if exchange is self._local else None
                return self._run_in_one_program(way, minibatch, samples, conclusion_for(agreement), first)
            part = self._computed_part(minibatch, samples, number)
        except BatchSizeError as error:
            return self._run_in_stages(feeds, error, exchange, conclusion_for)
        return self.exchange_and_update(exchange, part, conclusion_for, agreement)

    def compile_in_background(self, feeds: Feeds) -> None:
        """Begin to compile for a test of such a minibatch, for which nobody waits yet.

        It begins sequences of its own, whatever pieces are fed.
        """
        begun = {v: feed.begun() if isinstance(feed, Ragged) else feed for v, feed in feeds.items()}
        with suppress(BatchSizeError):  # it will run in stages
            self._expect(begun, self.program.pack, self.program.compile_in_background)

    def expect(self, feeds: Feeds, number: int) -> None:
        """Begin to compile for a first minibatch of such samples, which may come or not: it chooses no shapes."""
        if not self.plan.calls_python:
            self._expect(feeds, MinibatchPacker(self.plan).pack, partial(self.program.expect, step=number))

    def _expect(
        self, feeds: Feeds, pack: Callable[..., PackedMinibatch], begin: Callable[..., object]
    ) -> None:
        """Begin to compile for a minibatch. Nothing is initialized for it, and it draws from streams of its own."""
        plan, memory = self.plan, Memory()
        minibatch = pack(plan, arguments_in_order(plan, feeds), memory, self._phase)
        hypers = [learner.hyper(1) for learner in self.learners] if self.options.accumulate == 1 else None
        minibatch.extend_signature(_key(hypers, None))
        leaves = [None if leaf is None else value_of(leaf) for leaf in self.untrained_leaves]
        random = random_inputs(plan, draw_random_state(plan, memory.streams, bool(self.learners)))
        begin(minibatch, leaves, random, self.state.shapes(hypers is not None), (hypers, None))

    @property
    def is_slow_to_compile(self) -> bool:
        """Whether compiling its program has taken so long that a user notices."""
        return any(executable.seconds > _NOTICED for executable in self.program.executables)

    @property
    def _phase(self) -> Hashable:
        """What decides on the program besides shapes: whether gradients are accumulated, from the first or on."""
        pending = self.state.pending.value
        return pending.minibatches + 1 < self.options.accumulate, pending.gradients is None

    # ---- packing, and what workers agree on
    def _agreed(self, feeds: Feeds, exchange: Exchange) -> tuple[PackedMinibatch, int, Agreement | None]:
        """The minibatch, its samples, and what the workers have agreed on; None if they will when it is computed."""
        plan, pack = self.plan, self.program.pack
        in_order = arguments_in_order(plan, feeds)
        if exchange is self._local:
            minibatch = pack(plan, in_order, self.memory, self._phase)
            samples = self.sample_counter.count(minibatch, feeds)
            return minibatch, samples, Agreement(samples)
        shares = self._shares(in_order, exchange.shares)
        agree = None if plan.calls_python else exchange.agree_on_sizes
        minibatch = pack(plan, in_order, self.memory, self._phase, False, shares, agree)
        samples = self.sample_counter.count(minibatch, feeds)
        agreement = None
        if not plan.calls_python:  # which may change the number of samples
            is_divided = len(minibatch.others) + 1 == exchange.shares
            agreement = exchange.agree(samples, partial(self._digest, minibatch) if is_divided else None)
        if minibatch.others and not (agreement and agreement.joins):  # one device computes all of it
            minibatch = pack(plan, in_order, self.memory, self._phase)
        return minibatch, samples, agreement

    def _shares(self, feeds: Sequence[Feed], devices: int) -> int:
        """Into how many shares such a minibatch is divided: one for each device, or 1 where it cannot be."""
        if devices == 1 or self.outputs or not self.plan.is_divisible:
            return 1
        ragged = [feed for feed in feeds if isinstance(feed, Ragged)]
        numbers = {feed.num_sequences for feed in ragged}
        is_cut = any(feed.starts is not None for feed in ragged)
        has_empty = any(feed.lengths is not None and not feed.lengths.all() for feed in ragged)
        return 1 if is_cut or has_empty or len(numbers) != 1 or min(numbers) < devices else devices

    def _digest(self, minibatch: PackedMinibatch) -> str:
        """A text that is equal, in all processes, for minibatches that run the same program."""
        digest = self._shapes.get(minibatch.signature)
        if digest is None:
            operations = [node.op_name for node in self.plan.nodes]
            text = repr((operations, [v.shape for v in self.plan.outputs], self.options, minibatch.signature))
            digest = self._shapes[minibatch.signature] = sha256(text.encode()).hexdigest()[:16]
        return digest

    # ---- the ways of a step
    def _run_in_one_program(
        self, way: InOneProgram, minibatch: PackedMinibatch, samples: int, conclusion: Conclusion, number: int | None
    ) -> Outcome:
        pending = self.state.pending.value
        total, minibatches = pending.samples + samples, pending.minibatches + 1
        updates = minibatches == self.options.accumulate
        counts = way.counts(total)
        hypers = way.hypers(counts) if updates else None

        def conclude(computed: StepOutputs, changes: Changes) -> tuple[Changes, Outcome]:
            outputs = self._results(minibatch, computed)
            learned = () if hypers is None else (counts.learned, hypers)
            outcome = Outcome.of_sums(computed.sums, counts.reported, outputs, *learned)
            remaining = (0, 0) if updates else (total, minibatches)
            after = Accumulated(computed.gradients, *remaining, computed.state.loss_scale)
            return conclusion(outcome, {**changes, self.state.pending: after}), outcome

        return self._run_program(way, minibatch, hypers, conclude, number)

    def _computed_part(self, minibatch: PackedMinibatch, samples: int, number: int | None) -> WorkersPart:
        """Gradients for another program to update with."""

        def conclude(computed: StepOutputs, changes: Changes) -> tuple[Changes, WorkersPart]:
            outputs = self._results(minibatch, computed)
            moved = self.state.after(computed.state)  # what was donated comes back
            later = {cell: value for cell, value in changes.items() if cell not in moved}
            return moved, WorkersPart(computed.gradients, computed.sums, samples, outputs, later)

        way = self._local.in_one_program(Agreement(samples))
        return self._run_program(way, minibatch, None, conclude, number)

    def _run_program(
        self, way: InOneProgram, minibatch: PackedMinibatch, hypers: Sequence[Hyperparameters | None] | None,
        conclude: Callable[[StepOutputs, Changes], tuple[Changes, T]], number: int | None = None,
    ) -> T:
        """Run the program of this way, and commit what `conclude` makes of its outputs and of what they change.

        `hypers`: None if the learners do not learn in it. `number`: that of a step that may start quickly.
        Errors: AxisError for computed sequences whose lengths differ, but have to be equal.
        """
        plan, program, pending = self.plan, way.program(self.program), self.state.pending.value.gradients
        minibatch.extend_signature(_key(hypers, pending))
        drawn: RandomState = {}

        def compute(outputs: Captures) -> None:
            nonlocal drawn
            with STATE:
                settle()
                leaves = [None if leaf is None else leaf_array(leaf) for leaf in self.untrained_leaves]
                leaves, state = outliving(plan, (leaves, self.state.trained(hypers is not None)))
            drawn = self._draw(program.columns(minibatch))  # after leaves: see `evaluation.run_program`
            inputs = random_inputs(plan, drawn)
            try:
                program(minibatch, leaves, inputs, way.donated(state), (hypers, pending), outputs, number)
            except BatchSizeError as error:
                error.random_state = drawn  # the stages are given these numbers
                raise

        def concluded(outputs: PyTree) -> tuple[Changes, T | AxisError]:
            computed, changes = way.received(outputs)
            changes = {**changes, **self.state.after(computed.state), **self._after(drawn)}
            error = computed_lengths_error(plan, minibatch, computed.changes)
            if error is not None:
                return changes, error
            return conclude(computed, {**changes, **changes_of_cells(plan, minibatch, self.memory, computed.changes)})

        result = hand_over(compute, concluded, plan.calls_python)
        if isinstance(result, AxisError):
            raise result
        return result

    def _results(self, minibatch: PackedMinibatch, computed: StepOutputs) -> list[Result]:
        variables = [*self.criteria, *self.outputs]
        return collect_results(variables, self.program.plan, minibatch, computed.data, computed.layouts)

    def _run_in_stages(
        self, feeds: Feeds, error: BatchSizeError, exchange: Exchange, conclusion_for: ConclusionFor
    ) -> Outcome:
        """A step over several batch sizes; it is waited for."""
        with self.attempt() as attempt:
            if error.random_state is not None:
                replace_state(self._after(error.random_state))
            part = self._part_in_stages(feeds, error)
            part = replace(part, changes={**part.changes, **attempt.kept})
            if self.learners:
                return self.exchange_and_update(exchange, part, conclusion_for)
            replace_state(part.changes)
            return Outcome.of_sums(part.sums, part.samples, list(part.outputs))

    def _part_in_stages(self, feeds: Feeds, error: BatchSizeError) -> WorkersPart:
        computed = [*self.criteria, *self.outputs, self.sample_counter.source]
        stages = StagedExecution(computed, feeds, error, bool(self.learners), self.memory.streams)
        if self.options != StepOptions():
            raise ValueError(explain(
                "training on several batch sizes in one minibatch does not support these options",
                fix="leave out accumulate=, precision= and rematerialize=",
            )) from error
        stages.forward(assign=not self.learners)
        *results, sample_source = stages.results()
        sums = [_sum(result) for result in results[: len(self.criteria)]]
        samples, outputs = sample_source.samples, results[len(self.criteria) :]
        if not self.learners:
            return WorkersPart(None, sums, samples, outputs)
        parameters = [p for group in self.state.parameters for p in group]
        by_parameter = dict(zip(parameters, stages.backward({self.criteria[0]: None}, parameters), strict=True))
        gradients = [[stages.by_rows(by_parameter[p]) for p in group] for group in self.state.parameters]
        return WorkersPart(gradients, sums, samples, outputs)

    def attempt(self, leaves: Iterable[Leaf] = ()) -> Attempt:
        """A scope for a step in pieces, at whose end all state that it changes, these leaves too, is as before."""
        return Attempt([*self.state.cells, *map(cell_of, leaves)])

    def exchange_and_update(
        self, exchange: Exchange | None, part: WorkersPart = WorkersPart(),
        conclusion_for: ConclusionFor = no_conclusion, agreement: Agreement | None = None,
    ) -> Outcome:
        """Update with the gradients of all workers, without waiting for the device; this one may have none.

        `exchange`, `conclusion_for`: see `run`. `part`: that of this worker. `agreement`: if the workers have agreed
        already.
        """
        exchange = exchange or self._local
        agreement = agreement or exchange.agree(part.samples)
        way = exchange.separate(agreement, part.gradients) if agreement.samples else None
        conclusion = conclusion_for(agreement)
        if way is None:
            outcome = Outcome(0.0, 0.0, 0, list(part.outputs))
            replace_state(conclusion(outcome, part.changes))
            return outcome
        counts = way.counts(part.samples)
        hypers = way.hypers(counts)
        dtype = np.float64 if self.plan.is_double else np.float32

        def compute(captured: Captures) -> None:
            with double_precision(self.plan.is_double):
                local_sums = [jnp.asarray(s, dtype) for s in part.sums or [0.0] * len(self.criteria)]
                way.update(captured, self.state.trained(), part.gradients, local_sums, hypers)

        def conclude(outputs: PyTree) -> tuple[Changes, Outcome]:
            state, totals, changes = way.updated(outputs)
            outcome = Outcome.of_sums(totals, counts.reported, list(part.outputs), counts.learned, hypers)
            changes = {**part.changes, **changes, **self.state.after(state)}
            return conclusion(outcome, changes), outcome

        return hand_over(compute, conclude)

    def _draw(self, columns: AllColumns) -> RandomState:
        return draw_random_state(self.plan, self.memory.streams, bool(self.learners), columns)

    def _after(self, drawn: RandomState) -> Changes:
        return after_drawing(drawn, self.memory.streams, bool(self.learners))


def _key(hypers: Sequence[Hyperparameters | None] | None, pending: Gradients | None) -> Hashable:
    """What decides on the program besides the minibatch: which learners learn, and the gradients that they add to."""
    skipped = None if hypers is None else tuple(h is None for h in hypers)
    return skipped, tuple(g.shape for g in jax.tree.leaves(pending))


def _sum(result: Result) -> float:
    """The sum over all elements of all samples."""
    data = result.numpy()
    return float(sum(a.sum(dtype=np.float64) for a in (data if isinstance(data, list) else [data])))


__all__ = ["ConclusionFor", "Conclusion", "StepOptions", "Outcome", "WorkersPart", "Step", "no_conclusion"]
