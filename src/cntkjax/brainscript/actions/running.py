"""Running the commands of a configuration, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...configuration import Block
from ...parallel import workers
from ...sgd import ConfigError
from ...sgd._workers import summed
from ..log import Log
from ..nodes import seeds, seeds_of_run
from .cross_validate import cross_validate
from .decomposition import decompose
from .plot import plot
from .session import Command
from .statistics import normalization_statistics
from .test import test
from .tools import dump_nodes, edit, export_model
from .train import train
from .vocabulary import create_label_map, write_classes
from .write import write

ACTIONS: Mapping[str, Callable[[Command], None]] = {
    "train": train, "trainRNN": train, "test": test, "eval": test, "devtest": test, "cv": cross_validate,
    "write": write, "edit": edit, "dumpNode": dump_nodes, "SVD": decompose, "plot": plot,
    "exportModel": export_model, "bnstat": normalization_statistics,
    "writeWordAndClass": write_classes, "createLabelMap": create_label_map,
}
_EDIT = "build the network with BS.Network.Load and CloneFunction, and train it"
_MODELS = "load the model with a version of CNTK that reads it, and save it as a model of CNTK 2"
_UNSUPPORTED = {  # and what to do
    "adapt": _EDIT, "doEncoderDecoder": _EDIT, "trainEncoderDecoder": _EDIT, "convertdbn": _MODELS,
    "exportdbn": "use exportModel, which writes ONNX", "testUnroll": "use test",
}


def run_commands(root: Block, log: Log) -> None:
    """Run what ``command`` lists. Errors: ConfigError for a command or action that there is not."""
    listed, commands = root.get("command"), root.array("command")
    if listed is None or not commands:
        raise ConfigError("the configuration has no command: write command = NAME, or command=NAME on the command line")
    log.follow(root)
    log.detail(f"Commands: {' '.join(commands)}", f'precision = "{root.text("precision", "float")}"')
    for name in commands:
        if name not in root:
            names = [entry.name for entry in root if entry.is_block]
            known = f"the blocks are {', '.join(names)}" if names else f"write {name} = [ action = ... ]"
            raise listed.at(0).unknown(f"command = {name}: there is no block {name}", name, names, known)
    with seeds_of_run():
        for name in commands:
            block = root.required_block(name)
            run_command(block, name, log)
    log.line("__COMPLETED__")


def run_command(block: Block, name: str, log: Log) -> None:
    """Run the actions of a command."""
    actions = block.choices("action", (*ACTIONS, *_UNSUPPORTED))
    if not actions:
        raise block.missing("action")
    for action in actions:
        log.headline(f"{name} command ({action} action)")
        log.follow(block)
        try:
            if action not in ACTIONS:
                raise ConfigError(f"the action {action} is not supported: {_UNSUPPORTED[action]}")
            if ACTIONS[action] is train or workers.rank() == 0:  # which writes the files
                ACTIONS[action](command := Command(block, log))
                if ACTIONS[action] is not train:  # which does so before it trains
                    command.warn_of_unread()
        except Exception as error:
            if getattr(error, "place", None) is None:
                error.add_note(f"in the command {name}, {block.place}")
            raise
        seeds().last = int(summed(f"the end of {name}", [0 if workers.rank() else seeds().last])[0])
        log.follow(block)
        log.line()
        log.detail(f'Action "{action}" complete.', "")


__all__ = ["ACTIONS", "run_command", "run_commands"]
