"""OptimizedRNNStack: one ONNX operation for each layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.function import Node
from ....graph.shape import size
from ....graph.variable import Leaf, value_of
from ....primitives.rnnstack import layers_of
from .graph import ExportError, GraphWriter
from .table import writes

# cell: operation, activations, and for each of ONNX's gates its index in cuDNN's order (i f g o; r z n)
_KINDS = {
    "lstm": ("LSTM", ["Sigmoid", "Tanh", "Tanh"], [0, 3, 1, 2]),
    "gru": ("GRU", ["Sigmoid", "Tanh"], [1, 0, 2]),
    "rnnTanh": ("RNN", ["Tanh"], [0]),
    "rnnReLU": ("RNN", ["Relu"], [0]),
}


@writes("OptimizedRNNStack")
def _stack(w: GraphWriter, node: Node, x: str, weights: str) -> str:
    source, parameter = w.inputs(node)
    a = node.node_attributes
    if not isinstance(parameter, Leaf):
        raise ExportError(f"{node!r}: the weights have to be a parameter or constant",
                          fix="use a Parameter for the weights of optimized_rnnstack")
    op, activations, order = _KINDS[a["recurrentOp"]]
    both, hidden = bool(a["bidirectional"]), int(a["hiddenSize"])
    directions = 1 + both
    parts = layers_of(np.asarray(value_of(parameter)).reshape(-1), a, size(source.shape))
    if len(source.shape) != 1:
        x = w.reshape_samples(x, w.lead(source), (size(source.shape),))
    for layer in range(int(a["numLayers"])):
        weights_of = parts[layer * directions : (layer + 1) * directions]
        W, R = (np.stack([p[i][order].reshape(-1, p[i].shape[-1]) for p in weights_of]) for i in (0, 1))
        B = np.stack([np.concatenate([p[i][order].reshape(-1) for i in (2, 3)]) for p in weights_of])
        name = parameter.name or parameter.uid
        inputs = [x, *(w.array(v, f"{name}_{k}_{layer}") for k, v in (("W", W), ("R", R), ("B", B)))]
        options: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" else {}
        y = w.node(op, inputs, hidden_size=hidden, direction="bidirectional" if both else "forward",
                   activations=activations * directions, **options)
        x = w.reshape(w.node("Transpose", [y], perm=[0, 2, 1, 3]), 0, 0, -1) if both else w.squeeze(y, [1])
    return x
