"""Traces without calls: the bodies of the functions that a trace calls take the place of the calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jax.core import eval_jaxpr

from ..._typing import Array
from .partial_eval import Atom, is_variable, variables

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Var  # slow to import

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr"}  # to the parameter with the callee


def inline_calls(closed: ClosedJaxpr, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of a jaxpr, evaluated with the bodies of the functions that it calls in place of the calls."""
    jaxpr = closed.jaxpr
    values: dict[Var, Array] = dict(
        zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *arrays), strict=True)
    )

    def read(atom: Atom) -> Array:
        return values[atom] if is_variable(atom) else atom.val  # type: ignore[union-attr]

    for eqn in jaxpr.eqns:
        if eqn.primitive.name in CALLS:
            outputs = inline_calls(eqn.params[CALLS[eqn.primitive.name]], [read(v) for v in eqn.invars])
        else:
            inputs = list(dict.fromkeys(variables(eqn.invars)))
            single = jaxpr.replace(constvars=[], invars=inputs, eqns=[eqn], outvars=eqn.outvars)
            outputs = eval_jaxpr(single, [], *[values[v] for v in inputs])
        values.update(zip(eqn.outvars, outputs, strict=True))
    return [read(v) for v in jaxpr.outvars]


__all__ = ["inline_calls"]
