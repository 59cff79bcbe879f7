"""How a Function shows itself in a notebook."""

from __future__ import annotations

import html

from ..graph.function import Function
from ._drawing import drawing
from ._picture import picture
from ._summary import summary

_MOST_NODES = 200  # a larger drawing nobody can read


def as_html(function: Function) -> str:
    """Its signature, a drawing (if there is a program for it, and it is not too large), and a table of its layers."""
    parts = [f"<p><code>{html.escape(str(function))}</code></p>"]
    drawn = drawing(function)
    if len(drawn.nodes) <= _MOST_NODES:
        try:
            text = picture(drawn, "svg").decode()
            parts.append(text[text.index("<svg") :])
        except ImportError as error:
            parts.append(f"<p>{html.escape(str(error))}</p>")
    return "".join([*parts, summary(function)._repr_html_()])
