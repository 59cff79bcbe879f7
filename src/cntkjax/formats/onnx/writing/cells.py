"""Recurrent cells: blocks that compute the same as a layer LSTM, GRU or RNNStep are one operation in ONNX.

A block is compared with a new layer by the structure of its graph, so that models from files match too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .... import ops
from ....default_options import default_options
from ....engine.plan.plan import Plan
from ....graph.edit import Cloner
from ....graph.function import Node
from ....graph.public import classes
from ....graph.shape import is_known
from ....graph.variable import Edge, Leaf, VariableKind, outside, producer, value_of
from ..cell_forms import ACTIVATIONS, CELLS, CellForm, is_cell
from .graph import OPEN, GraphWriter
from .sequence import initial_states


@dataclass
class MatchedCell:
    """A block that matches a cell, with its parameters by their names in the layer, and its activation in ONNX."""

    block: Node
    form: CellForm
    activation: str
    parameters: dict[str, Leaf]
    states: dict[str, Edge] | None = None  # "h" and "c" -> the delayed value outside
    x: Edge | None = None


def is_operation(block: Node) -> bool:
    """True for a cell that ONNX Runtime has as an operation, in single precision."""
    single = all(outside(v).dtype in (np.float32, np.float16) for _, v in block.block_map)
    return is_cell(block) and single and match_cell(block) is not None


def _plan(block: Node) -> tuple[Plan, list[Edge]]:
    """The plan of the graph inside a block, with inputs in place of its arguments."""
    inner = block.block_composite
    assert inner is not None
    inputs = {}
    for argument, operand in block.block_map:
        v = outside(operand)
        inputs[argument] = classes.variable(VariableKind.Input, v.shape, v.dtype, v.dynamic_axes, name=argument.name)
    copy = Cloner(lambda leaf: leaf, inputs).graph(inner)
    return Plan(copy.outputs), list(inputs.values())


def match_cell(block: Node) -> MatchedCell | None:
    """The cell that a block is, or None."""
    operands = [outside(v) for _, v in block.block_map]
    if any(not is_known(v.shape) for v in operands):
        return None
    try:
        plan, arguments = _plan(block)
    except ValueError:  # the graph inside cannot be computed by itself
        return None
    size = len(plan.outputs[0].shape) == 1 and plan.outputs[0].shape[0]
    if not size:
        return None
    form = CELLS[block.op_name]
    for options in form.variants:
        for name in ACTIVATIONS:
            try:
                with default_options(dtype=plan.outputs[0].dtype):
                    layer = form.layer(size, activation=getattr(ops, name), enable_self_stabilization=False, **options)
                if len(layer.signature) != len(arguments):  # a state is a constant inside of the block
                    return None
                other = Plan(layer(*arguments).outputs)
            except ValueError:
                continue
            if other.key == plan.key:
                parameters = {t.name: leaf for t, leaf in zip(other.leaves, plan.leaves, strict=True) if t.name}
                return MatchedCell(block, form, ACTIVATIONS[name], parameters)
    return None


def match_recurrence(
    members: Sequence[Node], block: Node, resolve: Callable[[Edge], Edge], used: set[Edge]
) -> MatchedCell | None:
    """The cell with its states, if a recurrence is only this block and delays of its outputs by one step.

    `used`: the variables that the rest of the graph uses, which has to see the output h alone.
    """
    cell = match_cell(block)
    *delayed, x = [resolve(v) for _, v in block.block_map]
    delays = [node for v in delayed if (node := producer(v)) is not None]
    if cell is None or len(delays) != len(delayed) or set(delays) != set(members) - {block}:
        return None
    for delay, output in zip(delays, block.node_outputs, strict=False):
        if not delay.primitive.delay:
            return None
        value, initial = map(resolve, delay.node_inputs)
        if value is not output or delay.node_attributes["offset"] != 1 or initial.sequence_axis is not None:
            return None
    hidden = {v for n in members for v in n.node_outputs} - {block.node_outputs[0]}
    one_direction = len({n.op_name for n in delays}) == 1
    if not one_direction or hidden & used or len(x.shape) != 1 or x.sequence_axis is None:
        return None
    cell.states = dict(zip(("h", "c"), delayed, strict=False))
    cell.x = x
    return cell


def write_cell(w: GraphWriter, cell: MatchedCell, resolve: Callable[[Edge], Edge]) -> str:
    """The operation for a recurrence that is a cell; returns its output tensor, [T, N, size]."""
    assert cell.x is not None and cell.states is not None
    form, x, size = cell.form, w.tensor(cell.x), cell.block.node_outputs[0].shape[0]
    delays = [node for v in cell.states.values() if (node := producer(v)) is not None]
    inputs = [x, *_weights(w, cell), ""]  # without the lengths of sequences
    for delay in delays:
        state = resolve(delay.node_inputs[1])
        if isinstance(state, Leaf) and not np.any(value_of(state)):
            inputs.append("")
            continue
        inputs.append(w.unsqueeze(initial_states(w, delay, w.tensor(state), state, x), [0]))
    peepholes = [np.asarray(value_of(cell.parameters[name])) for name in ("Ci", "Co", "Cf") if name in cell.parameters]
    if peepholes:
        inputs.append(w.array(np.concatenate(peepholes)[None]))
    while not inputs[-1]:
        inputs.pop()
    y = w.node(
        form.op, inputs, hidden_size=size, direction="reverse" if delays[0].primitive.delay > 0 else "forward",
        activations=form.activations(cell.activation), **form.attributes,
    )
    return w.reshape(y, 0, OPEN, size)  # drops the axis of directions; CNTK 2.7 reads no Squeeze here


def _weights(w: GraphWriter, cell: MatchedCell) -> list[str]:
    """The tensors W [1, gates * size, n], R [1, gates * size, size] and B [1, 2 * gates * size] of a cell."""
    form, p = cell.form, {name: np.asarray(value_of(leaf)) for name, leaf in cell.parameters.items()}

    def reordered(value: np.ndarray) -> np.ndarray:
        if form.gates == form.onnx_gates:
            return value
        parts = dict(zip(form.gates, np.split(value, len(form.gates), axis=-1), strict=True))
        return np.concatenate([parts[gate] for gate in form.onnx_gates], axis=-1)

    recurrent = p["H"] if len(form.recurrent) == 1 else np.concatenate([p[k] for k in form.recurrent], axis=1)
    W, R, b = reordered(p["W"]), reordered(recurrent), reordered(p["b"])
    values = {"W": W.T[None], "H": R.T[None], "b": np.concatenate([b, np.zeros_like(b)])[None]}
    return [w.array(value, cell.parameters[name].name) for name, value in values.items()]
