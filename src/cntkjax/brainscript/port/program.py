"""The training of a configuration as a Python program of the CNTK API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import chdir
from contextvars import copy_context
from functools import partial
from keyword import iskeyword
from pathlib import Path
from pprint import pformat
from typing import Any

from ...configuration import FILES_ARE_READ, Block, load
from ...sgd import ConfigError
from ...sgd.settings import shown
from ..actions.building import built, command_blocks, has_builder
from ..actions.lattices import lattice_options
from ..actions.session import Command
from ..actions.sgd_block import settings_of
from ..actions.test import minibatch_size
from ..building import recorded
from ..library.package import PACKAGE
from ..log import Log
from ..network import Network
from ..readers.opening import description_of, length_of_pieces, pieces_of, sentences_text
from .recorder import Recorder

_WIDTH = 100  # of the lines of a dictionary


def program_of(arguments: Sequence[str]) -> str:
    """The program for the first command that trains a network: of those that ``command`` lists, or of all.

    `arguments`: those of CNTK's command line.

    Errors: ConfigError for what cannot be used, or cannot be written as a program.
    """
    root = load(arguments)
    folder = root.file("currentDirectory", "")
    listed = [name for name in root.array("command") if name in root]
    for name in [*listed, *(block.name for block in command_blocks(root))]:
        block = root.block(name)
        if block is not None and _trains(block):
            with chdir(folder or "."):
                return copy_context().run(_program, Command(block, Log()), name, folder)
    raise ConfigError("the configuration has no command that trains a network")


def _trains(block: Block) -> bool:
    first = [action.lower() for action in block.array("action")[:1]] if "action" in block else []
    return first in (["train"], ["trainrnn"]) and has_builder(block)


def _program(command: Command, name: str, folder: str) -> str:
    FILES_ARE_READ.set(False)  # the program may be for another machine
    options = partial(lattice_options, command.reader, command.block.required_block("SGD"))
    recorder = Recorder(PACKAGE, _has_sequences(command), options)
    with recorded(recorder):
        network = built(command)
    precision = {"float": "float32", "double": "float64"}[command.precision]
    measured = [node for _, node in network.statistics.values()]
    named = dict.fromkeys([*_roles(network), *measured, *network.statistics, *network.rates])
    sgd = "SGD, moments" if measured else "SGD"
    lines = [
        f'"""The command {name} of a configuration of CNTK\'s command line, as a Python program."""', "",
        *(["import os", ""] if folder else []),
        "import cntk as C", "import numpy as np", f"from cntkjax.sgd import {sgd}", "", "",
        "def create_network():", '    """The nodes of the network, by name."""',
        f"    with C.default_options(dtype=np.{precision}):", *(f"        {line}" for line in recorder.lines),
        "    return {", *(f"        {each!r}: {recorder.text(network.nodes[each])}," for each in named), "    }",
        "", "", *_readers(command), *_training(command, network, folder),
        "",
    ]
    return "\n".join(lines)


def _roles(network: Network) -> list[str]:
    """The names of all nodes with a role."""
    return list(dict.fromkeys(name for names in network.roles.values() for name in names))


def _readers(command: Command) -> Iterator[str]:
    """The functions that open the data."""
    piece = _piece(command)
    yield from _reader("create_reader", "training", "C.io.INFINITELY_REPEAT", command.reader, piece)
    if (validation := command.block.block("cvReader")) is not None:
        yield from _reader("create_validation_reader", "validation", "1", validation, piece)


def _piece(command: Command) -> int:
    """The length of the pieces of truncated sequences whose reader does not say it."""
    return minibatch_size(command.block.required_block("SGD"))


def _reader(function: str, purpose: str, sweeps: str, block: Block, piece: int) -> Iterator[str]:
    yield from (f"def {function}(max_sweeps={sweeps}):", f'    """The {purpose} data."""')
    importing = "    from cntkjax.brainscript.readers import"
    if lines := sentences_text(block):
        yield from (f"{importing} sentences", '    return sentences(r"""', *(f"        {line}" for line in lines))
        yield from ('    """)', "", "")
        return
    deserializers, options, together = description_of(block, length_of_pieces(block, piece))
    lines = [f"        {line}" for each in deserializers for line in _deserializer(each)]
    yield from ("    deserializers = [", *lines, "    ]")
    defaults = {"frame_mode": False, "randomization_seed": 0, "truncation_length": 0}
    others = "".join(f", {key}={value!r}" for key, value in options.items() if value != defaults.get(key, "none"))
    source = f"UtteranceSource(deserializers, {together}" if together else "C.io.MinibatchSource(deserializers"
    yield from [f"{importing} UtteranceSource"] if together else []
    yield from (f"    return {source}, max_sweeps=max_sweeps{others})", "", "")


