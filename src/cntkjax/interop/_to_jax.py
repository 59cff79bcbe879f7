"""Functions as pure JAX functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, ArrayLike, PyTree
from ..engine.plan.parts import resolve
from ..engine.plan.plan import Plan
from ..engine.run import pure_function as pure
from ..engine.run.handover import STATE, settle
from ..engine.run.index_check import check_constant_indices
from ..graph.arguments import public
from ..graph.errors import ShapeError, explain
from ..graph.shape import matches, shape_text
from ..graph.variable import Edge, Leaf, value_of
from ..ops.functions import Function
from ._names import leaf_names

Input: TypeAlias = "ArrayLike | tuple[ArrayLike, ArrayLike | None]"  # data, or data and lengths of sequences


@public
class JaxFunction:
    """``f(parameters, *inputs)``: a Function as a pure function. See ``to_jax``.

    ``parameters`` and ``state`` are the initial values, dicts by name of parameters, and of constants that training
    changes (running statistics). ``apply`` also returns the new state, a call does not.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.arguments: tuple[Edge, ...] = tuple(function.arguments)
        self.plan = Plan(function.outputs)
        if self.plan.calls_python:
            raise ValueError(explain(f"to_jax: {function!r} runs Python code of the user, which JAX cannot transform"))
        check_constant_indices(self.plan)
        changed = [c for c in function.constants if c in self.plan.assigned or self._is_running(c)]
        self._parameters, self._state = leaf_names(function.parameters), leaf_names(changed)
        # Copies, as training gives buffers away.
        with STATE:
            settle()
            self._values = {leaf: np.array(value_of(leaf)) for leaf in self.plan.leaves}
        self._run = jax.jit(partial(pure.run, self.plan), static_argnums=3)

    def _is_running(self, leaf: Leaf) -> bool:
        """Whether an operation, such as batch normalization, keeps running statistics in this leaf."""
        return any(leaf in map(resolve, n.node_inputs[n.primitive.running_operands]) for n in self.plan.nodes)

    @property
    def parameters(self) -> dict[str, jax.Array]:
        """The values of parameters that the Function had when it was converted."""
        return {name: jnp.asarray(self._values[p]) for name, p in self._parameters.items()}

    @property
    def state(self) -> dict[str, jax.Array]:
        """Running statistics and other constants that training changes, as the Function had them."""
        return {name: jnp.asarray(self._values[c]) for name, c in self._state.items()}

    def __call__(
        self, parameters: Mapping[str, ArrayLike], *inputs: Input, training: bool = False, rng: Array | None = None
    ) -> PyTree:
        """The output, or a tuple of outputs."""
        return self.apply(parameters, None, *inputs, training=training, rng=rng)[0]

    def apply(
        self, parameters: Mapping[str, ArrayLike], state: Mapping[str, ArrayLike] | None, *inputs: Input,
        training: bool = False, rng: Array | None = None,
    ) -> tuple[PyTree, dict[str, AnyArray]]:
        """The output, or a tuple of outputs, and the new state. `state`: None for that of the Function.

        Errors: TypeError for another number of inputs; ShapeError and KeyError as for ``to_jax``.
        """
        if len(inputs) != len(self.arguments):
            raise TypeError(explain(
                f"{self!r} takes {len(self.arguments)} inputs after the parameters, not {len(inputs)}",
                fix=f"pass them in the order {', '.join(v.name or v.uid for v in self.arguments)}",
            ))
        inputs_of = dict(zip(self.arguments, map(_pair, inputs), strict=True))
        lacks_batch = [_lacks_batch(v, data) for v, (data, _) in inputs_of.items() if v.dynamic_axes]
        if any(lacks_batch) and not all(lacks_batch):
            raise ShapeError(explain(
                f"{self!r}: some inputs have a batch axis and others have none",
                fix="give all of them a batch axis, or none",
            ))
        add_batch = any(lacks_batch)
        by_plan = {resolve(v): (_batched(v, d) if add_batch else d, lengths) for v, (d, lengths) in inputs_of.items()}
        values = self._values | {p: _checked_value(name, parameters, p) for name, p in self._parameters.items()}
        if state is not None:
            values |= {c: _checked_value(name, state, c) for name, c in self._state.items()}
        key = pure.random_key(self.plan) if rng is None else rng
        leaves, arguments = [values[v] for v in self.plan.leaves], [by_plan[v] for v in self.plan.arguments]
        results, updates = self._run(leaves, arguments, key, training)
        outputs = [d[0] if add_batch and v.dynamic_axes else d for v, d in zip(self.plan.outputs, results, strict=True)]
        changed = {self.plan.leaves[place]: value for place, value in updates.items()}
        new_state = {name: changed.get(c, values[c]) for name, c in self._state.items()}
        return (outputs[0] if len(outputs) == 1 else tuple(outputs)), new_state

    def __repr__(self) -> str:
        return f"JaxFunction of {self.function}"


