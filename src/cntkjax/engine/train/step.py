"""The training step: forward, backward and all learners in one compiled program with donated buffers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, SupportsFloat

import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import PyTree
from ...graph.errors import AxisError, BatchSizeError, explain
from ...graph.variable import Leaf, Variable, set_value, value_of
from ..data.ragged import Ragged
from ..debug.checked import check
from ..lower.carry import Memory
from ..plan.plan import Plan
from ..run.handover import STATE, Captures, assign, copied, hand_over, settle
from ..run.minibatch import Feed, Feeds, Minibatch, arguments_in_order
from ..run.program import Program
from ..run.random_streams import RandomState, advance_random_state, draw_random_state, random_inputs
from ..run.result import Result, collect_results
from ..run.staged_execution import StagedExecution
from ..run.state import apply_changes, computed_lengths_error, leaf_array, outliving
from ..xla.versions import double_precision
from .learner import StepLearner
from .loss_scale import LossScale
from .sample_counter import SampleCounter
from .step_body import Options, StepBody, StepOutputs
from .undo import Undo
from .update import Exchange, Gradients, LocalUpdate, TrainedState, Update

_NOTICED = 0.5  # seconds


@dataclass(frozen=True)
class Outcome:
    """Sums over the samples of a step or test, still on the device, and the number of samples on the host.

    `learned`: the numbers of samples of the updates that the learners made in this step; none if they accumulate.
    `others`: further criteria, as `metric`.
    """

    loss: SupportsFloat
    metric: Any  # SupportsFloat, or None if there is only a loss
    samples: int
    outputs: list[Result]
    learned: Sequence[int] = ()
    others: Sequence[Any] = ()

    @classmethod
    def of_sums(
        cls, sums: Sequence[Any], samples: int, outputs: list[Result], learned: Sequence[int] = ()
    ) -> Outcome:
        """The outcome with the sums of all criteria: the loss, the metric if there is one, others."""
        return cls(sums[0], sums[1] if len(sums) > 1 else None, samples, outputs, learned, sums[2:])


class Count:
    """Counts a step, at the moment at which state is replaced; this one does not."""

    def expect(self, samples: int) -> None:
        """To be called first, when state is as before the step. Other workers may be waited for."""

    def __call__(self, outcome: Outcome) -> None:
        """Count it by assignments that may be repeated, without raising."""


def _nothing() -> None:
    """Change nothing."""


@dataclass(frozen=True)
class Part:
    """What a worker contributes to a step.

    `gradients`: None without data. `sums`: of the criteria. `samples`: of its minibatch. `apply`: changes what its
    forward pass changes, by assignments that may be repeated.
    """

    gradients: Gradients | None = None
    sums: Sequence[SupportsFloat] = ()
    samples: int = 0
    outputs: Sequence[Result] = ()
    apply: Callable[[], None] = _nothing


@dataclass
class PendingGradients:
    """State between minibatches: gradients that no learner has used yet, what they are of, and the loss scale."""

    gradients: Gradients | None = None
    samples: int = 0
    minibatches: int = 0
    ends_sweep: bool = False
    scale: LossScale | None = None


class Step:
    """Computes criteria over minibatches, and trains if there are learners.

    Units: loss and metric are summed over all elements of all samples of a minibatch. The number of samples is that of
           the loss, or, where that has no dynamic axes, of what it was reduced from.

    `memory`: what delays carry over where sequences are cut between minibatches. Alternating steps with other outputs
    share it, and `pending_gradients`.
    Errors: ValueError for options that the model does not allow.
    """

    def __init__(
        self, criteria: Sequence[Variable], outputs: Sequence[Variable], learners: Sequence[StepLearner],
        memory: Memory | None = None, options: Options = Options(), pending_gradients: PendingGradients | None = None,
    ) -> None:
        self.criteria, self.outputs, self.learners = list(criteria), list(outputs), list(learners)
        self.memory = Memory() if memory is None else memory
        self.options = options
        self.pending_gradients = PendingGradients() if pending_gradients is None else pending_gradients
        self.plan = Plan([*self.criteria, *self.outputs])
        self.sample_counter = SampleCounter(self.criteria[0], self.plan, self.memory)
        self._check_options()
        self.parameters: list[list[Leaf]] = [list(learner.parameters) for learner in self.learners]
        trained = {p for group in self.parameters for p in group}
        self.untrained_leaves = [None if leaf in trained else leaf for leaf in self.plan.leaves]
        transforms = [learner.transform for learner in self.learners]
        body = StepBody(len(self.criteria), self.parameters, transforms, self.options)
        if self.learners:
            self.program = Program(self.plan, "train", body.train, True, self._variant(body), donate=True)
        else:
            self.program = Program(
                self.plan, "test", body.test, False, body.num_criteria, donate=True, quick_start=True
            )
        self._local_update = LocalUpdate(self.learners)
        self._runs_python = any(learner.runs_python for learner in self.learners)
        self._shapes: dict[Hashable, str] = {}  # digests of signatures, equal in all processes

    def _variant(self, body: StepBody) -> object:
        """What the program depends on besides the plan: which leaves are learned, and how."""
        place = {leaf: i for i, leaf in enumerate(self.plan.leaves)}
        places = [[place.get(p) for p in group] for group in self.parameters]
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
        self, feeds: Feeds, number: int | None = None, exchange: Exchange | None = None, count: Count = Count()
    ) -> Outcome:
        """Take a step: replace parameters and the learners' states, without waiting for the device.

        `number`: that of the minibatch, for messages of checked mode. `exchange`: learn from the sums of gradients over
        all workers, and report what it says.
        """
        try:
            return self._run_in_one_program(feeds, number, exchange, count)
        except BatchSizeError as error:
            return self._run_in_stages(feeds, error, exchange, count)

    def compile_in_background(self, feeds: Feeds) -> None:
        """Begin to compile for a test of such a minibatch, for which nobody waits yet.

        It begins sequences of its own, whatever pieces are fed, and draws from streams of its own.
        """
        plan, program, memory = self.plan, self.program, Memory()
        with suppress(BatchSizeError):  # it will run in stages
            begun = [feed.begun() if isinstance(feed, Ragged) else feed for feed in arguments_in_order(plan, feeds)]
            minibatch = program.pack(plan, begun, memory, self._phase)
            minibatch.extend_signature(((), ()))
            leaves = [None if leaf is None else value_of(leaf) for leaf in self.untrained_leaves]
            inputs = random_inputs(plan, draw_random_state(plan, memory.streams, False))
            program.compile_in_background(minibatch, leaves, inputs, self._state(), ([], None))

    @property
    def is_slow_to_compile(self) -> bool:
        """Whether compiling its program has taken so long that a user notices."""
        return any(executable.seconds > _NOTICED for executable in self.program.executables)

    @property
    def _phase(self) -> Hashable:
        """What decides on the program besides shapes: whether gradients are accumulated, from the first or on."""
        pending = self.pending_gradients
        return pending.minibatches + 1 < self.options.accumulate, pending.gradients is None

    def _run_in_one_program(
        self, feeds: Feeds, number: int | None, exchange: Exchange | None, count: Count
    ) -> Outcome:
        plan, program, pending = self.plan, self.program, self.pending_gradients
        check(plan, feeds, bool(self.learners), self.memory, number)
        minibatch, samples, joined = self._packed(feeds, exchange)
        total_samples, minibatches = pending.samples + samples, pending.minibatches + 1
        updates = minibatches == self.options.accumulate
        learns = updates and (exchange is None or joined is not None)
        update = joined or self._local_update
        counts = update.counts(total_samples)
        hypers = update.hypers(counts) if learns else None
        skipped = None if hypers is None else tuple(h is None for h in hypers)
        pending_shapes = tuple(g.shape for g in jax.tree.leaves(pending.gradients))
        minibatch.extend_signature((skipped, pending_shapes))
        remaining = (0, 0) if updates else (total_samples, minibatches)
        exchanges = exchange is not None and joined is None  # in a second program; until then nothing is changed
        drawn: RandomState = {}
        error: AxisError | None = None

        def compute(outputs: Captures) -> None:
            nonlocal drawn
            with STATE:
                settle()
                leaves = [None if leaf is None else leaf_array(leaf) for leaf in self.untrained_leaves]
                leaves, state = outliving(plan, (leaves, self._state(hypers is not None)))
            drawn = self._draw()  # after leaves: see `evaluation.run_program`
            inputs = random_inputs(plan, drawn)
            run, donated = (program, state) if joined is None else (joined.joined(program), joined.donated(state))
            try:
                run(minibatch, leaves, inputs, donated, (hypers, pending.gradients), outputs)
            except BatchSizeError as error:
                error.random_state = drawn  # the stages are given these numbers
                raise

        def store(computed: StepOutputs) -> tuple[StepOutputs, Outcome]:
            nonlocal error
            if joined is not None:
                computed = joined.result_of_joined(computed)
            error = computed_lengths_error(plan, minibatch, computed.changes)
            self._set_state(computed.state)
            outputs = collect_results(
                [*self.criteria, *self.outputs], program.plan, minibatch, computed.data, computed.layouts
            )
            reported = samples if joined is None else counts.reported
            outcome = Outcome.of_sums(computed.sums, reported, outputs, counts.learned if updates else ())
            if not exchanges:
                self._advance(drawn)
                pending.gradients = computed.gradients
                pending.samples, pending.minibatches = remaining
                if error is None:
                    apply_changes(plan, minibatch, self.memory, computed.changes)
                    count(outcome)
            return computed, outcome

        def apply() -> None:
            self._advance(drawn)
            apply_changes(plan, minibatch, self.memory, computed.changes)

        if not exchanges:
            count.expect(samples if joined is None else joined.samples)
        computed, outcome = hand_over(compute, store, plan.calls_python)
        if error is not None:
            raise error
        if exchange is None or joined is not None:
            return outcome
        part = Part(computed.gradients, computed.sums, samples, outcome.outputs, apply)
        return self.exchange_and_update(exchange, part, count)

    def _packed(self, feeds: Feeds, exchange: Exchange | None) -> tuple[Minibatch, int, Exchange | None]:
        """The minibatch, its samples, and the exchange if that is part of its program."""
        plan = self.plan
        in_order = arguments_in_order(plan, feeds)
        shares = 1 if exchange is None else self._shares(in_order, exchange.shares)
        agree = None if exchange is None or plan.calls_python else exchange.agree_on_sizes
        minibatch = self.program.pack(plan, in_order, self.memory, self._phase, exchange is None, shares, agree)
        samples = self.sample_counter.count(minibatch, feeds)
        if exchange is not None and self._agree_ahead(exchange, minibatch, samples):
            return minibatch, samples, exchange
        if minibatch.others:  # one device computes all of it
            minibatch = self.program.pack(plan, in_order, self.memory, self._phase)
        return minibatch, samples, None

    def _shares(self, feeds: Sequence[Feed], devices: int) -> int:
        """Into how many shares such a minibatch is divided: one for each device, or 1 where it cannot be."""
        if devices == 1 or self.outputs or not self.plan.is_divisible:
            return 1
        ragged = [feed for feed in feeds if isinstance(feed, Ragged)]
        numbers = {feed.num_sequences for feed in ragged}
        is_cut = any(feed.starts is not None for feed in ragged)
        has_empty = any(feed.lengths is not None and not feed.lengths.all() for feed in ragged)
        return 1 if is_cut or has_empty or len(numbers) != 1 or min(numbers) < devices else devices

    def _agree_ahead(self, exchange: Exchange, minibatch: Minibatch, samples: int) -> bool:
        """Whether all workers compute and learn from such a minibatch in one program."""
        if self.plan.calls_python:
            return False  # which may change the number of samples
        if len(minibatch.others) + 1 < exchange.shares:
            return exchange.agree_ahead(samples, "")
        shapes = self._shapes.get(minibatch.signature)
        if shapes is None:
            operations = [node.op_name for node in self.plan.nodes]
            text = repr((operations, [v.shape for v in self.plan.outputs], self.options, minibatch.signature))
            shapes = self._shapes[minibatch.signature] = sha256(text.encode()).hexdigest()[:16]
        return exchange.agree_ahead(samples, shapes)

    def _run_in_stages(
        self, feeds: Feeds, error: BatchSizeError, exchange: Exchange | None, count: Count
    ) -> Outcome:
        """A step over several batch sizes; it is waited for."""
        with self.undo() as undo:
            if error.random_state is not None:
                self._advance(error.random_state)
            return self._run_stages(feeds, error, exchange, count, undo)

    def _run_stages(
        self, feeds: Feeds, error: BatchSizeError, exchange: Exchange | None, count: Count, undo: Undo
    ) -> Outcome:
        computed = [*self.criteria, *self.outputs, self.sample_counter.source]
        stages = StagedExecution(computed, feeds, error, bool(self.learners), self.memory.streams)
        if self.options != Options():
            raise ValueError(explain(
                "training on several batch sizes in one minibatch does not support these options",
                fix="leave out accumulate=, precision= and rematerialize=",
            )) from error
        stages.forward(assign=not self.learners)
        *results, sample_source = stages.results()
        sums = [_sum(result) for result in results[: len(self.criteria)]]
        samples, outputs = sample_source.samples, results[len(self.criteria) :]
        if not self.learners:
            undo.keep()
            return Outcome.of_sums(sums, samples, outputs)
        parameters = [p for group in self.parameters for p in group]
        by_parameter = dict(zip(parameters, stages.backward({self.criteria[0]: None}, parameters), strict=True))
        gradients = [[stages.by_rows(by_parameter[p]) for p in group] for group in self.parameters]
        part = Part(gradients, sums, samples, outputs, undo.keep)
        return self.exchange_and_update(exchange, part, count)

    def undo(self, leaves: Iterable[Leaf] = ()) -> Undo:
        """A scope for a step, at whose end all state that it changes, these leaves too, is as before; see `Undo`."""
        trained = [p for group in self.parameters for p in group]
        return Undo(self.plan, (*trained, *leaves), self.learners, self.memory, self.pending_gradients)

    def exchange_and_update(
        self, exchange: Update | None, part: Part = Part(), count: Count = Count(),
    ) -> Outcome:
        """Update with the gradients of all workers, without waiting for the device; this one may have none.

        `exchange`, `count`: see `run`. `part`: that of this worker.
        """
        exchange = exchange or self._local_update
        total_samples = exchange.agree(part.samples, part.gradients)
        count.expect(total_samples)
        if not total_samples:
            return assign(partial(self._without_samples, part, count))
        counts = exchange.counts(part.samples)
        hypers = exchange.hypers(counts)
        dtype = np.float64 if self.plan.is_double else np.float32

        def compute(captured: Captures) -> None:
            with double_precision(self.plan.is_double):
                local_sums = [jnp.asarray(s, dtype) for s in part.sums or [0.0] * len(self.criteria)]
                exchange.update(captured, self._state(), part.gradients, local_sums, hypers)

        def store(computed: PyTree) -> Outcome:
            state, totals = exchange.result(computed)
            self._set_state(state)
            part.apply()
            outcome = Outcome.of_sums(totals, counts.reported, list(part.outputs), counts.learned)
            count(outcome)
            return outcome

        return hand_over(compute, store)

    def _without_samples(self, part: Part, count: Count) -> Outcome:
        """The outcome where nobody who exchanges gradients has any; others may have, and count the step."""
        part.apply()
        outcome = Outcome(0.0, 0.0, 0, list(part.outputs))
        count(outcome)
        return outcome

    def _draw(self) -> RandomState:
        return draw_random_state(self.plan, self.memory.streams, bool(self.learners))

    def _advance(self, drawn: RandomState) -> None:
        advance_random_state(drawn, self.memory.streams, bool(self.learners))

    def _state(self, learns: bool = True) -> TrainedState:
        """What a program donates; without the learners' states if they do not learn in it.

        Copies for learners that run Python code, whose steps can be undone until its end.
        """
        values = [[leaf_array(p) for p in group] for group in self.parameters]
        states = [learner.optax_state for learner in self.learners] if learns else []
        state = TrainedState(values, states, self.pending_gradients.scale)
        return copied(state) if self._runs_python else state

    def _set_state(self, state: TrainedState) -> None:
        for group, values in zip(self.parameters, state.parameters, strict=True):
            for parameter, value in zip(group, values, strict=True):
                set_value(parameter, value)
        for learner, learner_state in zip(self.learners, state.learners, strict=bool(state.learners)):
            learner.optax_state = learner_state
        self.pending_gradients.scale = state.loss_scale


def _sum(result: Result) -> float:
    """The sum over all elements of all samples."""
    data = result.numpy()
    return float(sum(a.sum(dtype=np.float64) for a in (data if isinstance(data, list) else [data])))


__all__ = ["Count", "Options", "Outcome", "Part", "PendingGradients", "Step"]
