"""A stack of recurrent layers whose weights are one parameter, as cuDNN lays them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from .._typing import AnyArray, Array
from ..engine.lower.scans import scan, unrolled_steps
from ..engine.lower.values import Context, Traced
from ..graph.axis import UNKNOWN_AXES
from ..graph.errors import AxisError, ShapeError, explain
from ..graph.shape import Shape, is_known, size
from ..graph.variable import Edge, Leaf, infer_shape
from .base import Attrs, Bool, Primitive, Size, String, primitive

T = TypeVar("T", bound="AnyArray")
_OPERATIONS = 15  # of a step, as nodes of layers.LSTM; twice as many with the selections where sequences begin
State = tuple[Any, ...]  # h, and c of an LSTM
Step = Callable[[State, Any, Any], State]  # (state, W x + b and R h + c [rows, gates, hidden]) -> state


def _lstm(state: State, x: Array, h: Array) -> State:
    i, f, g, o = (x[:, k] + h[:, k] for k in range(4))
    c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gru(state: State, x: Array, h: Array) -> State:
    r, z = (jax.nn.sigmoid(x[:, k] + h[:, k]) for k in range(2))
    n = jnp.tanh(x[:, 2] + r * h[:, 2])
    return ((1 - z) * n + z * state[0],)


def _plain(activation: Callable[[Any], Any]) -> Step:
    return lambda state, x, h: (activation(x[:, 0] + h[:, 0]),)


# name -> number of gates, number of states, step
CELLS: dict[str, tuple[int, int, Step]] = {
    "lstm": (4, 2, _lstm), "gru": (3, 1, _gru),
    "rnnTanh": (1, 1, _plain(jnp.tanh)), "rnnReLU": (1, 1, _plain(jax.nn.relu)),
}


@primitive("OptimizedRNNStack", 49)
class OptimizedRNNStack(Primitive):
    """Layers of LSTM, GRU or plain cells, in one direction or both.

    The weights contain W [gates, hidden, inputs] and R [gates, hidden, hidden] of each layer and direction in turn,
    followed by two biases [gates, hidden] of each layer and direction. The gates of an LSTM are i, f, g, o, those of a
    GRU r, z, n (its reset gate scales R h + b).

    Shapes: x [inputs] with a sequence axis, weights of any shape with that number of elements -> [hidden * directions].
    Source: CNTK 2.7 (the result of `cntk.misc.convert_optimized_rnnstack` for LSTM and plain stacks); for the GRU,
            the cuDNN API reference, cudnnRNNMode_t.
    """

    attributes = {
        "hiddenSize": Size, "numLayers": Size, "bidirectional": Bool(False), "recurrentOp": String("lstm")
    }
    packed = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Shape:
        """One vector per step; infers the shape of the weights."""
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

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced, weights: Traced) -> Traced:
        """For each layer W x of all steps at once, then a scan for each direction."""
        layout = ctx.layout(x.axes)
        data = ctx.array(x).reshape(layout.time, layout.rows, -1)
        parts = layers_of(ctx.array(weights).reshape(-1), attrs, data.shape[-1])
        directions = 1 + attrs["bidirectional"]
        selects = not all(layout.begin_together(bool(backwards)) for backwards in range(directions))
        unroll = unrolled_steps(layout.time, _OPERATIONS * (1 + selects) * directions * attrs["numLayers"])
        for layer in range(attrs["numLayers"]):
            outputs = []
            for backwards in range(directions):
                W, R, b, c = parts[layer * directions + backwards]
                gates = jnp.einsum("tri,ghi->trgh", data, W) + b
                begins = (layout.remaining if backwards else layout.position) == 0 if selects else None
                outputs.append(_layer(R, gates, c, begins, attrs["recurrentOp"], bool(backwards), unroll))
            data = jnp.concatenate(outputs, -1)
        return Traced(data, x.axes)


def _parts(attrs: Attrs, inputs: int) -> list[tuple[Shape, ...]]:
    """Shapes of W, R and the biases of each layer and direction."""
    gates, _, _ = CELLS[attrs["recurrentOp"]]
    hidden, directions = attrs["hiddenSize"], 1 + attrs["bidirectional"]
    widths = [inputs] * directions + [hidden * directions] * directions * (attrs["numLayers"] - 1)
    return [((gates, hidden, n), (gates, hidden, hidden), (gates, hidden), (gates, hidden)) for n in widths]


def layers_of(flat: T, attrs: Attrs, inputs: int) -> list[list[T]]:
    """W, R and two biases of each layer and direction, from weights in which all matrices precede all biases.

    Shapes: flat [elements] -> for each layer and direction [gates, hidden, inputs], [gates, hidden, hidden] and twice
            [gates, hidden].
    """
    parts = _parts(attrs, inputs)
    layers: list[list[Any]] = [[] for _ in parts]
    begin = 0
    for kind in (slice(0, 2), slice(2, 4)):
        for layer, shapes in zip(layers, parts, strict=True):
            for shape in shapes[kind]:
                layer.append(flat[begin : begin + prod(shape)].reshape(shape))
                begin += prod(shape)
    return layers


def _layer(
    R: Array, gates: Array, c: Array, begins: Array | None, cell: str, backwards: bool, unroll: int
) -> Array:
    """One layer in one direction: [time, rows, gates, hidden] -> [time, rows, hidden].

    `begins` marks the steps at which sequences begin, [time, rows]; None if that is the first one in each row. The
    gradient of R is one product for all steps.
    """
    _, states, cell_step = CELLS[cell]
    zero = jnp.zeros((*gates.shape[1:2], gates.shape[-1]), gates.dtype)

    def step(
        weights: Sequence[Array], c: Array, state: State, now: tuple[Array, Array | None], taps: Sequence[Array] | None
    ) -> tuple[State, Array, list[tuple[Array, Array]]]:
        x, begin = now
        if begin is not None:
            state = tuple(jnp.where(begin[:, None], zero, s) for s in state)
        product = jnp.einsum("rk,ghk->rgh", state[0], lax.stop_gradient(weights[0]))
        if taps is not None:
            product = product + taps[0]
        new_state = cell_step(state, x, product + c)
        return new_state, new_state[0], [(state[0], product)]

    def weight_gradients(_: Sequence[Array], operands: Sequence[Array], gradients: Sequence[Array]) -> list[Array]:
        return [jnp.einsum("trgh,trk->ghk", gradients[0], operands[0])]

    return scan(step, [R], c, (zero,) * states, (gates, begins), weight_gradients, backwards, unroll)


__all__ = ["CELLS", "OptimizedRNNStack", "layers_of"]
