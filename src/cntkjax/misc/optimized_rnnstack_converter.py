"""Converting stacks of recurrent layers, whose weights are a single parameter, to ordinary layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import layers, ops
from ..default_options import default_options
from ..graph.arguments import public
from ..graph.errors import explain
from ..graph.function import Node
from ..graph.variable import Edge, Leaf, set_value, value_of
from ..ops import relu, tanh
from ..ops.functions import Function
from ..primitives.rnnstack import layers_of
from .converter import convert

_LSTM_ORDER = [0, 2, 1, 3]  # cuDNN has i, f, g, o; the layer i, g, f, o
_ACTIVATIONS = {"rnnTanh": tanh, "rnnReLU": relu}


@public
def convert_optimized_rnnstack(cudnn_model: Function) -> Function:
    """The model with every `optimized_rnnstack` replaced by layers of LSTM or RNNStep that compute the same.

    Errors: ValueError for a GRU: cuDNN's has two biases and another reset gate, so that no layer is the same.

    >>> import cntkjax as C
    >>> x = C.sequence.input_variable(1)
    >>> stack = C.optimized_rnnstack(x, C.parameter((C.InferredDimension, 2), init=1), 2, 1, recurrent_op="rnnReLU")
    >>> convert_optimized_rnnstack(stack).eval({x: [[[1], [2]]]})
    [array([[ 3.,  3.],
           [10., 10.]], dtype=float32)]
    """
    return convert(cudnn_model, lambda f: getattr(f, "op_name", "") == "OptimizedRNNStack", _layers)


def _layers(stack: Node) -> Edge | Function:
    """All layers of a stack."""
    attributes = stack.node_attributes
    x, weights = stack.node_inputs
    cell, bidirectional = attributes["recurrentOp"], attributes["bidirectional"]
    if cell == "gru":
        raise ValueError(explain(
            f'unsupported recurrent_op value "gru": {stack!r} has no equivalent among the layers',
            fix="keep the optimized_rnnstack, which runs on all devices, or train one with recurrent_op='lstm'",
        ))
    assert isinstance(weights, Leaf)
    parts = layers_of(np.asarray(value_of(weights)).reshape(-1), attributes, int(np.prod(x.shape)))
    output: Edge | Function = x
    for layer in range(attributes["numLayers"]):
        directions = []
        for backwards, direction in enumerate(("_fw", "_bw") if bidirectional else ("_",)):
            name = f"{stack.name}{direction}{layer}"
            part = parts[layer * (1 + bidirectional) + backwards]
            directions.append(_recurrence(output, cell, part, bool(backwards), name))
        output = ops.splice(*directions) if bidirectional else directions[0]
    return output


def _recurrence(
    x: Edge | Function, cell: str, part: Sequence[np.ndarray], backwards: bool, name: str
) -> Function:
    """One layer in one direction, with its weights."""
    W, R, b, c = part
    if cell == "lstm":
        W, R, b, c = (weight[_LSTM_ORDER] for weight in part)
    hidden, dtype = R.shape[-1], W.dtype.type
    weights = {"W": W.reshape(-1, W.shape[-1]).T, "H": R.reshape(-1, hidden).T, "b": (b + c).reshape(-1)}
    with default_options(dtype=dtype):
        if cell == "lstm":
            step = layers.LSTM(hidden, name=name)
        else:
            step = layers.RNNStep(hidden, activation=_ACTIVATIONS[cell], name=name)
        layer = layers.Recurrence(step, go_backwards=backwards)
    output = layer(x)
    for parameter in layer.parameters:
        set_value(parameter, np.ascontiguousarray(weights[parameter.name]))
    return output


__all__ = ["convert", "convert_optimized_rnnstack", "np"]
