"""The training step: forward, backward and all learners in one compiled program with donated buffers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...graph.errors import BatchSizeError, explain
from ...graph.function import nodes
from ...graph.variable import Leaf, Variable
from ..debug.checked import check
from ..lower.carry import Memory
from ..lower.lower import execute
from ..lower.rows import Rows, added, lookups, summed
from ..lower.values import Context, Value
from ..plan.parts import resolve
from ..plan.plan import Plan
from ..run.program import (
    Changes,
    Feeds,
    Minibatch,
    Program,
    Result,
    apply_changes,
    arguments_in_order,
    created_layouts,
    leaf_array,
    masked,
    results,
    state_changes,
)
from ..run.random_streams import random_inputs
from ..run.staged_execution import Stages, evaluate
from ..xla.versions import double_precision
from .loss_scale import LossScale
from .remat import execute_in_segments


@dataclass(frozen=True)
class Outcome:
    """What a step or test gives: sums over the samples, still on the device, and their number on the host.

    `learned`: the number of samples that the learners took their step for; 0 if they are still to take it.
    """

    loss: Any
    metric: Any
    samples: int
    outputs: list[Result]
    learned: int = 0


# From gradients (or None), sums of the criteria, and the number of samples: those of all workers together.
AllReduce = Callable[[Any, np.ndarray, list[list[Any]]], tuple[Any, np.ndarray]]


@dataclass(frozen=True)
class Options:
    """How a training step computes.

    `accumulate`: of how many minibatches the learners get the sum of the gradients. `narrow`: the type in which
    products with weights are computed. `rematerialize`: see remat.py.
    """

    accumulate: int = 1
    narrow: Any = None
    rematerialize: bool = False


@dataclass
class PendingGradients:
    """What one minibatch leaves for the next one: gradients that the learners are still to get, and the loss scale."""

    gradients: Any = None
    samples: int = 0
    minibatches: int = 0
    ends_sweep: bool = False
    scale: LossScale | None = None


class Step:
    """Computes criteria over minibatches, and trains if there are learners.

    Units: loss and metric are summed over all elements of all samples of a minibatch. The number of samples is that of
           the loss, or, where that has no dynamic axes, of what it was reduced from.

    `memory`: what sequences that are cut between minibatches leave behind. Steps that take turns share it, and
    `pending_gradients`.
    """

    def __init__(
        self, criteria: Sequence[Variable], outputs: Sequence[Variable], learners: Sequence[Any],
        memory: Memory | None = None, options: Options = Options(), pending_gradients: PendingGradients | None = None,
    ) -> None:
        self.criteria, self.outputs, self.learners = list(criteria), list(outputs), list(learners)
        self.memory = Memory() if memory is None else memory
        self.options = options
        self.pending_gradients = PendingGradients() if pending_gradients is None else pending_gradients
        self.counted = resolve(_counted(self.criteria[0]))
        self.plan = Plan([*self.criteria, *self.outputs])
        self.counts: dict[Hashable, int] = {}
        if options.narrow is not None and self.plan.is_double:
            raise ValueError("a model in double precision is not computed in a narrower one: leave out precision=")
        if options.rematerialize and self.plan.calls_python:
            raise ValueError("functions of the user are not computed twice: leave out rematerialize=")
        self.trained: list[list[Leaf]] = [list(learner.parameters) for learner in self.learners]
        trained = {p for group in self.trained for p in group}
        self.others = [None if leaf in trained else leaf for leaf in self.plan.leaves]
        trains = bool(self.learners)
        self.program = Program(self.plan, self._train if trains else self._test, trains, donate=True)
        self._learn_alone = jax.jit(self._learn, donate_argnums=0)

    def run(self, feeds: Feeds, number: int | None = None, all_reduce: AllReduce | None = None) -> Outcome:
        """Take a step; parameters and learners' states are replaced, and nothing is waited for.

        `number`: that of the minibatch, for what checked mode has to say. `all_reduce`: what is learned from is the sum
        over all workers, and waited for.
        """
        try:
            return self._run_at_once(feeds, number, all_reduce)
        except BatchSizeError as error:
            return self._run_in_stages(feeds, error, all_reduce)

    def _run_at_once(self, feeds: Feeds, number: int | None, all_reduce: AllReduce | None) -> Outcome:
        plan, program = self.plan, self.program
        check(plan, feeds, bool(self.learners), self.memory, number)
        minibatch = program.pack(plan, arguments_in_order(plan, feeds), self.memory)
        samples, before = self._samples(minibatch, feeds), self.pending_gradients
        learned, minibatches = before.samples + samples, before.minibatches + 1
        learns = minibatches == self.options.accumulate
        hypers = [learner.hyper(learned) for learner in self.learners] if learns and all_reduce is None else None
        skipped = None if hypers is None else tuple(h is None for h in hypers)
        pending = tuple(g.shape for g in jax.tree.leaves(before.gradients))
        minibatch.signature = (minibatch.signature, skipped, pending)
        leaves = [None if leaf is None else leaf_array(leaf) for leaf in self.others]
        computed = program(minibatch, leaves, random_inputs(plan), self._donated(), (hypers, before.gradients))
        values, states, (before.gradients, before.scale), sums, data, layouts, changes, _ = computed
        self._keep(values, states)
        before.samples, before.minibatches = (0, 0) if learns else (learned, minibatches)
        apply_changes(plan, minibatch, self.memory, changes)
        made = results([*self.criteria, *self.outputs], plan, program, minibatch, data, layouts)[len(self.criteria) :]
        if all_reduce is not None and learns:
            return self.reduce_and_update(all_reduce, sums, samples, made)
        return Outcome(sums[0], sums[1] if len(sums) > 1 else None, samples, made, learned if learns else 0)

    def _run_in_stages(self, feeds: Feeds, error: BatchSizeError, all_reduce: AllReduce | None) -> Outcome:
        """A step over several batch sizes; it is waited for."""
        stages = Stages([*self.criteria, *self.outputs, self.counted], feeds, error)
        if self.options != Options():
            raise ValueError(explain(
                "several batch sizes in one minibatch are not trained with these options",
                fix="leave out accumulate=, precision= and rematerialize=",
            )) from error
        stages.forward(bool(self.learners), assign=not self.learners)
        *made, counted = stages.results()
        sums = [_sum(result) for result in made[: len(self.criteria)]]
        samples, outputs = counted.samples, made[len(self.criteria) :]
        if not self.learners:
            return Outcome(sums[0], sums[1] if len(sums) > 1 else None, samples, outputs)
        every = [p for group in self.trained for p in group]
        found = dict(zip(every, stages.backward({self.criteria[0]: None}, every), strict=True))
        self.pending_gradients.gradients = [[stages.by_rows(found[p]) for p in group] for group in self.trained]
        return self.reduce_and_update(all_reduce or _alone, sums, samples, outputs)

    def reduce_and_update(
        self, all_reduce: AllReduce, sums: Sequence[Any] = (), samples: int = 0, outputs: Sequence[Result] = ()
    ) -> Outcome:
        """The step of all workers, with the gradients that this one has, if it has any."""
        numbers = np.array([*(sums or [0.0] * len(self.criteria)), samples], np.float64)
        like = [[leaf_array(p) for p in group] for group in self.trained]
        gradients, numbers = all_reduce(self.pending_gradients.gradients, numbers, like)
        total = int(numbers[-1])
        self.pending_gradients.gradients = None
        if total:
            hypers = [learner.hyper(total) for learner in self.learners]
            with double_precision(self.plan.is_double):
                values, states, self.pending_gradients.scale = self._learn_alone(self._donated(), gradients, hypers)
            self._keep(values, states)
        metric = numbers[1] if len(self.criteria) > 1 else None
        return Outcome(numbers[0], metric, total, list(outputs), total)

    def _donated(self) -> Any:
        values = [[leaf_array(p) for p in group] for group in self.trained]
        return values, [learner.optax_state for learner in self.learners], self.pending_gradients.scale

    def _keep(self, values: Any, states: Any) -> None:
        for group, new in zip(self.trained, values, strict=True):
            for parameter, value in zip(group, new, strict=True):
                parameter._value = value
        for learner, state in zip(self.learners, states, strict=True):
            learner.optax_state = state

    @cached_property
    def first_counted(self) -> Variable:
        """What has as many samples as `counted`, and of such the first to be computed."""
        if self.counted.sequence_axis is None:
            return self.counted
        alike = (v for n in self.plan.nodes for v in n.node_outputs if v.dynamic_axes == self.counted.dynamic_axes)
        return next(alike, self.counted)

    def _samples(self, minibatch: Minibatch, feeds: Feeds) -> int:
        samples = minibatch.samples(self.counted.dynamic_axes)
        if self.plan.makes_batch and self.counted.dynamic_axes:
            samples = self.counts.get(minibatch.signature)  # which has all shapes, and these decide
        if samples is None:  # sequences whose lengths only the program knows, or a batch that it makes of another
            given = {v: feeds[v] for v in self.plan.arguments}
            (result,) = evaluate([self.first_counted], given, memory=self.memory.copy())
            samples = result.samples
            if result.layout is None:
                self.counts[minibatch.signature] = samples
        return samples

    def _train(self, plan: Plan, ctx: Context, env: dict[Variable, Value], donated: Any, extra: Any) -> Any:
        (values, states, scale), (hypers, pending) = donated, extra
        known = list(ctx.layouts)
        ctx.narrow = self.options.narrow

        # As in CNTK the backward of users' functions is called for arguments too; what is returned is not left out.
        asking = [v for v in plan.arguments if v.needs_gradient and not env[v].is_sparse] if plan.calls_python else []
        found = lookups(plan, env | self._valued(values), [p for group in self.trained for p in group])

        def loss(values: Any, asked: Any) -> Any:
            here = env | {v: Value(d, v.dynamic_axes) for v, d in zip(asking, asked, strict=True)}
            here |= self._valued(values)
            for p, lookup in found.items():
                lookup.substitute(ctx, here.pop(p))
            sums, data = self._forward(plan, ctx, here, self.options.rematerialize)
            scaled = sums[0] if scale is None else sums[0] * scale.factor
            return scaled, (sums, data, created_layouts(plan, ctx, known), state_changes(plan, ctx))

        differentiated = self._each(lambda p, a: found[p].values if p in found else a, values)
        (gradients, asked), (sums, data, layouts, changes) = jax.grad(loss, (0, 1), has_aux=True)(
            differentiated, [env[v].data for v in asking]
        )
        if scale is not None:
            gradients = jax.tree.map(lambda g: (g / scale.factor).astype(g.dtype), gradients)
            changes = _finite_changes(plan, env, changes)
        gradients = self._each(lambda p, g: found[p].of(g) if p in found else g, gradients)
        if pending is not None:
            gradients = jax.tree.map(summed, pending, gradients, is_leaf=lambda g: isinstance(g, Rows))
        if hypers is None:
            return values, states, (gradients, scale), sums, data, layouts, changes, asked
        values, states, scale = self._learn((values, states, scale), gradients, hypers)
        return values, states, (None, scale), sums, data, layouts, changes, asked

    def _learn(self, donated: Any, gradients: Any, hypers: Any) -> Any:
        """What the learners make of parameters and their own states; the next loss scale."""
        values, states, scale = donated
        made = [
            (v, s) if h is None else learn(learner.transform, g, s, v, h)
            for learner, g, s, v, h in zip(self.learners, gradients, states, values, hypers, strict=True)
        ]
        if scale is not None:
            finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(gradients)]))
            before = list(zip(values, states, strict=True))
            made = jax.tree.map(lambda new, old: jnp.where(finite, new, old), made, before)
            scale = scale.updated(finite)
        return [v for v, _ in made], [s for _, s in made], scale

    def _each(self, f: Callable[[Leaf, Any], Any], arrays: Any) -> list[list[Any]]:
        """f(parameter, array) in the place of each array."""
        return [[f(p, a) for p, a in zip(*both, strict=True)] for both in zip(self.trained, arrays, strict=True)]

    def _valued(self, arrays: Any) -> dict[Variable, Value]:
        return {p: Value(a, ()) for both in zip(self.trained, arrays, strict=True) for p, a in zip(*both, strict=True)}

    def _test(self, plan: Plan, ctx: Context, env: dict[Variable, Value], donated: Any, extra: Any) -> Any:
        known = list(ctx.layouts)
        sums, data = self._forward(plan, ctx, env)
        return [], [], (None, None), sums, data, created_layouts(plan, ctx, known), state_changes(plan, ctx), []

    def _forward(
        self, plan: Plan, ctx: Context, env: dict[Variable, Value], in_segments: bool = False
    ) -> tuple[list[Any], list[Any]]:
        (execute_in_segments if in_segments else execute)(plan, ctx, env)
        sums = [total(ctx, env[v]) for v in plan.outputs[: len(self.criteria)]]
        data = [None] * len(self.criteria) + [ctx.array(env[v]) for v in plan.outputs[len(self.criteria) :]]
        return sums, data


def learn(transform: Any, gradients: Any, state: Any, values: Any, hyper: Mapping[str, Any]) -> tuple[Any, Any]:
    """One step of a learner: new values and state."""
    updates, state = transform.update(gradients, state, values, hyper=hyper)
    return jax.tree.map(added, values, updates), state


def _alone(gradients: Any, numbers: np.ndarray, like: Any) -> tuple[Any, np.ndarray]:
    """The `AllReduce` of a single worker."""
    return gradients, numbers


def _sum(result: Result) -> float:
    """The sum over all elements of all samples."""
    made = result.numpy()
    return float(sum(a.sum(dtype=np.float64) for a in (made if isinstance(made, list) else [made])))


def _finite_changes(plan: Plan, env: Mapping[Variable, Value], changes: Changes) -> Changes:
    """Assigned values and running statistics, except those that an overflow has reached."""
    updates, left, lengths = changes
    kept = {
        i: jnp.where(jnp.all(jnp.isfinite(new)), new, env[plan.leaves[i]].data) if plan.leaves[i] in env else new
        for i, new in updates.items()
    }
    return kept, left, lengths


def total(ctx: Context, value: Value) -> Any:
    """The sum over all elements of all samples, in at least single precision."""
    data = ctx.array(value)
    return jnp.sum(masked(ctx, value.axes, data.astype(jnp.promote_types(data.dtype, jnp.float32))))


def _counted(criterion: Variable) -> Variable:
    """The variable whose samples are counted: the criterion, or the nearest below it that has dynamic axes."""
    if criterion.dynamic_axes or criterion._owner is None:
        return criterion
    for node in reversed(nodes([criterion._owner], into_blocks=True)):
        for v in node.node_inputs:
            if v.dynamic_axes:
                return v
    return criterion
