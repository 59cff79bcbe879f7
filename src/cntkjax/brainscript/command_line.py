"""``cntk configFile=X.cntk [key=value ...]``: CNTK's command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ..device import cpu, gpu, try_set_default_device
from ..sgd import ConfigError
from .actions.running import run_commands
from .configuration import Block, load
from .describe import describe
from .log import Log

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
    except (ConfigError, OSError, RuntimeError, ValueError, TypeError, ImportError) as error:
        print(f"EXCEPTION occurred: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return _INTERRUPTED
    return 0


def run(arguments: Sequence[str], describes: bool = False) -> None:
    """Run what the arguments describe, or print the networks. Errors: ConfigError for what cannot be used."""
    root = load(arguments)
    folder = root.text("currentDirectory", "")
    if folder:
        os.chdir(folder)
    _choose_device(root)
    if describes:
        for line in describe(root, Log()):
            print(line)
        return
    stamped, prefix = root.flag("timestamping", False), root.text("stderr", "-")
    log = Log(timestamping=stamped)
    if prefix not in ("", "-"):
        log = Log.to_file(prefix, root.array("command"), stamped)
    try:
        log.arguments(arguments)
        run_commands(root, log)
    finally:
        log.close()


def _choose_device(root: Block) -> None:
    """Use the device that ``deviceId`` names, unless it is not there."""
    device = root.text("deviceId", "auto").lower()
    if device in ("-1", "cpu"):
        try_set_default_device(cpu())
    elif device.isdigit():
        try:
            try_set_default_device(gpu(int(device)))
        except ValueError as error:
            value = root.get("deviceId")
            assert value is not None
            problem = str(error).splitlines()[0]
            raise value.at(0).error(f"{problem}; deviceId = -1 is the CPU, auto the GPU if there is one") from None


__all__ = ["main", "run"]
