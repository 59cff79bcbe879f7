"""Recurrent cells: blocks that are exactly what the layers of CNTK make are LSTM, GRU and RNN in ONNX.

A block is compared with one that is made now, by the structure of its graph; so models from files count too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .... import layers, ops
from ....default_options import default_options
from ....engine.plan.plan import Plan
from ....graph.edit import Cloner
from ....graph.function import Function
from ....graph.public import classes
from ....graph.shape import is_known
from ....graph.variable import Leaf, Variable, VariableKind, outside
from .graph import OPEN, Writer
from .sequence import initial_states

ACTIVATIONS = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "softsign": "Softsign", "softplus": "Softplus"}


@dataclass
class Cell:
    """A block recognized as a cell: what its parameters are called in a layer, and its activation."""

    block: Function
    kind: str
    activation: str
    parameters: dict[str, Leaf]
    states: dict[str, Variable] | None = None  # role: the delayed value outside
    x: Variable | None = None


def _plan(block: Function) -> tuple[Plan, list[Variable]]:
    """The structure of what is inside, with plain inputs for its arguments."""
    inner = block.block_composite
    assert inner is not None
    stands = {}
    for argument, outer in block.block_map:
        v = outside(outer)
        stands[argument] = classes.variable(VariableKind.Input, v.shape, v.dtype, v.dynamic_axes, name=argument.name)
    copy = Cloner(lambda leaf: leaf, stands).graph(inner)
    return Plan(copy.outputs), list(stands.values())


def cell_of(block: Function) -> Cell | None:
    """The cell that a block is, or None."""
    given = [outside(v) for _, v in block.block_map]
    if any(not is_known(v.shape) or v.dtype not in (np.float32, np.float16) for v in given):
        return None  # ONNX Runtime has these operations in single precision
    try:
        plan, arguments = _plan(block)
    except ValueError:  # nothing that could be computed by itself
        return None
    size = len(plan.outputs[0].shape) == 1 and plan.outputs[0].shape[0]
    if not size:
        return None
    make: Any = getattr(layers, block.op_name)
    options: list[dict[str, Any]] = [{"use_peepholes": p} for p in (False, True)] if block.op_name == "LSTM" else [{}]
    for option in options:
        for name in ACTIVATIONS:
            try:
                with default_options(dtype=plan.outputs[0].dtype):
                    layer = make(size, activation=getattr(ops, name), enable_self_stabilization=False, **option)
                other = Plan(layer(*arguments).outputs)
            except ValueError:
                continue
            if other.key == plan.key:
                named = {t.name: leaf for t, leaf in zip(other.leaves, plan.leaves, strict=True) if t.name}
                return Cell(block, block.op_name, ACTIVATIONS[name], named)
    return None


def runs_as(
    members: Sequence[Function], block: Function, resolve: Callable[[Variable], Variable], used: set[Variable]
) -> Cell | None:
    """The cell with its states, if a loop is nothing but this block and delays by one step of its outputs."""
    cell = cell_of(block)
    outer = [resolve(v) for _, v in block.block_map]
    delays = outer[:-1]
    if cell is None or {v._owner for v in delays} != set(members) - {block}:
        return None
    for state, made in zip(delays, block.node_outputs, strict=False):
        node = state._owner
        assert node is not None
        if resolve(node.node_inputs[0]) is not made or node.node_attributes["offset"] != 1:
            return None
        if resolve(node.node_inputs[1]).sequence_axis is not None:
            return None
    hidden = {v for n in members for v in n.node_outputs} - {block.node_outputs[0]}
    if len({v._owner.op_name for v in delays}) > 1 or hidden & used or len(outer[-1].shape) != 1:  # type: ignore[union-attr]
        return None
    if outer[-1].sequence_axis is None:
        return None
    cell.states = dict(zip(("h", "c"), delays, strict=False))
    cell.x = outer[-1]
    return cell


def write_cell(w: Writer, cell: Cell, resolve: Callable[[Variable], Variable]) -> str:
    """The operation for a recurrence; gates of CNTK's LSTM stand as i, g, f, o, and of its GRU as z, r, candidate."""
    assert cell.x is not None and cell.states is not None
    p = {name: np.asarray(leaf._value) for name, leaf in cell.parameters.items()}
    x, d = w.of(cell.x), cell.block.node_outputs[0].shape[0]

    def gates(value: np.ndarray, order: str, ours: str) -> np.ndarray:
        parts = dict(zip(ours, np.split(value, len(ours), axis=-1), strict=True))
        return np.concatenate([parts[g] for g in order], axis=-1)

    if cell.kind == "LSTM":
        W, R, b = (gates(p[k], "iofg", "igfo") for k in ("W", "H", "b"))
    elif cell.kind == "GRU":
        W, R, b = p["W"], np.concatenate([p["H"], p["H1"]], axis=1), p["b"]
    else:
        W, R, b = p["W"], p["H"], p["b"]
    names = {k: cell.parameters[k].name for k in ("W", "H", "b")}
    given = [x, w.array(W.T[None], names["W"]), w.array(R.T[None], names["H"]),
             w.array(np.concatenate([b, np.zeros_like(b)])[None], names["b"]), ""]
    for delayed in cell.states.values():
        node = delayed._owner
        assert node is not None
        state = resolve(node.node_inputs[1])
        if isinstance(state, Leaf) and not np.any(state._value):
            given.append("")
            continue
        given.append(w.unsqueeze(initial_states(w, node, w.of(state), state, x), [0]))
    if "Ci" in p:
        given.append(w.array(np.concatenate([p["Ci"], p["Co"], p["Cf"]])[None]))
    while not given[-1]:
        given.pop()
    backwards = next(iter(cell.states.values()))._owner.op_name == "FutureValue"  # type: ignore[union-attr]
    activations = {"LSTM": ["Sigmoid", cell.activation, cell.activation], "GRU": ["Sigmoid", cell.activation],
                   "RNNStep": [cell.activation]}[cell.kind]
    options: dict[str, Any] = {"linear_before_reset": 0} if cell.kind == "GRU" else {}
    op = "RNN" if cell.kind == "RNNStep" else cell.kind
    y = w.node(op, given, hidden_size=d, direction="reverse" if backwards else "forward", activations=activations,
               **options)
    return w.reshape(y, 0, OPEN, d)  # without directions; CNTK 2.7 reads no Squeeze here
