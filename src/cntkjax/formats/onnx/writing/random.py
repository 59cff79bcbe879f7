"""Random numbers: the distribution is the same, the numbers are not."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.function import Node
from .._onnx import element_type
from .graph import ExportError, GraphWriter
from .table import writes


@writes("Dropout")
def _dropout(w: GraphWriter, node: Node, x: str) -> str:
    """Dropout is active in training only, which ONNX Runtime does not do."""
    rate = float(node.node_attributes["dropoutRate"])
    if w.opset < 12:
        return w.node("Dropout", [x], ratio=rate)
    return w.node("Dropout", [x, w.array(np.asarray(rate, np.float32))])


@writes("RandomDistribution")
def _random(w: GraphWriter, node: Node, *like: str) -> str:
    a, out = node.node_attributes, node.node_outputs[0]
    kind, args = a["randomDistributionType"], [float(v) for v in a["randomDistributionArgs"]]

    def draw(op: str, **options: Any) -> str:
        options["seed"] = float(int(a["rngSeed"]) % 2**24)
        if like:
            return w.node(op + "Like", like, dtype=element_type(out.dtype), **options)
        return w.node(op, [], dtype=element_type(out.dtype), shape=list(out.shape), **options)

    if kind == "normal":
        return draw("RandomNormal", mean=args[0], scale=args[1])
    if kind == "uniform":
        return draw("RandomUniform", low=args[0], high=args[1])
    uniform = draw("RandomUniform", low=float(np.finfo(np.float32).tiny) if kind == "gumbel" else 0.0, high=1.0)
    if kind == "bernoulli":
        return w.from_bool(w.node("Less", [uniform, w.scalar(args[0], out)]), out)
    if kind == "gumbel":
        inner = w.node("Neg", [w.node("Log", [uniform])])
        spread = w.node("Mul", [w.node("Log", [inner]), w.scalar(-args[1], out)])
        return w.node("Add", [spread, w.scalar(args[0], out)])
    raise ExportError(f"{node!r}: ONNX has no {kind} distribution")
