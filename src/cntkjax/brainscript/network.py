"""Networks as configurations describe them: named nodes, some of which have a role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..formats.v1_file import LATTICES
from ..graph.variable import set_value
from ..ops import combine
from ..variables import Variable

SUMS = frozenset((  # over minibatches in CNTK
    "CrossEntropy", "CrossEntropyWithSoftmax", "ClassBasedCrossEntropyWithSoftmax", "ClassificationError",
    "ErrorPrediction", "SquareError", "Logistic", "WeightedLogistic", "SumElements", "ForwardBackward",
    "EditDistanceError", "SequenceWithSoftmax", "LatticeSequenceWithSoftmax", "LambdaRank", "NDCG1Eval",
    "MatrixL1Reg", "MatrixL2Reg",
))  # fmt: skip
ROLES = ("feature", "label", "criterion", "evaluation", "output")


@dataclass
class Network:
    """A network that a builder has made, or a file holds.

    `nodes`: variables by the names that CNTK gives them, in order of creation; inputs, parameters and constants
    included. `roles`: names of nodes, by the role that they have (`ROLES`). `operations`: what CNTK calls the operation
    of a node; `inputs`: the names of its inputs. `statistics`: constants that are computed from all data before
    training, by name: the operation (Mean or InvStdDev) and the name of the node whose values it summarizes. `rates`:
    factors of learning rates other than 1, by the names of parameters. `traces`: the options of nodes of the operation
    Trace, by name.
    """

    nodes: dict[str, Variable]
    roles: dict[str, list[str]] = field(default_factory=lambda: {role: [] for role in ROLES})
    operations: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, list[str]] = field(default_factory=dict)
    statistics: dict[str, tuple[str, str]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    traces: dict[str, dict[str, Any]] = field(default_factory=dict)

    def shown_shapes(self) -> dict[str, str]:
        """The shapes of nodes as CNTK's log has them: first dimension first, ``*`` for samples, 0 for unknown ones."""
        readers: dict[str, list[str]] = {}
        for name, inputs in self.inputs.items():
            for each in inputs if self.operations.get(name) not in SUMS else ():
                readers.setdefault(each, []).append(name)
        with_samples = set(self.reached([name for name, node in self.nodes.items() if node.is_input], readers))
        shapes = {}
        for name, node in self.nodes.items():
            sizes = [str(max(size, 0)) for size in reversed(node.shape)] or ["1"]
            sizes += ["*"] if node.dynamic_axes and name in with_samples else []
            shapes[name] = "[1]" if self.operations.get(name) in SUMS else f"[{' x '.join(sizes)}]"
        return shapes

    def reached(self, roots: Sequence[str], after: Mapping[str, Sequence[str]] | None = None) -> list[str]:
        """The names of nodes and all that they depend on, depth first. `after`: what follows each, not its inputs."""
        names: dict[str, None] = {}
        pending = [*reversed(roots)]
        while pending:
            name = pending.pop()
            if name not in names:
                names[name] = None
                pending += reversed((self.inputs if after is None else after).get(name, ()))
        return list(names)

    def of_epoch(self) -> set[str]:
        """The names of nodes that accumulate over an epoch."""
        return {name for name, each in self.operations.items() if each == "EpochAccumulator" and name in self.nodes}

    def forget_epoch(self) -> None:
        """Begin an epoch: nodes that accumulate have seen nothing yet."""
        for name in self.of_epoch():
            for constant in combine([self.nodes[name]]).constants:
                if constant.name.startswith(f"{name}."):
                    set_value(constant, np.zeros(constant.shape, constant.dtype))


__all__ = ["LATTICES", "ROLES", "SUMS", "Network"]
