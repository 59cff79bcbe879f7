"""Models that are edited, and their nodes as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...configuration import ConfigError
from ..building import network_of
from ..network import ROLES, Network
from ..nodes import NetNode


@dataclass
class NamedModel:
    """A model that is edited: its nodes by name, and those with a role."""

    nodes: dict[str, NetNode] = field(default_factory=dict)
    roles: dict[str, list[NetNode]] = field(default_factory=lambda: {role: [] for role in ROLES})

    def network(self) -> Network:
        """The network. Errors: ConfigError if a node's input was removed."""
        kept = {id(node) for node in self.nodes.values()}
        for name, node in self.nodes.items():
            for operand in node.operands():
                if id(operand) not in kept:
                    raise ConfigError(f"'{name}' still needs '{operand.name}', which was removed: use SetInput")
        for node in self.nodes.values():
            if node.tag and node not in self.roles[node.tag]:
                self.roles[node.tag].append(node)
        return network_of(dict(self.nodes), {role: list(nodes) for role, nodes in self.roles.items()})


def described(network: Network, name: str, data: bool, metadata: bool = True) -> Iterator[str]:
    """A node in one line (`metadata`), and its values (`data`)."""
    variable: Any = network.nodes[name]
    inputs = network.inputs.get(name, [])
    dimensions = ",".join(str(max(size, 0)) for size in reversed(variable.shape))
    suffix = f" ( {' , '.join(inputs)} )" if inputs else f" [{dimensions}]"
    gradient, learns = "", variable.is_parameter
    if network.operations[name] == "LearnableParameter":
        factor = network.rates.get(name, float(learns))
        gradient = f"   learningRateMultiplier={factor:.6f}  NeedsGradient={str(learns).lower()}"
    if metadata:
        yield f"{name}={network.operations[name]}{suffix}{gradient}"
    if data and (variable.is_parameter or variable.is_constant):
        rows = variable.value.reshape(-1, variable.shape[-1] if variable.shape else 1).T
        yield from (" " + " ".join(f"{value:.9g}" for value in row) for row in rows)
        yield " " + "#" * 68


__all__ = ["NamedModel", "described"]
