"""Recurrent loops as scans.

Only what is on the cycle goes inside: operands from outside are computed before the loop for all steps at once.
Sequence starts select the initial state, so a row may hold several sequences. The gradient of a weight that multiplies
inside the loop is one large product after the backward loop, not an accumulation in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp

from ..._typing import Array, Shape
from ...graph.errors import explain
from ...graph.function import Node
from ...graph.shape import broadcast, is_known
from ...graph.variable import Edge
from ..data.dimensions import expand_to, pad_rank
from ..plan.parts import Loop, resolve
from .carry import carried_into, carry_out, initial_states, states_before
from .nodes import check_samples, run_node, sample_shape, unfit_data
from .products import (
    Product,
    Weight,
    apply_weight,
    hoisted_products,
    multiply,
    products_of,
    with_common_operand,
)
from .scans import scan, scan_forward, unrolled_steps
from .tilings import Tiling, tilings_of
from .values import Axes, Context, Environment, LayoutArrays, LoopStep, Traced, layouts_as_arguments

Cells = tuple[Array, Array, Array, Array, Array]  # position, remaining, seq, mask, time: [time, rows], the last [time]
Buffers = tuple[Array, ...]  # the carry: for each delay the last values [offset, rows, *shape], the oldest first
Invariants = tuple[LayoutArrays, list[Array]]
Inputs = tuple[list[Array], Cells]
TappedProducts = list[tuple[Array, Array]]


def run_loop(ctx: Context, loop: Loop, env: Environment) -> None:
    """Compute the outputs of a loop, for all steps."""
    scanned = ScannedLoop.of(ctx, loop, env)
    scanned.store(env, scanned.run(*scanned.arguments()))


@dataclass(frozen=True)
class ScannedLoop:
    """A loop and the values that its steps read, in the form that `scan` takes."""

    ctx: Context
    loop: Loop
    axes: Axes
    initial: Mapping[Node, Edge]  # for each delay the variable that holds its initial state in a step
    invariants: Mapping[Edge, Traced]  # the same in each step: without a sequence axis
    invariant_arrays: Mapping[Edge, Array]  # those that steps read other than as weights
    sequences: Mapping[Edge, Traced]  # what steps read of values with a sequence axis, and hoisted products
    products: Mapping[Node, Product]
    fused_scales: frozenset[Node]  # nodes whose scale is part of a weight, and which are not computed
    resets_state: bool  # sequences select their initial states where they begin; otherwise all begin with the loop
    outputs: Sequence[Edge]
    layout_arrays: LayoutArrays
    with_layouts: Callable[[LayoutArrays], Context]
    joined: Sequence[tuple[Node, ...]]  # products that are computed as one
    weights: Sequence[tuple[Weight, ...]]  # of joined products, side by side
    tapped: Sequence[tuple[Node, ...]]  # those whose weight gradients are computed after the backward loop
    tilings: Mapping[Node, Tiling]

    @classmethod
    def of(cls, ctx: Context, loop: Loop, env: Environment) -> ScannedLoop:
        """Collect the values that the steps read, and compute the products that can be hoisted."""
        layout = ctx.layout((loop.axis,))
        axes = loop.delays[0].node_outputs[0].dynamic_axes
        initial, initial_sequences = _initial_variables(ctx, loop, env)
        invariants, sequences = _outside_values(ctx, loop, env, axes, initial, initial_sequences)
        products, fused_scales = products_of(loop, invariants, sequences, layout.simple, ctx.masks)
        read = _read_variables(loop, initial, products, fused_scales)
        invariant_arrays = {v: ctx.array(x) for v, x in invariants.items() if v in read}
        hoisted = hoisted_products(ctx, products, invariants, sequences)
        resets_state = layout.origin is not None or not layout.begin_together(loop.reverse)
        resets_state |= any(offset(d) > 1 for d in initial_sequences)  # each of the first steps has another state
        outputs = list(loop.outputs)
        if layout.origin is not None:
            outputs += [resolve(d.node_inputs[0]) for d in loop.delays]
        layout_arrays, with_layouts = layouts_as_arguments(ctx)
        joined = with_common_operand(products)
        return cls(
            ctx=ctx, loop=loop, axes=axes, initial=initial, invariants=invariants, invariant_arrays=invariant_arrays,
            sequences={v: x for v, x in sequences.items() if v in read} | hoisted,
            products=products, fused_scales=frozenset(fused_scales), resets_state=resets_state, outputs=outputs,
            layout_arrays=layout_arrays, with_layouts=with_layouts,
            joined=joined,
            weights=list(dict.fromkeys(tuple(products[n].weight for n in group) for group in joined)),
            # For weights of one column XLA would read all operands again, slowly; in a step they are in the cache.
            tapped=[group for group in joined if products[group[0]].weight.variable.shape[-1:] != (1,)],
            tilings=tilings_of(loop.nodes),
        )

    def arguments(self) -> tuple[list[Array], Invariants, Buffers, Inputs]:
        """The weights, the invariants, the carry before the first step, and the inputs of all steps.

        Shapes: inputs [time, rows, *shape].
        """
        init = tuple(self._initial_buffer(delay, self.ctx.layouts[self.loop.axis].rows) for delay in self.initial)
        weights, invariants, inputs = self._read()
        return weights, invariants, init, inputs

    def _read(self) -> tuple[list[Array], Invariants, Inputs]:
        """The weights, the invariants and the inputs of all steps."""
        layout = self.ctx.layouts[self.loop.axis]
        sequence_arrays = [v.data for v in self.sequences.values()]
        weights = [_side_by_side([w.data(self.ctx, self.invariants) for w in group]) for group in self.weights]
        cells = (layout.position, layout.remaining, layout.seq, layout.mask, jnp.arange(layout.time))
        return weights, (self.layout_arrays, list(self.invariant_arrays.values())), (sequence_arrays, cells)

    def run(self, weights: Sequence[Array], invariants: Invariants, init: Buffers, xs: Inputs) -> list[Array]:
        """The outputs of all steps. Shapes: [time, rows, *shape]."""
        nodes = max(self.ctx.looped_nodes, len(self.loop.nodes)) * (1 + self.resets_state)
        unroll = unrolled_steps(self.ctx.layouts[self.loop.axis].time, nodes)
        if self.ctx.forward_only:
            return scan_forward(self.step, weights, invariants, init, xs, self.loop.reverse, unroll)
        return scan(
            self.step, weights, invariants, init, xs, self.weight_gradients, self.loop.reverse, unroll
        )

    def step(
        self, weights: Sequence[Array], invariants: Invariants, carry: Buffers, inputs: Inputs,
        taps: Sequence[Array] | None,
    ) -> tuple[Buffers, list[Array], TappedProducts]:
        """One step, as `scan` takes it: the new carry, the outputs, the tapped products.

        Errors: ValueError if a value is assigned in the loop.
        """
        def delayed(outer: Context, env: Environment, step: LoopStep) -> list[Array]:
            pairs = zip(self.loop.delays, carry, strict=True)
            return [self._delayed(outer, env, delay, buffer[0], step) for delay, buffer in pairs]

        ctx, env, tapped_products = self._computed(weights, invariants, delayed, inputs, taps)
        if ctx.updates:
            raise ValueError(explain(
                f"a value cannot be assigned inside a recurrent loop: {next(iter(ctx.updates))!r}",
                fix="move cntk.assign out of the loop",
            ))
        pairs = zip(self._new_values(ctx, env), carry, strict=True)
        new_carry = tuple(_pushed(buffer, value) for value, buffer in pairs)
        return new_carry, [ctx.array(env[v]) for v in self.outputs], tapped_products

    def _computed(
        self, weights: Sequence[Array], invariants: Invariants,
        delayed: Callable[[Context, Environment, LoopStep], Sequence[Array]], inputs: Inputs,
        taps: Sequence[Array] | None,
    ) -> tuple[Context, Environment, TappedProducts]:
        """What the nodes compute in one step, where `delayed` gives the values of the delays."""
        layout_arrays, invariant_arrays = invariants
        sequence_arrays, (position, remaining, seq, mask, time) = inputs
        outer = self.with_layouts(layout_arrays)
        step = LoopStep(self.loop.axis, seq, position, remaining, mask, time)
        ctx = Context(
            outer.training, outer.batch, outer.layouts, outer.stream_of, product_dtype=outer.product_dtype, step=step,
            masks=outer.masks, random_numbers=outer.random_numbers,
        )
        env: Environment = {
            v: Traced(d, self.invariants[v].axes)
            for v, d in zip(self.invariant_arrays, invariant_arrays, strict=True)
        }
        env |= {v: Traced(d, self.axes) for v, d in zip(self.sequences, sequence_arrays, strict=True)}
        states = delayed(outer, env, step)
        env |= {d.node_outputs[0]: Traced(x, self.axes) for d, x in zip(self.loop.delays, states, strict=True)}
        return ctx, env, self._run_nodes(ctx, env, weights, taps)

    def _new_values(self, ctx: Context, env: Environment) -> list[Array]:
        return [ctx.array(env[resolve(d.node_inputs[0])]) for d in self.loop.delays]

    def _delayed(self, outer: Context, env: Environment, delay: Node, state: Array, step: LoopStep) -> Array:
        """The value of a delay in a step: the oldest of its buffer, or the initial state. Shapes: [rows, *shape]."""
        if not self.resets_state:
            return state
        initial = env[self.initial[delay]].data.astype(state.dtype)
        carried_in = carried_into(outer, delay, state.shape[1:])
        layout = outer.layouts[self.loop.axis]
        initial = states_before(layout, carried_in, offset(delay), step.seq, step.position, initial)
        distance = step.remaining if self.loop.reverse else step.position
        begins = expand_to(distance < offset(delay), state.ndim)
        return jnp.where(begins, initial, state)

    def _run_nodes(
        self, ctx: Context, env: Environment, weights: Sequence[Array], taps: Sequence[Array] | None
    ) -> TappedProducts:
        """Compute the nodes of a step in order; returns the operands of tapped products, and these."""
        tapped_products: TappedProducts = []
        groups = {group[0]: group for group in self.joined}
        for node in self.loop.nodes:
            if node in groups:
                group = groups[node]
                tap = None if taps is None or group not in self.tapped else taps[len(tapped_products)]
                products = {n: self.products[n] for n in group}
                pair = multiply(ctx, products, env, weights[self._place_of_weight(group)], tap)
                tapped_products += [pair] if group in self.tapped else []
            elif node in self.products:
                continue  # computed with the first one of its group
            elif node in self.tilings:
                if node.node_outputs[0] not in env:
                    env.update(self.tilings[node].split(ctx, env))
            elif node not in self.fused_scales:
                run_node(ctx, node, env)
        return tapped_products

    def weight_gradients(
        self, weights: Sequence[Array], operands: Sequence[Array], gradients: Sequence[Array]
    ) -> list[Array]:
        """The gradients of the weights from those of the tapped products.

        Shapes: operands, gradients [time, rows, *shape].
        """
        totals = [jnp.zeros_like(w) for w in weights]
        for group, x, d_product in zip(self.tapped, operands, gradients, strict=True):
            node, place = group[0], self._place_of_weight(group)
            operand = Traced(x, node.node_outputs[0].dynamic_axes)
            product = partial(apply_weight, self.ctx, node, self.products[node].weight, operand)
            totals[place] += jax.vjp(product, weights[place])[1](d_product)[0]
        return totals

    def _place_of_weight(self, group: Sequence[Node]) -> int:
        return self.weights.index(tuple(self.products[n].weight for n in group))

    def store(self, env: Environment, ys: Sequence[Array]) -> None:
        """Put the outputs of all steps into the environment, and save the last values of sequences that are cut."""
        for v, y in zip(self.outputs, ys, strict=True):
            env[v] = Traced(y, self.axes)
        if self.ctx.layouts[self.loop.axis].origin is None:
            return
        for delay, initial in self.initial.items():
            value = self.sequences.get(initial) or self.invariants[initial]
            states = env[resolve(delay.node_inputs[0])].data
            carry_out(self.ctx, delay, _as_states(states, 2, self._state_shapes[delay]), value)

    def _initial_buffer(self, delay: Node, rows: int) -> Array:
        """The buffer before the first step: the initial state, or zeros where every sequence selects its own.

        Shapes: [offset, rows, *shape].
        Errors: ShapeError for an initial state that data have made larger than the state.
        """
        sample = self._state_shapes[delay]
        given = self.invariants.get(self.initial[delay]) or self.sequences[self.initial[delay]]
        if broadcast([sample, sample_shape(self.ctx, given)]) != sample:
            raise unfit_data(delay, [sample, sample_shape(self.ctx, given)])
        shape, dtype = (offset(delay), rows, *sample), delay.node_outputs[0].dtype
        if self.resets_state:
            return jnp.zeros(shape, dtype)
        initial = self.initial[delay]
        if initial in self.invariant_arrays:
            return jnp.broadcast_to(self.invariant_arrays[initial], shape).astype(dtype)
        states = self.sequences[initial].data[-1 if self.loop.reverse else 0]
        return jnp.broadcast_to(pad_rank(states, 1, 1 + len(sample)), shape).astype(dtype)

    @cached_property
    def _state_shapes(self) -> Mapping[Node, Shape]:
        """The shape of each state: free dimensions are those that a step computes from states as small as an input."""
        delays = self.loop.delays
        shapes = {d: self._shape_as_an_input(d.node_outputs[0]) for d in delays}
        if not all(is_known(d.node_outputs[0].shape) for d in delays):
            for _ in delays:  # each may be an operand of the next
                shapes = self._widened(shapes)
        return shapes

    def _widened(self, shapes: Mapping[Node, Shape]) -> dict[Node, Shape]:
        """The shapes to which states and what a step computes from them are broadcast.

        Errors: ShapeError if they cannot be.
        """
        rows = self.ctx.layouts[self.loop.axis].rows
        weights, invariants, inputs = self._read()

        def new_states(inputs: Inputs) -> list[Array]:
            states = [jnp.zeros((rows, *shape), d.node_outputs[0].dtype) for d, shape in shapes.items()]
            ctx, env, _ = self._computed(weights, invariants, lambda *_: states, inputs, None)
            return self._new_values(ctx, env)

        widened = {}
        computed = jax.eval_shape(new_states, jax.tree.map(lambda x: x[0], inputs))
        for (delay, shape), value in zip(shapes.items(), computed, strict=True):
            both = broadcast([shape, value.shape[1:]])
            if both is None:
                raise unfit_data(delay, [shape, value.shape[1:]])
            widened[delay] = both
        return widened

    def _shape_as_an_input(self, state: Edge) -> Shape:
        """The shape of a state; its free dimensions are those of an input of the loop.

        Errors: ValueError if no input has the same free dimensions.
        """
        if is_known(state.shape):
            return state.shape
        free = [i for i, d in enumerate(state.shape) if d < 0]
        for v, x in (*self.sequences.items(), *self.invariants.items()):
            if len(v.shape) == len(state.shape) and all(v.shape[i] == state.shape[i] for i in free):
                sizes = sample_shape(self.ctx, x)
                return tuple(sizes[i] if i in free else d for i, d in enumerate(state.shape))
        raise ValueError(explain(
            f"the state of a loop, {state!r}, has a free dimension that no input of the loop has",
            fix="declare its size, or use an input with the same free dimension in the loop",
        ))


def _side_by_side(weights: Sequence[Array]) -> Array:
    """Shapes: [rows, columns] of each -> [rows, all columns]."""
    return weights[0] if len(weights) == 1 else jnp.concatenate(weights, -1)


def offset(delay: Node) -> int:
    """How many steps a delay looks back or ahead."""
    return delay.node_attributes["offset"]


def _initial_variables(
    ctx: Context, loop: Loop, env: Environment
) -> tuple[dict[Node, Edge], dict[Node, Edge]]:
    """For each delay the variable that holds its initial state in a step; and those states that are sequences.

    The latter take the place of the delayed value, which is set to it before anything reads it.
    """
    initial = {delay: resolve(delay.node_inputs[1]) for delay in loop.delays}
    sequences = {d: v for d, v in initial.items() if v in env and ctx.sequence_axis(env[v].axes) is not None}
    return initial | {delay: delay.node_outputs[0] for delay in sequences}, sequences


def _outside_values(
    ctx: Context, loop: Loop, env: Environment, axes: Axes, initial: Mapping[Node, Edge],
    initial_sequences: Mapping[Node, Edge],
) -> tuple[dict[Edge, Traced], dict[Edge, Traced]]:
    """The values from outside that a loop reads: those that are the same in each step, and sequences.

    One value for each sequence counts as the same in each step, as attention may read large ones; only an initial state
    is broadcast to the steps.

    Errors: ShapeError if they are values of different samples.
    """
    operands = [
        resolve(v)
        for n in (*loop.delays, *loop.nodes) for v in n.node_inputs[: 1 if n in initial_sequences else None]
    ]
    outside = dict.fromkeys(v for v in operands if v not in loop.all_outputs)
    check_samples(ctx, loop.delays[0], [env[v] for v in outside])
    states = set(initial.values())
    invariants = {v: env[v] for v in outside if len(env[v].axes) < (1 if v in states else 2)}
    sequences = {v: ctx.to_axes(ctx.canonical(env[v]), axes) for v in outside if v not in invariants}
    for delay, v in initial_sequences.items():
        states_at = initial_states(ctx, ctx.canonical(env[v]), axes, offset(delay), loop.reverse)
        sequences[initial[delay]] = states_at
    return invariants, sequences


def _read_variables(
    loop: Loop, initial: Mapping[Node, Edge], products: Mapping[Node, Product],
    fused_scales: set[Node],
) -> set[Edge]:
    """The variables that the steps of a loop read, weights of products left out."""
    computed = [n for n in loop.nodes if n not in products and n not in fused_scales]
    read = {*initial.values(), *(resolve(v) for n in (*loop.delays, *computed) for v in n.node_inputs)}
    read.update(v for p in products.values() for v in p.operands)
    return read


def _pushed(buffer: Array, value: Array) -> Array:
    """A buffer without its oldest value and with a new one. Shapes: [offset, rows, *shape], [rows, *shape]."""
    newest = _as_states(value, 1, buffer.shape[2:])[None].astype(buffer.dtype)
    return newest if buffer.shape[0] == 1 else jnp.concatenate([buffer[1:], newest])


def _as_states(values: Array, lead: int, shape: Shape) -> Array:
    """Values in the shape of a state, which is larger than they are if its initial state is.

    Shapes: [*cells, *smaller] -> [*cells, *shape], with `lead` dimensions of cells.
    """
    return jnp.broadcast_to(pad_rank(values, lead, lead + len(shape)), (*values.shape[:lead], *shape))


__all__ = ["ScannedLoop", "offset", "run_loop"]
