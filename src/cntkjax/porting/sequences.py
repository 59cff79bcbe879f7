"""Rows of the table for operations on sequences, which are padded batches [batch, time, *shape] with lengths."""

from __future__ import annotations

import numpy as np

from ..graph.function import Node
from ..graph.shape import size
from ..graph.variable import Edge, Leaf, outside, value_of
from ..primitives.rnnstack import layers_of
from .loops import initial_state, layer_over
from .table import inserted, ports, reshaped
from .tree import Expression, Layer, Op, refuse
from .walk import Body


def _lengths(body: Body, node: Node, v: Edge) -> Expression:
    axis = v.sequence_axis
    if axis is None or axis == body.step_axis:
        raise refuse(node, f"{node.op_name} within a recurrent loop along the same axis cannot be ported")
    return body.lengths(axis)


# ---- steps
@ports("PastValue", "FutureValue")
def _delay(body: Body, node: Node) -> Expression:
    x = body.value(node.node_inputs[0])
    lengths = _lengths(body, node, node.node_inputs[0])
    initial, steps = initial_state(body, node, x), int(node.node_attributes["offset"])
    if node.op_name == "PastValue":
        return Op("delayed", (x, initial), {"steps": steps})
    return Op("ahead", (x, initial, lengths), {"steps": steps})


@ports("Sequence::First")
def _first(body: Body, node: Node) -> Expression:
    return Op("first", (body.value(node.node_inputs[0]),))


@ports("Sequence::Last")
def _last(body: Body, node: Node) -> Expression:
    (x,) = node.node_inputs
    return Op("last", (body.value(x), _lengths(body, node, x)))


@ports("Sequence::Softmax")
def _softmax(body: Body, node: Node) -> Expression:
    (x,) = node.node_inputs
    masked = Op("masked", (body.value(x), _lengths(body, node, x)), {"value": -np.inf})
    return Op("softmax", (masked,), {"axis": 1})


# ---- selected steps
@ports("Where")
def _where(body: Body, node: Node) -> Expression:
    """The numbers of the steps; with a new sequence axis also its lengths."""
    (condition,) = node.node_inputs
    flags = reshaped(body.value(condition), 2, (), node)
    masked = Op("masked", (flags, _lengths(body, node, condition)), {"value": 0})
    axis = node.node_outputs[0].sequence_axis
    if node.primitive.growth(node) != 1:
        raise refuse(node, "a selection that repeats steps cannot be ported")
    if axis is None:
        return Op("argmax", (Op("not_equal", (masked, Op("scalar", (), {"value": 0.0}))),),
                    {"axis": 1, "keepdims": False})
    names = body.local("selected"), body.local("lengths")
    body.statements.append((", ".join(names), Op("selected", (masked,))))
    body.axes[axis] = names[1]
    return names[0]


@ports("PackedIndex")
def _packed_index(body: Body, node: Node) -> Expression:
    return body.value(node.node_inputs[1])


@ports("GatherPacked")
def _gather_packed(body: Body, node: Node) -> Expression:
    x, index = node.node_inputs
    if body.lead(x) != 2:
        raise refuse(node, "a selection of steps of what has none cannot be ported")
    return Op("at_steps" if index.sequence_axis is not None else "at_step", (body.value(x), body.value(index)))


@ports("Sequence::GridSlice")
def _range(body: Body, node: Node) -> Expression:
    """The steps from one on, up to one counted from either end."""
    x = node.node_inputs[0]
    begin, end = int(node.node_attributes["begin"]), int(node.node_attributes["end"])
    axis = node.node_outputs[0].sequence_axis
    assert axis is not None
    if axis not in body.axes:
        lengths = Op("range_lengths", (_lengths(body, node, x),), {"begin": begin, "end": end})
        body.axes[axis] = body.local("lengths")
        body.statements.append((str(body.axes[axis]), lengths))
    return Op("slice", (body.value(x),), {"slices": f":, {begin or ''}:{end if end > 0 else ''}"})


