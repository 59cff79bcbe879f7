"""Writes docs/brainscript_inventory.md: which public configurations of CNTK's makers run, and why others do not.

Nothing of them is in this repository; they are read from the tree that ``run_public`` describes:

    python -m tests.brainscript.inventory > docs/brainscript_inventory.md

A configuration is read, its networks are built without data, and its actions and readers are looked up. Names of files
are those of the public tree.
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cntkjax.brainscript.actions import ACTIONS
from cntkjax.brainscript.actions.building import built, command_blocks, has_builder
from cntkjax.brainscript.actions.session import Command
from cntkjax.brainscript.language.networks import include_file
from cntkjax.brainscript.language.parser import parse_members
from cntkjax.brainscript.log import Log
from cntkjax.brainscript.mel.commands import commands
from cntkjax.brainscript.ndl.reader import Reader
from cntkjax.brainscript.readers.opening import CORPORA, READERS
from cntkjax.configuration import Block, load
from cntkjax.configuration.source import Text
from cntkjax.sgd import ConfigError

from .run_public import PUBLIC

_SECONDS = 120  # of processor time for a configuration
_HEAD = """# Public configurations

The public tree of CNTK (Examples, Tests/EndToEndTests, Tutorials, Manual) has these files for its command line. All of
them are read. *runs* means that the networks are built, and that actions and readers are supported; whether it trains
depends on the data, most of which the tree does not have. Files that a configuration needs and that are not there are
named. `tests/brainscript/run_public.py` compares losses with Microsoft's logs where data are there,
`tests/brainscript/run_speech.py` all but the values of criteria in logs of Speech, on features made there, and
`tests/brainscript/run_networks.py` the nodes of networks. 24 tests of Speech have the minibatches, samples, rates and
momenta of their logs: QuickE2E, SVD, WriteCommand, Dropout and DiscriminativePreTraining with both readers,
ParallelNoQuantization, Parallel1BitQuantization, ParallelCrossValidation, SaveBestModelPerCriterion, AN4's LSTM, the
two of LSTM_CTC, and seven of LSTM.
With other data made for them all commands of these ran: the TIMIT configurations that train, all of
ImageHandsOn, 06_OneConvRegrMultiNode, 07_Deconvolution, RegrSimple, ATIS, the two of HelloWorld, IRMetric,
AlexNet in both forms, the two of BatchNormalization, 01_Convolution of CIFAR-10, 02_Convolution and
03_ConvBatchNorm of MNIST, 01_OneHidden, 02_OneConv, 04_OneConvBN and 05_OneConvRegr of GettingStarted,
ConvNet_MNIST, Text/SLU in NDL, PennTreebank's rnn.cntk, LM/RNNLM/CPU, whose names of files have backslashes,
all of SLUHandsOn, MLP_MNIST, 03_OneConvDropout, ConvNet_CIFAR10_DataAug, 02_BatchNormConv and 05_ConvLocal of
CIFAR-10, 01_OneHidden of MNIST in NDL, 03_ResNet-parallel, from its trained model, 03_ResNet and 04_ResNet_56
in NDL, ConvNet_CIFAR10, ConvNetLRN_CIFAR10_DataAug, ResNet20_CIFAR10, PlotDNN, whose graph is Microsoft's,
Image/FCN, whose log is reached, and Base64Write with another model. The four trained models beside SLUHandsOn
give the results that Microsoft's page prints (errors of 2.922, 2.039, 1.839 and 1.830%). G2P gives the numbers
of its log, on data made again from its word list. This page is written by `python -m tests.brainscript.inventory`.

"""


def files() -> Iterator[Path]:
    """All files of the command line, label files excluded."""
    for path in sorted(PUBLIC.rglob("*")):
        if path.suffix in (".cntk", ".ndl", ".bs", ".mel") and ".mlf." not in path.name:
            yield path


def state_of(path: Path) -> tuple[str, str]:
    """What a file is, and whether it runs."""
    text = Text(path.name, path.read_text(encoding="utf-8-sig", errors="replace"))
    if path.suffix == ".ndl":
        Reader().read(Text(path.name, re.sub(r"\$\w+\$", "value", text.content)))
        return "network in NDL", "read"
    if path.suffix == ".bs":
        parse_members(Text(path.name, re.sub(r"\$\w+\$", "value", text.content)), include_file)
        return "network in BrainScript", "read"
    if path.suffix == ".mel":
        return "script of MEL", f"read; {len(list(commands(text, ())))} commands"
    with tempfile.TemporaryDirectory() as folder:
        return _configuration(path, Path(folder))


def _configuration(path: Path, folder: Path) -> tuple[str, str]:
    given = {
        "RunDir": folder, "OutputDir": folder, "OutDir": folder, "ModelDir": folder, "RunRootDir": folder,
        "ConfigDir": path.parent, "RootDir": folder, "DataDir": path.parent, "DeviceId": -1, "imageLayout": "cudnn",
        "NdlDir": path.parent, "ScpDir": folder, "MlfDir": folder, "LibDir": path.parent, "ExpDir": folder,
    }
    root = load([f"configFile={path}", *(f"{key}={value}" for key, value in given.items())])
    blocks = list(command_blocks(root))
    if not blocks:
        return "part of a configuration", "read"
    actions = list(dict.fromkeys(action for block in blocks for action in block.array("action")))
    problems = [*_missing(actions, ACTIONS, "action"), *_networks(blocks)]
    for block in blocks:
        for name in ("reader", "cvReader"):
            reader = block.block(name)
            if reader is not None and reader.own("deserializers") is None:
                problems += _missing([reader.text("readerType", "")], (*READERS, *CORPORA), "reader")
    return ", ".join(actions), "; ".join(dict.fromkeys(problems)) or "runs"


def _missing(names: list[str], known: Any, what: str) -> Iterator[str]:
    for name in names:
        if name and name.lower() not in (each.lower() for each in known):
            yield f"{what} {name} is not supported"


def _networks(blocks: list[Block]) -> Iterator[str]:
    """Why networks of commands that train are not built."""
    for block in blocks:
        if block.array("action")[0].lower().startswith("train") and has_builder(block):
            try:
                built(Command(block, Log()))
            except (ConfigError, OSError) as error:
                yield _reason(error)


def _reason(error: BaseException) -> str:
    """The first line of an error, without places and folders."""
    line = (error.problem if isinstance(error, ConfigError) else str(error)).splitlines()[0]
    return re.sub(r"(?:\.\.)?(?:/[^\s/'\"]+)+/", "", line).replace("|", "\\|")


def _stop(*_: object) -> None:
    raise ConfigError("it takes too long to build")


def main() -> None:
    """Write the page."""
    if not PUBLIC.is_dir():
        sys.exit(f"there is no public tree in {PUBLIC}: set CNTKJAX_PUBLIC")
    signal.signal(signal.SIGVTALRM, _stop)
    rows = []
    for path in files():
        signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
        try:
            kind, state = state_of(path)
        except (ConfigError, OSError) as error:
            kind, state = "configuration", f"not read: {_reason(error)}"
        rows.append((path.relative_to(PUBLIC), kind, state))
        print(*rows[-1], sep="\t", file=sys.stderr, flush=True)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    print(_HEAD + "| file | what | state |\n|---|---|---|")
    for name, kind, state in rows:
        print(f"| {name} | {kind} | {state} |")


if __name__ == "__main__":
    main()
