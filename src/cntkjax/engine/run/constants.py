"""What functions return whatever they are given, made without compiling anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..._best_effort import BestEffort
from ..._typing import Array, PyTree

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn  # slow to import

_FILLING = BestEffort("fill arrays with constants in NumPy", "a program computes them")


def constant_outputs(function: Callable[..., PyTree], *inputs: PyTree) -> PyTree | None:
    """What a function returns, on the default device, if it only fills arrays with numbers; otherwise None."""
    return _FILLING.attempt(_constant_outputs, function, inputs)


def _constant_outputs(function: Callable[..., PyTree], inputs: Sequence[PyTree]) -> PyTree | None:
    if any(getattr(leaf, "committed", False) for leaf in jax.tree.leaves(inputs)):  # the outputs belong beside these
        return None
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*inputs)
    arrays = _filled(closed.jaxpr)
    return None if arrays is None else jax.tree.unflatten(jax.tree.structure(shapes), arrays)


def _filled(jaxpr: Jaxpr) -> list[Array] | None:
    if not all(map(_fills, jaxpr.eqns)):
        return None
    fillings: dict[Any, JaxprEqn] = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns}
    outputs: Sequence[Any] = jaxpr.outvars
    numbers = [v if _is_literal(v) else fillings[v].invars[0] if v in fillings else None for v in outputs]
    if any(number is None or v.aval.weak_type for v, number in zip(outputs, numbers, strict=True)):
        return None
    return [_array(number, v.aval) for v, number in zip(outputs, numbers, strict=True)]


def _fills(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "broadcast_in_dim" and _is_literal(eqn.invars[0])


def _is_literal(v: Any) -> bool:
    return hasattr(v, "val")


def _array(number: Any, kind: Any) -> Array:
    return jax.device_put(np.full(kind.shape, number.val, kind.dtype), may_alias=False)


__all__ = ["constant_outputs"]
