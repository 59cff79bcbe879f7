"""``cntkjax port``: configurations of CNTK's command line as Python programs."""

from __future__ import annotations

import argparse

from ..brainscript.port import program_of


def run(options: argparse.Namespace) -> None:
    """Prints the program.

    Errors: ConfigError for a configuration that cannot be used, or cannot be written as a program.
    """
    print(program_of([f"configFile={options.config}", *options.settings]), end="")


__all__ = ["run"]
