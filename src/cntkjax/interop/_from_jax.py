"""A JAX function with its parameters as a Function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..graph.build import composite
from ..ops._operand import Operand, as_list, as_variables
from ..ops.functions import Function
from ..primitives.jax_function import JaxCall
from ..variables import Constant, Parameter


def from_jax(
    f: Callable[..., Any], parameters: Any, operands: Operand | Sequence[Operand], *, state: Any = None,
    random: bool = False, name: str = "",
) -> Function:
    """A JAX function as a Function: ``f(parameters, *arrays)``, its parameters as Parameters that learners train.

    Args:
        f: pure; returns an array or a tuple of arrays. JAX differentiates it (``jax.custom_vjp`` is obeyed).
        parameters: a pytree of arrays. Each leaf becomes a Parameter named by its path, such as ``layers.0.W``.
        operands: one or several; their dynamic axes have to be the same, but for operands that have none.
        state: a pytree of arrays that training changes, such as running statistics, as Constants. With it the call is
            ``f(parameters, state, *arrays, training=bool)``, and returns (outputs, new state).
        random: ``f`` takes a key as the keyword ``rng``, another at each call.

    Shapes: arrays are [batch, *shape]: the samples of a minibatch, or all steps of its sequences end to end, never
            padded in the first case; results [batch, ...]. Without dynamic axes [*shape].
    Errors: ValueError if a result lacks the batch axis; RuntimeError for what ``f`` raises, with that as the cause; a
            file cannot hold it (ValueError when it is saved).

    Example:
        >>> import cntkjax as C, jax.numpy as jnp
        >>> x = C.input_variable(2)
        >>> model = from_jax(lambda p, x: jnp.tanh(x @ p['W']), {'W': np.zeros((2, 3), np.float32)}, x)
        >>> model.parameters, model.eval({x: [[1, 2]]})
        ((Parameter('W', [], [2 x 3]),), array([[0., 0., 0.]], dtype=float32))
    """
    trained, tree = _leaves(parameters, Parameter)
    kept, state_tree = _leaves(state, Constant)
    variables = as_variables(*as_list(operands))
    call = JaxCall(f, tree, state_tree if state is not None else None, len(trained), len(kept), random)
    return composite(call.node([*trained, *kept, *variables], name))  # type: ignore[return-value]


def _leaves(tree: Any, kind: Any) -> tuple[list[Any], Any]:
    """A Parameter or Constant for each leaf, and the structure."""
    found, structure = jax.tree_util.tree_flatten_with_path(tree)
    made = []
    for path, array in found:
        keyword = {"init" if kind is Parameter else "value": np.asarray(array)}
        made.append(kind(name=_name(path), **keyword))
    return made, structure


def _name(path: Sequence[Any]) -> str:
    """``layers.0.W``."""
    keys = (getattr(k, "key", getattr(k, "idx", getattr(k, "name", k))) for k in path)
    return ".".join(map(str, keys))


__all__ = ["from_jax"]
