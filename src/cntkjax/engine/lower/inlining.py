"""Traces without calls: the operations of the functions that a trace calls take the place of the calls."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..._typing import Array
from ..xla.versions import eval_jaxpr
from .partial_eval import Atom, is_variable

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var  # slow to import

    Source = int | Literal  # the number of a value, or one that is known

CALLS = {  # to the parameter with the callee
    "jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr",
}


class Equation(NamedTuple):
    """An equation of a trace. `outputs`: the numbers of its values."""

    jaxpr: Jaxpr
    eqn: JaxprEqn
    inputs: list[Source]
    outputs: list[int]

    def __call__(self, values: Sequence[Array]) -> list[Array]:
        """The values of its outputs. `values`: by number."""
        arrays = {v: value_of(i, values) for v, i in zip(self.eqn.invars, self.inputs, strict=True) if is_variable(v)}
        single = self.jaxpr.replace(constvars=[], invars=list(arrays), eqns=[self.eqn], outvars=self.eqn.outvars)
        return eval_jaxpr(single, [], *arrays.values())


class Inlined:
    """A trace whose values are numbered, in the order in which they are computed, the inputs first."""

    def __init__(self, closed: ClosedJaxpr) -> None:
        self.constants: dict[int, Array] = {}
        self.operations: list[Equation] = []
        self.count = len(closed.jaxpr.invars)
        self.outputs = self._append(closed, range(self.count))

    def _append(self, closed: ClosedJaxpr, arguments: Sequence[Source]) -> list[Source]:
        """Add the operations of a trace; returns its outputs."""
        jaxpr = closed.jaxpr
        constants = self._numbers(jaxpr.constvars)
        self.constants |= zip(constants, closed.consts, strict=True)
        sources: dict[Var, Source] = dict(zip((*jaxpr.invars, *jaxpr.constvars), (*arguments, *constants), strict=True))

        def read(atoms: Sequence[Atom]) -> list[Source]:
            return [sources[a] if is_variable(a) else cast("Literal", a) for a in atoms]

        for eqn in jaxpr.eqns:
            inputs = read(eqn.invars)
            callee = eqn.params.get(CALLS.get(eqn.primitive.name, ""))
            if callee is not None:
                outputs = self._append(callee, inputs)
                sources.update(zip(eqn.outvars, outputs, strict=True))
            else:
                numbers = self._numbers(eqn.outvars)
                self.operations.append(Equation(jaxpr, eqn, inputs, numbers))
                sources.update(zip(eqn.outvars, numbers, strict=True))
        return read(jaxpr.outvars)

    def _numbers(self, variables: Sequence[Var]) -> list[int]:
        self.count += len(variables)
        return list(range(self.count - len(variables), self.count))

    def __call__(
        self, arrays: Sequence[Array], stored: Container[int] = (), store: Callable[[Array], Array] = lambda x: x
    ) -> list[Array]:
        """The outputs. `stored`: the numbers of values that pass through `store` before anything reads them."""
        values: list[Any] = [None] * self.count
        values[: len(arrays)] = arrays
        for number, constant in self.constants.items():
            values[number] = constant
        for operation in self.operations:
            for number, value in zip(operation.outputs, operation(values), strict=True):
                values[number] = store(value) if number in stored else value
        return [value_of(i, values) for i in self.outputs]


def value_of(source: Source, values: Sequence[Array]) -> Array:
    """The value of a source. `values`: by number."""
    return values[source] if isinstance(source, int) else source.val


def inline_calls(closed: ClosedJaxpr, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of a jaxpr, evaluated with the bodies of the functions that it calls in place of the calls."""
    return Inlined(closed)(arrays)


__all__ = ["Inlined", "Equation", "inline_calls"]
