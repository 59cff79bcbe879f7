"""How much a traced computation computes, as far as that depends on how well it is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn  # slow to import

LOOPS = {"scan": "jaxpr", "while": "body_jaxpr"}  # to the parameter with what they compute in a step


def elements(jaxpr: Jaxpr) -> int:
    """The number of elements that the operations of a trace compute, those in loops once for each step.

    Matrix products and convolutions count their results only: they are computed by libraries, but for convolutions in
    double precision, whose products count.
    """
    return sum(_elements(eqn) for eqn in jaxpr.eqns)


def operations(jaxpr: Jaxpr) -> int:
    """The number of operations in a trace, those in loops and functions once."""
    return sum(1 + sum(map(operations, _inner(eqn))) for eqn in jaxpr.eqns)


def largest_sum(jaxpr: Jaxpr) -> int:
    """The number of results of the largest sum along axes in a trace, 0 if there is none."""
    return max((_largest_sum(eqn) for eqn in jaxpr.eqns), default=0)


def stores_in_loops(jaxpr: Jaxpr, in_loop: bool = False) -> bool:
    """Whether a step of a loop in a trace stores values behind a barrier."""
    return any(
        (in_loop and eqn.primitive.name == "optimization_barrier")
        or any(stores_in_loops(inner, in_loop or eqn.primitive.name in LOOPS) for inner in _inner(eqn))
        for eqn in jaxpr.eqns
    )


def _largest_sum(eqn: JaxprEqn) -> int:
    own = getattr(eqn.outvars[0].aval, "size", 0) if eqn.primitive.name == "reduce_sum" else 0
    return max([own, *map(largest_sum, _inner(eqn))])


def _elements(eqn: JaxprEqn) -> int:
    inner = list(_inner(eqn))
    if inner:
        return _steps(eqn) * sum(map(elements, inner))
    return sum(getattr(v.aval, "size", 1) for v in eqn.outvars) * _products(eqn)


def _products(eqn: JaxprEqn) -> int:
    """How many products, one after the other, each result is the sum of; 1 for what a library computes."""
    if eqn.primitive.name != "conv_general_dilated":
        return 1
    weights: Any = eqn.invars[1].aval
    if weights.dtype.name != "float64":
        return 1
    return weights.size // weights.shape[eqn.params["dimension_numbers"].rhs_spec[0]]


def _steps(eqn: JaxprEqn) -> int:
    """The number of steps of a loop. One that ends when it likes is taken to fill an array along its first axis."""
    if eqn.primitive.name == "while":
        shapes = [getattr(v.aval, "shape", ()) for v in eqn.outvars]
        return max((shape[0] for shape in shapes if shape), default=1)
    return eqn.params.get("length", 1) if eqn.primitive.name == "scan" else 1


def _inner(eqn: JaxprEqn) -> Iterator[Jaxpr]:
    for parameter in eqn.params.values():
        for item in parameter if isinstance(parameter, (list, tuple)) else [parameter]:
            jaxpr: Any = getattr(item, "jaxpr", item)  # closed or not
            if hasattr(jaxpr, "eqns"):
                yield jaxpr
