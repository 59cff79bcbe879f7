"""File formats of models beside CNTK's own, entered by the packages that read and write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..graph.function import Function


@dataclass(frozen=True)
class FileFormat:
    """What saves a function, ``save(function, path, *options)``, and what loads one, ``load(source)``."""

    save: Callable[..., None]
    load: Callable[..., Function]


_FORMATS: dict[str, FileFormat] = {}


def register(name: str, file_format: FileFormat) -> None:
    """Enter a format under its name in `cntk.ModelFormat`."""
    _FORMATS[name] = file_format


def of(name: str) -> FileFormat:
    """The format of that name. Errors: KeyError if none is registered."""
    return _FORMATS[name]
