"""The HTML representation of a Function in notebooks."""

from __future__ import annotations

import html

from ..graph.function import Node
from ._drawing import draw
from ._rendering import render
from ._summary import summary

_MAX_NODES = 200  # larger drawings are unreadable


def as_html(function: Node) -> str:
    """The signature, a drawing (unless too large, or no renderer is installed), and a table of the layers."""
    parts = [f"<p><code>{html.escape(str(function))}</code></p>"]
    drawing = draw(function)
    if len(drawing.nodes) <= _MAX_NODES:
        try:
            text = render(drawing, "svg").decode()
            parts.append(text[text.index("<svg") :])
        except ImportError as error:
            parts.append(f"<p>{html.escape(str(error))}</p>")
    return "".join([*parts, summary(function)._repr_html_()])
