"""Partial evaluation of a step and its gradient: which equations run in the forward loop, which in the backward loop.

`split_jaxpr` takes a step traced together with its gradient. Whatever does not depend on a cotangent is computed
forward; the rest, backward. Values that the backward loop needs of the forward loop are residuals. Each one is saved
once, and not at all where cheap operations recompute it from values that the backward loop has anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, TypeVar

from ..._typing import Array

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var  # slow to import

Atom: TypeAlias = "Var | Literal"
T = TypeVar("T")

VIEWS = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose"}
# Operations that are faster to recompute than to save and load their result.
CHEAP = VIEWS | {
    "add", "add_any", "sub", "mul", "neg", "max", "min", "integer_pow", "square", "one_minus_square", "sign", "eq",
    "ne", "lt", "le", "gt", "ge", "and", "or", "not", "select_n", "convert_element_type", "iota", "slice", "copy",
}
# Others are, too, if their operands are smaller than the result by this factor.
NARROW = 4
ELEMENTWISE = CHEAP | {
    "exp", "log", "log1p", "div", "logistic", "tanh", "sqrt", "rsqrt", "round", "abs", "clamp", "pow", "expm1", "sin",
    "cos", "bitcast_convert_type", "shift_left", "shift_right_arithmetic",
}
# From which, and from what is stacked anyway, gradients of invariants are computed after the loop.
DEFERRED = ELEMENTWISE | {"reduce_sum"}


@dataclass(frozen=True)
class JointStep:
    """A step traced together with its gradient: the variables of the jaxpr by their roles.

    Inputs: `invariants`, `carry`, `xs` (the inputs of the step), and the `cotangents` of the new carry and the outputs.
    Outputs: `new_carry`, `ys` (the outputs of the step), `operands` of tapped products, and `gradients` by the
    position of the input among invariants, carry, xs and taps.
    """

    closed: ClosedJaxpr
    invariants: list[Var]
    carry: list[Var]
    xs: list[Var]
    cotangents: list[Var]
    new_carry: list[Atom]
    ys: list[Atom]
    operands: list[Atom]
    gradients: dict[int, Atom]

    @classmethod
    def of(
        cls, closed: ClosedJaxpr, sizes: tuple[int, int, int], num_ys: int, differentiable: Sequence[int]
    ) -> JointStep:
        """Name the variables of a jaxpr, given the numbers of invariants, carry and xs, and which inputs are floats."""
        invariants, carry, xs, cotangents = split_list(closed.jaxpr.invars, *sizes)
        outputs: Sequence[Atom] = closed.jaxpr.outvars
        num_operands = len(outputs) - len(carry) - num_ys - len(differentiable)
        new_carry, ys, operands, gradients = split_list(outputs, len(carry), num_ys, num_operands)
        by_place = dict(zip(differentiable, gradients, strict=True))
        return cls(closed, invariants, carry, xs, cotangents, new_carry, ys, operands, by_place)

    @property
    def available(self) -> set[Var]:
        """The variables that the backward loop has without saving them."""
        return {*self.closed.jaxpr.constvars, *self.invariants, *self.xs}

    def invariant_values(self, primal: Iterable[JaxprEqn]) -> set[Var]:
        """The invariants and what is computed from them alone, which XLA moves out of the loop."""
        values = {*self.closed.jaxpr.constvars, *self.invariants}
        for eqn in primal:
            if values.issuperset(variables(eqn.invars)):
                values.update(eqn.outvars)
        return values

    def jaxpr(self, inputs: Iterable[Var], equations: Sequence[JaxprEqn], outputs: Iterable[Atom]) -> Jaxpr:
        """A part of the whole, with the same constants."""
        return self.closed.jaxpr.replace(
            constvars=[*self.closed.jaxpr.constvars], invars=[*inputs], eqns=[*equations], outvars=[*outputs]
        )


@dataclass(frozen=True)
class SplitStep:
    """The two halves of a step and its gradient, on flat lists of arrays, and what is left for after the loop.

    `forward`: invariants, carry, xs -> new carry, stacked. `backward`: invariants, xs, residuals, cotangents of the new
    carry and of the outputs -> gradients of the carry, gradients of some invariants, stacked gradients. `deferred`:
    invariants, xs, some of what is stacked -> gradients of other invariants.
    """

    consts: list[Array]
    forward: Jaxpr
    backward: Jaxpr
    deferred: Jaxpr
    num_ys: int  # the outputs of the step, which are the first of what `forward` stacks
    residuals: list[int]  # places among what `forward` stacks
    operands: list[int]  # of tapped products: places among these
    differentiated_invariants: list[int]
    deferred_invariants: list[int]
    deferred_operands: tuple[list[int], list[int]]  # places among the stacked values, and among the gradients
    x_gradients: dict[int, int]  # of the xs that have one: its place among the stacked gradients
    product_gradients: list[int]  # of tapped products: places among the stacked gradients


@dataclass(frozen=True)
class _Gradients:
    """The gradients of a step: carried, summed over the steps by the loop or after it, and stacked.

    `sources`: what is stacked besides, for those that are computed after the loop.
    """

    carry: list[Atom]
    invariants: dict[int, Var]
    xs: dict[int, Var]
    products: list[Atom]
    deferred: dict[int, Var] = field(default_factory=dict)
    sources: tuple[Var, ...] = ()

    @property
    def stacked(self) -> list[Atom]:
        """Those of xs and of tapped products, and the sources of others, each once."""
        return list(dict.fromkeys((*self.xs.values(), *self.products, *self.sources)))

    @property
    def outputs(self) -> list[Atom]:
        """All of them, as the backward half returns them."""
        return [*self.carry, *self.invariants.values(), *self.stacked]


def split_jaxpr(joint: JointStep, deferred_elements: int = 0) -> SplitStep:
    """Split a step and its gradient into a forward half, a backward half and residuals.

    `deferred_elements`: gradients of invariants are computed after the loop, where that takes little that is not
    stacked anyway, and no array of more elements in a step.
    """
    available = joint.available
    primal, backward, known = partition(joint.closed.jaxpr.eqns, {*available, *joint.carry})
    candidates = [v for eqn in backward for v in variables(eqn.invars) if v in known]
    stacked = _stacked(joint, primal, candidates)
    gradients = _gradients(joint, known)
    if deferred_elements:
        known_after_loop = {*available, *variables(stacked)}
        gradients = _with_deferred(gradients, [*primal, *backward], known_after_loop, deferred_elements)
    equations = live_equations(
        [*primal, *backward], gradients.outputs, {*available, *joint.cotangents, *variables(stacked)}
    )
    used = {v for eqn in equations for v in variables(eqn.invars)}.union(variables(gradients.outputs))
    residuals = {v: i for i, v in enumerate(stacked) if is_variable(v) and v in used and v not in available}
    forward = live_equations(
        primal, [*joint.new_carry, *stacked], {*available, *joint.carry}, keep_effects=True
    )
    stacked_gradients = gradients.stacked
    remaining = live_equations(
        [*primal, *backward], gradients.deferred.values(), {*available, *variables((*stacked, *stacked_gradients))}
    )
    used = {v for eqn in remaining for v in variables(eqn.invars)}.union(gradients.deferred.values()) - available
    saved = {v: i for i, v in enumerate(stacked) if v in used}
    saved_gradients = {v: i for i, v in enumerate(stacked_gradients) if v in used and v not in saved}
    return SplitStep(
        consts=joint.closed.consts,
        forward=joint.jaxpr([*joint.invariants, *joint.carry, *joint.xs], forward, [*joint.new_carry, *stacked]),
        backward=joint.jaxpr(
            [*joint.invariants, *joint.xs, *residuals, *joint.cotangents], equations, gradients.outputs
        ),
        deferred=joint.jaxpr(
            [*joint.invariants, *joint.xs, *saved, *saved_gradients], remaining, gradients.deferred.values()
        ),
        num_ys=len(joint.ys),
        residuals=list(residuals.values()),
        operands=[stacked.index(v) for v in joint.operands],
        differentiated_invariants=list(gradients.invariants),
        deferred_invariants=list(gradients.deferred),
        deferred_operands=(list(saved.values()), list(saved_gradients.values())),
        x_gradients={i: stacked_gradients.index(d) for i, d in gradients.xs.items()},
        product_gradients=[stacked_gradients.index(d) for d in gradients.products],
    )


def partition(
    equations: Iterable[JaxprEqn], inputs: Iterable[Var]
) -> tuple[list[JaxprEqn], list[JaxprEqn], set[Var]]:
    """Equations that follow from the inputs alone, the other ones, and all variables that are known by the first."""
    known, primal, rest = set(inputs), [], []
    for eqn in equations:
        if known.issuperset(variables(eqn.invars)):
            primal.append(eqn)
            known.update(eqn.outvars)
        else:
            rest.append(eqn)
    return primal, rest, known


def _gradients(joint: JointStep, known: Collection[Var]) -> _Gradients:
    """The gradients of a step by what they are of; those that do not depend on a cotangent are 0."""
    begin_carry = len(joint.invariants)
    begin_xs = begin_carry + len(joint.carry)
    begin_taps = begin_xs + len(joint.xs)
    nonzero = {i: d for i, d in joint.gradients.items() if is_variable(d) and d not in known}
    gradients = list(joint.gradients.values())
    first = sum(i < begin_carry for i in joint.gradients)
    return _Gradients(
        carry=gradients[first : first + len(joint.carry)],
        invariants={i: d for i, d in nonzero.items() if i < begin_carry},
        xs={i - begin_xs: d for i, d in nonzero.items() if begin_xs <= i < begin_taps},
        products=gradients[len(gradients) - len(joint.operands) :],
    )


def _with_deferred(
    gradients: _Gradients, equations: Sequence[JaxprEqn], available: Collection[Var], most_elements: int
) -> _Gradients:
    """The gradients, where those of invariants that can be computed after the loop are deferred.

    The largest one comes first, since what is stacked for it may serve the others: where attention adds a query to each
    of its keys, the small gradient of the scores is stacked instead of a sum over the steps of all gradients of keys.
    """
    producers, known = _producers(equations), {*available, *variables(gradients.stacked)}
    deferred: dict[int, Var] = {}
    sources: dict[Var, None] = {}
    for i, d in sorted(gradients.invariants.items(), key=lambda pair: -num_elements([pair[1]])):
        missing = _sources_after_loop(d, producers, {*known, *sources}, most_elements)
        if missing is not None:
            deferred[i] = d
            sources |= missing
    in_loop = {i: d for i, d in gradients.invariants.items() if i not in deferred}
    return replace(gradients, invariants=in_loop, deferred=deferred, sources=tuple(sources))


def _sources_after_loop(
    d: Var, producers: Mapping[Var, JaxprEqn], known: Collection[Var], most_elements: int
) -> dict[Var, None] | None:
    """The small variables from which, with known ones, a gradient can be computed after the loop; None if it cannot."""
    sources: dict[Var, None] = {}
    pending, visited = [d], set(known)
    while pending:
        v = pending.pop()
        if v in visited:
            continue
        visited.add(v)
        eqn = producers.get(v)
        if NARROW * num_elements([v]) <= num_elements([d]) and _elementwise_sources(v, producers, known):
            sources[v] = None
        elif eqn is None or num_elements([v]) > most_elements:
            return None
        elif eqn.primitive.name in DEFERRED or _multiplies_with_vector(eqn):
            pending += variables(eqn.invars)
        else:
            return None
    return sources


def _multiplies_with_vector(eqn: JaxprEqn) -> bool:
    """True for a product that is computed element by element: other ones would be stored for all steps."""
    if eqn.primitive.name != "dot_general":
        return False
    contracted, batch = eqn.params["dimension_numbers"]
    shapes = [getattr(v.aval, "shape", ()) for v in eqn.invars]
    inner = prod(shapes[0][i] for i in contracted[0])
    outer = [
        prod(d for i, d in enumerate(shape) if i not in (*c, *b))
        for shape, c, b in zip(shapes, contracted, batch, strict=True)
    ]
    return 1 in (inner, *outer)


def _stacked(joint: JointStep, primal: Sequence[JaxprEqn], candidates: Iterable[Var]) -> list[Atom]:
    """The variables that the forward loop stacks, each once: ys, operands of tapped products, residuals."""
    ys = set(variables(joint.ys))
    saved = ys.union(variables(joint.operands))
    available = joint.available | joint.invariant_values(primal)
    residuals = _residuals(primal, candidates, available | saved)
    residuals = _narrowed(primal, residuals, available | saved)
    return [*joint.ys, *dict.fromkeys(v for v in (*joint.operands, *residuals) if v not in ys)]


def _residuals(primal: Sequence[JaxprEqn], candidates: Iterable[Var], available: Collection[Var]) -> dict[Var, None]:
    """The variables to save, from which and the available ones cheap operations recompute all candidates."""
    producers = _producers(primal)
    recomputable = _recomputable(primal, available)
    residuals: dict[Var, None] = {}
    for v in candidates:
        source = _source_of_view(v, producers, recomputable)
        if source not in recomputable:
            residuals[source] = None
    # A residual that is a cheap function of other ones is not saved either.
    known = {*available, *(residuals.keys() - producers.keys())}
    for eqn in primal:
        cheap = _is_cheap(eqn, known)
        for v in eqn.outvars:
            if cheap:
                residuals.pop(v, None)
            if cheap or v in residuals:
                known.add(v)
    return residuals


def _recomputable(primal: Iterable[JaxprEqn], available: Iterable[Var]) -> set[Var]:
    """The available variables and those that cheap operations compute from them."""
    values = set(available)
    for eqn in primal:
        if _is_cheap(eqn, values):
            values.update(eqn.outvars)
    return values


def _source_of_view(v: Var, producers: Mapping[Var, JaxprEqn], recomputable: Collection[Var]) -> Var:
    """The variable behind a chain of views."""
    while v not in recomputable and v in producers:
        eqn = producers[v]
        if eqn.primitive.name not in VIEWS:
            break
        (v,) = variables(eqn.invars[:1])
    return v


def _narrowed(primal: Iterable[JaxprEqn], residuals: Iterable[Var], available: Collection[Var]) -> dict[Var, None]:
    """The residuals, where a large one is replaced by the small arrays that it is computed from element by element.

    Attention adds a row for each step to one for each position of its input, and takes tanh: recomputing that is faster
    than saving and loading an array of all steps and positions.
    """
    producers = _producers(primal)
    narrowed: dict[Var, None] = {}
    for v in residuals:
        sources = _elementwise_sources(v, producers, available)
        narrowed.update(sources if NARROW * num_elements(sources) <= num_elements([v]) else {v: None})
    return narrowed


def _elementwise_sources(
    v: Var, producers: Mapping[Var, JaxprEqn], available: Collection[Var]
) -> dict[Var, None]:
    """The variables that are not available from which element-wise operations compute a variable."""
    sources: dict[Var, None] = {}
    seen: set[Var] = set()  # or a chain of values that are read twice would be followed on 2^n paths
    pending = [v]
    while pending:
        source = pending.pop()
        if source in seen:
            continue
        seen.add(source)
        eqn = producers.get(source)
        if eqn is not None and eqn.primitive.name in ELEMENTWISE:
            pending += [u for u in variables(eqn.invars) if u not in available]
        else:
            sources[source] = None
    return sources


def _producers(equations: Iterable[JaxprEqn]) -> dict[Var, JaxprEqn]:
    return {v: eqn for eqn in equations for v in eqn.outvars}


def num_elements(arrays: Iterable[Var]) -> int:
    """The number of elements of all the variables together."""
    return sum(prod(getattr(v.aval, "shape", ())) for v in arrays)


def _is_cheap(eqn: JaxprEqn, available: Collection[Var]) -> bool:
    return eqn.primitive.name in CHEAP and all(v in available for v in variables(eqn.invars))


def live_equations(
    equations: Sequence[JaxprEqn], outputs: Iterable[Atom], inputs: Collection[Var], keep_effects: bool = False
) -> list[JaxprEqn]:
    """The equations that compute the outputs from the inputs, in their order: dead code is eliminated."""
    missing, live = {v for v in variables(outputs) if v not in inputs}, []
    for eqn in reversed(equations):
        if missing.intersection(eqn.outvars) or (keep_effects and eqn.effects):
            live.append(eqn)
            missing.update(v for v in variables(eqn.invars) if v not in inputs)
    return live[::-1]


def variables(atoms: Iterable[Atom]) -> list[Var]:
    """The atoms that are no literals."""
    return [v for v in atoms if is_variable(v)]


def is_variable(atom: Atom) -> TypeGuard[Var]:
    """True unless it is a literal, which has a value."""
    return not hasattr(atom, "val")


def split_list(items: Iterable[T], *sizes: int) -> list[list[T]]:
    """The first of these many items, the next ones, and so on, and the rest."""
    remaining: Iterator[T] = iter(items)
    return [*(list(islice(remaining, size)) for size in sizes), list(remaining)]


__all__ = [
    "CHEAP", "JointStep", "SplitStep", "is_variable", "live_equations", "num_elements", "partition", "split_jaxpr",
    "split_list", "variables",
]
