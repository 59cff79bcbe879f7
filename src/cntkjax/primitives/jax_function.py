"""JAX functions of whole minibatches, with parameters and state, as nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..engine.lower.values import Context, Value, merged
from ..engine.xla.versions import double_precision
from ..graph.build import Spec, make_node, merged_axes
from ..graph.errors import ShapeError, explain
from ..graph.function import Function
from ..graph.seed import next_seed
from ..graph.shape import UNKNOWN_SHAPE, is_known, shape_text
from ..graph.variable import Variable
from .base import Attrs, Primitive

_TRIAL = 7  # samples while shapes are found out


class JaxCall(Primitive):
    """Calls ``function(parameters, [state], *arrays)``; it is its own primitive, and no two share a program.

    Shapes: arrays [batch, *shape], sequences end to end, so that one step is one sample; results likewise.
    """

    name = "JaxFunction"
    packed = True
    infers_partially = True
    needs_exact_batch = True  # what the function computes over the batch shall see no padding

    def __init__(
        self, function: Callable[..., Any], tree: Any, state_tree: Any, trained: int, kept: int, random: bool
    ) -> None:
        self.function, self.tree, self.state_tree, self.random = function, tree, state_tree, random
        self.trained, self.leading = trained, trained + kept

    @property
    def cntk_id(self) -> int:  # type: ignore[override]
        """Files have no number for it: a file cannot hold Python code."""
        raise ValueError(explain(
            f"a model that contains the JAX function {self.function!r} cannot be saved",
            fix="save the values of its parameters instead, and build the model anew",
        ))

    def node(self, inputs: Sequence[Variable], name: str) -> Function:
        """A node of it."""
        return make_node(self, inputs, {"rngSeed": next_seed(), "rngOffset": 0} if self.random else {}, name)

    def cache_key(self, node: Function) -> Any:
        return self

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> list[Spec]:
        operands = inputs[self.leading :]
        axes = merged_axes(self.name, operands)
        needs = any(v.needs_gradient for v in inputs)
        if not all(is_known(v.shape) for v in operands):
            return [Spec(UNKNOWN_SHAPE, axes=axes, needs_gradient=needs)]
        given = [
            jax.ShapeDtypeStruct((*((_TRIAL,) if v.dynamic_axes else ()), *v.shape), v.dtype or np.float32)
            for v in operands
        ]
        leaves = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in inputs[: self.leading]]
        with double_precision(any(s.dtype == np.float64 for s in given)):
            try:
                made, _ = jax.eval_shape(partial(self._call, training=True), leaves, given, key=jax.random.key(0))
            except Exception as error:
                shapes = ", ".join(shape_text(v.shape) for v in operands)
                raise RuntimeError(explain(
                    f"the JAX function {self.function!r} of operands {shapes} raised {type(error).__name__}: {error}"
                )) from error
        if axes and any(s.shape[:1] != (_TRIAL,) for s in made):
            raise ShapeError(explain(
                f"the JAX function {self.function!r} of {_TRIAL} samples made results of shapes "
                f"{', '.join(shape_text(s.shape) for s in made)}", fix="its results need the batch axis first",
            ))
        lead = 1 if axes else 0
        return [Spec(s.shape[lead:], np.dtype(s.dtype).type, axes, needs_gradient=needs) for s in made]

    def _call(self, leaves: Sequence[Any], arrays: Sequence[Any], training: bool, key: Any) -> tuple[list[Any], Any]:
        """Results, and the leaves of the new state."""
        parameters = jax.tree.unflatten(self.tree, leaves[: self.trained])
        keywords = {"rng": key} if self.random else {}
        if self.state_tree is None:
            made, after = self.function(parameters, *arrays, **keywords), []
        else:
            state = jax.tree.unflatten(self.state_tree, leaves[self.trained :])
            made, state = self.function(parameters, state, *arrays, training=training, **keywords)
            after = jax.tree.leaves(state)
        return list(made) if isinstance(made, (list, tuple)) else [made], after

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Value) -> list[Value]:
        operands = values[self.leading :]
        axes = merged(operands)
        leaves = [v.data for v in values[: self.leading]]
        lead = ctx.lead(axes)
        arrays = [ctx.array(ctx.to_axes(v, axes)) for v in operands]
        shape: tuple[int, ...] = ()
        if lead == 2:
            layout = ctx.layout(axes)
            shape = layout.time, layout.rows
            arrays = [a.reshape(-1, *a.shape[2:]) if v.axes else a for a, v in zip(arrays, operands, strict=True)]
        made, after = self._call(leaves, arrays, ctx.training, ctx.key() if self.random else None)
        if ctx.training:
            assert ctx.node is not None
            for leaf, value in zip(ctx.node.node_inputs[self.trained : self.leading], after, strict=False):
                ctx.update(leaf, jnp.asarray(value, leaf.dtype))  # type: ignore[arg-type]
        return [Value(m.reshape(*shape, *m.shape[1:]) if lead == 2 else m, axes) for m in made]


__all__ = ["JaxCall"]
