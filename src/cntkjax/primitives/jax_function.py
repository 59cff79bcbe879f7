"""Nodes that call JAX functions of whole minibatches, with parameters and state."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array
from ..engine.lower.values import Context, Traced, common_axes
from ..engine.xla.versions import double_precision
from ..graph.build import Spec, make_node, merged_axes
from ..graph.errors import ShapeError, explain
from ..graph.function import Node
from ..graph.seed import next_seed
from ..graph.shape import UNKNOWN_SHAPE, is_known, shape_text
from ..graph.variable import Edge
from .base import Attrs, Primitive

_TRIAL = 7  # number of samples while shapes are inferred


class JaxCall(Primitive):
    """Calls ``function(parameters, [state], *arrays)``; each function is a primitive with programs of its own.

    `trained` is the number of parameters, `constants` that of the leaves of the state; `tree` and `state_tree` are
    their structures.

    Shapes: arrays [batch, *shape], sequences concatenated, so that each step is a sample; results have the same form.
    """

    name = "JaxFunction"
    packed = True
    infers_partially = True
    needs_exact_batch = True  # a function that computes over the batch must not see padding

    def __init__(
        self,
        function: Callable[..., Any],
        tree: jax.tree_util.PyTreeDef,
        state_tree: jax.tree_util.PyTreeDef | None,
        trained: int,
        constants: int,
        random: bool,
    ) -> None:
        self.function, self.tree, self.state_tree, self.random = function, tree, state_tree, random
        self.trained, self.leading = trained, trained + constants

    @property
    def cntk_id(self) -> int:  # type: ignore[override]
        """Files have no number for it: a file cannot hold Python code."""
        raise ValueError(explain(
            f"a model that contains the JAX function {self.function!r} cannot be saved",
            fix="save the values of its parameters instead, and build the model anew",
        ))

    def node(self, inputs: Sequence[Edge], name: str) -> Node:
        """A node that calls the function."""
        return make_node(self, inputs, {"rngSeed": next_seed(), "rngOffset": 0} if self.random else {}, name)

    def cache_key(self, node: Node) -> Hashable:
        """The primitive itself."""
        return self

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> list[Spec]:
        """The shapes that the function returns, from a trace with some samples."""
        operands = inputs[self.leading :]
        axes = merged_axes(self.name, operands)
        needs = any(v.needs_gradient for v in inputs)
        if not all(is_known(v.shape) for v in operands):
            return [Spec(UNKNOWN_SHAPE, axes=axes, needs_gradient=needs)]
        arrays = [
            jax.ShapeDtypeStruct((*((_TRIAL,) if v.dynamic_axes else ()), *v.shape), v.dtype or np.float32)
            for v in operands
        ]
        leaves = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in inputs[: self.leading]]
        with double_precision(any(s.dtype == np.float64 for s in arrays)):
            try:
                results, _ = jax.eval_shape(partial(self._call, training=True), leaves, arrays, key=jax.random.key(0))
            except Exception as error:
                shapes = ", ".join(shape_text(v.shape) for v in operands)
                raise RuntimeError(explain(
                    f"the JAX function {self.function!r} of operands {shapes} raised {type(error).__name__}: {error}"
                )) from error
        if axes and any(s.shape[:1] != (_TRIAL,) for s in results):
            raise ShapeError(explain(
                f"the JAX function {self.function!r} of {_TRIAL} samples returned results of shapes "
                f"{', '.join(shape_text(s.shape) for s in results)}", fix="return arrays with the batch axis first",
            ))
        lead = 1 if axes else 0
        return [Spec(s.shape[lead:], np.dtype(s.dtype).type, axes, needs_gradient=needs) for s in results]

    def _call(
        self, leaves: Sequence[Array], arrays: Sequence[Array], training: bool, key: Array | None
    ) -> tuple[list[Array], list[Array]]:
        """The results, and the leaves of the new state."""
        parameters = jax.tree.unflatten(self.tree, leaves[: self.trained])
        keywords = {"rng": key} if self.random else {}
        if self.state_tree is None:
            results, new_state = self.function(parameters, *arrays, **keywords), []
        else:
            state = jax.tree.unflatten(self.state_tree, leaves[self.trained :])
            results, state = self.function(parameters, state, *arrays, training=training, **keywords)
            new_state = jax.tree.leaves(state)
        return list(results) if isinstance(results, (list, tuple)) else [results], new_state

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Traced) -> list[Traced]:
        """Call the function on flattened sequences, and record the updates of its state."""
        operands = values[self.leading :]
        axes = common_axes(operands)
        leaves = [v.data for v in values[: self.leading]]
        lead = ctx.lead(axes)
        arrays = [ctx.array(ctx.to_axes(v, axes)) for v in operands]
        shape: tuple[int, ...] = ()
        if lead == 2:
            layout = ctx.layout(axes)
            shape = layout.time, layout.rows
            arrays = [a.reshape(-1, *a.shape[2:]) if v.axes else a for a, v in zip(arrays, operands, strict=True)]
        results, new_state = self._call(leaves, arrays, ctx.training, ctx.key() if self.random else None)
        if ctx.training:
            assert ctx.node is not None
            for leaf, value in zip(ctx.node.node_inputs[self.trained : self.leading], new_state, strict=False):
                ctx.update(leaf, jnp.asarray(value, leaf.dtype))  # type: ignore[arg-type]
        return [Traced(r.reshape(*shape, *r.shape[1:]) if lead == 2 else r, axes) for r in results]


__all__ = ["JaxCall"]