def _deserializer(description: Any) -> Iterator[str]:
    """The expression of a deserializer: a call for CNTK's text format if it can be one, else its dictionary."""
    is_plain = all(name.isidentifier() and not iskeyword(name) for name in description.get("input", ()))
    if description.get("type") != "CNTKTextFormatDeserializer" or len(description) > 3 or not is_plain:
        yield from f"{pformat(description, width=_WIDTH, sort_dicts=False)},".split("\n")
        return
    yield f"C.io.CTFDeserializer({description['file']!r}, C.io.StreamDefs("
    for name, stream in description["input"].items():
        more = ", defines_mb_size=True" if stream.get("definesMBSize") else ""
        yield (f"    {name}=C.io.StreamDef(field={stream['alias']!r}, shape={stream['dim']}, "
               f"is_sparse={stream['format'] == 'sparse'}{more}),")
    yield ")),"


def _training(command: Command, network: Network, folder: str) -> Iterator[str]:
    """The training with the SGD block, in a folder if that is not ""."""
    criteria = [*network.roles["criterion"][:1], *network.roles["evaluation"]]
    if not network.roles["criterion"]:
        raise ConfigError("No criterion node was specified: the network has none; name one in criterionNodes")
    tests = ", cv_source=create_validation_reader()" if command.block.block("cvReader") is not None else ""
    rates = ", ".join(f"nodes[{name!r}]: {rate!r}" for name, rate in network.rates.items())
    factors = f", rate_factors={{{rates}}}" if rates else ""
    yield from ('SETTINGS = """', "SGD = [", *(f"    {line}" for line in _settings(command)), "]", '"""', "")
    yield 'if __name__ == "__main__":'
    if folder:
        yield f"    os.chdir({folder!r})"
    yield "    nodes = create_network()"
    measured = list(dict.fromkeys(node for _, node in network.statistics.values()))
    if measured:
        yield f"    statistics = moments([{_nodes(measured)}], create_reader(max_sweeps=1))"
    for constant, (operation, node) in network.statistics.items():
        part = "mean" if operation == "Mean" else "inverse_deviation"
        yield f"    nodes[{constant!r}].value = statistics[{measured.index(node)}].{part}"
    yield f"    model = C.combine([{_nodes(name for name in _roles(network) if network.nodes[name].is_output)}])"
    yield f"    criteria = [{_nodes(dict.fromkeys(criteria))}]"
    yield f"    SGD.parse(SETTINGS).train(criteria, create_reader(), model=model{tests}{factors})"


def _nodes(names: Iterable[str]) -> str:
    return ", ".join(f"nodes[{name!r}]" for name in names)


def _settings(command: Command) -> Iterator[str]:
    """What the SGD block says, that around it included."""
    pieces = pieces_of(command.reader) if command.reader.flag("truncated", False) else 0
    settings = settings_of(command.block, str(Path(command.model_path)), command.log, pieces)
    opened: tuple[str, ...] = ()
    for each in sorted(settings, key=lambda each: each.key.section):
        section, text = each.key.section, shown(each.value)
        if not settings.is_given(each.key.id) or text in (each.key.default, f'"{each.key.default}"'):
            continue
        common = next(i for i in range(len(section), -1, -1) if section[:i] == opened[:i])
        yield from _closing(opened, common)
        yield from (f"{'    ' * depth}{section[depth]} = [" for depth in range(common, len(section)))
        yield f"{'    ' * len(section)}{each.key.name} = {text}"
        opened = section
    yield from _closing(opened, 0)


def _closing(opened: tuple[str, ...], depth: int) -> Iterator[str]:
    return (f"{'    ' * each}]" for each in range(len(opened) - 1, depth - 1, -1))


def _has_sequences(command: Command) -> bool:
    """Whether the rows of the data belong to sequences: the first one of a text file has an id."""
    if sentences_text(command.reader):
        return True
    deserializers, options, together = description_of(command.reader, length_of_pieces(command.reader, _piece(command)))
    for description in deserializers:
        is_text = description.get("type") == "CNTKTextFormatDeserializer" and not description.get("skipSequenceIds")
        if is_text and Path(description["file"]).is_file():
            with open(description["file"], encoding="utf-8-sig", errors="replace") as file:
                return not file.readline().startswith("|")
    return bool(together or options["truncation_length"])


__all__ = ["program_of"]
