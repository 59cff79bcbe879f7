"""A stack of recurrent layers whose weights are one parameter, as cuDNN lays them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..engine.lower.values import Context, Value
from ..graph.axis import UNKNOWN_AXES
from ..graph.errors import AxisError, ShapeError, explain
from ..graph.shape import Shape, is_known, size
from ..graph.variable import Leaf, Variable, infer_shape
from .base import Attrs, Bool, Primitive, Size, String, primitive

State = tuple[Any, ...]  # h, and c of an LSTM
Step = Callable[[State, Any, Any], State]  # state, input side and recurrent side [rows, gates, hidden] -> state


def _lstm(state: State, x: Any, h: Any) -> State:
    i, f, g, o = (x[:, k] + h[:, k] for k in range(4))
    c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gru(state: State, x: Any, h: Any) -> State:
    r, z = (jax.nn.sigmoid(x[:, k] + h[:, k]) for k in range(2))
    n = jnp.tanh(x[:, 2] + r * h[:, 2])
    return ((1 - z) * n + z * state[0],)


def _plain(activation: Callable[[Any], Any]) -> Step:
    return lambda state, x, h: (activation(x[:, 0] + h[:, 0]),)


# name -> number of gates, number of states, step
CELLS: dict[str, tuple[int, int, Step]] = {
    "lstm": (4, 2, _lstm), "gru": (3, 1, _gru),
    "rnnTanh": (1, 1, _plain(jnp.tanh)), "rnnReLU": (1, 1, _plain(jax.nn.relu)),
}  # fmt: skip


@primitive("OptimizedRNNStack", 49)
class OptimizedRNNStack(Primitive):
    """Layers of LSTM, GRU or plain cells, in one direction or both.

    The weights hold for each layer and direction W [gates, hidden, inputs] and R [gates, hidden, hidden], one behind
    the other, and behind them all for each layer and direction two biases [gates, hidden]. Gates are i, f, g, o of an
    LSTM, and r, z, n of a GRU (whose reset gate scales R h + b).

    Shapes: x [inputs] with a sequence axis, weights as many elements as that takes -> [hidden * directions].
    Source: CNTK 2.7 (what `cntk.misc.convert_optimized_rnnstack` makes of LSTM and plain stacks); for the GRU, the
            cuDNN API reference, cudnnRNNMode_t.
    """

    attributes = {
        "hiddenSize": Size, "numLayers": Size, "bidirectional": Bool(False), "recurrentOp": String("lstm")
    }  # fmt: skip
    packed = True

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Shape:
        """One vector a step; gives a weight parameter with an inferred dimension its shape."""
        x, weights = inputs
        if x.dynamic_axes != UNKNOWN_AXES and x.sequence_axis is None:
            raise AxisError(explain(
                f"{self.name}: the operand has no sequence axis", {"operand": x},
                "declare the input with cntk.sequence.input_variable",
            ))
        hidden = attrs["hiddenSize"]
        if is_known(x.shape):
            elements = sum(prod(s) for pair in _parts(attrs, size(x.shape)) for s in pair)
            if isinstance(weights, Leaf) and weights.has_inferred:
                infer_shape(weights, (elements // hidden, hidden))
            if is_known(weights.shape) and size(weights.shape) != elements:
                raise ShapeError(explain(
                    f"{self.name}: the stack takes {elements} weights, not {size(weights.shape)}",
                    {"operand": x, "weights": weights},
                    f"give the weights the shape (cntk.InferredDimension, {hidden})",
                ))
        return (hidden * (1 + attrs["bidirectional"]),)

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Value, weights: Value) -> Value:
        """The input side of a layer for all steps at once, then a scan for each direction."""
        layout = ctx.layout(x.axes)
        data = ctx.array(x).reshape(layout.time, layout.rows, -1)
        parts = layers_of(ctx.array(weights).reshape(-1), attrs, data.shape[-1])
        directions = 1 + attrs["bidirectional"]
        for layer in range(attrs["numLayers"]):
            made = []
            for backwards in range(directions):
                W, R, b, c = parts[layer * directions + backwards]
                gates = jnp.einsum("tri,ghi->trgh", data, W) + b
                begins = (layout.remaining if backwards else layout.position) == 0
                made.append(_layer(R, gates, c, begins, attrs["recurrentOp"], bool(backwards)))
            data = jnp.concatenate(made, -1)
        return Value(data, x.axes)


def _parts(attrs: Attrs, inputs: int) -> list[tuple[Shape, ...]]:
    """Shapes of W, R and the biases of each layer and direction."""
    gates, _, _ = CELLS[attrs["recurrentOp"]]
    hidden, directions = attrs["hiddenSize"], 1 + attrs["bidirectional"]
    widths = [inputs] * directions + [hidden * directions] * directions * (attrs["numLayers"] - 1)
    return [((gates, hidden, n), (gates, hidden, hidden), (gates, hidden), (gates, hidden)) for n in widths]


def layers_of(flat: Any, attrs: Attrs, inputs: int) -> list[list[Any]]:
    """W, R and two biases of each layer and direction: all matrices stand ahead of all biases."""
    parts = _parts(attrs, inputs)
    made: list[list[Any]] = [[] for _ in parts]
    at = 0
    for kind in (slice(0, 2), slice(2, 4)):
        for own, shapes in zip(made, parts, strict=True):
            for shape in shapes[kind]:
                own.append(flat[at : at + prod(shape)].reshape(shape))
                at += prod(shape)
    return made


def _scan(R: Any, gates: Any, c: Any, taps: Any, begins: Any, cell: str, backwards: bool) -> Any:
    """h of all steps; `taps` are added to the recurrent side."""
    _, states, step = CELLS[cell]
    nothing = jnp.zeros((*gates.shape[1:2], gates.shape[-1]), gates.dtype)

    def body(state: State, now: Any) -> tuple[State, Any]:
        x, tap, new = now
        state = tuple(jnp.where(new[:, None], nothing, s) for s in state)
        after = step(state, x, jnp.einsum("rk,ghk->rgh", state[0], R) + c + tap)
        return after, after[0]

    return lax.scan(body, (nothing,) * states, (gates, taps, begins), reverse=backwards)[1]


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _layer(R: Any, gates: Any, c: Any, begins: Any, cell: str, backwards: bool) -> Any:
    """One layer in one direction: [time, rows, gates, hidden] -> [time, rows, hidden].

    The gradient of R is one product for all steps, not a sum that grows in every step.
    """
    return _scan(R, gates, c, jnp.zeros_like(gates), begins, cell, backwards)


def _layer_forward(R: Any, gates: Any, c: Any, begins: Any, cell: str, backwards: bool) -> Any:
    run = partial(_scan, R, begins=begins, cell=cell, backwards=backwards)
    made, back = jax.vjp(lambda x, bias, taps: run(x, bias, taps), gates, c, jnp.zeros_like(gates))
    return made, (back, made, begins)


def _layer_backward(cell: str, backwards: bool, saved: Any, g: Any) -> Any:
    back, made, begins = saved
    dx, dc, taps = back(g)
    still = jnp.zeros_like(made[:1])
    before = jnp.concatenate([made[1:], still] if backwards else [still, made[:-1]])
    before = jnp.where(begins[..., None], jnp.zeros((), made.dtype), before)
    return jnp.einsum("trgh,trk->ghk", taps, before), dx, dc, None


_layer.defvjp(_layer_forward, _layer_backward)

__all__ = ["CELLS", "OptimizedRNNStack", "layers_of"]
