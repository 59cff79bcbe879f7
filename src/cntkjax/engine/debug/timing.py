"""Node timing: each operation as a program of its own, run and timed before the whole program runs.

XLA makes one program of all operations, in which no time belongs to one. What is measured here is what each takes
alone, forward and backward; together they take longer than the whole. A recurrent loop counts as one operation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...graph.axis import Axis
from ...graph.function import Function, nodes
from ...graph.variable import Variable
from ..lower.carry import Memory
from ..lower.lower import run_part
from ..lower.values import Context, Value
from ..plan.parts import Loop, Part, inputs_of, nodes_of, outputs_of
from ..plan.plan import Plan
from ..plan.rewrite import rewritten
from ..run import profiler as _profiler
from ..run.program import Feeds, arguments_in_order, leaf_arrays, make_context, masked, program_of
from ..run.random_streams import random_inputs
from ..xla.versions import double_precision


@dataclass
class Timing:
    """Seconds that an operation took, and how often."""

    forward: float = 0.0
    forwards: int = 0
    backward: float = 0.0
    backwards: int = 0
    operations: int = 1  # in a loop


def timing_of(roots: Iterable[Function]) -> dict[Function, Timing]:
    """What was measured of operations below these, in the order of their uids."""
    found = nodes([root.root_function for root in roots], into_blocks=True)
    found = list(dict.fromkeys([*found, *map(rewritten, found)]))
    return {n: n.__dict__["_timing"] for n in sorted(found, key=lambda n: n.uid) if "_timing" in n.__dict__}


def table(roots: Iterable[Function]) -> str:
    """A line for each operation, as CNTK prints them."""
    lines = []
    for node, t in timing_of(roots).items():
        forward, backward = t.forward / max(t.forwards, 1), t.backward / max(t.backwards, 1)
        loop = f" loop of {t.operations} operations" if t.operations > 1 else ""
        counts = f"(fwd# {t.forwards}|bwd# {t.backwards}){loop}"
        lines.append(f"{node.uid:<30} forward avg {forward:.6f}s, backward avg {backward:.6f}s {counts}")
    return "\n".join(lines)


def time_nodes(plan: Plan, feeds: Feeds, training: bool, memory: Memory) -> None:
    """Measure every operation of a plan once; nothing changes, and user functions are not called: these have none."""
    if plan.calls_python:
        return
    program = program_of(plan, "timing", _not_run, training)
    parts = program.__dict__.setdefault("_timed", [])
    if not parts:
        parts += [_Part(part, training) for part in program.plan.parts]
    minibatch = program.pack(plan, arguments_in_order(plan, feeds), memory)
    with double_precision(plan.is_double):
        place = _Place(program.plan, minibatch, program.axes, random_inputs(plan, advance=False))
        values: dict[Variable, Any] = dict(zip(program.plan.arguments, minibatch.arguments, strict=True))
        values |= dict(zip(program.plan.leaves, leaf_arrays(plan), strict=True))
        active = {v for v in program.plan.arguments if v.needs_gradient and not v.is_sparse}
        active |= {v for v in program.plan.leaves if v.is_parameter}
        backs: list[tuple[int, list[Variable], Any]] = []
        for i, (part, own) in enumerate(zip(parts, plan.parts, strict=True)):
            wrt = [v for v in part.operands if v in active] if training else []
            back = part.run_forward(values, wrt, place, _timing(own))
            if wrt:
                active.update(part.results)
                backs.append((i, wrt, back))
        loss = program.plan.outputs[0]
        if training and loss in active:
            gradients = {loss: place.ones(loss, values[loss])}
            for i, wrt, back in reversed(backs):
                parts[i].run_backward(values, gradients, wrt, back, _timing(plan.parts[i]))


def _not_run(*_: Any) -> Any:
    raise AssertionError("this program only packs minibatches")


def _timing(part: Part) -> tuple[str, Timing]:
    """The record of an operation, or of a loop under its first delay."""
    node = part.delays[0] if isinstance(part, Loop) else part
    operations = len(part.delays) + len(part.nodes) if isinstance(part, Loop) else 1
    return node.uid, node.__dict__.setdefault("_timing", Timing(operations=operations))


class _Place:
    """Where the samples of a minibatch stand, and the random numbers: what operations ask besides operands."""

    def __init__(self, plan: Plan, minibatch: Any, axes: Sequence[Axis], random: Any) -> None:
        self.plan, self.batch, self.past = plan, minibatch.batch, minibatch.past
        self.random = jax.tree.map(jnp.asarray, random)
        self.layouts = dict(zip(axes, minibatch.layouts, strict=True))
        self.signature: Hashable = minibatch.signature

    @property
    def arrays(self) -> Any:
        return self.batch, list(self.layouts.values()), self.random, self.past

    def context(self, axes: Sequence[Axis], arrays: Any, training: bool) -> Context:
        batch, layouts, random, past = arrays
        return make_context(self.plan, training, batch, dict(zip(axes, layouts, strict=True)), random, past)

    def ones(self, variable: Variable, data: Any) -> Any:
        """The gradient that arrives at the loss."""
        ctx = self.context(list(self.layouts), self.arrays, True)
        return masked(ctx, variable.dynamic_axes, jnp.ones_like(data))


class _Part:
    """An operation or a loop, compiled alone."""

    def __init__(self, part: Part, training: bool) -> None:
        self.part, self.training = part, training
        inside = {v for n in nodes_of(part) for v in n.node_outputs}
        read = [v for v in inputs_of(part) if v not in inside]
        if any(n.primitive.recomputes_operands for n in nodes_of(part)):
            below = Plan(read)
            read += [*below.leaves, *below.arguments]
        self.operands = list(dict.fromkeys(read))
        self.results = outputs_of(part)
        self._compiled: dict[Hashable, tuple[Any, Any]] = {}
        self._made_axes: list[Axis] = []

    def run_forward(
        self, values: dict[Variable, Any], wrt: Sequence[Variable], place: _Place, record: tuple[str, Timing]
    ) -> Any:
        """Compute the results into `values`; returns the backward pass, if there are variables to differentiate."""
        axes = list(place.layouts)
        moving = [values[v] for v in wrt]
        fixed = [values[v] for v in self.operands if v not in wrt]
        key = place.signature, tuple(wrt)
        first = key not in self._compiled
        if first:

            def forward(moving: Any, fixed: Any, arrays: Any) -> Any:
                def compute(moving: Any) -> Any:
                    return self._computed(wrt, moving, fixed, place.context(axes, arrays, self.training))

                return jax.vjp(compute, moving, has_aux=True) if wrt else (*compute(moving), None)

            self._compiled[key] = jax.jit(forward), jax.jit(lambda back, given: back(given))
        name, timing = record
        made, seconds = _timed(f"{name}Forward", self._compiled[key][0], first, moving, fixed, place.arrays)
        timing.forward, timing.forwards = timing.forward + seconds, timing.forwards + 1
        results, back, layouts = (made[0], made[1], made[2]) if wrt else (made[0], None, made[1])
        values.update(zip(self.results, results, strict=True))
        place.layouts.update(zip(self._made_axes, layouts, strict=True))
        return None if back is None else (self._compiled[key][1], first, back)

    def _computed(self, wrt: Sequence[Variable], moving: Any, fixed: Any, ctx: Context) -> Any:
        known = set(ctx.layouts)
        others = [v for v in self.operands if v not in wrt]
        env = {v: Value(d, v.dynamic_axes) for v, d in zip([*wrt, *others], [*moving, *fixed], strict=True)}
        run_part(ctx, self.part, env)
        self._made_axes = [a for a in ctx.layouts if a not in known]
        return [ctx.array(env[v]) for v in self.results], [ctx.layouts[a] for a in self._made_axes]

    def run_backward(
        self, values: dict[Variable, Any], gradients: dict[Variable, Any], wrt: Sequence[Variable], back: Any,
        record: tuple[str, Timing],
    ) -> None:
        """Hand the gradients of the results on to the operands, if there are any."""
        if not any(v in gradients for v in self.results):
            return
        given = [gradients[v] if v in gradients else jnp.zeros_like(values[v]) for v in self.results]
        name, timing = record
        (found,), seconds = _timed(f"{name}Backward", *back, given)
        timing.backward, timing.backwards = timing.backward + seconds, timing.backwards + 1
        for v, gradient in zip(wrt, found, strict=True):
            if np.issubdtype(gradient.dtype, np.floating):
                gradients[v] = gradients[v] + gradient if v in gradients else gradient


def _timed(name: str, call: Callable[..., Any], first: bool, *args: Any) -> tuple[Any, float]:
    """What a call makes, and the seconds that it takes once it is compiled, which its first run does."""
    if first:
        jax.block_until_ready(call(*args))
    begin = time.perf_counter()
    made = jax.block_until_ready(call(*args))
    end = time.perf_counter()
    _profiler.add("Nodes", name, begin, end)
    return made, end - begin
