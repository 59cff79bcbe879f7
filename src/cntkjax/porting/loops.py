"""Recurrent loops: a layer of the target where a loop is one cell, otherwise a function for one step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..engine.plan.parts import resolve
from ..formats.onnx.cell_forms import is_cell
from ..formats.onnx.writing.cells import MatchedCell, match_recurrence
from ..graph.axis import Axis
from ..graph.function import Node, nodes_inside
from ..graph.variable import Edge, Leaf, outside, producer, value_of
from .graph import opened, operands
from .table import inserted
from .tree import Expression, Layer, LoopSource, Op, refuse, several

if TYPE_CHECKING:
    from .walk import Body

_DELAYS = ("PastValue", "FutureValue")
_LAYERS = {  # by operation and activation; the reset gate of CNTK's GRU comes before the product
    ("LSTM", "Tanh"): "LSTM", ("RNN", "Tanh"): "RNN", ("RNN", "Relu"): "RNN", ("GRU", "Tanh"): "ResetFirstGRU",
}


def is_loop(body: Body, component: Sequence[Node]) -> bool:
    """True for a strongly connected component with a cycle."""
    node = component[0]
    return len(component) > 1 or any(producer(body.resolve(v)) is node for v in operands(node))


def recurrence(body: Body, component: Sequence[Node]) -> None:
    """Describe a loop. Blocks with delays, and cells that no layer of the target is, are opened first."""
    outputs = [v for n in component for v in n.node_outputs]
    if with_delays := [b for b in component if any(n.op_name in _DELAYS for n in nodes_inside(b))]:
        body.open(with_delays, outputs)
        return
    used = list(_used_outside(body, component))
    cells = [b for b in component if is_cell(b)]
    cell = match_recurrence(component, cells[0], body.resolve, set(used)) if len(cells) == 1 else None
    if cell is not None and _kind(cell) in body.graph.library.layers and "Ci" not in cell.parameters:
        body.values[cell.block.node_outputs[0]] = _layer(body, cell)
    elif cells:
        body.open(cells, outputs)
    else:
        _steps(body, component, used)


def _used_outside(body: Body, component: Sequence[Node]) -> Iterator[Edge]:
    """The outputs that something outside of the loop uses."""
    members = {*component, *(n for b in component for n in nodes_inside(b))}
    for node in component:
        for v in node.node_outputs:
            if any(user not in members for user in body.graph.users[resolve(v, opened)]):
                yield v


# ---- cells
def _kind(cell: MatchedCell) -> str:
    return _LAYERS.get((cell.form.op, cell.activation), "")


def _layer(body: Body, cell: MatchedCell) -> Expression:
    assert cell.x is not None and cell.states is not None
    p, block = cell.parameters, cell.block
    weights = {name: np.asarray(value_of(leaf)) for name, leaf in p.items()}
    weights["H"] = np.concatenate([weights.pop(name) for name in cell.form.recurrent], axis=-1)
    options = {
        "inputs": weights["W"].shape[0], "outputs": weights["H"].shape[0], "activation": cell.activation.lower(),
    }
    parts = {k: np.split(v, len(cell.form.gates), axis=-1) for k, v in weights.items()}
    order = [cell.form.gates.index(gate) for gate in ("ifgo" if cell.form.op == "LSTM" else cell.form.gates)]
    arrays = {
        "input": np.concatenate([parts["W"][i].T for i in order]),
        "hidden": np.concatenate([parts["H"][i].T for i in order]),
        "input_bias": np.concatenate([parts["b"][i] for i in order]),
    }
    arrays["hidden_bias"] = np.zeros_like(arrays["input_bias"])
    name = body.layer(block, list(p.values()), Layer(_kind(cell), options, arrays))
    delays = [node for v in cell.states.values() if (node := producer(v)) is not None]
    x = body.value(cell.x)
    states: list[Expression] = []
    if not all(_is_zero(d.node_inputs[1]) for d in delays):
        states = [initial_state(body, d, x) for d in delays]
    result = layer_over(body, block, name, x, delays[0].op_name == "FutureValue", block.node_outputs[0], states)
    return body.assigned(result, block)


def layer_over(
    body: Body, node: Node, name: str, x: Expression, reverse: bool, like: Edge,
    states: Sequence[Expression] = (),
) -> Expression:
    """A recurrent layer over sequences, from the last step to the first if `reverse`."""
    if not reverse:
        return Op("rnn", (x, *states), {"name": name})
    axis = like.sequence_axis
    assert axis is not None
    run = body.assigned(Op("rnn", (_reversed(body, x, axis), *states), {"name": name}), node)
    return _reversed(body, run, axis)


def _reversed(body: Body, x: Expression, axis: Axis) -> Expression:
    return Op("reversed", (x, body.lengths(axis)))


def _is_zero(v: Edge) -> bool:
    leaf = outside(v)
    return isinstance(leaf, Leaf) and not leaf.is_parameter and not np.any(value_of(leaf))


def initial_state(body: Body, delay: Node, like: Expression) -> Expression:
    """What a delay begins with, [batch, *shape]."""
    output, initial = delay.node_outputs[0], delay.node_inputs[1]
    if initial.sequence_axis is not None:
        raise refuse(delay, "an initial state that is a sequence cannot be ported")
    value = body.value(initial)
    if isinstance(value, Op) and value.op == "scalar":
        return Op("filled", (like,), {"shape": output.shape, "dtype": np.dtype(output.dtype).name, **value.options})
    if body.lead(initial):
        value = inserted(value, range(1, 1 + len(output.shape) - len(initial.shape)))
    return Op("expanded", (value, like), {"shape": output.shape})


# ---- steps
def _steps(body: Body, component: Sequence[Node], used: Sequence[Edge]) -> None:
    axis = component[0].node_outputs[0].sequence_axis
    delays = [n for n in component if n.op_name in _DELAYS]
    if axis is None or len({n.op_name for n in delays}) != 1 or body.step_axis is not None:
        raise refuse(component[0], "a loop within a loop, or in both directions, cannot be ported")
    reverse = delays[0].op_name == "FutureValue"
    step = LoopSource(body.local("step"), [], [])
    inner = body.step(axis, step.body)
    sequences = []
    for v in _sequences(body, component, axis):
        sequence = body.value(v)
        step.samples.append(body.local(f"{sequence}_t"))
        inner.values[v] = step.samples[-1]
        sequences.append(_reversed(body, sequence, axis) if reverse else sequence)
    like = body.value(v) if sequences else body.like(axis)
    if like is None:
        raise refuse(delays[0], "a loop without any sequence in it cannot be ported")
    if not sequences:
        step.samples, sequences = [body.local("_")], [like]
    initial = []
    for d in delays:
        names = [body.local(d.name or "state") for _ in range(int(d.node_attributes["offset"]))]
        initial += [initial_state(body, d, like)] * len(names)
        step.states += names
        inner.values[d.node_outputs[0]] = names[0]
    inner.compute([*(d.node_inputs[0] for d in delays), *used])
    for d in delays:
        begin = step.states.index(str(inner.values[d.node_outputs[0]]))
        kept = step.states[begin + 1 : begin + int(d.node_attributes["offset"])]
        step.next_states += [*kept, inner.value(d.node_inputs[0])]
    step.results = [inner.value(v) for v in used]
    body.statements.append(step)
    results = [body.local(v.name or "outputs") for v in used]
    body.statements.append((", ".join(results), Op("recurrence", (step.name, several(initial), *sequences))))
    for v, name in zip(used, results, strict=True):
        body.values[v] = body.assigned(_reversed(body, name, axis), delays[0]) if reverse else name


def _sequences(body: Body, component: Sequence[Node], axis: Axis) -> list[Edge]:
    """The variables along the axis that the loop reads and does not compute."""
    inner = {v for n in component for v in n.node_outputs}
    read = (body.resolve(v) for n in component for v in operands(n))
    return list(dict.fromkeys(v for v in read if v not in inner and v.sequence_axis == axis))


__all__ = ["initial_state", "is_loop", "layer_over", "recurrence"]
