"""Recurrences that ONNX has no operation for: a Scan over the steps."""

from __future__ import annotations

from typing import Any

from ....graph.function import Function
from ....graph.variable import Variable
from .._onnx import onnx
from .graph import END, Writer
from .order import Order, Recurrence
from .sequence import initial_states


def write_loop(w: Writer, loop: Recurrence, order: Order, wanted: list[Variable], emit: Any) -> None:
    """A Scan: delayed values are its states (one for each step of the delay), sequences from outside its inputs.

    What has no sequence axis is seen in the body as it is.
    """
    inside = {v for n in loop.members for v in n.node_outputs}
    delays = set(loop.delays)
    fed = [v for n in loop.members for v in order.inputs(n)[: 1 if n in delays else None] if v not in inside]
    sequences = list(dict.fromkeys(v for v in fed if v.sequence_axis is not None))
    like = w.of(sequences[0])
    body = Writer(w.opset, order, w)
    body.label = w.label
    first: list[str] = []
    states: dict[Function, list[str]] = {}
    declared: list[Any] = []
    for delay in loop.delays:
        w.label = body.label = delay._name or delay.uid
        out = delay.node_outputs[0]
        state = order.inputs(delay)[1]
        begins = [w.of(state)] * int(delay.node_attributes["offset"])
        if state.sequence_axis is not None:  # the steps beside the loop, the nearest one first
            ends = [(i, i + 1) if loop.backwards else (-1 - i, -i or END) for i in range(len(begins))]
            begins = [w.squeeze(w.slice(b, [i], [j], [0]), [0]) for b, (i, j) in zip(begins, ends, strict=True)]
        names = [w.unique(f"{body.label}_state") for _ in begins]
        states[delay] = names
        first += [initial_states(w, delay, begin, state, like) for begin in begins]
        declared += [w.info(name, out, [None, *out.shape]) for name in names]
        body.tensors[out] = names[-1]
    for v in sequences:
        name = w.unique(f"{w.of(v)}_step")
        body.tensors[v] = name
        declared.append(w.info(name, v, [None, *(d if d >= 0 else None for d in v.shape)]))
    for node in loop.nodes:
        emit(body, node)
    results: list[Any] = []

    def result(tensor: str, v: Variable) -> None:
        name = body.node("Identity", [tensor])
        results.append(w.info(name, v, [None, *(d if d >= 0 else None for d in v.shape)]))

    for delay, names in states.items():
        value = order.inputs(delay)[0]
        out = delay.node_outputs[0]
        newest = body.raised(body.of(value), value, len(out.shape))
        for tensor in [newest, *names[:-1]]:
            result(tensor, out)
    for v in wanted:
        result(body.of(v), v)
    graph = onnx().helper.make_graph(body.nodes, w.unique("step"), declared, results)
    direction = int(loop.backwards)
    w.label = loop.members[0]._name or loop.members[0].uid
    begun = len(w.nodes)
    made = w.node(
        "Scan", [*first, *(w.of(v) for v in sequences)], len(results), body=graph, num_scan_inputs=len(sequences),
        scan_input_directions=[direction] * len(sequences), scan_output_directions=[direction] * len(wanted),
    )
    made = [made] if isinstance(made, str) else made
    for v, tensor in zip(wanted, made[len(first) :], strict=True):
        name = w.unique(v.uid if not v.name else f"{v.name}_Output")
        for i, output in enumerate(w.nodes[begun].output):
            if output == tensor:
                w.nodes[begun].output[i] = name
        w.tensors[v] = w.uids[v.uid] = name
