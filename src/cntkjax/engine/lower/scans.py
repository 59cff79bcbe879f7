"""Scans whose backward pass saves each residual once.

The gradient that JAX derives for a scan stacks one array for each operation that needs one, even where several need the
same: an LSTM stacks thirteen arrays, of which eight differ. Here a step is traced together with its gradient, and the
trace is split in two (`partial_eval.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from ..._typing import Array, PyTree, Shape
from ..xla.materialize import storing_values
from ..xla.platform import lowering
from ..xla.versions import eval_jaxpr
from .inlining import inline_calls
from .partial_eval import JointStep, SplitStep, split_jaxpr, split_list

TappedProducts = Sequence[tuple[Array, Array]]  # operand and product
Step = Callable[..., tuple[PyTree, PyTree, TappedProducts]]
WeightGradients = Callable[[Sequence[Array], Sequence[Array], Sequence[Array]], Sequence[Array]]


UNROLLED_NODES = 480
"""Operations in the copies of the steps of all loops of a program together, at most.

Compiling takes longer with each copy. Steps that select the states with which sequences begin count twice: three layers
of LSTMs, in both directions side by side, took 5 seconds of processor time with 5 copies of each step, and 22 with 15.
"""


class StackedPlace(NamedTuple):
    """Where a stacked value is: the number of an array, and its part there and the shape, if others are there too."""

    array: int
    part: int | slice | None = None
    shape: Shape = ()


def scan(
    step: Step, weights: Sequence[Array], invariants: PyTree, init: PyTree, xs: PyTree,
    weight_gradients: WeightGradients, reverse: bool = False, unroll: int = 1,
) -> PyTree:
    """The outputs `ys` of `step(weights, invariants, carry, x, taps) -> carry, y, tapped_products` for all steps.

    A tapped product is a pair of an operand and its product with a weight. The product passes no gradient to the weight
    but one to its tap, if there is one. After the backward loop `weight_gradients(weights, operands, gradients)`
    computes the gradients of the weights at once, from the operands and the taps' gradients of all steps. `unroll`: how
    many steps are one iteration; see `unrolled_steps`.
    Shapes: xs, ys, operands, gradients [time, ...]; weights, invariants, init: any.
    """

    @jax.custom_vjp
    def run(*arguments: PyTree) -> PyTree:
        weights, invariants, init, xs = arguments
        return scan_forward(step, weights, invariants, init, xs, reverse, unroll)

    def forward(*arguments: PyTree) -> tuple[PyTree, Partial]:
        split, y_tree = split_step(step, *arguments)
        arrays, places = _run_forward(split, arguments, reverse, unroll)
        ys = jax.tree.unflatten(y_tree, [_part(arrays, place) for place in places[: split.num_ys]])

        def backward(arguments: PyTree, consts: list[Array], arrays: list[Array], d_ys: PyTree) -> PyTree:
            gradients = _run_backward(split, arguments, consts, (arrays, places), d_ys, reverse, unroll)
            operands = [_part(arrays, places[i]) for i in split.operands]
            return _with_weight_gradients(split, arguments, operands, *gradients, weight_gradients)

        return ys, Partial(backward, arguments, split.consts, arrays)

    run.defvjp(forward, lambda backward, d_ys: backward(d_ys))
    return run(weights, invariants, init, xs)


def unrolled_steps(steps: object, nodes: int) -> int:
    """How many steps of a loop become one iteration of the compiled one.

    The steps that remain are computed after the loop, by copies of their own, as one more iteration. Of equally many
    iterations those with the fewest copies are chosen. `nodes`: how many operations the steps of all loops of a program
    have, since compiling takes longer with each copy.
    """
    most = min(lowering().loop_unroll, UNROLLED_NODES // max(nodes, 1))
    if not isinstance(steps, int) or most <= 1:
        return 1  # in exported programs the number may be symbolic
    copies = {n: n + steps % n for n in range(1, min(most, steps) + 1) if n + steps % n <= most}
    return min(copies, key=lambda n: (-(-steps // n), copies[n]))


def scan_forward(
    step: Step, weights: Sequence[Array], invariants: PyTree, init: PyTree, xs: PyTree, reverse: bool,
    unroll: int = 1,
) -> PyTree:
    """The outputs of `scan`, where no gradient is taken.

    Functions with a gradient of their own stay in jax's caches, with all that they refer to: graph and program.
    """

    def body(carry: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
        return step(weights, invariants, carry, x, None)[:2]

    return lax.scan(body, init, xs, reverse=reverse, unroll=unroll)[1]


@storing_values(False)
def split_step(
    step: Step, weights: PyTree, invariants: PyTree, init: PyTree, xs: PyTree
) -> tuple[SplitStep, jax.tree_util.PyTreeDef]:
    """A step traced together with its gradient and split into two halves; and the structure of its outputs."""
    x = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), xs)
    carry, y, tapped_products = jax.eval_shape(partial(step, taps=None), weights, invariants, init, x)
    taps = [product for _, product in tapped_products]
    leaves, tree = jax.tree.flatten((weights, invariants, init, x, taps))
    differentiable = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.inexact)]

    def with_gradient(leaves: Sequence[Array], d_carry: PyTree, d_y: PyTree) -> PyTree:
        leaves = [*leaves, *(jnp.zeros(tap.shape, tap.dtype) for tap in taps)]

        def primal(*floats: Array) -> PyTree:
            merged = dict(enumerate(leaves)) | dict(zip(differentiable, floats, strict=True))
            carry, y, tapped_products = step(*jax.tree.unflatten(tree, merged.values()))
            return (carry, y), [operand for operand, _ in tapped_products]

        outputs, backward, operands = jax.vjp(primal, *[leaves[i] for i in differentiable], has_aux=True)
        return outputs, operands, backward((d_carry, d_y))

    traced = jax.make_jaxpr(with_gradient)(leaves[: len(leaves) - len(taps)], carry, y)
    closed = jax.make_jaxpr(lambda *arrays: inline_calls(traced, arrays))(*traced.in_avals)
    num_invariants, num_carry, num_xs = (len(flat) for flat in _flat_arguments(weights, invariants, init, x))
    num_ys = len(jax.tree.leaves(y))
    joint = JointStep.of(closed, (num_invariants, num_carry, num_xs), num_ys, differentiable)
    steps = jax.tree.leaves(xs)[0].shape[0]
    deferred_elements = lowering().deferred_elements // max(steps, 1) if isinstance(steps, int) else 0
    return split_jaxpr(joint, deferred_elements), jax.tree.structure(y)


def _flat_arguments(
    weights: PyTree, invariants: PyTree, init: PyTree, xs: PyTree
) -> tuple[list[Array], list[Array], list[Array]]:
    """What is the same in every step (the weights first), the carry, and the inputs of the steps."""
    return jax.tree.leaves((weights, invariants)), jax.tree.leaves(init), jax.tree.leaves(xs)


def _run_forward(
    split: SplitStep, arguments: PyTree, reverse: bool, unroll: int
) -> tuple[list[Array], list[StackedPlace]]:
    """What the forward half stacks: arrays [time, ...], and where in these each stacked value is."""
    invariants, init, xs = _flat_arguments(*arguments)
    places: list[StackedPlace] = []

    def body(carry: list[Array], x: list[Array]) -> tuple[list[Array], list[Array]]:
        outputs = eval_jaxpr(split.forward, split.consts, *invariants, *carry, *x)
        joined, places[:] = _joined(outputs[len(carry) :], stacks=True)
        return outputs[: len(carry)], joined

    return lax.scan(body, init, xs, reverse=reverse, unroll=unroll)[1], places


def _joined(arrays: Sequence[Array], stacks: bool = False) -> tuple[list[Array], list[StackedPlace]]:
    """The arrays of a step as a loop stores them: those of one type one after the other in one array, where that pays.

    If all have one size XLA stores them at once anyway, unless they are many: `stacks` gives them an axis of one array.
    """
    groups: dict[Hashable, list[int]] = {}
    for i, array in enumerate(arrays):
        groups.setdefault(array.dtype if lowering().joined_residuals else i, []).append(i)
    joined: list[Array] = []
    places: dict[int, StackedPlace] = {}
    for group in groups.values():
        shapes = {tuple(d for d in arrays[i].shape if d > 1) for i in group}
        if len(group) == 1 or (len(shapes) == 1 and not stacks):
            places |= {i: StackedPlace(len(joined) + k) for k, i in enumerate(group)}
            joined += [arrays[i] for i in group]
        elif len(shapes) == 1:
            places |= {i: StackedPlace(len(joined), k, arrays[i].shape) for k, i in enumerate(group)}
            joined.append(jnp.stack([arrays[i].reshape(*shapes) for i in group]))
        else:
            ends = list(accumulate(arrays[i].size for i in group))
            places |= {
                i: StackedPlace(len(joined), slice(end - arrays[i].size, end), arrays[i].shape)
                for i, end in zip(group, ends, strict=True)
            }
            joined.append(jnp.concatenate([arrays[i].ravel() for i in group]))
    return joined, [places[i] for i in range(len(arrays))]


def _part(arrays: Sequence[Array], place: StackedPlace, steps: bool = True) -> Array:
    """A stacked value, of all steps, or of one step that the arrays are of."""
    array = arrays[place.array]
    if place.part is None:
        return array
    part = array[:, place.part] if steps else array[place.part]
    return part.reshape(*part.shape[:steps], *place.shape)


def _run_backward(
    split: SplitStep, arguments: PyTree, consts: list[Array], stacked: tuple[list[Array], list[StackedPlace]],
    d_ys: PyTree, reverse: bool, unroll: int,
) -> tuple[dict[int, Array], list[Array]]:
    """The gradients of the arguments by their places among all leaves, and the stacked gradients."""
    invariants, init, xs = _flat_arguments(*arguments)
    arrays, places = stacked
    read = sorted({places[i].array for i in split.residuals})
    residual_places = [places[i]._replace(array=read.index(places[i].array)) for i in split.residuals]
    gradient_places: list[StackedPlace] = []

    def body(carry: tuple[list[Array], list[Array]], inputs: PyTree) -> PyTree:
        (d_carry, totals), (x, saved, d_y) = carry, inputs
        residuals = [_part(saved, place, steps=False) for place in residual_places]
        outputs = eval_jaxpr(split.backward, consts, *invariants, *x, *residuals, *d_carry, *d_y)
        d_carry, d_invariants, stacked = split_list(outputs, len(d_carry), len(totals))
        joined, gradient_places[:] = _joined(stacked)
        return (d_carry, [total + d for total, d in zip(totals, d_invariants, strict=True)]), joined

    zeros = [jnp.zeros_like(x) for x in init], [jnp.zeros_like(invariants[i]) for i in split.differentiated_invariants]
    inputs = xs, [arrays[i] for i in read], jax.tree.leaves(d_ys)
    (d_init, d_invariants), joined = lax.scan(body, zeros, inputs, reverse=not reverse, unroll=unroll)
    stacked_gradients = [_part(joined, place) for place in gradient_places]
    gradients = dict(zip(split.differentiated_invariants, d_invariants, strict=True))
    gradients |= _deferred_gradients(split, (invariants, xs), consts, stacked, stacked_gradients)
    gradients |= {len(invariants) + i: d for i, d in enumerate(d_init)}
    begin_xs = len(invariants) + len(init)
    gradients |= {begin_xs + i: stacked_gradients[place] for i, place in split.x_gradients.items()}
    return gradients, stacked_gradients


def _deferred_gradients(
    split: SplitStep, arguments: tuple[list[Array], list[Array]], consts: list[Array],
    stacked: tuple[list[Array], list[StackedPlace]], stacked_gradients: Sequence[Array],
) -> dict[int, Array]:
    """The gradients of invariants that are computed after the loop, by their places: those of all steps, summed."""
    if not split.deferred_invariants:
        return {}
    invariants, xs = arguments
    arrays, places = stacked
    saved, gradients = split.deferred_operands
    operands = [*(_part(arrays, places[i]) for i in saved), *(stacked_gradients[i] for i in gradients)]
    of_steps = jax.vmap(lambda x, operands: eval_jaxpr(split.deferred, consts, *invariants, *x, *operands))
    totals = [jnp.sum(d, 0) for d in of_steps(xs, operands)]
    return dict(zip(split.deferred_invariants, totals, strict=True))


def _with_weight_gradients(
    split: SplitStep, arguments: PyTree, operands: list[Array], gradients: dict[int, Array],
    stacked_gradients: list[Array], weight_gradients: WeightGradients,
) -> PyTree:
    """The gradients in the form of the arguments, after those of the weights are added."""
    d_products = [stacked_gradients[i] for i in split.product_gradients]
    for i, d in enumerate(weight_gradients(arguments[0], operands, d_products)):
        gradients[i] = gradients[i] + d if i in gradients else d
    leaves, tree = jax.tree.flatten(arguments)
    return jax.tree.unflatten(tree, [gradients.get(i) for i in range(len(leaves))])
