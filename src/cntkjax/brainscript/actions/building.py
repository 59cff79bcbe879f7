"""The network of a command: built as its block describes, or read from its model."""

from __future__ import annotations

from collections.abc import Iterator

from ...configuration import Block, inside
from ...configuration.source import nearest
from ...sgd import ConfigError
from .. import ndl
from ..language import build_network
from ..models import load_network
from ..network import Network
from ..simple import KEYS, simple_network
from .session import Command

_BRAINSCRIPT = ("BrainScriptNetworkBuilder", "ExperimentalNetworkBuilder")
BUILDERS = ("SimpleNetworkBuilder", *_BRAINSCRIPT, "NDLNetworkBuilder")


def command_blocks(root: Block) -> Iterator[Block]:
    """The blocks with an action; those of builders are in other languages."""
    builders = {name.lower() for name in BUILDERS}
    for entry in root:
        block = root.block(entry.name) if entry.is_block and entry.name.lower() not in builders else None
        if block is not None and "action" in block:
            yield block


def has_builder(block: Block) -> bool:
    """Whether a network is described in a block, or around it."""
    return any(block.find(name) for name in BUILDERS)


def built(command: Command) -> Network:
    """The network that a command describes. Errors: ConfigError if it describes none."""
    block = command.block
    for scope in block.scopes():
        name = next((name for name in BUILDERS if name in scope), None)
        if name is None:
            continue
        if name == "SimpleNetworkBuilder":
            return _simple(block, command)
        return _described(block, name, command.precision)
    for entry in block:
        if guess := nearest(entry.name, BUILDERS):
            raise entry.place.error(f"{block.path()} has no network: there is no {entry.name}; did you mean {guess}?")
    raise ConfigError(f"{block.path()} has no network: give one of the blocks {', '.join(BUILDERS)}")


def _simple(block: Block, command: Command) -> Network:
    description = block.required_block("SimpleNetworkBuilder")
    for warning in description.unknown(KEYS):
        command.log.warn(warning)
    return simple_network(description, command.precision)


def _described(block: Block, name: str, precision: str) -> Network:
    """The network of a description in BrainScript or NDL."""
    definition = block.find(name)
    assert definition is not None
    scope, entry = definition
    build = ndl.build_network if name == "NDLNetworkBuilder" else build_network
    if build is ndl.build_network and entry.is_block:  # its values count in it, and in the files that it names
        scope = scope.required_block(name)
    text = scope.expand(entry.value)
    if text.content[:1] in ("[", "{"):
        text = inside(text)
    return build(text, scope, precision=precision, seed_offset=block.integer("randomSeedOffset", 0))


def read_or_built(command: Command) -> Network:
    """The network that a test evaluates: from its own builder in BrainScript, or else the model."""
    builder = next((name for name in _BRAINSCRIPT if name in command.block), None)
    if builder is None:
        return load_network(command.model_path)
    return _described(command.block, builder, command.precision)


__all__ = ["BUILDERS", "built", "command_blocks", "has_builder", "read_or_built"]
