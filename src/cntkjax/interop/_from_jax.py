"""A JAX function with its parameters as a Function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from .._typing import PyTree
from ..graph.arguments import public
from ..graph.build import composite
from ..ops._operand import Operand, as_list, as_variables
from ..ops.functions import Function
from ..primitives.jax_function import JaxCall
from ..variables import Constant, Parameter


@public
def from_jax(
    f: Callable[..., PyTree], parameters: PyTree, operands: Operand | Sequence[Operand], *, state: PyTree = None,
    random: bool = False, name: str = "",
) -> Function:
    """A JAX function as a Function: ``f(parameters, *arrays)``, its parameters as Parameters that learners train.

    Args:
        f: pure; returns an array or a tuple of arrays. JAX differentiates it (``jax.custom_vjp`` is respected).
        parameters: a pytree of arrays. Each leaf becomes a Parameter named by its path, such as ``layers.0.W``.
        operands: one or several; those with dynamic axes have to have the same ones.
        state: a pytree of arrays that training changes, such as running statistics, which become Constants. ``f`` is
            then called as ``f(parameters, state, *arrays, training=bool)``, and returns (outputs, new state).
        random: ``f`` takes a key as the keyword ``rng``, a different one at each call.

    Shapes: arrays are [batch, *shape]: the samples of a minibatch, without padding, or all steps of its sequences,
            concatenated; results [batch, ...]. Without dynamic axes [*shape].
    Errors: ValueError if a result lacks the batch axis; RuntimeError, with the cause, for an exception in ``f``;
            ValueError when the Function is saved, because a file cannot hold it.

    >>> import cntkjax as C, jax.numpy as jnp
    >>> x = C.input_variable(2)
    >>> model = from_jax(lambda p, x: jnp.tanh(x @ p['W']), {'W': np.zeros((2, 3), np.float32)}, x)
    >>> model.parameters, model.eval({x: [[1, 2]]})
    ((Parameter('W', [], [2 x 3]),), array([[0., 0., 0.]], dtype=float32))
    """
    parameter_leaves, tree = _leaves(parameters, Parameter)
    constants, state_tree = _leaves(state, Constant)
    variables = as_variables(*as_list(operands))
    call = JaxCall(f, tree, state_tree if state is not None else None, len(parameter_leaves), len(constants), random)
    return composite(call.node([*parameter_leaves, *constants, *variables], name))  # type: ignore[return-value]


def _leaves(
    tree: PyTree, kind: type[Parameter] | type[Constant]
) -> tuple[list[Parameter | Constant], jax.tree_util.PyTreeDef]:
    """A Parameter or Constant for each leaf of a tree, and the tree's structure."""
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    leaves = []
    for path, array in paths:
        keyword: dict[str, Any] = {"init" if kind is Parameter else "value": np.asarray(array)}
        leaves.append(kind(name=_name(path), **keyword))
    return leaves, structure


def _name(path: Sequence[Any]) -> str:
    """A name such as ``layers.0.W``."""
    keys = (getattr(k, "key", getattr(k, "idx", getattr(k, "name", k))) for k in path)
    return ".".join(map(str, keys))


__all__ = ["from_jax"]
