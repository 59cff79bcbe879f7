"""The registry of model formats other than CNTK's own, which the packages that implement them fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..graph.function import Node


@dataclass(frozen=True)
class FileFormat:
    """The functions ``save(function, path, *options)`` and ``load(source)`` of a format."""

    save: Callable[..., None]
    load: Callable[..., Node]


_FORMATS: dict[str, FileFormat] = {}


def register(name: str, file_format: FileFormat) -> None:
    """Register a format under its name in `cntk.ModelFormat`."""
    _FORMATS[name] = file_format


def of(name: str) -> FileFormat:
    """The format of that name. Errors: KeyError if none is registered."""
    return _FORMATS[name]
