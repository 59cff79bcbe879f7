"""SimpleNetworkBuilder: feed-forward networks by the sizes of their layers.

Names, operations and initial values are those of CNTK's logs; docs/brainscript.md lists the keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sgd import ConfigError
from .building import network_of
from .configuration import Block
from .network import ROLES, Network
from .nodes import Node

KEYS = (
    "initValueScale", "layerTypes", "uniformInit", "applyMeanVarNorm", "addDropoutNodes", "layerSizes", "needPrior",
    "trainingCriterion", "evalCriterion", "lookupTableOrder", "recurrentLayer", "defaultHiddenActivity", "rnnType",
    "randomSeedOffset", "initBias", "addPrior",
)
_ACTIVATIONS = ("Sigmoid", "Tanh", "RectifiedLinear")
_CRITERIA = ("CrossEntropyWithSoftmax", "SquareError", "CrossEntropy", "ClassificationError", "Logistic")


class _Builder:
    """The nodes of a feed-forward network."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._seed = block.integer("randomSeedOffset", 0)

    def node(self, operation: str, name: str, *inputs: Node, **options: object) -> Node:
        return Node(operation, name, list(inputs), dict(options), self._block.place)

    def weight(self, name: str, rows: int, columns: int) -> Node:
        """A matrix of random numbers; seeds count from 1."""
        self._seed += 1
        return self.node(
            "LearnableParameter", name, shape=[rows, columns], randomSeed=self._seed,
            init="uniform" if self._block.flag("uniformInit", True) else "gaussian",
            initValueScale=self._block.number("initValueScale", 1.0),
        )

    def bias(self, name: str, rows: int) -> Node:
        return self.node("LearnableParameter", name, shape=[rows, 1], init="fixedValue", initValue=0.0)

    def hidden(self, x: Node, sizes: Sequence[int]) -> Node:
        """All layers; returns the outputs before the softmax."""
        activations = _activations(self._block, len(sizes) - 2)
        source = "features"
        if self._block.flag("addDropoutNodes", False):
            x = self.node("Dropout", "DropOutFeatures", x)
        for i in range(len(sizes) - 1):
            is_last = i == len(sizes) - 2
            of = "H1" if is_last and i else source  # CNTK's name of the last product, however many layers there are
            product = self.node("Times", f"W{i}*{of}", self.weight(f"W{i}", sizes[i + 1], sizes[i]), x)
            total = f"{product.name}+B{i}"
            x = self.node("Plus", "HLast" if is_last else total, product, self.bias(f"B{i}", sizes[i + 1]))
            if not is_last:
                x, source = self.node(activations[i], f"H{i + 1}", x), f"H{i + 1}"
                if self._block.flag("addDropoutNodes", False):
                    x = self.node("Dropout", f"DropOutH{i + 1}", x)
        return x


def simple_network(block: Block, precision: str) -> Network:
    """The network of a SimpleNetworkBuilder block. Errors: ConfigError for keys that are missing or not supported."""
    kind = block.text("rnnType", "SIMPLENET")
    if kind.upper() != "SIMPLENET" or any(int(layer) > 0 for layer in block.array("recurrentLayer")):
        raise ConfigError(f"rnnType = {kind} with recurrentLayer is not supported: write the network in BrainScript, "
                          "as in docs/brainscript.md")
    builder, sizes = _Builder(block), [int(size) for size in block.array("layerSizes")]
    if len(sizes) < 2:
        raise ConfigError("SimpleNetworkBuilder needs layerSizes = inputs:hidden:...:outputs")
    features = builder.node("InputValue", "features", shape=[sizes[0]])
    labels = builder.node("InputValue", "labels", shape=[sizes[-1]])
    x = features
    if block.flag("applyMeanVarNorm", False):
        mean = builder.node("Mean", "MeanOfFeatures", features)
        deviation = builder.node("InvStdDev", "InvStdOfFeatures", features)
        x = builder.node("PerDimMeanVarNormalization", "MVNormalizedFeatures", features, mean, deviation)
    last = builder.hidden(x, sizes)
    roles: dict[str, list[Node]] = {role: [] for role in ROLES} | {"feature": [features], "label": [labels]}
    training = _criterion(block, "trainingCriterion", "CrossEntropyWithSoftmax")
    evaluation = _criterion(block, "evalCriterion", training)
    loss = builder.node(training, training, labels, last)
    metric = builder.node(evaluation, f"Eval{evaluation}", labels, last)
    roles["criterion"], roles["evaluation"] = [loss], [metric]
    members = [loss, metric]
    if block.flag("needPrior", False):
        log = builder.node("Log", "LogOfPrior", builder.node("Mean", "Prior", labels))
        members.append(builder.node("Minus", "ScaledLogLikelihood", last, log))
        roles["output"] = [members[-1]]
    else:
        roles["output"] = [last]
    if training == "CrossEntropyWithSoftmax":
        members.append(builder.node("Softmax", "PosteriorProb", last))
    return network_of({node.name: node for node in members}, roles, precision)


def _activations(block: Block, count: int) -> list[str]:
    """The operation of each hidden layer; the last one that is listed holds for the rest."""
    types = block.array("layerTypes") or ["Sigmoid"]
    found = [next((each for each in _ACTIVATIONS if each.lower() == kind.lower()), kind) for kind in types]
    for kind in found:
        if kind not in _ACTIVATIONS:
            raise ConfigError(f"layerTypes = {kind}: the types of layers are {', '.join(_ACTIVATIONS)}")
    return [found[min(i, len(found) - 1)] for i in range(count)]


def _criterion(block: Block, key: str, default: str) -> str:
    found = block.choice(key, (*_CRITERIA, "ErrorPrediction"), default)
    return "ClassificationError" if found == "ErrorPrediction" else found


__all__ = ["KEYS", "simple_network"]
