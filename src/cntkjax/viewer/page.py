"""A page with everything in it: the document of a model, the program that draws it, and the library that lays it out.

A model file is hostile input. Its names and attributes are in the page as JSON in which `<` is escaped, the program
sets them as text only, and the page's policy allows no script but the page's own, and no network access.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from ..graph.function import Node
from .document import Json, document

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; {policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
<script type="application/json" id="model">{model}</script>
<script>{layout}</script>
<script>{program}</script>
</body>
</html>
"""


@cache
def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text("utf-8")


def page(content: Json) -> str:
    """The HTML page of a document (`document.document`, `differences.Differences.document`)."""
    layout, program, style = _asset("dagre.min.js"), _asset("viewer.js"), _asset("viewer.css")
    scripts = " ".join(map(_hash, (layout, program)))
    return _PAGE.format(
        policy=f"script-src {scripts}; style-src {_hash(style)}", title=html.escape(content["title"]), style=style,
        body=_asset("viewer.html"), model=_escaped(content), layout=layout, program=program,
    )


def _hash(text: str) -> str:
    """The source expression of an inline script or style in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _escaped(content: Json) -> str:
    """JSON that cannot end the script element that it is in."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@dataclass(frozen=True)
class View:
    """A page about a model: `save` writes it to a file, and a notebook shows it."""

    html: str

    def save(self, filename: str | os.PathLike[str]) -> None:
        """Write the page, which needs no other file and no network. Errors: OSError."""
        Path(filename).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        # An attribute of a frame without rights keeps the page apart from the notebook.
        source = html.escape(self.html, quote=True)
        return (
            f'<iframe title="model" sandbox="allow-scripts" srcdoc="{source}" '
            'style="width: 100%; height: 36em; border: 1px solid #8888"></iframe>'
        )


def view(model: Node, filename: str | os.PathLike[str] | None = None) -> View:
    """An interactive page of a model: its graph with blocks that unfold, search, attributes and parameters.

    CNTK has no such function. `cntkjax view MODEL` does the same for a model file.

    Args:
        model: the function to show. Parameters that have no value yet are initialized
        filename: where to write the page, which needs no other file and no network access

    Errors: OSError if the file cannot be written.

    >>> import cntkjax as C
    >>> model = C.layers.Dense(2, name='scores')(C.input_variable(3, name='x'))
    >>> C.logging.view(model).html.startswith('<!doctype html>')
    True
    """
    result = View(page(document(model)))
    if filename is not None:
        result.save(filename)
    return result


__all__ = ["View", "page", "view"]
