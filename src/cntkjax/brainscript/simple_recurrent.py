"""Recurrent networks of SimpleNetworkBuilder, with the names and the order of nodes of CNTK's logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..configuration import Block
from ..sgd import ConfigError
from .building import network_of
from .network import ROLES, Network
from .nodes import NetNode
from .simple_nodes import CLASS_BASED, Nodes

KINDS = ("SIMPLERNN", "LSTM", "CLASSLM", "CLASSLSTM")


class _Recurrent(Nodes):
    """The nodes of a recurrent network; those without a name of their own are AutoName1, AutoName2, ..."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._unnamed = 0
        self._start = block.number("defaultHiddenActivity", 0.1)

    def auto(self, operation: str, *inputs: NetNode, **options: object) -> NetNode:
        """A node without a name of its own."""
        self._unnamed += 1
        return self.node(operation, f"AutoName{self._unnamed}", *inputs, **options)

    def delayed(self, later: Callable[[], NetNode]) -> NetNode:
        """The value of a node one step before."""
        delay = self.auto("PastValue", timeStep=1.0, defaultHiddenActivation=self._start)
        delay.inputs, delay.late = None, lambda: [later()]
        return delay

    def lstm(self, number: int, x: NetNode, size: int, width: int) -> NetNode:
        """A layer of LSTM units with peepholes. Shapes: x [width] -> [size]."""
        weights = {name: self.weight(f"WX{name}{number}", size, width) for name in "OIFC"}
        biases = {
            name: self.bias(f"b{name.lower()}{number}", size, 0.0 if name == "C" else -1.0) for name in "OCIF"
        }
        recurrent, peephole = {}, {}
        for name in "IFO":
            recurrent[name] = self.weight(f"WH{name}{number}", size, size)
            peephole[name] = self.weight(f"WC{name}{number}", size, 1)
        recurrent["C"] = self.weight(f"WHC{number}", size, size)
        current: dict[str, NetNode] = {}
        before = {name: self.delayed(lambda: current["output"]) for name in "IFOC"}
        cells = {name: self.delayed(lambda: current["cell"]) for name in ("I", "F", "kept")}

        def gate(name: str, cell: NetNode) -> NetNode:
            peep = self.auto("DiagTimes", peephole[name], cell)
            past = self.auto("Times", recurrent[name], before[name])
            total = self.auto("Plus", self.auto("Times", weights[name], x), biases[name])
            return self.auto("Sigmoid", self.auto("Plus", self.auto("Plus", total, past), peep))

        opened = gate("I", cells["I"])
        past = self.auto("Plus", self.auto("Times", recurrent["C"], before["C"]), biases["C"])
        candidate = self.auto("Tanh", self.auto("Plus", self.auto("Times", weights["C"], x), past))
        entering = self.auto("ElementTimes", opened, candidate)
        kept = self.auto("ElementTimes", gate("F", cells["F"]), cells["kept"])
        current["cell"] = self.auto("Plus", kept, entering)
        shown = gate("O", current["cell"])
        current["output"] = self.auto("ElementTimes", shown, self.auto("Tanh", current["cell"]))
        return current["output"]

    def lstms(self, x: NetNode, sizes: Sequence[int]) -> NetNode:
        """An embedding of words, and layers of LSTM units."""
        order = self.block.size("lookupTableOrder", 1)
        if sizes[0] % order:
            raise ConfigError(f"layerSizes begins with {sizes[0]}, which is no multiple of lookupTableOrder = {order}")
        x = self.node("LookupTable", "LookupTable", self.weight("E0", sizes[1], sizes[0] // order), x)
        x = self.lstm(0, x, sizes[2], sizes[1] * order)
        for i in range(2, len(sizes) - 2):
            x = self.lstm(i, x, sizes[i + 1], sizes[i])
        return x

    def simple(self, x: NetNode, sizes: Sequence[int]) -> NetNode:
        """Layers of which those that recurrentLayer lists also get their own last output."""
        recurrent = set(self.block.integers("recurrentLayer"))
        for i, activation in enumerate(self.activations(len(sizes) - 2)):
            product = self.auto("Times", self.weight(f"W{i}", sizes[i + 1], sizes[i]), x)
            current: dict[str, NetNode] = {}
            if i + 1 in recurrent:
                weight = self.weight(f"R{i + 1}", sizes[i + 1], sizes[i + 1])
                other = self.auto("Times", weight, self.delayed(partial(current.__getitem__, "x")))
            else:
                other = self.bias(f"B{i}", sizes[i + 1])
            x = current["x"] = self.auto(activation, self.auto("Plus", product, other))
        return x

    def with_softmax(self, last: NetNode, sizes: Sequence[int]) -> tuple[NetNode, NetNode, list[NetNode]]:
        """Labels, criterion, and the nodes that have their names."""
        labels = self.node("InputValue", "labels", shape=[sizes[-1]])
        weight = self.weight(f"W{len(sizes) - 2}", sizes[-1], sizes[-2])
        training = self.criterion("trainingCriterion")
        loss = self.node(training, training, labels, self.auto("Times", weight, last))
        return labels, loss, [loss, self.node("Times", "outputs", weight, last)]

    def by_class(self, last: NetNode, sizes: Sequence[int]) -> tuple[NetNode, NetNode, list[NetNode]]:
        """The same, for the softmax over classes of words and the words of a class."""
        labels = self.node("InputValue", "labels", shape=[4])
        weight = self.weight(f"W{len(sizes) - 2}", sizes[-2], sizes[-1])
        groups = self.weight("WeightForClassPostProb", self.block.size("nbrClass"), sizes[-2])
        group = self.node("Times", "ClassPostProb", groups, last)
        loss = self.node(CLASS_BASED, "TrainNodeClassBasedCrossEntropy", labels, last, weight, group)
        return labels, loss, [loss, self.node("TransposeTimes", "outputs", weight, last)]


def recurrent_network(block: Block, kind: str, sizes: Sequence[int], precision: str) -> Network:
    """The network of a kind, whose layers have these sizes. Errors: ConfigError for sizes that do not suit it."""
    has_cells, has_classes = kind.endswith("LSTM"), kind.startswith("CLASS")
    if len(sizes) < (4 if has_cells else 3):
        layers = "inputs:embedding:hidden:outputs" if has_cells else "inputs:hidden:outputs"
        raise ConfigError(f"rnnType = {kind} needs layerSizes = {layers}")
    builder = _Recurrent(block)
    features = builder.node(
        "SparseInputValue" if has_classes else "InputValue", "features", shape=[sizes[0]], sparse=has_classes
    )
    last = (builder.lstms if has_cells else builder.simple)(features, sizes)
    labels, loss, members = (builder.by_class if has_classes else builder.with_softmax)(last, sizes)
    outputs = members[-1]
    roles: dict[str, list[NetNode]] = {role: [] for role in ROLES}
    roles |= {"feature": [features], "label": [labels], "criterion": [loss], "output": [outputs]}
    evaluation = builder.criterion("evalCriterion", loss.operation)
    if evaluation != loss.operation:
        roles["evaluation"] = [builder.node(evaluation, f"Eval{evaluation}", labels, outputs)]
    members += [builder.node("Softmax", "PosteriorProb", outputs), *roles["evaluation"]]
    return network_of({node.name: node for node in members}, roles, precision)


__all__ = ["KINDS", "recurrent_network"]
