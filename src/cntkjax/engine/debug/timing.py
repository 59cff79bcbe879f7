"""Node timing: each operation as a program of its own, run and timed before the whole program runs.

XLA fuses all operations into one program, in which no time belongs to a single one. What is measured here is the time
that each operation takes alone, forward and backward; together they take longer than the program. A recurrent loop
counts as one operation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from ..._typing import Array, PyTree
from ...graph.axis import Axis
from ...graph.function import Node, nodes
from ...graph.streams import Streams
from ...graph.variable import Edge
from ..data.layout import Batch, Layout
from ..lower.carry import Memory
from ..lower.lower import run_part
from ..lower.values import Context, Traced
from ..plan.parts import Loop, Part, inputs_of, nodes_of, outputs_of
from ..plan.plan import Plan
from ..plan.rewrite import rewritten
from ..run import profiler
from ..run.context import make_context, masked
from ..run.handover import STATE, settle
from ..run.minibatch import Feeds, MinibatchPacker, PackedArray, PackedMinibatch, arguments_in_order
from ..run.program_cache import RecentlyUsed
from ..run.random_streams import RandomInputs, columns_to_draw, draw_random_state, random_inputs, random_inputs_of_cells
from ..run.state import leaf_arrays
from ..xla.versions import double_precision

T = TypeVar("T")
Values: TypeAlias = "dict[Edge, PackedArray]"
_ContextArrays: TypeAlias = "tuple[Batch | None, list[Layout], RandomInputs | None, list[Array | None]]"
_Vjp: TypeAlias = "Callable[[list[Array]], tuple[list[Array]]]"


@dataclass
class Timing:
    """How often an operation ran, and for how long in total.

    Units: forward and backward are seconds. `operations`: how many a loop has.
    """

    forward: float = 0.0
    forwards: int = 0
    backward: float = 0.0
    backwards: int = 0
    operations: int = 1


_TIMINGS: WeakKeyDictionary[Node, Timing] = WeakKeyDictionary()


def timings_of(roots: Iterable[Node]) -> dict[Node, Timing]:
    """The timings of operations in the graphs of these functions, in the order of their uids."""
    all_nodes = nodes([root.root_function for root in roots], into_blocks=True)
    all_nodes = list(dict.fromkeys([*all_nodes, *map(rewritten, all_nodes)]))
    return {n: _TIMINGS[n] for n in sorted(all_nodes, key=lambda n: n.uid) if n in _TIMINGS}


def timing_table(roots: Iterable[Node]) -> str:
    """A line for each operation, in CNTK's format."""
    lines = []
    for node, t in timings_of(roots).items():
        forward, backward = t.forward / max(t.forwards, 1), t.backward / max(t.backwards, 1)
        loop = f" loop of {t.operations} operations" if t.operations > 1 else ""
        counts = f"(fwd# {t.forwards}|bwd# {t.backwards}){loop}"
        lines.append(f"{node.uid:<30} forward avg {forward:.6f}s, backward avg {backward:.6f}s {counts}")
    return "\n".join(lines)


def time_nodes(plan: Plan, feeds: Feeds, training: bool, memory: Memory) -> None:
    """Run and time every operation of a plan once, without changing any state.

    Plans that call user functions are not timed: these would be called twice.
    """
    if plan.calls_python:
        return
    timed = _TIMED_PLANS.get((plan.key, training), lambda: _TimedPlan(plan, training))
    minibatch = timed.packer.pack(plan, arguments_in_order(plan, feeds), memory)
    with STATE, double_precision(plan.is_double):
        settle()
        timed.run(plan, minibatch, memory.streams)