@public
def to_jax(function: Function) -> tuple[JaxFunction, dict[str, jax.Array]]:
    """A Function as a pure JAX function and its parameters: ``f, parameters = to_jax(function)``.

    ``f(parameters, *inputs, training=False, rng=None)`` works under jax.jit, grad, vmap, scan and shard_map. It returns
    the output, or a tuple of outputs. Inputs are in the order of ``function.arguments``. `training` enables dropout and
    makes batch normalization use the minibatch; random numbers then come from the key `rng`, so pass a new one each
    time. ``f.apply(parameters, state, *inputs, ...)`` also takes and returns running statistics, initially ``f.state``.
    Later edits of the graph, and new values of parameters, do not change ``f``.

    Shapes: an input is [batch, *shape]; [batch, time, *shape] with a sequence axis, or a pair of that and lengths
            [batch]; [*shape] without dynamic axes. If no input has the batch axis, no output has it. Outputs have
            the same form, with zeros after the end of a sequence.
    Errors: ValueError if the Function runs Python code of the user; ShapeError for inputs or parameters of other
            shapes; KeyError for a missing parameter.

    >>> import cntkjax as C, jax
    >>> model = C.layers.Dense(2, init=1)(C.input_variable(3))
    >>> f, parameters = to_jax(model)
    >>> jax.jit(f)(parameters, [[1., 2., 3.]])
    Array([[6., 6.]], dtype=float32)
    >>> jax.grad(lambda p, x: f(p, x).sum())(parameters, [1., 2., 3.])['b']
    Array([1., 1.], dtype=float32)
    """
    f = JaxFunction(function)
    return f, f.parameters


def _pair(argument: Input) -> tuple[Array, Array | None]:
    """The data, and the lengths of sequences or None."""
    data, lengths = argument if isinstance(argument, tuple) and len(argument) == 2 else (argument, None)
    return jnp.asarray(data), None if lengths is None else jnp.atleast_1d(jnp.asarray(lengths))


def _lacks_batch(variable: Edge, data: Array) -> bool:
    rank = len(variable.shape) + len(variable.dynamic_axes)
    if data.ndim not in (rank, rank - 1) or not matches(variable.shape, data.shape[data.ndim - len(variable.shape) :]):
        wanted = "[batch, time, *shape]" if variable.sequence_axis else "[batch, *shape]"
        raise ShapeError(explain(
            f"{variable!r} is given an array of shape {shape_text(data.shape)}; it takes {wanted}", {"input": variable},
            fix=f"pass {wanted} with shape {shape_text(variable.shape)}, or all inputs without the batch axis",
        ))
    return data.ndim < rank


def _batched(variable: Edge, data: Array) -> Array:
    return data[None] if variable.dynamic_axes else data


def _checked_value(name: str, values: Mapping[str, ArrayLike], leaf: Leaf) -> Array:
    if name not in values:
        raise KeyError(f"there is no value for '{name}', which is {leaf!r}; there are {', '.join(values) or 'none'}")
    value = jnp.asarray(values[name])
    if value.shape != leaf.shape:
        raise ShapeError(explain(f"'{name}' is given a value of shape {shape_text(value.shape)}", {"parameter": leaf}))
    return value


__all__ = ["JaxFunction", "to_jax"]
