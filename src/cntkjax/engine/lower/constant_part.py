"""The part of a computation that follows from inputs which stay the same: it runs once, and the rest takes its results.

Such are weights in the layout that a convolution reads, factors of a normalization, and whatever else a graph computes
from its parameters alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ..._typing import Array, PyTree
from ..xla.versions import eval_jaxpr
from .partial_eval import CHEAP, live_equations, num_elements, partition, split_list, variables

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn  # slow to import


class Split(NamedTuple):
    """A function in two parts: `function(fixed, fed)` is `rest(constants, fed)`.

    The constants are what `computed(fixed)` returns, and then the leaves of `fixed` in the places `kept`. Where `key`s
    are equal, the functions `computed` compute the same.
    """

    computed: Callable[[PyTree], list[Array]]
    kept: list[int]
    rest: Callable[[Sequence[Array], PyTree], PyTree]
    key: Hashable


def split_constants(function: Callable[[PyTree, PyTree], PyTree], fixed: PyTree, fed: PyTree) -> Split:
    """Split a function, as it is traced for arguments of these shapes.

    What only spreads numbers, such as a bias over a minibatch, is not among the constants: it would take memory.
    """
    closed, results = jax.make_jaxpr(function, return_shape=True)(fixed, fed)
    structure: Any = jax.tree.structure(results)
    jaxpr: Jaxpr = closed.jaxpr
    inputs, others = split_list(jaxpr.invars, len(jax.tree.leaves(fixed)))
    constant, varying, _ = partition(jaxpr.eqns, inputs)
    needed = set(variables(jaxpr.outvars)).union(*(variables(eqn.invars) for eqn in varying))
    for eqn in reversed(constant):
        if _spreads(eqn) and not needed.isdisjoint(eqn.outvars):
            varying.insert(0, eqn)
            needed.difference_update(eqn.outvars)
            needed.update(variables(eqn.invars))
    computed = [v for eqn in constant for v in eqn.outvars if v in needed]
    kept = [i for i, v in enumerate(inputs) if v in needed]
    first = jaxpr.replace(
        constvars=[], invars=inputs, eqns=live_equations(constant, computed, inputs), outvars=computed
    )
    second = jaxpr.replace(invars=[*computed, *(inputs[i] for i in kept), *others], eqns=varying)

    def compute(values: PyTree) -> list[Array]:
        return eval_jaxpr(first, [], *jax.tree.leaves(values))

    def rest(constants: Sequence[Array], values: PyTree) -> PyTree:
        return structure.unflatten(eval_jaxpr(second, closed.consts, *constants, *jax.tree.leaves(values)))

    return Split(compute, kept, rest, (str(first), *(np.asarray(c).tobytes() for c in _nested_constants(first))))


def _spreads(eqn: JaxprEqn) -> bool:
    """True for a cheap operation whose result is larger than what it reads."""
    return eqn.primitive.name in CHEAP and num_elements(eqn.outvars) > num_elements(variables(eqn.invars))


def _nested_constants(jaxpr: Jaxpr) -> Iterator[Array]:
    """Arrays that are part of the functions which a trace calls; its text does not show their numbers."""
    for eqn in jaxpr.eqns:
        for parameter in eqn.params.values():
            for item in parameter if isinstance(parameter, (list, tuple)) else [parameter]:
                yield from getattr(item, "consts", ())
                inner: Any = getattr(item, "jaxpr", item)  # closed or not
                if hasattr(inner, "eqns"):
                    yield from _nested_constants(inner)


__all__ = ["Split", "split_constants"]
