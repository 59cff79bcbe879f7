"""SimpleNetworkBuilder: networks by the sizes of their layers.

Names, operations and initial values are those of CNTK's logs; docs/brainscript.md lists the keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..configuration import Block
from ..sgd import ConfigError
from .building import network_of
from .network import Network
from .nodes import NetNode
from .simple_nodes import Nodes
from .simple_recurrent import KINDS, recurrent_network

KEYS = (
    "initValueScale", "layerTypes", "uniformInit", "applyMeanVarNorm", "addDropoutNodes", "layerSizes", "needPrior",
    "trainingCriterion", "evalCriterion", "lookupTableOrder", "recurrentLayer", "defaultHiddenActivity", "rnnType",
    "randomSeedOffset", "initBias", "addPrior", "vocabSize", "nbrClass", "initOnCPUOnly",
)

class _Builder(Nodes):
    """The nodes of a feed-forward network."""

    def hidden(self, x: NetNode, sizes: Sequence[int]) -> NetNode:
        """All layers; returns the outputs before the softmax."""
        activations = self.activations(len(sizes) - 2)
        source = "features"
        if self.block.flag("addDropoutNodes", False):
            x = self.node("Dropout", "DropOutFeatures", x)
        for i in range(len(sizes) - 1):
            is_last = i == len(sizes) - 2
            of = f"H{i - 1}" if is_last and i > 1 else source  # CNTK's name of the last product (log)
            product = self.node("Times", f"W{i}*{of}", self.weight(f"W{i}", sizes[i + 1], sizes[i]), x)
            total = f"{product.name}+B{i}"
            x = self.node("Plus", "HLast" if is_last else total, product, self.bias(f"B{i}", sizes[i + 1]))
            if not is_last:
                x, source = self.node(activations[i], f"H{i + 1}", x), f"H{i + 1}"
                if self.block.flag("addDropoutNodes", False):
                    x = self.node("Dropout", f"DropOutH{i + 1}", x)
        return x


def simple_network(block: Block, precision: str) -> Network:
    """The network of a SimpleNetworkBuilder block. Errors: ConfigError for keys that are missing or not supported."""
    if len(sizes := block.integers("layerSizes")) < 2 or min(sizes) < 1:
        raise ConfigError(f"SimpleNetworkBuilder needs layerSizes = inputs:hidden:...:outputs, not {sizes}")
    kind = block.choice("rnnType", ("SIMPLENET", *KINDS), "SIMPLENET")
    if kind != "SIMPLENET":
        return recurrent_network(block, kind, sizes, precision)
    builder = _Builder(block)
    features = builder.node("InputValue", "features", shape=[sizes[0]])
    labels = builder.node("InputValue", "labels", shape=[sizes[-1]])
    x = features
    if block.flag("applyMeanVarNorm", False):
        mean = builder.node("Mean", "MeanOfFeatures", features)
        deviation = builder.node("InvStdDev", "InvStdOfFeatures", features)
        x = builder.node("PerDimMeanVarNormalization", "MVNormalizedFeatures", features, mean, deviation)
    last = builder.hidden(x, sizes)
    training = builder.criterion("trainingCriterion")
    evaluation = builder.criterion("evalCriterion", training)
    loss = builder.node(training, training, labels, last)
    metric = builder.node(evaluation, f"Eval{evaluation}", labels, last)
    members, output = [loss, metric], last
    if block.flag("needPrior", False):
        log = builder.node("Log", "LogOfPrior", builder.node("Mean", "Prior", labels))
        output = builder.node("Minus", "ScaledLogLikelihood", last, log)
        members.append(output)
    if training == "CrossEntropyWithSoftmax":
        members.append(builder.node("Softmax", "PosteriorProb", last))
    roles = {"feature": features, "label": labels, "criterion": loss, "evaluation": metric, "output": output}
    return network_of({node.name: node for node in members}, {role: [node] for role, node in roles.items()}, precision)


__all__ = ["KEYS", "simple_network"]
