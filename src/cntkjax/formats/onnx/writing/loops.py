"""Recurrences that are no operation of ONNX: a Scan over the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....graph.function import Node
from ....graph.variable import Edge
from .._onnx import onnx
from .graph import END, GraphWriter
from .order import Order, Recurrence
from .sequence import initial_states


class ScanWriter:
    """Writes a recurrence as a Scan: delayed values are its states (one for each step of the delay), sequences from
    outside its scanned inputs. Values without a sequence axis are directly visible in the body.
    """

    def __init__(self, w: GraphWriter, loop: Recurrence, order: Order) -> None:
        self.w, self.loop, self.order = w, loop, order
        self.body = GraphWriter(w.opset, order, w)
        self.body.label = w.label
        self.sequences = self._scanned_sequences()
        self.initial: list[str] = []  # tensors of the initial states
        self.states: dict[Node, list[str]] = {}  # delay -> its states in the body, the latest step first
        self.inputs: list[object] = []  # ValueInfoProtos of the body
        self.results: list[object] = []

    def write(self, outputs: Sequence[Edge], emit: Callable[[GraphWriter, Node], None]) -> None:
        """Write the Scan, whose scanned outputs are `outputs`; `emit` writes one node of the body."""
        like = self.w.tensor(self.sequences[0])
        for delay in self.loop.delays:
            self._declare_states(delay, like)
        for v in self.sequences:
            name = self.w.unique(f"{self.w.tensor(v)}_step")
            self.body.tensors[v] = name
            self.inputs.append(self.body_value(name, v))
        for node in self.loop.nodes:
            emit(self.body, node)
        self._add_results(outputs)
        self._name_outputs(outputs, self._add_scan(len(outputs)))

    def _scanned_sequences(self) -> list[Edge]:
        """The sequences from outside that the nodes use; initial states are no scanned inputs."""
        inside = {v for n in self.loop.members for v in n.node_outputs}
        delays = set(self.loop.delays)
        used = [v for n in self.loop.members for v in self.order.inputs(n)[: 1 if n in delays else None]]
        return list(dict.fromkeys(v for v in used if v not in inside and v.sequence_axis is not None))

    def _declare_states(self, delay: Node, like: str) -> None:
        w, body = self.w, self.body
        w.label = body.label = delay.name or delay.uid
        output, state = delay.node_outputs[0], self.order.inputs(delay)[1]
        initial = [w.tensor(state)] * int(delay.node_attributes["offset"])
        if state.sequence_axis is not None:  # the steps next to the loop, the nearest one first
            ranges = [(i, i + 1) if self.loop.backwards else (-1 - i, -i or END) for i in range(len(initial))]
            initial = [w.squeeze(w.slice(t, [i], [j], [0]), [0]) for t, (i, j) in zip(initial, ranges, strict=True)]
        names = [w.unique(f"{body.label}_state") for _ in initial]
        self.states[delay] = names
        self.initial += [initial_states(w, delay, tensor, state, like) for tensor in initial]
        self.inputs += [w.value_info(name, output, [None, *output.shape]) for name in names]
        body.tensors[output] = names[-1]

    def body_value(self, name: str, v: Edge) -> object:
        """The ValueInfoProto of a value of one step, [N, *shape]."""
        return self.w.value_info(name, v, [None, *(d if d >= 0 else None for d in v.shape)])

    def _add_results(self, outputs: Sequence[Edge]) -> None:
        """The next states, and the outputs of the step."""
        body = self.body
        for delay, names in self.states.items():
            value, output = self.order.inputs(delay)[0], delay.node_outputs[0]
            latest = body.with_rank(body.tensor(value), value, len(output.shape))
            if value.shape != output.shape:  # the initial state is larger
                latest = body.node("Expand", [latest, body.ints(1, *output.shape)])
            for tensor in [latest, *names[:-1]]:
                self._add_result(tensor, output)
        for v in outputs:
            self._add_result(body.tensor(v), v)

    def _add_result(self, tensor: str, v: Edge) -> None:
        name = self.body.node("Identity", [tensor])
        self.results.append(self.body_value(name, v))

    def _add_scan(self, outputs: int) -> list[str]:
        """The tensors of the Scan's outputs without the last states."""
        w, direction = self.w, int(self.loop.backwards)
        graph = onnx().helper.make_graph(self.body.nodes, w.unique("step"), self.inputs, self.results)
        first = self.loop.members[0]
        w.label = first.name or first.uid
        tensors = w.multi_node(
            "Scan", [*self.initial, *(w.tensor(v) for v in self.sequences)], len(self.results), body=graph,
            num_scan_inputs=len(self.sequences), scan_input_directions=[direction] * len(self.sequences),
            scan_output_directions=[direction] * outputs,
        )
        return tensors[len(self.initial) :]

    def _name_outputs(self, outputs: Sequence[Edge], tensors: Sequence[str]) -> None:
        scan = self.w.nodes[-1]
        for v, tensor in zip(outputs, tensors, strict=True):
            name = self.w.unique(v.uid if not v.name else f"{v.name}_Output")
            for i, output in enumerate(scan.output):
                if output == tensor:
                    scan.output[i] = name
            self.w.tensors[v] = self.w.uids[v.uid] = name
