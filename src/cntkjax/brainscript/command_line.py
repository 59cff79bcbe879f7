"""``cntk configFile=X.cntk [key=value ...]``: CNTK's command line."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence

from ..configuration import Block, load
from ..configuration.source import nearest
from ..debugging import enable_profiler, start_profiler, stop_profiler
from ..device import cpu, gpu, try_set_default_device
from ..parallel import workers
from ..sgd import ConfigError
from .actions.running import run_commands
from .describe import describe
from .log import Log

_TOP_LEVEL = (
    "command", "precision", "deviceId", "modelPath", "stderr", "currentDirectory", "parallelTrain", "profilerEnabled",
)  # fmt: skip
_PYTHON_PLACE = re.compile(r" {3}\S+:\d+$", re.MULTILINE)  # where a node was created: here, always
_INTERRUPTED = 130  # as of a program that SIGINT ends

USAGE = """\
usage: cntk configFile=FILE[+FILE...] [key=value ...]

Runs the commands of a CNTK configuration. key=value replaces a value of the file, and block=[key=value] one in a
block: cntk configFile=a.cntk train=[SGD=[maxEpochs=3]]. The page docs/brainscript.md lists actions, readers and keys.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0 if given else 2
    try:
        run(given)
    except (ConfigError, OSError, RuntimeError, ValueError, TypeError, ImportError, MemoryError) as error:
        print(_explained(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return _INTERRUPTED
    return 0


def run(arguments: Sequence[str], describes: bool = False) -> None:
    """Run what the arguments describe, or print the networks. Errors: ConfigError for what cannot be used."""
    root = load(arguments)
    folder = root.file("currentDirectory", "")
    if folder:
        os.chdir(folder)
    if describes:
        for line in describe(root, Log()):
            print(line)
        return
    _choose_device(root)
    stamped, prefix = root.flag("timestamping", False), root.file("stderr", "-")
    to_console = prefix in ("", "-")
    log = Log(timestamping=stamped) if to_console else Log.to_file(prefix, root.array("command"), stamped)
    try:
        log.line(f"cntk {' '.join(arguments)}", f"in {os.getcwd()}")
        for warning in _misspelt(root):
            log.warn(warning)
        if root.flag("profilerEnabled", False) and workers.rank() == 0:
            start_profiler(os.path.join(root.file("WorkDir", "."), "profiler"))
            enable_profiler()
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: log.warn(str(message))
            warnings.filterwarnings("ignore", "the loss of minibatch .* is NaN")  # then training ends: see log.py
            run_commands(root, log)
    except Exception as error:
        if not to_console:
            log.line(_explained(error))
        raise
    finally:
        stop_profiler()
        log.close()


def _explained(error: Exception) -> str:
    text = "\n  ".join([f"EXCEPTION occurred: {error}", *getattr(error, "__notes__", ())])
    return _PYTHON_PLACE.sub("", text)


def _misspelt(root: Block) -> Iterator[str]:
    """Warnings for names at the top level that nothing reads, and that are nearly those of keys."""
    used = {word for entry in root for word in re.findall(r"\w+", entry.value.content.lower())}
    for entry in root:
        guess = nearest(entry.name, _TOP_LEVEL, 0.86)  # others may be values of names in further files
        if guess and guess.lower() != entry.name.lower() and entry.name.lower() not in used:
            yield f"{entry.place}: {entry.name} has no effect; did you mean {guess}?"


def _choose_device(root: Block) -> None:
    """Use the device that ``deviceId`` names, unless it is not there."""
    device, value = root.text("deviceId", "auto").lower(), root.get("deviceId")
    try:
        if device in ("-1", "cpu"):
            try_set_default_device(cpu())
        elif device.isdigit():
            try_set_default_device(gpu(int(device)))
        elif device not in ("auto", "gpu", "all", "") and not re.fullmatch(r"\*\d*", device):
            raise ValueError(f"there is no device {device}")
    except ValueError as error:
        assert value is not None
        problem = str(error).splitlines()[0]
        raise value.at(0).error(f"{problem}; deviceId = -1 is the CPU, auto the GPU if there is one") from None


__all__ = ["main", "run"]