@ports("ScatterPacked")
def _scatter_packed(body: Body, node: Node) -> Expression:
    x, index, condition = node.node_inputs
    if body.lead(x) != 2 or index.sequence_axis is None:
        raise refuse(node, "a scatter of what has no steps cannot be ported")
    lengths = _lengths(body, node, x)
    return Op("scattered", (Op("masked", (body.value(x), lengths), {"value": 0}), body.value(index),
                              body.value(condition)))


# ---- layouts
@ports("ReconcileDynamicAxis")
def _reconcile(body: Body, node: Node) -> Expression:
    x, like = node.node_inputs
    value, lead = body.value(x), body.lead(like)
    if body.lead(x) == lead:
        return value
    if isinstance(value, Op) and value.op == "scalar":
        options = {"shape": x.shape, "dtype": np.dtype(node.node_outputs[0].dtype).name, "lead": lead}
        return Op("filled_like", (body.value(like),), {**options, **value.options})
    if body.lead(x) > lead:
        return Op("first", (value,))
    missing = [1] if body.lead(x) == 1 else list(range(lead))
    return Op("spread", (inserted(value, missing), body.value(like)), {"lead": lead})


@ports("UnpackSequenceOp")
def _unpack(body: Body, node: Node) -> Expression | list[Expression]:
    (x,), a = node.node_inputs, node.node_attributes
    lengths = _lengths(body, node, x)
    values = Op("masked", (body.value(x), lengths), {"value": float(a["sequenceUnpackPaddingValue"])})
    if len(node.node_outputs) == 1:
        return values
    mask = Op("step_mask", (body.value(x), lengths))
    return [values, Op("cast", (mask,), {"dtype": np.dtype(node.node_outputs[1].dtype).name})]


@ports("ToSequenceOp", "ToSequenceLikeOp")
def _to_sequence(body: Body, node: Node) -> Expression:
    x, *others = node.node_inputs
    axis = node.node_outputs[0].sequence_axis
    assert axis is not None
    if axis not in body.axes:
        if node.op_name == "ToSequenceLikeOp":
            raise refuse(node, "a sequence whose lengths are not known cannot be ported")
        lengths: Expression = Op("all_steps", (body.value(x),))
        if others:
            lengths = Op("cast", (reshaped(body.value(others[0]), 1, (), node),), {"dtype": "int32"})
        body.axes[axis] = body.local("lengths")
        body.statements.append((str(body.axes[axis]), lengths))
    return body.value(x)


# ---- cuDNN's stacks
_GATES = {"lstm": ("LSTM", 4, ""), "gru": ("GRU", 3, ""), "rnnTanh": ("RNN", 1, "tanh"), "rnnReLU": ("RNN", 1, "relu")}


@ports("OptimizedRNNStack")
def _stack(body: Body, node: Node) -> Expression:
    """A layer for each layer and direction; the gates are in the order of PyTorch."""
    (source, parameter), a = node.node_inputs, node.node_attributes
    weight = outside(parameter)
    if not isinstance(weight, Leaf):
        raise refuse(node, "a stack whose weights are computed cannot be ported")
    kind, _, activation = _GATES[a["recurrentOp"]]
    parts = layers_of(np.asarray(value_of(weight)).reshape(-1), a, size(source.shape))
    x = body.value(source)
    if len(source.shape) != 1:
        x = reshaped(x, body.lead(source), (size(source.shape),), node)
    directions = 1 + bool(a["bidirectional"])
    for k in range(int(a["numLayers"])):
        outputs = []
        for backwards in range(directions):
            W, R, b, c = (part.reshape(-1, *part.shape[2:]) for part in parts[k * directions + backwards])
            options = {"inputs": W.shape[-1], "outputs": R.shape[-1], "activation": activation, "part": (k, backwards)}
            arrays = {"input": W, "hidden": R, "input_bias": b, "hidden_bias": c}
            name = body.layer(node, [weight], Layer(kind, options, arrays))
            outputs.append(layer_over(body, node, name, x, bool(backwards), node.node_outputs[0]))
        x = outputs[0] if directions == 1 else Op("concatenate", tuple(outputs), {"axis": 2})
        x = body.assigned(x, node)
    return x


__all__: list[str] = []
