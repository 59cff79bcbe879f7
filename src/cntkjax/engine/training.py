"""The training step: forward, backward and all learners in one compiled program with donated buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..graph.function import nodes
from ..graph.variable import Leaf, Variable
from .carry import Memory
from .checked import check
from .lower import execute
from .plan import Plan, resolve
from .program import (
    Feeds,
    Minibatch,
    Program,
    Result,
    apply_changes,
    arguments_in_order,
    changes_of,
    device_array,
    evaluate,
    masked,
    new_layouts,
    random_numbers,
    results,
)
from .rows import added, lookups
from .values import Context, Value


@dataclass(frozen=True)
class Outcome:
    """What a step or test gives: sums over the samples, still on the device, and their number on the host."""

    loss: Any
    metric: Any
    samples: int
    outputs: list[Result]


class Step:
    """Computes criteria over minibatches, and trains if there are learners.

    Units: loss and metric are summed over all elements of all samples of a minibatch. The number of samples is that of
           the loss, or, where that has no dynamic axes, of what it was reduced from.

    `memory`: what sequences that are cut between minibatches leave behind; steps that take turns share it.
    """

    def __init__(
        self, criteria: Sequence[Variable], outputs: Sequence[Variable], learners: Sequence[Any],
        memory: Memory | None = None,
    ) -> None:
        self.criteria, self.outputs, self.learners = list(criteria), list(outputs), list(learners)
        self.memory = Memory() if memory is None else memory
        self.counted = resolve(_counted(self.criteria[0]))
        self.plan = Plan([*self.criteria, *self.outputs])
        self.trained: list[list[Leaf]] = [list(learner.parameters) for learner in self.learners]
        trained = {p for group in self.trained for p in group}
        self.others = [None if leaf in trained else leaf for leaf in self.plan.leaves]
        trains = bool(self.learners)
        self.program = Program(self.plan, self._train if trains else self._test, trains, donate=True)

    def run(self, feeds: Feeds) -> Outcome:
        """Take a step; parameters and learners' states are replaced, and nothing is waited for."""
        plan, program = self.plan, self.program
        check(plan, feeds, bool(self.learners), self.memory)
        minibatch = program.pack(plan, arguments_in_order(plan, feeds), self.memory)
        samples = self._samples(minibatch, feeds)
        hypers = [learner.hyper(samples) for learner in self.learners]
        minibatch.signature = (minibatch.signature, tuple(h is None for h in hypers))
        leaves = [None if leaf is None else device_array(leaf) for leaf in self.others]
        states = [learner.state for learner in self.learners]
        donated = [[device_array(p) for p in group] for group in self.trained], states
        computed = program(minibatch, leaves, random_numbers(plan), donated, hypers)
        values, states, sums, data, layouts, changes, _ = computed
        for group, new in zip(self.trained, values, strict=True):
            for parameter, value in zip(group, new, strict=True):
                parameter.array = value
        for learner, state in zip(self.learners, states, strict=True):
            learner.state = state
        apply_changes(plan, minibatch, self.memory, changes)
        made = results([*self.criteria, *self.outputs], plan, program, minibatch, data, layouts)[len(self.criteria) :]
        return Outcome(sums[0], sums[1] if len(sums) > 1 else None, samples, made)

    def _samples(self, minibatch: Minibatch, feeds: Feeds) -> int:
        samples = minibatch.samples(self.counted.dynamic_axes)
        if samples is None:  # sequences whose lengths only the program knows
            (result,) = evaluate([self.counted], {v: feeds[v] for v in self.plan.arguments}, memory=self.memory.copy())
            assert result.layout is not None
            samples = int(np.asarray(result.layout[2]).sum())
        return samples

    def _train(self, plan: Plan, ctx: Context, env: dict[Variable, Value], donated: Any, hypers: Any) -> Any:
        values, states = donated
        known = list(ctx.layouts)

        # As in CNTK the backward of users' functions is called for arguments too; what is returned is not left out.
        asking = [v for v in plan.arguments if v.needs_gradient and not env[v].is_sparse] if plan.calls_python else []
        found = lookups(plan, env | self._valued(values), [p for group in self.trained for p in group])

        def loss(values: Any, asked: Any) -> Any:
            here = env | {v: Value(d, v.dynamic_axes) for v, d in zip(asking, asked, strict=True)}
            here |= self._valued(values)
            for p, lookup in found.items():
                lookup.substitute(ctx, here.pop(p))
            sums, data = self._forward(plan, ctx, here)
            return sums[0], (sums, data, new_layouts(plan, ctx, known), changes_of(plan, ctx))

        differentiated = self._each(lambda p, a: found[p].values if p in found else a, values)
        (gradients, asked), (sums, data, layouts, changes) = jax.grad(loss, (0, 1), has_aux=True)(
            differentiated, [env[v].data for v in asking]
        )
        gradients = self._each(lambda p, g: found[p].of(g) if p in found else g, gradients)
        made = [
            (v, s) if h is None else learn(learner.transform, g, s, v, h)
            for learner, g, s, v, h in zip(self.learners, gradients, states, values, hypers, strict=True)
        ]
        return [v for v, _ in made], [s for _, s in made], sums, data, layouts, changes, asked

    def _each(self, f: Callable[[Leaf, Any], Any], arrays: Any) -> list[list[Any]]:
        """f(parameter, array) in the place of each array."""
        return [[f(p, a) for p, a in zip(*both, strict=True)] for both in zip(self.trained, arrays, strict=True)]

    def _valued(self, arrays: Any) -> dict[Variable, Value]:
        return {p: Value(a, ()) for both in zip(self.trained, arrays, strict=True) for p, a in zip(*both, strict=True)}

    def _test(self, plan: Plan, ctx: Context, env: dict[Variable, Value], donated: Any, hypers: Any) -> Any:
        known = list(ctx.layouts)
        sums, data = self._forward(plan, ctx, env)
        return [], [], sums, data, new_layouts(plan, ctx, known), changes_of(plan, ctx), []

    def _forward(self, plan: Plan, ctx: Context, env: dict[Variable, Value]) -> tuple[list[Any], list[Any]]:
        execute(plan, ctx, env)
        sums = [total(ctx, env[v]) for v in plan.outputs[: len(self.criteria)]]
        data = [None] * len(self.criteria) + [ctx.array(env[v]) for v in plan.outputs[len(self.criteria) :]]
        return sums, data


def learn(transform: Any, gradients: Any, state: Any, values: Any, hyper: Mapping[str, Any]) -> tuple[Any, Any]:
    """One step of a learner: new values and state."""
    updates, state = transform.update(gradients, state, values, hyper=hyper)
    return jax.tree.map(added, values, updates), state


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
