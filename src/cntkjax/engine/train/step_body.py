"""What a training or test step computes, in its program: forward, backward, and the update of all learners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from ..._typing import Array, DTypeLike, PyTree
from ...graph.variable import Edge, Leaf
from ..lower.lower import execute
from ..lower.rows import Rows, add_gradients, computed_rows, lookups
from ..lower.values import Context, Environment, Traced
from ..plan.plan import Plan
from ..run.context import created_layouts, sum_over_samples
from ..run.result import LayoutArrays
from ..run.state import StateChanges, state_changes
from .remat import execute_in_segments
from .update import Gradients, TrainedState, updated

if TYPE_CHECKING:
    import optax


@dataclass(frozen=True)
class StepOptions:
    """How a training step computes.

    `accumulate`: of how many minibatches the learners get the sum of the gradients. `narrow`: the type in which
    products with weights are computed; None for that of their operands. `rematerialize`: see remat.py.
    """

    accumulate: int = 1
    narrow: DTypeLike | None = None
    rematerialize: bool = False


class StepOutputs(NamedTuple):
    """What the program of a step returns.

    `gradients`: those that are pending after the step, or None. `sums`: the criteria, summed over all samples. `data`:
    those of all outputs of the plan, None for criteria. `argument_gradients` are never read; see `StepBody.train`.
    """

    state: TrainedState
    gradients: Gradients | None
    sums: list[Array]
    data: list[Array | None]
    layouts: dict[int, LayoutArrays]
    changes: StateChanges
    argument_gradients: list[Array]


@dataclass(frozen=True)
class StepBody:
    """The bodies of the programs of a step, which are of the same plan.

    `num_criteria`: this many outputs of the plan, the first ones, are criteria. `parameters`: those of each learner.
    `transforms`: the learners'.
    """

    num_criteria: int
    parameters: Sequence[Sequence[Leaf]]
    transforms: Sequence[optax.GradientTransformationExtraArgs]
    options: StepOptions

    def train(self, plan: Plan, ctx: Context, env: Environment, state: TrainedState, extra: PyTree) -> StepOutputs:
        """`extra`: hyperparameters of all learners, or None if gradients are only accumulated; pending gradients."""
        hypers, pending = extra
        scale = state.loss_scale
        fed_axes = list(ctx.layouts)
        ctx.product_dtype = self.options.narrow

        # As in CNTK, user functions get their backward call for arguments too; returning these gradients keeps the
        # calls alive in the compiled program.
        arguments: list[Edge] = []
        if plan.calls_python:
            arguments = [v for v in plan.arguments if v.needs_gradient and not env[v].is_sparse]
        parameters = [p for group in self.parameters for p in group]
        looked_up = lookups(plan, env | self._parameter_values(state.parameters), parameters)
        others = [p for p in parameters if p not in looked_up]

        def loss(values: list[list[Array]], argument_data: list[Array]) -> tuple[Array, PyTree]:
            local_env = env | {v: Traced(d, v.dynamic_axes) for v, d in zip(arguments, argument_data, strict=True)}
            local_env |= self._parameter_values(values)
            for p, lookup in looked_up.items():
                lookup.substitute(ctx, local_env.pop(p))
            sums, data = self._forward(plan, ctx, local_env, self.options.rematerialize)
            scaled = sums[0] if scale is None else sums[0] * scale.factor
            layouts, changes = created_layouts(plan, ctx, fed_axes), state_changes(plan, ctx)
            return scaled, (sums, data, layouts, changes, computed_rows(plan, ctx, local_env, others))

        gradient_of = jax.grad(loss, (0, 1), has_aux=True)
        (gradients, argument_gradients), (sums, data, layouts, changes, occurring) = gradient_of(
            self._map(lambda p, a: looked_up[p].values if p in looked_up else a, state.parameters),
            [env[v].data for v in arguments],
        )
        if scale is not None:
            gradients = jax.tree.map(lambda g: (g / scale.factor).astype(g.dtype), gradients)
            changes = _finite_changes(plan, env, changes)
        indices = dict(zip(others, occurring, strict=True))

        def by_rows(parameter: Leaf, gradient: Array) -> Array | Rows:
            if parameter in looked_up:
                return looked_up[parameter].parameter_gradient(gradient)
            rows = indices[parameter]
            return gradient if rows is None else Rows.occurring(gradient, rows)

        gradients = self._map(by_rows, gradients)
        if pending is not None:
            gradients = jax.tree.map(add_gradients, pending, gradients, is_leaf=lambda g: isinstance(g, Rows))
        state, changes = self._assigned(plan, state, changes)
        if hypers is not None:
            state, gradients = updated(self.transforms, state, gradients, hypers), None
        return StepOutputs(state, gradients, sums, data, layouts, changes, argument_gradients)

    def _assigned(self, plan: Plan, state: TrainedState, changes: StateChanges) -> tuple[TrainedState, StateChanges]:
        """The state with the values that the forward pass assigned to parameters: as in CNTK, these are updated."""
        new = {plan.leaves[i]: value for i, value in changes.updates.items()}
        learned = {p for group in self.parameters for p in group}
        others = {i: value for i, value in changes.updates.items() if plan.leaves[i] not in learned}
        parameters = self._map(lambda p, a: new.get(p, a), state.parameters)
        return state._replace(parameters=parameters), changes._replace(updates=others)

    def results_of_users(
        self, plan: Plan, ctx: Context, env: Environment, state: TrainedState, extra: PyTree
    ) -> list[Array]:
        """What a step needs to compute before it knows the sizes of all that functions of the user return."""
        ctx.product_dtype = self.options.narrow
        env = execute(plan, ctx, env | self._parameter_values(state.parameters))
        return [env[v].data for v in plan.free_results]

    def test(self, plan: Plan, ctx: Context, env: Environment, state: TrainedState, extra: PyTree) -> StepOutputs:
        """The criteria's sums and the data of other outputs; nothing is learned."""
        fed_axes = list(ctx.layouts)
        sums, data = self._forward(plan, ctx, env)
        layouts, changes = created_layouts(plan, ctx, fed_axes), state_changes(plan, ctx)
        return StepOutputs(TrainedState([], [], None), None, sums, data, layouts, changes, [])

    def _forward(
        self, plan: Plan, ctx: Context, env: Environment, rematerialize: bool = False
    ) -> tuple[list[Array], list[Array | None]]:
        """Sums of the criteria, and data of all outputs, None for criteria."""
        (execute_in_segments if rematerialize else execute)(plan, ctx, env)
        sums = [sum_over_samples(ctx, env[v]) for v in plan.outputs[: self.num_criteria]]
        return sums, [*[None] * self.num_criteria, *(ctx.array(env[v]) for v in plan.outputs[self.num_criteria:])]

    def _map(self, f: Callable[[Leaf, Array], Any], arrays: Sequence[Sequence[Array]]) -> list[list[Any]]:
        """f(parameter, array) in the place of each array."""
        groups = zip(self.parameters, arrays, strict=True)
        return [[f(p, a) for p, a in zip(group, of_group, strict=True)] for group, of_group in groups]

    def _parameter_values(self, arrays: Sequence[Sequence[Array]]) -> dict[Edge, Traced]:
        groups = zip(self.parameters, arrays, strict=True)
        return {p: Traced(a, ()) for group, of_group in groups for p, a in zip(group, of_group, strict=True)}


def _finite_changes(plan: Plan, env: Environment, changes: StateChanges) -> StateChanges:
    """Assigned values and running statistics, except those that an overflow has reached."""
    updates = {
        i: jnp.where(jnp.all(jnp.isfinite(new)), new, env[plan.leaves[i]].data) if plan.leaves[i] in env else new
        for i, new in changes.updates.items()
    }
    return changes._replace(updates=updates)


__all__ = ["StepOptions", "StepBody", "StepOutputs"]
