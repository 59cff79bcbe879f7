"""Recurrent cells that CNTK has as layers, and ONNX as operations: one row each, which serves writing and reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ... import layers
from ...graph.function import Node

ACTIVATIONS = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "softsign": "Softsign", "softplus": "Softplus"}


@dataclass(frozen=True)
class CellForm:
    """How ONNX has a layer's cell. `gates` and `onnx_gates`: the order of the gates in the weights of both.

    `recurrent`: the layer's parameters that are side by side in ONNX's recurrent weights. `gated`: how many activations
    are those of gates, sigmoids, and how many the layer's own. `variants`: options of the layer to compare with.
    """

    op: str
    layer: Callable[..., layers.Function]
    gates: str
    onnx_gates: str
    gated: tuple[int, int]
    recurrent: tuple[str, ...] = ("H",)
    variants: tuple[dict[str, bool], ...] = ({},)
    attributes: dict[str, int] = field(default_factory=dict)

    def activations(self, activation: str) -> list[str]:
        """ONNX's list of activations for a layer with this one."""
        sigmoids, others = self.gated
        return ["Sigmoid"] * sigmoids + [activation] * others


CELLS = {
    "LSTM": CellForm("LSTM", layers.LSTM, "igfo", "iofg", (1, 2),
                     variants=({"use_peepholes": False}, {"use_peepholes": True})),
    "GRU": CellForm("GRU", layers.GRU, "zrh", "zrh", (1, 1), ("H", "H1"), attributes={"linear_before_reset": 0}),
    "RNNStep": CellForm("RNN", layers.RNNStep, "h", "h", (0, 1)),
}


def is_cell(node: Node) -> bool:
    """True for a block with the name of a recurrent cell."""
    return node.is_block and node.op_name in CELLS
