"""``cntkjax port``: models as source for other libraries, configurations of CNTK's command line as Python programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..brainscript.port import program_of
from ..porting import TARGETS, port
from ..porting.package import without_criteria
from ._files import load


def run(options: argparse.Namespace) -> None:
    """Write the package of a model, or print the program of a configuration.

    Errors: ConfigError for a configuration that cannot be used, or cannot be written as a program; PortError for a
    model with a node that has no counterpart; ValueError for options that are missing, or meant for the other kind.
    """
    if not _is_model(options):
        if options.to or options.out:
            raise ValueError(f"{options.file} is a configuration, which is ported to a program of the CNTK API: leave "
                             "out --to and -o")
        print(program_of([f"configFile={options.file}", *options.settings]), end="")
        return
    if not (options.to and options.out) or options.settings:
        raise ValueError(f"a model is ported with --to ({', '.join(TARGETS)}) and -o FOLDER, and without settings")
    model = load(Path(options.file))
    port(model, options.to, options.out)
    left_out = {*model.outputs} - {*without_criteria(model).outputs}
    if left_out:
        names = ", ".join(v.name or v.uid for v in model.outputs if v in left_out)
        print(f"left out, as outputs that are not of single samples: {names}")
    needs = TARGETS[options.to].requirements
    print(f"{options.out}: `pip install {needs} pytest` and `pytest {options.out}` compare it with the original")


def _is_model(options: argparse.Namespace) -> bool:
    """True for a binary file; configurations are texts."""
    path = Path(options.file)
    if not path.is_file():  # several configurations joined by +, or an error that names the file
        return bool(options.to)
    with path.open("rb") as opened:
        return b"\0" in opened.read(4096)


__all__ = ["run"]
