"""flax modules as Functions, and Functions as flax modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..engine.xla.versions import double_precision
from ..ops._operand import Operand, as_list, as_variables
from ..ops.functions import Function
from ._from_jax import from_jax
from ._to_jax import JaxFunction, to_jax

try:
    from flax import linen as nn
    from flax.core import unfreeze
except ImportError as missing:
    raise ImportError("cntkjax.interop.to_flax and from_flax need flax: pip install 'cntkjax[flax]'") from missing


class CNTKModule(nn.Module):
    """A Function as a linen module; made by ``to_flax``."""

    function: JaxFunction

    @nn.compact
    def __call__(self, *inputs: Any, training: bool = False) -> Any:
        """The output, or a tuple of outputs, as of ``to_jax``."""
        made = self.function
        parameters = {n: self.param(n, _started(value)) for n, value in made.parameters.items()}
        kept = {n: self.variable("batch_stats", n, lambda v=value: v) for n, value in made.state.items()}
        rng = self.make_rng("dropout") if training and made.plan.random else None
        outputs, after = made.apply(
            parameters, {n: v.value for n, v in kept.items()}, *inputs, training=training, rng=rng
        )
        if training and not self.is_initializing() and self.is_mutable_collection("batch_stats"):
            for n, variable in kept.items():
                variable.value = after[n]
        return outputs


def _started(value: Any) -> Callable[[Any], Any]:
    return lambda key: value


def to_flax(function: Function) -> CNTKModule:
    """A Function as a flax (linen) module: ``module.init`` gives its parameters, with the values that they have now.

    Parameters are in the collection ``params``, running statistics in ``batch_stats`` (mutable while training).
    ``module.apply(variables, *inputs, training=False)`` computes what ``to_jax`` does; dropout takes the rng
    ``dropout``. As a submodule it stands in other modules, and ``flax.nnx.bridge.ToNNX`` makes an nnx module of it.

    Errors: ImportError without flax; otherwise those of ``to_jax``.

    Example:
        >>> import cntkjax as C, jax
        >>> module = to_flax(C.layers.Dense(2, init=1)(C.input_variable(3)))
        >>> variables = module.init(jax.random.key(0), [[1., 2., 3.]])
        >>> sorted(variables['params']), module.apply(variables, [[1., 2., 3.]])
        (['W', 'b'], Array([[6., 6.]], dtype=float32))
    """
    return CNTKModule(to_jax(function)[0])


def from_flax(
    module: nn.Module, operands: Operand | Sequence[Operand], variables: Any = None, *, training: str | None = None,
    inverted: bool = False, rng: Any = None, name: str = "",
) -> Function:
    """A flax (linen) module as a Function of operands, its ``params`` as Parameters that learners train.

    Args:
        variables: of the module; None makes them by ``module.init`` with the key `rng`, or one made of 0.
        training: name of the module's keyword that tells training from evaluation, such as ``train``; with `inverted`
            one that is True in evaluation, such as ``deterministic`` or ``use_running_average``.

    All collections but ``params`` (such as ``batch_stats``) are Constants, which training changes. The rng ``dropout``
    is there while training.

    Shapes, Errors: as of ``from_jax``; ImportError without flax.

    Example:
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

    def call(parameters: Any, state: Any, *arrays: Any, training: bool, rng: Any) -> tuple[Any, Any]:
        given = {"params": parameters, **state}
        if not training:
            return module.apply(given, *arrays, **switch(False)), state
        made, changed = module.apply(given, *arrays, **switch(True), rngs={"dropout": rng}, mutable=list(state))
        return made, {**state, **changed}

    return from_jax(call, parameters, inputs, state=state, random=True, name=name)


__all__ = ["CNTKModule", "from_flax", "to_flax"]
