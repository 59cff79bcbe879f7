"""Gradients outside of training: a program that computes outputs, and pulls cotangents of roots back to inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import AnyArray, Array, PyTree
from ...graph.shape import filled
from ...graph.variable import Edge, Leaf
from ..data.ragged import Ragged
from ..lower.carry import Memory
from ..lower.lower import execute
from ..lower.values import Context, Environment, Traced
from ..plan.parts import resolve
from ..plan.plan import Plan
from .context import created_layouts, masked
from .evaluation import run_program
from .minibatch import Feed, Feeds, PackedArray, PackedMinibatch, arguments_in_order, gather_rows, pad_rows
from .program_cache import plan_of, programs
from .python_callbacks import CallbackResults
from .random_streams import RandomState
from .result import LayoutArrays, Result, collect_results
from .state import StateChanges, state_changes

_Cotangent: TypeAlias = "PackedArray | tuple[AnyArray, np.ndarray]"
"""Packed, or samples end to end with the place where each sequence begins."""


def gradients_in_one_program(
    outputs: Sequence[Edge], roots: Mapping[Edge, Feed | None], wrt: Sequence[Edge], feeds: Feeds,
    random: RandomState | None = None, memory: Memory | None = None, callback_results: CallbackResults | None = None,
    known: Sequence[Edge] = (),
) -> tuple[list[Result], list[Result]]:
    """Gradients of roots with respect to leaves and arguments, summed over samples for leaves; and outputs.

    `roots` maps each root to its cotangent; None means ones. `callback_results`: what user functions returned in a
    forward pass with these feeds; then only assignments still have to take effect. `known`: variables that are fed
    although they could be computed.
    Errors: BatchSizeError if the evaluation takes several programs (`run/staged_execution.py`).
    """
    memory = Memory() if memory is None else memory
    variables = [*outputs, *roots]
    plan = plan_of(variables, known)
    inputs = tuple(_InputPlace.find(plan, resolve(v)) for v in wrt)
    fed = tuple(cotangent is not None for cotangent in roots.values())
    body = _PullBack(len(outputs), inputs, fed)
    program = programs.program(plan, "gradients", body, True, variant=body)
    # The cotangents are packed like the minibatch that runs, so no other one can be compiled for beside it.
    minibatch = program.pack(plan, arguments_in_order(plan, feeds), memory, in_background=not any(fed))
    minibatch.callback_results = callback_results
    cotangents = [
        _pack_cotangent(root, cotangent, minibatch)
        for root, cotangent in zip(program.plan.outputs[len(outputs) :], roots.values(), strict=True)
        if cotangent is not None
    ]
    minibatch.signature = (minibatch.signature, tuple(np.shape(a) for a in jax.tree.leaves(cotangents)))

    def written(changes: StateChanges) -> StateChanges:
        if callback_results is None:
            return changes
        assigned = {i: value for i, value in changes.updates.items() if plan.leaves[i] in plan.assigned}
        return changes._replace(updates=assigned)

    data, pulled_back, layouts, _ = run_program(program, plan, minibatch, memory, random, written, cotangents)
    output_results = collect_results(variables, program.plan, minibatch, data, layouts)[: len(outputs)]
    gradient_results = []
    for variable, place, gradient in zip(wrt, inputs, pulled_back[: len(wrt)], strict=True):
        if place is None:
            gradient_results.append(_zeros(variable, feeds.get(variable), minibatch.count))
            continue
        by_rows = resolve(variable) in plan.gathered_leaves
        layout = place.layout(program.plan, minibatch)
        gradient_results.append(Result(variable, gradient, minibatch.count, layout, by_rows))
    return gradient_results, output_results


def _zeros(variable: Edge, feed: Feed | None, count: int) -> Result:
    """The gradient of a variable that no output depends on. `count`: of sequences, if it is not fed."""
    shape = variable.shape
    if isinstance(feed, Ragged):
        shape = feed.data.shape[1:] if isinstance(feed.data, np.ndarray) else filled(shape, feed.data.width) or shape
        count = feed.num_sequences
    elif feed is not None:
        shape = feed.shape
    if not variable.dynamic_axes:
        return Result(variable, np.zeros(shape, variable.dtype), count, None)
    if variable.sequence_axis is None:
        return Result(variable, np.zeros((count, *shape), variable.dtype), count, None)
    fed = feed.lengths if isinstance(feed, Ragged) else None
    lengths = np.zeros(count, int) if fed is None else fed
    steps = np.zeros((lengths.max(initial=0), count, *shape), variable.dtype)
    return Result(variable, steps, count, (np.arange(count), np.zeros(count, int), lengths))


class _InputPlace(NamedTuple):
    """A leaf or an argument by its place, which is the same in all plans that share a program."""

    is_leaf: bool
    place: int

    @classmethod
    def find(cls, plan: Plan, variable: Edge) -> _InputPlace | None:
        """The place of a variable in a plan; None if no output depends on it."""
        if isinstance(variable, Leaf) and variable in plan.leaves:
            return cls(True, plan.leaves.index(variable))
        return cls(False, plan.arguments.index(variable)) if variable in plan.arguments else None

    def variable(self, plan: Plan) -> Edge:
        """The variable at this place."""
        return plan.leaves[self.place] if self.is_leaf else plan.arguments[self.place]

    def layout(self, plan: Plan, minibatch: PackedMinibatch) -> LayoutArrays | None:
        """Where the sequences of an argument are; None without a sequence axis. `plan`: that of the program."""
        axis = None if self.is_leaf else plan.arguments[self.place].sequence_axis
        grid = None if axis is None else minibatch.grids.get(axis)
        return None if grid is None else (grid.row, grid.start, grid.length)


def _pack_cotangent(root: Edge, feed: Feed, minibatch: PackedMinibatch) -> _Cotangent:
    """The cotangent of a root in the grid of its sequences, as far as this is known on the host."""
    if not isinstance(feed, Ragged):
        return feed
    size = feed.num_sequences if minibatch.batch is None else minibatch.batch.size  # None: of an axis created there
    axis = root.sequence_axis
    if axis is None:
        return pad_rows(feed.data, size, root)
    if axis in minibatch.grids:
        return gather_rows(feed.data, minibatch.grids[axis].index, root)
    assert feed.lengths is not None
    begins = np.zeros(size, np.int32)  # the axis is created in the program, and so is its grid
    begins[: len(feed.lengths)] = feed.offsets[:-1]
    return feed.data, begins  # type: ignore[return-value]


def _place_cotangent(ctx: Context, root: Edge, cotangent: _Cotangent) -> Array:
    """What `_pack_cotangent` returned in the grid of the root, also if that was created in the program."""
    if not isinstance(cotangent, tuple):
        return cotangent  # type: ignore[return-value]
    (samples, begins), layout = cotangent, ctx.layout(root.dynamic_axes)
    return samples[jnp.minimum(begins[layout.seq] + layout.position, len(samples) - 1)]


@dataclass(frozen=True)
class _PullBack:
    """The body of a gradient program: outputs, then a vector-Jacobian product of the roots.

    `inputs`: with respect to what; `fed`: which roots have a cotangent that is fed, instead of ones.
    """

    n_outputs: int
    inputs: tuple[_InputPlace | None, ...]
    fed: tuple[bool, ...]

    def __call__(
        self, plan: Plan, ctx: Context, env: Environment, donated: PyTree, cotangents: Sequence[_Cotangent]
    ) -> tuple[list[Array], list[Array | None], dict[int, LayoutArrays], StateChanges]:
        ctx.differentiates = True
        fed_axes = list(ctx.layouts)
        targets = [None if place is None else place.variable(plan) for place in self.inputs]
        sparse = (v for v in targets if v is not None and env[v].is_sparse)
        env = env | {v: Traced(ctx.array(env[v]), v.dynamic_axes) for v in sparse}
        # As in CNTK, user functions get their backward call for all arguments; returning these gradients too keeps the
        # calls alive in the compiled program.
        if plan.calls_python:
            targets += [v for v in plan.arguments if v.needs_gradient and not env[v].is_sparse]
        differentiated = list(dict.fromkeys(v for v in targets if v is not None))
        roots = plan.outputs[self.n_outputs :]

        def forward(primals: list[Array]) -> tuple[list[Array], PyTree]:
            local_env = env | {v: Traced(d, v.dynamic_axes) for v, d in zip(differentiated, primals, strict=True)}
            execute(plan, ctx, local_env)
            data = [ctx.array(local_env[v]) for v in plan.outputs]
            return data[self.n_outputs :], (data, created_layouts(plan, ctx, fed_axes), state_changes(plan, ctx))

        values, vjp, (data, layouts, changes) = jax.vjp(forward, [env[v].data for v in differentiated], has_aux=True)
        remaining = iter(cotangents)
        root_cotangents = [
            masked(
                ctx, root.dynamic_axes, _place_cotangent(ctx, root, next(remaining)) if fed else jnp.ones_like(value)
            ).astype(value.dtype)
            for root, value, fed in zip(roots, values, self.fed, strict=True)
        ]
        pulled_back = dict(zip(differentiated, vjp(root_cotangents)[0], strict=True))
        return data, [None if v is None else pulled_back[v] for v in targets], layouts, changes


__all__ = ["gradients_in_one_program"]
