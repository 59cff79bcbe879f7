"""A Function as a pure JAX function."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..engine.plan.parts import resolve
from ..engine.plan.plan import Plan
from ..engine.run import pure_function as pure
from ..graph.errors import ShapeError, explain
from ..graph.shape import matches, shape_text
from ..graph.variable import Leaf, Variable, value_of
from ..ops.functions import Function
from ._names import leaf_names


class JaxFunction:
    """``f(parameters, *inputs)``: what a Function computes, as a function without side effects. See ``to_jax``.

    ``parameters`` and ``state`` are what it starts from: dicts by name of trained parameters, and of constants that
    training changes (running statistics). ``apply`` returns a new state too, which a call leaves out.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.arguments: tuple[Variable, ...] = tuple(function.arguments)
        self.plan = Plan(function.outputs)
        if self.plan.calls_python:
            raise ValueError(explain(f"to_jax: {function!r} runs Python code of the user, which JAX cannot transform"))
        changed = [c for c in function.constants if c in self.plan.assigned or self._is_running(c)]
        self._parameters, self._state = leaf_names(function.parameters), leaf_names(changed)
        # Copies, as training gives buffers away.
        self._values = {leaf: np.array(value_of(leaf)) for leaf in self.plan.leaves}
        self._run = jax.jit(partial(pure.run, self.plan), static_argnums=3)

    def _is_running(self, leaf: Leaf) -> bool:
        """Whether batch normalization keeps statistics there."""
        normalizing = [n for n in self.plan.nodes if n.primitive.name == "BatchNormalization"]
        return any(leaf in map(resolve, n.node_inputs[3:]) for n in normalizing)

    @property
    def parameters(self) -> dict[str, jax.Array]:
        """The values that the Function had."""
        return {name: jnp.asarray(self._values[p]) for name, p in self._parameters.items()}

    @property
    def state(self) -> dict[str, jax.Array]:
        """Running statistics and the like, as the Function had them."""
        return {name: jnp.asarray(self._values[c]) for name, c in self._state.items()}

    def __call__(self, parameters: Mapping[str, Any], *inputs: Any, training: bool = False, rng: Any = None) -> Any:
        """The output, or a tuple of outputs."""
        return self.apply(parameters, None, *inputs, training=training, rng=rng)[0]

    def apply(
        self, parameters: Mapping[str, Any], state: Mapping[str, Any] | None, *inputs: Any, training: bool = False,
        rng: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        """The output, or a tuple of outputs, and the state after them. `state`: None for that of the Function."""
        if len(inputs) != len(self.arguments):
            raise TypeError(f"{self!r} takes {len(self.arguments)} inputs after the parameters, not {len(inputs)}")
        given = dict(zip(self.arguments, map(_pair, inputs), strict=True))
        single = [_lacks_batch(v, data) for v, (data, _) in given.items() if v.dynamic_axes]
        if any(single) and not all(single):
            raise ShapeError(explain(f"{self!r}: some inputs have a batch axis and others have none"))
        alone = any(single)
        by_plan = {resolve(v): (_batched(v, d) if alone else d, lengths) for v, (d, lengths) in given.items()}
        values = self._values | {p: _fitting(name, parameters, p) for name, p in self._parameters.items()}
        if state is not None:
            values |= {c: _fitting(name, state, c) for name, c in self._state.items()}
        key = pure.random_key(self.plan) if rng is None else rng
        leaves, arguments = [values[v] for v in self.plan.leaves], [by_plan[v] for v in self.plan.arguments]
        made, updates = self._run(leaves, arguments, key, training)
        outputs = [d[0] if alone and v.dynamic_axes else d for v, d in zip(self.plan.outputs, made, strict=True)]
        changed = {self.plan.leaves[place]: value for place, value in updates.items()}
        after = {name: changed.get(c, values[c]) for name, c in self._state.items()}
        return (outputs[0] if len(outputs) == 1 else tuple(outputs)), after

    def __repr__(self) -> str:
        return f"JaxFunction of {self.function}"


def to_jax(function: Function) -> tuple[JaxFunction, dict[str, jax.Array]]:
    """A Function as a pure JAX function and its parameters: ``f, parameters = to_jax(function)``.

    ``f(parameters, *inputs, training=False, rng=None)`` may stand under jax.jit, grad, vmap, scan and shard_map. It
    returns the output, or a tuple of them. Inputs come in the order of ``function.arguments``. `training` switches
    dropout on and makes batch normalization use the minibatch; random numbers then come from the key `rng`, so give
    another each time. ``f.apply(parameters, state, *inputs, ...)`` takes and returns running statistics as well, which
    begin as ``f.state``. The graph is read now: later edits, and new values of parameters, do not change ``f``.

    Shapes: an input is [batch, *shape]; [batch, time, *shape] with a sequence axis, or a pair of that and lengths
            [batch]; [*shape] without dynamic axes. If no input has the batch axis, no output has it. Outputs likewise,
            zero behind the end of a sequence.
    Errors: ValueError if the Function runs Python code of a user; ShapeError for inputs or parameters that don't fit;
            KeyError for a parameter that is missing.

    Example:
        >>> import cntkjax as C, jax
        >>> model = C.layers.Dense(2, init=1)(C.input_variable(3))
        >>> f, parameters = to_jax(model)
        >>> jax.jit(f)(parameters, [[1., 2., 3.]])
        Array([[6., 6.]], dtype=float32)
        >>> jax.grad(lambda p, x: f(p, x).sum())(parameters, [1., 2., 3.])['b']
        Array([1., 1.], dtype=float32)
    """
    made = JaxFunction(function)
    return made, made.parameters


def _pair(given: Any) -> tuple[Any, Any]:
    """Data, and the lengths of sequences if they are given."""
    data, lengths = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    return jnp.asarray(data), None if lengths is None else jnp.atleast_1d(jnp.asarray(lengths))


def _lacks_batch(variable: Variable, data: Any) -> bool:
    rank = len(variable.shape) + len(variable.dynamic_axes)
    if data.ndim not in (rank, rank - 1) or not matches(variable.shape, data.shape[data.ndim - len(variable.shape) :]):
        wanted = "[batch, time, *shape]" if variable.sequence_axis else "[batch, *shape]"
        raise ShapeError(explain(
            f"{variable!r} is given an array of shape {shape_text(data.shape)}; it takes {wanted}", {"input": variable}
        ))
    return data.ndim < rank


def _batched(variable: Variable, data: Any) -> Any:
    return data[None] if variable.dynamic_axes else data


def _fitting(name: str, values: Mapping[str, Any], leaf: Leaf) -> Any:
    if name not in values:
        raise KeyError(f"there is no value for '{name}', which is {leaf!r}; there are {', '.join(values) or 'none'}")
    value = jnp.asarray(values[name])
    if value.shape != leaf.shape:
        raise ShapeError(explain(f"'{name}' is given a value of shape {shape_text(value.shape)}", {"parameter": leaf}))
    return value


__all__ = ["JaxFunction", "to_jax"]
