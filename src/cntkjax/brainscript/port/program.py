"""The training of a configuration as a Python program of the CNTK API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path

from ...sgd import ConfigError
from ...sgd.keys import KEYS
from ..actions.building import built, command_blocks, has_builder
from ..actions.session import Command
from ..building import recorded
from ..configuration import Block, load
from ..library.package import PACKAGE
from ..log import Log
from ..network import Network
from .recorder import Recorder


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
                return _program(Command(block, Log()), name, folder)
    raise ConfigError("the configuration has no command that trains a network")


def _trains(block: Block) -> bool:
    return "action" in block and block.array("action")[0].lower() == "train" and has_builder(block)


def _program(command: Command, name: str, folder: str) -> str:
    recorder = Recorder(PACKAGE)
    with recorded(recorder):
        network = built(command)
    precision = {"float": "float32", "double": "float64"}[command.precision]
    lines = [
        f'"""The command {name} of a configuration of CNTK\'s command line, as a Python program."""', "",
        *(["import os", ""] if folder else []),
        "import cntk as C", "import numpy as np", "from cntkjax.sgd import SGD", "", "",
        "def create_network():", '    """The nodes of the network, by name."""',
        f"    with C.default_options(dtype=np.{precision}):", *(f"        {line}" for line in recorder.lines),
        "    return {", *(f"        {each!r}: {recorder.text(network.nodes[each])}," for each in _roles(network)),
        "    }",
        "", "", *_reader(command), "", "", *_training(command, network, folder), "",
    ]
    return "\n".join(lines)


def _roles(network: Network) -> list[str]:
    """The names of all nodes with a role."""
    return list(dict.fromkeys(name for names in network.roles.values() for name in names))


def _reader(command: Command) -> Iterator[str]:
    """The function that opens the data."""
    yield "def create_reader(path, max_sweeps=C.io.INFINITELY_REPEAT):"
    yield '    """The data of a file in CNTK\'s text format."""'
    yield "    streams = C.io.StreamDefs("
    yield from _streams(command.reader())
    shuffled = command.reader().text("randomize", "true").lower() not in ("false", "none")
    yield "    )"
    yield "    file = C.io.CTFDeserializer(path, streams)"
    yield f"    return C.io.MinibatchSource(file, randomize={shuffled}, max_sweeps=max_sweeps)"


def _streams(reader: Block) -> Iterator[str]:
    """The streams of a reader."""
    if reader.text("readerType", "").lower() != "cntktextformatreader":
        raise ConfigError("only CNTKTextFormatReader can be written as a program: replace the reader, or train with "
                          "cntkjax run")
    inputs = reader.block("input")
    assert inputs is not None
    for entry in inputs:
        stream = inputs.block(entry.name)
        assert stream is not None
        field = stream.text("alias", entry.name) if "alias" in stream else entry.name
        size, sparse = stream.integer("dim"), stream.text("format", "dense").lower() == "sparse"
        yield f"        {entry.name}=C.io.StreamDef(field={field!r}, shape={size}, is_sparse={sparse}),"


def _training(command: Command, network: Network, folder: str) -> Iterator[str]:
    """The training with the SGD block, in a folder if that is not ""."""
    criteria = [*network.roles["criterion"][:1], *network.roles["evaluation"]]
    if not network.roles["criterion"]:
        raise ConfigError("No criterion node was specified: the network has none; name one in criterionNodes")
    if network.statistics:
        raise ConfigError(f"{', '.join(network.statistics)} are computed from all data before training, which a "
                          "program does not do: normalize the data, or train with cntkjax run")
    validation = command.block.block("cvReader")
    if validation is not None and [*_streams(validation)] != [*_streams(command.reader())]:
        raise ConfigError("cvReader has other inputs than reader, which cannot be written as a program")
    tests = f", cv_source=create_reader({validation.text('file')!r}, max_sweeps=1)" if validation is not None else ""
    used = ", ".join(f"nodes[{name!r}]" for name in dict.fromkeys(criteria))
    yield from ('SETTINGS = """', "SGD = [", *(f"    {line}" for line in _settings(command)), "]", '"""', "")
    yield 'if __name__ == "__main__":'
    if folder:
        yield f"    os.chdir({folder!r})"
    yield "    nodes = create_network()"
    outputs = [name for name in _roles(network) if network.nodes[name].is_output]
    yield f"    model = C.combine({[f'nodes[{name!r}]' for name in outputs]})".replace("\"", "")
    yield f"    data = create_reader({command.reader().text('file')!r})"
    yield f"    SGD.parse(SETTINGS).train([{used}], data, model=model{tests})"


def _settings(command: Command) -> Iterator[str]:
    """The keys of the SGD block, those around it included."""
    block = command.block.block("SGD")
    if block is None:
        raise command.block.missing("SGD")
    yield f"modelPath = {str(Path(command.model_path))!r}"
    given = {"modelpath"}
    for entry in block:
        given.add(entry.name.lower())
        yield f"{entry.name} = {block.expanded(entry).without_comments().strip()}"
    for key in KEYS:
        value = _around(block, key.name)
        if key.name.lower() not in given and value and key.name.lower() != "tracelevel":
            yield f"{key.name} = {value}"


def _around(block: Block, name: str) -> str:
    """A simple value of a block around; nothing if there is none."""
    value = None if block.outer is None else block.outer.get(name)
    if value is None or value.content[:1] in ("[", "{"):
        return ""
    return value.without_comments().strip()


__all__ = ["program_of"]