class _TimedPlan:
    """The operations of a plan, compiled one by one; plans of the same structure share them."""

    def __init__(self, plan: Plan, training: bool) -> None:
        self.plan, self.training = plan, training
        self.packer = MinibatchPacker(plan)
        self.parts = [_TimedPart(part, training) for part in plan.parts]

    def run(self, plan: Plan, minibatch: PackedMinibatch, streams: Streams) -> None:
        """Time all operations forward and, in training, backward; records belong to the nodes of `plan`."""
        columns = columns_to_draw(self.plan, minibatch.columns, self.training)
        random = random_inputs(plan, draw_random_state(plan, streams, self.training, columns))
        random = random_inputs_of_cells(self.plan, random, minibatch, self.training)
        inputs = _ContextInputs(self.plan, minibatch, self.packer.axes, random)
        values: Values = dict(zip(self.plan.arguments, minibatch.arguments, strict=True))
        values |= dict(zip(self.plan.leaves, leaf_arrays(plan), strict=True))
        active: set[Edge] = {v for v in self.plan.arguments if v.needs_gradient and not v.is_sparse}
        active |= {v for v in self.plan.leaves if v.is_parameter}
        backward_passes: list[tuple[_TimedPart, list[Edge], _BackwardPass, _Record]] = []
        for timed_part, part in zip(self.parts, plan.parts, strict=True):
            record = _record_of(part)
            wrt = [v for v in timed_part.operands if v in active] if self.training else []
            backward = timed_part.run_forward(values, wrt, inputs, record)
            if backward is not None:
                active.update(timed_part.results)
                backward_passes.append((timed_part, wrt, backward, record))
        loss = self.plan.outputs[0]
        if self.training and loss in active:
            cotangents = {loss: inputs.ones_like(loss, values[loss])}
            for timed_part, wrt, backward, record in reversed(backward_passes):
                timed_part.run_backward(values, cotangents, wrt, backward, record)


_TIMED_PLANS: RecentlyUsed[_TimedPlan] = RecentlyUsed()


class _Record(NamedTuple):
    """The timing of an operation, with its name for profiles."""

    name: str
    timing: Timing


def _record_of(part: Part) -> _Record:
    """The record of an operation; that of a loop belongs to its first delay."""
    node = part.delays[0] if isinstance(part, Loop) else part
    operations = len(part.delays) + len(part.nodes) if isinstance(part, Loop) else 1
    return _Record(node.uid, _TIMINGS.setdefault(node, Timing(operations=operations)))


class _ContextInputs:
    """What operations need besides operands: layouts, random numbers, and values from the previous minibatch."""

    def __init__(
        self, plan: Plan, minibatch: PackedMinibatch, axes: Sequence[Axis], random: RandomInputs | None
    ) -> None:
        self.plan, self.batch, self.past = plan, minibatch.batch, minibatch.past
        self.random = jax.tree.map(jnp.asarray, random)
        self.layouts = dict(zip(axes, minibatch.layouts, strict=True))
        self.signature: Hashable = minibatch.signature

    @property
    def arrays(self) -> _ContextArrays:
        """The arrays from which `context` makes a context."""
        return self.batch, list(self.layouts.values()), self.random, self.past

    def context(self, axes: Sequence[Axis], arrays: _ContextArrays, training: bool) -> Context:
        """The context with these arrays, or with tracers in their place. `axes`: those of the layouts."""
        batch, layouts, random, past = arrays
        return make_context(self.plan, training, batch, dict(zip(axes, layouts, strict=True)), random, past)

    def ones_like(self, variable: Edge, data: PackedArray) -> Array:
        """Ones in the shape of a value, and zeros in its padding."""
        ctx = self.context(list(self.layouts), self.arrays, True)
        return masked(ctx, variable.dynamic_axes, jnp.ones_like(data))


class _BackwardPass(NamedTuple):
    """A compiled function that applies a vjp to cotangents, the vjp, and whether it has not been compiled yet."""

    apply: Callable[[_Vjp, list[Array]], tuple[list[Array]]]
    vjp: _Vjp
    is_new: bool


