"""Weights of recurrent cells, as PyTorch and Keras have them and as this package has them.

All stack the weights of a cell's gates. LSTM: input gate, update, forget gate, output gate here, but the forget gate
before the update there. GRU: update gate, reset gate, candidate here and in Keras. PyTorch has the outputs first, and
two biases, which are added.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..graph.errors import explain
from ..graph.function import Node, nodes
from ..graph.variable import Leaf, outside

# Which of the other libraries' gates each of ours is; the same the other way round.
_GATES = {"LSTM": (0, 2, 1, 3), "GRU": (0, 1, 2), "RNNStep": (0,)}
_OURS = {
    "weight_ih": "W", "weight_hh": "H", "weight_hr": "P", "bias_ih": "b", "bias_hh": "b", "kernel": "W",
    "recurrent_kernel": "H", "bias": "b",
}
_OF_PYTORCH = {"W": "weight_ih_l0", "H": "weight_hh_l0", "P": "weight_hr_l0", "b": "bias_ih_l0"}
_NAMES = {*_OF_PYTORCH, "H1"}
_LAYER = re.compile(r"((?:weight|bias)_(?:ih|hh|hr))((?:_l\d+(?:_reverse)?)?)")
OF_KERAS = ("kernel", "recurrent_kernel", "bias")  # the weights of a cell, in the order in which Keras 3 numbers them


class CellWeight(NamedTuple):
    """A name of another library: the names that its cell may have here, and what the weight is called there."""

    paths: list[str]
    part: str

    @property
    def ours(self) -> str:
        """What the weight is called here."""
        return _OURS[self.part]

    @property
    def is_summed(self) -> bool:
        """Whether it is one of PyTorch's two biases."""
        return self.part.startswith("bias_")


def cell_weight(name: str) -> CellWeight | None:
    """What a name in a file says, if it may be that of a cell's weight.

    PyTorch numbers the layers of a module: "rnn.weight_hh_l1_reverse" is "rnn_l1_reverse.H", and "rnn.weight_hh_l0" is
    "rnn_l0.H" or "rnn.H".

    >>> cell_weight("rnn.weight_hh_l0")
    CellWeight(paths=['rnn_l0', 'rnn'], part='weight_hh')
    """
    *path, last = name.replace("/", ".").split(".")
    layer = ".".join(path)
    if numbered := _LAYER.fullmatch(last):
        part, suffix = numbered.groups()
        return CellWeight([(layer + suffix).lstrip("_"), *([layer] if suffix == "_l0" else [])], part)
    return CellWeight([layer], last) if last in OF_KERAS else None


def kinds_of_cells(model: Node) -> dict[Leaf, str]:
    """The weights of recurrent cells, and of what kind each is: "LSTM", "GRU" or "RNNStep"."""
    return {
        leaf: node.op_name
        for node in nodes([model.root_function], into_blocks=True) if node.op_name in _GATES
        for edge in node.node_inputs if isinstance(leaf := outside(edge), Leaf) and leaf.name in _NAMES
    }


def taken(kind: str, weight: CellWeight, array: np.ndarray) -> dict[str, np.ndarray]:
    """An array of another library as the weights of a cell here, by their names.

    Errors: ValueError for a GRU whose reset gate scales the product instead of the state, as all of PyTorch's do.
    """
    if kind == "GRU" and (weight.part not in OF_KERAS or (weight.part == "bias" and array.ndim > 1)):
        raise ValueError(explain(
            f"load_weights: {weight.paths[-1]} is a GRU whose reset gate scales a product with the state, as in "
            "PyTorch and with Keras' reset_after=True; CNTK's scales the state before the product",
            fix="train it again with Keras' reset_after=False, or write it as a function for C.layers.Recurrence",
        ))
    if weight.part not in OF_KERAS:
        array = array.T
    if weight.ours == "P":
        return {"P": array}
    array = _with_other_gates(kind, array)
    if kind == "GRU" and weight.ours == "H" and array.ndim == 2:
        size = array.shape[-1] // 3
        return {"H": array[:, : 2 * size], "H1": array[:, 2 * size :]}
    return {weight.ours: array}


def of_pytorch(kind: str, name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """A weight of an LSTM or a plain cell as PyTorch has it, with its names there."""
    path, _, last = name.rpartition(".")
    before = path + "." if path else ""
    yield before + _OF_PYTORCH[last], (array if last == "P" else _with_other_gates(kind, array)).T
    if last == "b":
        yield before + "bias_hh_l0", np.zeros_like(array)


def _with_other_gates(kind: str, array: np.ndarray) -> np.ndarray:
    if not array.ndim or array.shape[-1] % len(_GATES[kind]):
        return array  # of another shape, which is an error in any order
    gates = np.split(array, len(_GATES[kind]), -1)
    return np.concatenate([gates[i] for i in _GATES[kind]], -1)


__all__ = ["OF_KERAS", "CellWeight", "cell_weight", "kinds_of_cells", "of_pytorch", "taken"]
