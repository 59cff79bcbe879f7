"""What recreates the user functions in a model file: a callable for each class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..graph.function import Function
from ..graph.variable import Variable

Deserializer = Callable[[list[Variable], str, dict[str, Any]], Function]  # (inputs, name, state) -> its function
DESERIALIZERS: dict[str, Deserializer] = {}


def register_udf_deserialize_callback(op_name: str, callback: Deserializer) -> None:
    """Let ``callback(inputs, name, state)`` make the functions of a class, 'module.Class', that are read from files.

    Errors: ValueError if there is one for that class; TypeError if it cannot be called.
    """
    if not callable(callback):
        raise TypeError(f"a callback has to be callable, not {callback!r}")
    if op_name in DESERIALIZERS:
        raise ValueError(f"there is a callback for '{op_name}' already")
    DESERIALIZERS[op_name] = callback


@contextmanager
def udf_callbacks(given: Mapping[str, Deserializer]) -> Iterator[None]:
    """While a file is loaded, these callbacks come before those that are registered."""
    before = dict(DESERIALIZERS)
    DESERIALIZERS.update(given)
    try:
        yield
    finally:
        DESERIALIZERS.clear()
        DESERIALIZERS.update(before)
