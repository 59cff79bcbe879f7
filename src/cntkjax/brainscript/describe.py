"""A network as text, in the form of CNTK's log, without reading data."""

from __future__ import annotations

from collections.abc import Iterator

from ..configuration import Block
from ..sgd import ConfigError
from .actions.building import built, command_blocks, has_builder
from .actions.session import Command
from .log import Log
from .network import ROLES, Network


def describe(root: Block, log: Log) -> Iterator[str]:
    """The lines about the networks of all commands that build one. Errors: ConfigError if there is none."""
    trained = [block for block in command_blocks(root) if has_builder(block)
               and any(action.lower().startswith("train") for action in block.array("action"))]
    if not trained:
        raise ConfigError("the configuration has no command that builds a network")
    for block in trained:
        yield f"{block.name}:"
        yield from lines_of(built(Command(block, log)))


def lines_of(network: Network) -> Iterator[str]:
    """The nodes with operation, inputs and shapes; then the roles and the parameters."""
    shapes = network.shown_shapes()
    for name in network.nodes:
        inputs = network.inputs.get(name, [])
        of_inputs = ", ".join(shapes[each] for each in inputs if each in shapes)
        yield f"{name} = {network.operations.get(name, '')} ({', '.join(inputs)}) : {of_inputs} -> {shapes[name]}"
    for role in ROLES:
        if network.roles[role]:
            yield f"{role} nodes: {', '.join(network.roles[role])}"
    parameters = [v for v in network.nodes.values() if v.is_parameter]
    yield f"{len(network.nodes)} nodes, {len(parameters)} parameter tensors"


__all__ = ["describe", "lines_of"]
