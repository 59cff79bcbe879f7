"""Deserializers of the user functions in model files: a callable for each class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..graph.function import Function
from ..graph.variable import Variable

Deserializer = Callable[[list[Variable], str, dict[str, Any]], Function]  # (inputs, name, state) -> its function
DESERIALIZERS: dict[str, Deserializer] = {}


def register_udf_deserialize_callback(op_name: str, callback: Deserializer) -> None:
    """Register ``callback(inputs, name, state)`` to create the functions of a class, 'module.Class', in model files.

    Errors: ValueError if the class has a callback already; TypeError if it is not callable.
    """
    if not callable(callback):
        raise TypeError(f"a callback has to be callable, not {callback!r}: pass a function of (inputs, name, state)")
    if op_name in DESERIALIZERS:
        raise ValueError(f"there is a callback for '{op_name}' already")
    DESERIALIZERS[op_name] = callback


@contextmanager
def udf_callbacks(callbacks: Mapping[str, Deserializer]) -> Iterator[None]:
    """While a file is loaded, these callbacks take precedence over the registered ones."""
    before = dict(DESERIALIZERS)
    DESERIALIZERS.update(callbacks)
    try:
        yield
    finally:
        DESERIALIZERS.clear()
        DESERIALIZERS.update(before)
