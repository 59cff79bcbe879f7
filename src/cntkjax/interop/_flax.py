"""flax modules as Functions, and Functions as flax modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from .._typing import Array, PyTree
from ..engine.xla.versions import double_precision
from ..ops._operand import Operand, as_list, as_variables
from ..ops.functions import Function
from ._from_jax import from_jax
from ._to_jax import Input, JaxFunction, to_jax

try:
    from flax import linen as nn
    from flax.core import unfreeze
except ImportError as missing:
    raise ImportError("cntkjax.interop.to_flax and from_flax need flax: pip install 'cntkjax[flax]'") from missing


class CNTKModule(nn.Module):
    """A Function as a linen module; ``to_flax`` creates it."""

    function: JaxFunction

    @nn.compact
    def __call__(self, *inputs: Input, training: bool = False) -> PyTree:
        """The output, or a tuple of outputs, as those of ``to_jax``."""
        f = self.function
        parameters = {n: self.param(n, _constant_initializer(value)) for n, value in f.parameters.items()}
        state = {n: self.variable("batch_stats", n, lambda v=value: v) for n, value in f.state.items()}
        rng = self.make_rng("dropout") if training and f.plan.random else None
        outputs, new_state = f.apply(
            parameters, {n: v.value for n, v in state.items()}, *inputs, training=training, rng=rng
        )
        if training and not self.is_initializing() and self.is_mutable_collection("batch_stats"):
            for n, variable in state.items():
                variable.value = new_state[n]
        return outputs


def _constant_initializer(value: Array) -> Callable[[Array], Array]:
    return lambda key: value


def to_flax(function: Function) -> CNTKModule:
    """A Function as a flax (linen) module: ``module.init`` returns its parameters with their current values.

    Parameters are in the collection ``params``, running statistics in ``batch_stats`` (mutable while training).
    ``module.apply(variables, *inputs, training=False)`` computes the same as ``to_jax``; dropout uses the rng
    ``dropout``. It can be a submodule of other modules, and ``flax.nnx.bridge.ToNNX`` converts it to an nnx module.

    Errors: ImportError without flax; otherwise those of ``to_jax``.

    >>> import cntkjax as C, jax
    >>> module = to_flax(C.layers.Dense(2, init=1)(C.input_variable(3)))
    >>> variables = module.init(jax.random.key(0), [[1., 2., 3.]])
    >>> sorted(variables['params']), module.apply(variables, [[1., 2., 3.]])
    (['W', 'b'], Array([[6., 6.]], dtype=float32))
    """
    return CNTKModule(to_jax(function)[0])


def from_flax(
    module: nn.Module, operands: Operand | Sequence[Operand], variables: PyTree = None, *,
    training: str | None = None, inverted: bool = False, rng: Array | None = None, name: str = "",
) -> Function:
    """A flax (linen) module as a Function of operands, with its ``params`` as Parameters that learners train.

    Args:
        variables: those of the module; None initializes them by ``module.init`` with the key `rng`, by default key 0.
        training: the module's keyword argument that is True in training, such as ``train``; with `inverted` one that
            is True in evaluation, such as ``deterministic`` or ``use_running_average``.

    All collections except ``params`` (such as ``batch_stats``) become Constants, which training changes. The rng
    ``dropout`` is passed in training only.

    Shapes, Errors: those of ``from_jax``; ImportError without flax.

    >>> import cntkjax as C
    >>> from flax import linen as nn
    >>> x = C.input_variable(3)
    >>> model = from_flax(nn.Dense(2), x)
    >>> sorted((p.name, p.shape) for p in model.parameters), model.shape
    ([('bias', (2,)), ('kernel', (3, 2))], (2,))
    """
    inputs = as_variables(*as_list(operands))

    def switch(on: bool) -> dict[str, bool]:
        return {} if training is None else {training: on != inverted}

    if variables is None:
        trial = [jnp.zeros((*((1,) if v.dynamic_axes else ()), *v.shape), v.dtype) for v in inputs]
        with double_precision(any(t.dtype == jnp.float64 for t in trial)):
            variables = module.init(jax.random.key(0) if rng is None else rng, *trial, **switch(False))
    state = dict(unfreeze(variables))
    parameters = state.pop("params", {})

    def call(
        parameters: PyTree, state: PyTree, *arrays: Array, training: bool, rng: Array
    ) -> tuple[PyTree, PyTree]:
        collections = {"params": parameters, **state}
        if not training:
            return module.apply(collections, *arrays, **switch(False)), state
        rngs = {"dropout": rng}
        outputs, changed = module.apply(collections, *arrays, **switch(True), rngs=rngs, mutable=list(state))
        return outputs, {**state, **changed}

    return from_jax(call, parameters, inputs, state=state, random=True, name=name)


__all__ = ["CNTKModule", "from_flax", "to_flax"]
