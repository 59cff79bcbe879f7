"""Running the commands of a configuration, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...parallel import workers
from ...sgd import ConfigError
from ...sgd.keys import nearest
from ..configuration import Block
from ..log import Log
from .cross_validate import cross_validate
from .decomposition import decompose
from .edit import edit
from .export import export_model
from .plot import plot
from .session import Command
from .statistics import normalization_statistics
from .test import test
from .tools import dump_nodes
from .train import train
from .vocabulary import write_classes
from .write import write

ACTIONS: Mapping[str, Callable[[Command], None]] = {
    "train": train, "trainRNN": train, "test": test, "eval": test, "devtest": test, "cv": cross_validate,
    "write": write, "edit": edit, "dumpNode": dump_nodes, "SVD": decompose, "plot": plot,
    "exportModel": export_model, "bnstat": normalization_statistics,
    "writeWordAndClass": write_classes,
}
_UNSUPPORTED = (
    "adapt", "convertdbn", "doEncoderDecoder", "testUnroll", "trainEncoderDecoder", "exportdbn", "createLabelMap",
)  # fmt: skip


def run_commands(root: Block, log: Log) -> None:
    """Run what ``command`` lists. Errors: ConfigError for a command or action that there is not."""
    listed, commands = root.get("command"), root.array("command")
    if listed is None or not commands:
        raise ConfigError("the configuration has no command: write command = NAME, or command=NAME on the command line")
    log.line(f"Commands: {' '.join(commands)}")
    log.line(f'precision = "{root.text("precision", "float")}"')
    for name in commands:
        if name not in root:
            names = [entry.name for entry in root if entry.is_block]
            guess = nearest(name, names)
            known = f"the blocks are {', '.join(names)}" if names else f"write {name} = [ action = ... ]"
            hint = f"did you mean {guess}?" if guess else known
            raise listed.at(0).error(f"command = {name}: there is no block {name}; {hint}")
    for name in commands:
        block = root.block(name)
        assert block is not None
        run_command(block, name, log)
    log.line("__COMPLETED__")


def run_command(block: Block, name: str, log: Log) -> None:
    """Run the actions of a command."""
    actions = block.array("action")
    if not actions:
        raise block.missing("action")
    for action in actions:
        run = next((run for key, run in ACTIONS.items() if key.lower() == action.lower()), None)
        if run is None:
            text = block.get("action")
            assert text is not None
            if action.lower() in (each.lower() for each in _UNSUPPORTED):
                raise text.at(0).error(f"the action {action} is not supported")
            guess = nearest(action, ACTIONS)
            raise text.at(0).error(f"there is no action {action}; " + (
                f"did you mean {guess}?" if guess else f"there are {', '.join(ACTIONS)}"))
        log.headline(f"{name} command ({action} action)")
        try:
            if run is train or workers.rank() == 0:  # which writes the files
                run(Command(block, log))
        except Exception as error:
            if getattr(error, "place", None) is None:
                error.add_note(f"in the command {name}, {block.place}")
            raise
        workers.barrier(f"the end of {name}")
        log.line()
        log.line(f'Action "{action}" complete.')
        log.line()


__all__ = ["ACTIONS", "run_command", "run_commands"]
