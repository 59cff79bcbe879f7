"""MEL, the older language that edits models: commands, and NDL between them."""

from __future__ import annotations

from collections.abc import Mapping

from ...configuration import Text
from ..language.networks import Scope, deep_recursion, expanded
from .editor import Editor


def edit(text: Text, scope: Scope | Mapping[str, Text], precision: str = "float") -> None:
    """Run a script of MEL: it reads and writes the models that it names.

    `scope`: values of the configuration around it, among them ``ndlMacros``.

    Errors: ConfigError with the place.
    """
    with deep_recursion():
        Editor(expanded(text, scope), scope, precision).run()


__all__ = ["edit"]
