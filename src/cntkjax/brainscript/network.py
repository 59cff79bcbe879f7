"""Networks as configurations describe them: named nodes, some of which have a role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..variables import Variable

ROLES = ("feature", "label", "criterion", "evaluation", "output")


@dataclass
class Network:
    """A network that a builder has made, or a file holds.

    `nodes`: variables by the names that CNTK gives them, in order of creation; inputs, parameters and constants
    included. `roles`: names of nodes, by the role that they have (`ROLES`).
    """

    nodes: dict[str, Variable]
    roles: dict[str, list[str]] = field(default_factory=lambda: {role: [] for role in ROLES})

    def with_role(self, role: str) -> Sequence[Variable]:
        """The nodes with a role."""
        return [self.nodes[name] for name in self.roles[role]]


__all__ = ["ROLES", "Network"]
