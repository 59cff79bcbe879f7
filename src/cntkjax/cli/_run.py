"""``cntkjax run``: CNTK's command line."""

from __future__ import annotations

import argparse

from ..brainscript.command_line import run as run_configuration


def run(options: argparse.Namespace) -> None:
    """Run the commands of a configuration, or print its networks.

    Errors: ConfigError for a configuration that cannot be used.
    """
    first = options.config if "=" in options.config else f"configFile={options.config}"
    run_configuration([first, *options.settings], describes=options.describe)


__all__ = ["run"]
