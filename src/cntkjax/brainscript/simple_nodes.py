"""Nodes of the networks of SimpleNetworkBuilder."""

from __future__ import annotations

from ..configuration import Block
from .nodes import NetNode, seeds

_ACTIVATIONS = ("Sigmoid", "Tanh", "RectifiedLinear")
_CRITERIA = ("CrossEntropyWithSoftmax", "SquareError", "CrossEntropy", "ClassificationError", "Logistic")
CLASS_BASED = "ClassBasedCrossEntropyWithSoftmax"
_OTHER_NAMES = {"ErrorPrediction": "ClassificationError", "ClassCrossEntropyWithSoftmax": CLASS_BASED}


class Nodes:
    """Makes nodes, with the seeds of random parameters."""

    def __init__(self, block: Block) -> None:
        self.block, self._seeds, self._offset = block, seeds(), block.integer("randomSeedOffset", 0)

    def node(self, operation: str, name: str, *inputs: NetNode, **options: object) -> NetNode:
        """A node at the place of the block."""
        return NetNode(operation, name, list(inputs), dict(options), self.block.place)

    def weight(self, name: str, rows: int, columns: int) -> NetNode:
        """A matrix of random numbers."""
        return self.node(
            "LearnableParameter", name, shape=[rows, columns], randomSeed=self._seeds.next() + self._offset,
            init="uniform" if self.block.flag("uniformInit", True) else "gaussian",
            initValueScale=self.block.number("initValueScale", 1.0),
        )

    def bias(self, name: str, rows: int, value: float = 0.0) -> NetNode:
        """A column of equal numbers."""
        return self.node("LearnableParameter", name, shape=[rows, 1], init="fixedValue", initValue=value)

    def activations(self, count: int) -> list[str]:
        """The operation of each hidden layer; the last one that is listed holds for the rest."""
        operations = self.block.choices("layerTypes", _ACTIVATIONS) or ["Sigmoid"]
        return [operations[min(i, len(operations) - 1)] for i in range(count)]

    def criterion(self, key: str, default: str = "CrossEntropyWithSoftmax") -> str:
        """The operation of a criterion."""
        operation = self.block.choice(key, (*_CRITERIA, CLASS_BASED, *_OTHER_NAMES), default)
        return _OTHER_NAMES.get(operation, operation)


__all__ = ["CLASS_BASED", "Nodes"]
