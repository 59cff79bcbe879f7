"""What all actions share: the command's block, precision, device, log, and where models are."""

from __future__ import annotations

from dataclasses import dataclass

from ...configuration import Block, ConfigError, Place
from ..log import Criterion, Log
from ..models import function_of
from ..network import Network
from ..writing import new_file

_WITHOUT_EFFECT = ("traceLevel", "deviceId", "numCPUThreads", "modelPath", "minibatchSize", "epochSize",
                   "distributedMBReading", "enableDistributedMBReading",
                   "BrainScriptNetworkBuilder")  # the last one where training goes on from a checkpoint


@dataclass(frozen=True)
class Command:
    """A command of the configuration: its block, and the log."""

    block: Block
    log: Log

    @property
    def precision(self) -> str:
        """float or double."""
        return self.block.choice("precision", ("float", "double"), "float")

    @property
    def model_path(self) -> str:
        """The path of the model."""
        return self.block.file("modelPath")

    @property
    def reader(self) -> Block:
        """The block of the reader. Errors: ConfigError if there is none."""
        return self.block.required_block("reader")

    def save(self, network: Network, default: str | None = None) -> None:
        """Write a model to ``outputModelPath``."""
        path = new_file(self.block.file("outputModelPath", default))
        function_of(network).save(str(path))
        self.log.line(f"Model written to {path}")

    def warn_of_unread(self) -> None:
        """Log the keys of the command that nothing has looked up, unless they may be those of a further action."""
        for warning in self.block.unread(_WITHOUT_EFFECT, inner=False) if len(self.block.array("action")) == 1 else ():
            self.log.warn(warning)


def criteria(network: Network, names: list[str]) -> list[Criterion]:
    """Nodes as the log names them."""
    accumulate = network.of_epoch()
    return [
        Criterion(
            name, network.operations.get(name) or network.nodes[name].owner.op_name,
            is_whole=not accumulate.isdisjoint(network.reached([name])),
        )
        for name in names
    ]


def named_nodes(network: Network, block: Block, key: str) -> list[str]:
    """Names of nodes that a key lists, also as "a,b" (CNTK's issue 373).

    Errors: ConfigError for one that the network has not.
    """
    names, value = [name.strip() for each in block.array(key) for name in each.split(",")], block.get(key)
    for name in names:
        if value is not None and name not in network.nodes:
            raise no_node(network, name, key, value.at(0))
    return names


def outputs(network: Network, block: Block) -> list[str]:
    """Names of nodes that are written. Errors: ConfigError if neither the block nor the network names one."""
    if names := named_nodes(network, block, "outputNodeNames") or network.roles["output"]:
        return names
    raise ConfigError("the model has no output nodes: name nodes in outputNodeNames")


def no_node(network: Network, name: str, key: str, place: Place) -> ConfigError:
    """The error for a name of a node that the network has not."""
    special = dict.fromkeys(each for role in ("evaluation", "criterion", "output") for each in network.roles[role])
    hint = f"its criteria and outputs are {', '.join(special)}"
    return place.unknown(f"{key}: the network has no node {name}", name, network.nodes, hint)


__all__ = ["Command", "criteria", "named_nodes", "no_node", "outputs"]
