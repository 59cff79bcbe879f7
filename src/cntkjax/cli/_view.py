"""``cntkjax view`` and ``cntkjax diff``: pages that show a model, and how two models differ."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..viewer import View, compare, page
from ..viewer.document import document
from ._files import load


def run(options: argparse.Namespace) -> None:
    """Writes the page of a model.

    Errors: those of `Function.load`; OSError if the page cannot be written.
    """
    out = options.out or Path(options.model.name).with_suffix(".html")
    View(page(document(load(options.model), options.model.name))).save(out)
    print(f"{out}: open it in a browser; it needs no network")


def run_diff(options: argparse.Namespace) -> None:
    """Prints how two models differ, and writes the page of the second one with the differences marked.

    Errors: those of `Function.load`; OSError if the page cannot be written.
    """
    differences = compare(load(options.first), load(options.second))
    print(differences)
    if options.html is not None:
        View(page(differences.document(f"{options.first.name} and {options.second.name}"))).save(options.html)


__all__ = ["run", "run_diff"]