class _TimedPart:
    """An operation or a loop, compiled alone."""

    def __init__(self, part: Part, training: bool) -> None:
        self.part, self.training = part, training
        inside = {v for n in nodes_of(part) for v in n.node_outputs}
        operands = [v for v in inputs_of(part) if v not in inside]
        if any(n.primitive.recomputes_operands for n in nodes_of(part)):
            below = Plan(operands)
            operands += [*below.leaves, *below.arguments]
        self.operands = list(dict.fromkeys(operands))
        self.results = outputs_of(part)
        self._compiled: dict[Hashable, tuple[Callable[..., PyTree], Callable[..., PyTree]]] = {}
        self._created_axes: list[Axis] = []

    def run_forward(
        self, values: Values, wrt: Sequence[Edge], inputs: _ContextInputs, record: _Record
    ) -> _BackwardPass | None:
        """Compute the results and add them to `values`; returns the backward pass, if there is one."""
        axes = list(inputs.layouts)
        primals = [values[v] for v in wrt]
        constants = [values[v] for v in self.operands if v not in wrt]
        key = inputs.signature, tuple(wrt)
        is_new = key not in self._compiled
        if is_new:

            def forward(primals: PyTree, constants: PyTree, arrays: _ContextArrays) -> PyTree:
                def compute(primals: PyTree) -> PyTree:
                    return self._compute(wrt, primals, constants, inputs.context(axes, arrays, self.training))

                return jax.vjp(compute, primals, has_aux=True) if wrt else (*compute(primals), None)

            self._compiled[key] = jax.jit(forward), jax.jit(lambda vjp, cotangents: vjp(cotangents))
        compiled_forward, compiled_vjp = self._compiled[key]
        computed, seconds = _timed(f"{record.name}Forward", is_new, compiled_forward, primals, constants, inputs.arrays)
        timing = record.timing
        timing.forward, timing.forwards = timing.forward + seconds, timing.forwards + 1
        results, vjp, layouts = computed if wrt else (computed[0], None, computed[1])
        values.update(zip(self.results, results, strict=True))
        inputs.layouts.update(zip(self._created_axes, layouts, strict=True))
        return None if vjp is None else _BackwardPass(compiled_vjp, vjp, is_new)

    def _compute(
        self, wrt: Sequence[Edge], primals: Sequence[PackedArray], constants: Sequence[PackedArray], ctx: Context
    ) -> tuple[list[Array], list[Layout]]:
        """The results, and layouts of sequence axes that are created."""
        known = set(ctx.layouts)
        operands = [*wrt, *(v for v in self.operands if v not in wrt)]
        env = {v: Traced(d, v.dynamic_axes) for v, d in zip(operands, [*primals, *constants], strict=True)}
        run_part(ctx, self.part, env)
        self._created_axes = [a for a in ctx.layouts if a not in known]
        return [ctx.array(env[v]) for v in self.results], [ctx.layouts[a] for a in self._created_axes]

    def run_backward(
        self, values: Values, cotangents: dict[Edge, Array], wrt: Sequence[Edge], backward: _BackwardPass,
        record: _Record,
    ) -> None:
        """Add the cotangents of the operands to `cotangents`, if there are any of the results."""
        if not any(v in cotangents for v in self.results):
            return
        of_results = [cotangents[v] if v in cotangents else jnp.zeros_like(values[v]) for v in self.results]
        (of_operands,), seconds = _timed(
            f"{record.name}Backward", backward.is_new, backward.apply, backward.vjp, of_results
        )
        timing = record.timing
        timing.backward, timing.backwards = timing.backward + seconds, timing.backwards + 1
        for v, cotangent in zip(wrt, of_operands, strict=True):
            if np.issubdtype(cotangent.dtype, np.floating):
                cotangents[v] = cotangents[v] + cotangent if v in cotangents else cotangent


def _timed(name: str, is_new: bool, call: Callable[..., T], *args: PyTree) -> tuple[T, float]:
    """The result of a call, and the seconds that it takes once it is compiled, which a first run does if it is new."""
    if is_new:
        jax.block_until_ready(call(*args))
    begin = time.perf_counter()
    result = jax.block_until_ready(call(*args))
    end = time.perf_counter()
    profiler.add("Nodes", name, begin, end)
    return result, end - begin


__all__ = ["Timing", "time_nodes", "timing_table", "timings_of"]
