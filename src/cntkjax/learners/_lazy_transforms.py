"""The names of `_transforms`, which is imported when the first learner is created: optax takes a while to import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._transforms import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(import_module("._transforms", __package__), name)
