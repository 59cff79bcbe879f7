"""How much a traced computation computes, as far as that depends on how well it is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn  # slow to import

LOOPS = {"scan": "jaxpr", "while": "body_jaxpr"}  # to the parameter with what they compute in a step

# What an element of a result takes longer, in nanoseconds, if LLVM does not optimize (two cores of an Intel Xeon): what
# libraries compute, or XLA's kernels for sums, does not; most others take 1.5.
_OTHERWISE = 1.5
_LOST_TIME = {
    name: time
    for time, names in {
        0.0: "dot_general reduce_sum reduce_max reduce_min reshape squeeze expand_dims top_k rng_bit_generator",
        0.5: "add sub mul neg abs integer_pow add_any broadcast_in_dim iota transpose",
        4.0: "sqrt rsqrt conv_general_dilated pad",
        9.0: "exp exp2 expm1 log log1p tanh logistic pow erf argmax argmin",
        40.0: "cumsum cumprod cummax cummin select_and_scatter_add",
        50.0: "random_bits threefry2x32",
        90.0: "sort",
    }.items()
    for name in names.split()
}
_LOST_TIME_OF_A_PRODUCT = 20.0  # in convolutions that no library computes
_LOST_TIME_OF_A_WINDOW = 2.0  # for each element in it, where windows are summed or their maxima taken


def elements(jaxpr: Jaxpr) -> int:
    """The number of elements that the operations of a trace compute, those in loops once for each step.

    Matrix products and convolutions count their results only: they are computed by libraries. Of convolutions for which
    there is none products count.
    """
    return sum(size * _products(eqn) for eqn, size in _results(jaxpr))


def lost_time(jaxpr: Jaxpr) -> float:
    """How many nanoseconds longer it takes to compute a trace once if LLVM's optimizations are left out, about."""
    return sum(size * _lost_time(eqn) for eqn, size in _results(jaxpr))


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
    size = getattr(eqn.outvars[0].aval, "size", 0) if eqn.primitive.name == "reduce_sum" else 0
    return max([size, *map(largest_sum, _inner(eqn))])


def _results(jaxpr: Jaxpr) -> Iterator[tuple[JaxprEqn, int]]:
    """All operations of a trace with the number of elements that they compute, in all steps of their loops."""
    for eqn in jaxpr.eqns:
        inner = list(_inner(eqn))
        if not inner:
            yield eqn, sum(getattr(v.aval, "size", 1) for v in eqn.outvars)
        for each in inner:
            yield from ((operation, size * _steps(eqn)) for operation, size in _results(each))


def _lost_time(eqn: JaxprEqn) -> float:
    if eqn.primitive.name.startswith("reduce_window"):
        return _LOST_TIME_OF_A_WINDOW * prod(eqn.params["window_dimensions"])
    products = _products(eqn)
    return _LOST_TIME_OF_A_PRODUCT * products if products > 1 else _LOST_TIME.get(eqn.primitive.name, _OTHERWISE)


def _products(eqn: JaxprEqn) -> int:
    """How many products, one after the other, each result is the sum of; 1 for what a library computes.

    That is no convolution in double precision, and none of an operand with fewer cells than the filters.
    """
    if eqn.primitive.name != "conv_general_dilated":
        return 1
    numbers = eqn.params["dimension_numbers"]
    operand: Any = eqn.invars[0].aval
    weights: Any = eqn.invars[1].aval
    cells, window = _cells(operand, numbers.lhs_spec), _cells(weights, numbers.rhs_spec)
    if weights.dtype.name != "float64" and window <= cells:
        return 1
    return weights.size // weights.shape[numbers.rhs_spec[0]]


def _cells(array: Any, dimensions: Sequence[int]) -> int:
    """The number of cells of an image or a window, whose dimensions come after those of samples and channels."""
    return prod(array.shape[i] for i in dimensions[2:])


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
