"""``cntkjax view`` and ``cntkjax diff``: pages that show a model, and how two models differ."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..viewer import View, compare, page
from ..viewer.document import document
from ._files import check_output, load

PAGE = {".html": "a page", ".htm": ""}


def run(options: argparse.Namespace) -> None:
    """Write the page of a model.

    Errors: those of `Function.load`; ValueError for a page that is no .html file or in no folder.
    """
    out = options.out or Path(options.model.name).with_suffix(".html")
    check_output(out, PAGE)
    View(page(document(load(options.model), options.model.name))).save(out)
    print(f"{out}: open it in a browser; it needs no network")


def run_diff(options: argparse.Namespace) -> int:
    """Print how two models differ, and write the page of the second one with the differences marked.

    Returns the exit status: 1 if they differ.

    Errors: those of `Function.load`; ValueError for a page that is no .html file or in no folder.
    """
    if options.html is not None:
        check_output(options.html, PAGE)
    differences = compare(load(options.first), load(options.second))
    print(differences)
    if options.html is not None:
        View(page(differences.document(f"{options.first.name} and {options.second.name}"))).save(options.html)
    return int(bool(differences))


__all__ = ["run", "run_diff"]
