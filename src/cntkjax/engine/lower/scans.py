"""Scans whose gradient keeps what it needs once.

The gradient that jax gives a scan stacks what each operation of a step asks for, the same array for several of them:
an LSTM keeps thirteen arrays, of which eight differ. Here a step and its gradient are traced together and cut in two.
What the gradient needs of the step is kept once, and not at all where cheap operations make it of what is there anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.tree_util import Partial

from ..xla.materialize import in_a_loop

Step = Callable[..., tuple[Any, Any, Any]]
Collect = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr"}  # with the names of what they call
VIEWS = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose"}
# What takes less time to compute again than to write and to read.
CHEAP = VIEWS | {
    "add", "add_any", "sub", "mul", "neg", "max", "min", "integer_pow", "square", "one_minus_square", "sign", "eq",
    "ne", "lt", "le", "gt", "ge", "and", "or", "not", "select_n", "convert_element_type", "iota", "slice", "copy",
}  # fmt: skip
# What does not, but takes less time than to write and read an array that is this many times as large as its operands.
NARROW = 4
ELEMENTWISE = CHEAP | {
    "exp", "log", "log1p", "div", "logistic", "tanh", "sqrt", "rsqrt", "round", "abs", "clamp", "pow", "expm1", "sin",
    "cos", "bitcast_convert_type", "shift_left", "shift_right_arithmetic",
}  # fmt: skip


def scan(
    step: Step, weights: Sequence[Any], given: Any, first: Any, steps: Any, collect: Collect, backwards: bool = False
) -> Any:
    """What `step(weights, given, carry, now, taps) -> carry, made, met` makes of each of the steps.

    `met` pairs operands with their products by a weight, to which the `taps` were added if there are any, and which
    give no gradient to the weight. `collect(weights, operands, gradients)` makes these after the backward loop, of the
    operands and the gradients of the products of all steps.
    Shapes: steps, made, operands, gradients [time, ...]; weights, given, first: any.
    """

    @jax.custom_vjp
    def run(*arguments: Any) -> Any:
        weights, given, first, steps = arguments
        return lax.scan(lambda c, now: step(weights, given, c, now, None)[:2], first, steps, reverse=backwards)[1]

    def forward(*arguments: Any) -> Any:
        halves = _cut(step, *arguments)
        still, first, steps = _leaves(*arguments)

        def there(carry: Any, now: Any) -> Any:
            outs = eval_jaxpr(halves.there, halves.consts, *still, *carry, *now)
            return outs[: len(carry)], outs[len(carry) :]

        stacked = lax.scan(there, first, steps, reverse=backwards)[1]
        made = halves.made.unflatten(stacked[: halves.made.num_leaves])

        def back(arguments: Any, consts: Any, stacked: Any, d_made: Any) -> Any:
            return gradients(halves, arguments, consts, stacked, d_made)

        return made, Partial(back, arguments, halves.consts, stacked)

    def gradients(halves: Halves, arguments: Any, consts: Any, stacked: Any, d_made: Any) -> Any:
        still, first, steps = _leaves(*arguments)

        def back(carry: Any, now: Any) -> Any:
            (d_carry, totals), (inputs, kept, d_made) = carry, now
            outs = eval_jaxpr(halves.back, consts, *still, *inputs, *kept, *d_carry, *d_made)
            n, m = len(d_carry), len(d_carry) + len(totals)
            return (outs[:n], [t + d for t, d in zip(totals, outs[n:m], strict=True)]), outs[m:]

        zeros = [jnp.zeros_like(x) for x in first], [jnp.zeros_like(still[i]) for i in halves.moved]
        over = steps, [stacked[k] for k in halves.needed], jax.tree.leaves(d_made)
        (d_first, d_moved), rest = lax.scan(back, zeros, over, reverse=not backwards)
        found = dict(zip(halves.moved, d_moved, strict=True))
        found |= {len(still) + i: d for i, d in enumerate(d_first)}
        found |= {len(still) + len(first) + i: rest[k] for i, k in halves.moving.items()}
        operands, d_products = [stacked[k] for k in halves.operands], [rest[k] for k in halves.products]
        for i, d in enumerate(collect(arguments[0], operands, d_products)):
            found[i] = found[i] + d if i in found else d
        tree: Any = jax.tree.structure(arguments)
        return tree.unflatten([found.get(i) for i in range(tree.num_leaves)])

    run.defvjp(forward, lambda back, d_made: back(d_made))
    return run(weights, given, first, steps)


def _leaves(weights: Any, given: Any, first: Any, steps: Any) -> tuple[list[Any], list[Any], list[Any]]:
    return jax.tree.leaves((weights, given)), jax.tree.leaves(first), jax.tree.leaves(steps)


@dataclass(frozen=True)
class Halves:
    """A step and its gradient, with flat lists of arrays: what stands still, the carry, the inputs of the step.

    `there` gives the carry and what is to be stacked. `back` takes what stands still, the inputs, what it needs of the
    stack, and the gradients of the carry and of what the step made; it gives the gradients of the carry, of what is
    moved, and those that are to be stacked: of inputs and of products.
    """

    consts: list[Any]
    there: Jaxpr
    back: Jaxpr
    made: Any  # how the first of the stacked are arranged
    needed: list[int]  # places among the stacked
    operands: list[int]  # places among the stacked
    moved: list[int]  # what of what stands still has a gradient
    moving: dict[int, int]  # inputs, with the places of their gradients among the stacked
    products: list[int]  # places of their gradients among the stacked


@in_a_loop()
def _cut(step: Step, weights: Any, given: Any, first: Any, steps: Any) -> Halves:
    """Trace a step with its gradient, and cut."""
    now = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), steps)
    carry, made, met = jax.eval_shape(partial(step, taps=None), weights, given, first, now)
    taps = [product for _, product in met]
    every: list[Any]
    tree: Any
    every, tree = jax.tree.flatten((weights, given, first, now, taps))
    floats = [i for i, x in enumerate(every) if jnp.issubdtype(x.dtype, jnp.inexact)]

    def both(leaves: Any, d_carry: Any, d_made: Any) -> Any:
        whole = [*leaves, *(jnp.zeros(x.shape, x.dtype) for x in taps)]

        def of(*some: Any) -> Any:
            merged = dict(enumerate(whole)) | dict(zip(floats, some, strict=True))
            carry, made, met = step(*tree.unflatten(merged.values()))
            return (carry, made), [operand for operand, _ in met]

        outs, back, operands = jax.vjp(of, *[whole[i] for i in floats], has_aux=True)
        return outs, operands, back((d_carry, d_made))

    traced = jax.make_jaxpr(both)(every[: len(every) - len(taps)], carry, made)
    closed = jax.make_jaxpr(lambda *arrays: _inlined(traced, arrays))(*traced.in_avals)
    return _halves(closed, [len(x) for x in _leaves(weights, given, first, now)], jax.tree.structure(made), floats)


def _halves(closed: ClosedJaxpr, sizes: Sequence[int], made: Any, floats: Sequence[int]) -> Halves:
    """What comes before the gradients of the carry and of what is made is known, and what comes behind.

    `closed` takes what stands still, the carry, the inputs (`sizes` of each), and the gradients of the carry and of
    what is made; it gives the carry, what is made, operands of products, and the gradients of all `floats`.
    """
    jaxpr = closed.jaxpr
    still, carry, inputs, incoming = _split(jaxpr.invars, *sizes)
    after, shown, rest = _split(jaxpr.outvars, len(carry), made.num_leaves)
    operands, gradients = _split(rest, len(rest) - len(floats))
    free = {*jaxpr.constvars, *still, *inputs}
    known, there, back = {*free, *carry}, [], []
    for eqn in jaxpr.eqns:
        if known.issuperset(_variables(eqn.invars)):
            there.append(eqn)
            known.update(eqn.outvars)
        else:
            back.append(eqn)

    still_too = {*jaxpr.constvars, *still}  # what a step makes of nothing else XLA takes out of the loop
    for eqn in there:
        if still_too.issuperset(_variables(eqn.invars)):
            still_too.update(eqn.outvars)
    asked = [v for eqn in back for v in _variables(eqn.invars) if v in known]
    visible = set(_variables(shown))
    kept = _kept(there, asked, free | still_too, visible.union(operands))
    kept = _narrowed(there, kept, free | still_too | visible.union(operands))
    stacked = [*shown, *dict.fromkeys(v for v in (*operands, *kept) if v not in visible)]

    products = gradients[len(gradients) - len(operands) :]
    of_all = {i: d for i, d in zip(floats, gradients, strict=True) if isinstance(d, Var) and d not in known}
    moved = [i for i in of_all if i < len(still)]
    begin, end = len(still) + len(carry), sum(sizes)
    of_inputs = {i - begin: d for i, d in of_all.items() if begin <= i < end}
    of_carry = gradients[(k := sum(i < len(still) for i in floats)) : k + len(carry)]
    to_stack = list(dict.fromkeys((*of_inputs.values(), *products)))
    wanted = [*of_carry, *(of_all[i] for i in moved), *to_stack]
    equations = _needed([*there, *back], wanted, {*free, *incoming, *_variables(stacked)})
    used = {v for eqn in equations for v in _variables(eqn.invars)}.union(_variables(wanted))
    needed = {v: k for k, v in enumerate(stacked) if isinstance(v, Var) and v in used and v not in free}

    def half(ins: Iterable[Var], equations: Sequence[JaxprEqn], outs: Sequence[Any]) -> Jaxpr:
        return jaxpr.replace(constvars=[*jaxpr.constvars], invars=[*ins], eqns=[*equations], outvars=[*outs])

    first = _needed(there, [*after, *stacked], {*free, *carry}, all_effects=True)
    return Halves(
        consts=closed.consts,
        there=half([*still, *carry, *inputs], first, [*after, *stacked]),
        back=half([*still, *inputs, *needed, *incoming], equations, wanted),
        made=made,
        needed=list(needed.values()),
        operands=[stacked.index(v) for v in operands],
        moved=moved,
        moving={i: to_stack.index(d) for i, d in of_inputs.items()},
        products=[to_stack.index(d) for d in products],
    )


def _kept(there: Sequence[JaxprEqn], asked: Iterable[Var], free: set[Var], stacked: set[Var]) -> dict[Var, None]:
    """What must be kept for cheap operations to make what is asked for, of it and of what is free or stacked anyway."""
    makers = {v: eqn for eqn in there for v in eqn.outvars}
    at_hand = free | stacked
    for eqn in there:
        if _is_cheap(eqn, at_hand):
            at_hand.update(eqn.outvars)
    kept: dict[Var, None] = {}
    for v in asked:
        while v not in at_hand and v in makers and makers[v].primitive.name in VIEWS:
            (v,) = _variables(makers[v].invars[:1])
        if v not in at_hand:
            kept[v] = None
    at_hand = free | stacked | (kept.keys() - makers.keys())
    for eqn in there:
        cheap = _is_cheap(eqn, at_hand)
        for v in eqn.outvars:
            if cheap:
                kept.pop(v, None)
            if cheap or v in kept:
                at_hand.add(v)
    return kept


def _narrowed(there: Sequence[JaxprEqn], kept: Iterable[Var], at_hand: Collection[Var]) -> dict[Var, None]:
    """What is kept, with the small arrays that a large one is spread from in the place of the large one.

    Attention adds a row for each step to one for each place it may look at, and takes tanh: to do so again takes less
    time than to write and to read an array of all steps and places.
    """
    makers = {v: eqn for eqn in there for v in eqn.outvars}
    found: dict[Var, None] = {}
    for v in kept:
        sources: dict[Var, None] = {}
        pending = [v]
        while pending:
            source = pending.pop()
            eqn = makers.get(source)
            if eqn is not None and eqn.primitive.name in ELEMENTWISE:
                pending += [u for u in _variables(eqn.invars) if u not in at_hand and u not in sources]
            else:
                sources[source] = None
        found.update(sources if NARROW * _size(sources) <= _size([v]) else {v: None})
    return found


def _size(arrays: Iterable[Var]) -> int:
    return sum(prod(getattr(v.aval, "shape", ())) for v in arrays)


def _is_cheap(eqn: JaxprEqn, at_hand: Collection[Var]) -> bool:
    return eqn.primitive.name in CHEAP and all(v in at_hand for v in _variables(eqn.invars))


def _needed(
    equations: Sequence[JaxprEqn], wanted: Iterable[Any], base: Collection[Var], all_effects: bool = False
) -> list[JaxprEqn]:
    """The equations that make what is wanted of the base, in their order."""
    missing, found = {v for v in _variables(wanted) if v not in base}, []
    for eqn in reversed(equations):
        if missing.intersection(eqn.outvars) or (all_effects and eqn.effects):
            found.append(eqn)
            missing.update(v for v in _variables(eqn.invars) if v not in base)
    return found[::-1]


def _inlined(closed: ClosedJaxpr, arrays: Sequence[Any]) -> list[Any]:
    """What a program makes of arrays, with what it calls as a function of its own put in its place."""
    jaxpr = closed.jaxpr
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *arrays), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for eqn in jaxpr.eqns:
        if eqn.primitive.name in CALLS:
            made = _inlined(eqn.params[CALLS[eqn.primitive.name]], [read(v) for v in eqn.invars])
        else:
            ins = list(dict.fromkeys(_variables(eqn.invars)))
            one = jaxpr.replace(constvars=[], invars=ins, eqns=[eqn], outvars=eqn.outvars)
            made = eval_jaxpr(one, [], *[values[v] for v in ins])
        values.update(zip(eqn.outvars, made, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _variables(atoms: Iterable[Any]) -> list[Var]:
    return [v for v in atoms if not isinstance(v, Literal)]


def _split(items: Sequence[Any], *sizes: int) -> list[list[Any]]:
    """The first of these many items, and so on, and the rest."""
    ends = list(accumulate(sizes, initial=0))
    return [list(items[a:b]) for a, b in zip(ends, [*ends[1:], None], strict=True)]
