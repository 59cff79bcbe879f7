"""Networks as configurations describe them: named nodes, some of which have a role."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..graph.variable import set_value
from ..ops import combine
from ..variables import Variable

_SUMS = frozenset((  # over minibatches in CNTK
    "CrossEntropy", "CrossEntropyWithSoftmax", "ClassBasedCrossEntropyWithSoftmax", "ClassificationError",
    "ErrorPrediction", "SquareError", "Logistic", "WeightedLogistic", "SumElements", "ForwardBackward",
    "EditDistanceError", "LatticeSequenceWithSoftmax", "LambdaRank", "NDCG1Eval",
))  # fmt: skip
ROLES = ("feature", "label", "criterion", "evaluation", "output")


@dataclass
class Network:
    """A network that a builder has made, or a file holds.

    `nodes`: variables by the names that CNTK gives them, in order of creation; inputs, parameters and constants
    included. `roles`: names of nodes, by the role that they have (`ROLES`). `operations`: what CNTK calls the operation
    of a node; `inputs`: the names of its inputs. `statistics`: constants that are computed from all data before
    training, by name: the operation (Mean or InvStdDev) and the name of the node whose values it summarizes. `rates`:
    factors of learning rates other than 1, by the names of parameters.
    """

    nodes: dict[str, Variable]
    roles: dict[str, list[str]] = field(default_factory=lambda: {role: [] for role in ROLES})
    operations: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, list[str]] = field(default_factory=dict)
    statistics: dict[str, tuple[str, str]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)

    def shown_shape(self, name: str) -> str:
        """The shape of a node as CNTK's log has it: first dimension first, ``*`` for samples, 0 for unknown ones."""
        if self.operations.get(name) in _SUMS:
            return "[1]"
        dimensions = [str(max(size, 0)) for size in reversed(self.nodes[name].shape)] or ["1"]
        has_samples = self.nodes[name].dynamic_axes and any(
            self.nodes[each].is_input for each in self.reached([name], _SUMS) if each in self.nodes
        )
        return f"[{' x '.join([*dimensions, *(['*'] if has_samples else [])])}]"

    def reached(self, roots: Sequence[str], ends: Collection[str] = ()) -> list[str]:
        """The names of nodes and all that they depend on, those that come first in inputs first.

        `ends`: operations whose inputs are left out.
        """
        found: dict[str, None] = {}
        pending = [*reversed(roots)]
        while pending:
            name = pending.pop()
            if name not in found:
                found[name] = None
                pending += reversed(self.inputs.get(name, ()) if self.operations.get(name) not in ends else ())
        return list(found)

    def of_epoch(self) -> set[str]:
        """The names of nodes that accumulate over an epoch."""
        return {name for name, each in self.operations.items() if each == "EpochAccumulator" and name in self.nodes}

    def forget_epoch(self) -> None:
        """Begin an epoch: nodes that accumulate have seen nothing yet."""
        for name in self.of_epoch():
            for constant in combine([self.nodes[name]]).constants:
                if constant.name.startswith(f"{name}."):
                    set_value(constant, np.zeros(constant.shape, constant.dtype))


__all__ = ["ROLES", "Network"]
