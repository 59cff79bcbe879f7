"""Deserializers of user functions in model files: one callback for each class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..graph.function import Node
from ..graph.variable import Edge

Deserializer = Callable[[list[Edge], str, dict[str, Any]], Node]  # (inputs, name, state) -> the function
DESERIALIZERS: dict[str, Deserializer] = {}


def register_udf_deserialize_callback(op_name: str, callback: Deserializer) -> None:
    """Register ``callback(inputs, name, state)`` to create user functions of the class 'module.Class' on loading.

    Errors: ValueError if the class has a callback already; TypeError if the callback is not callable.
    """
    if not callable(callback):
        raise TypeError(f"a callback must be callable, got {callback!r}: pass a function of (inputs, name, state)")
    if op_name in DESERIALIZERS:
        raise ValueError(
            f"there is a callback for '{op_name}' already; to replace it for one file, pass udf_factory_callback_map "
            "to Function.load"
        )
    DESERIALIZERS[op_name] = callback


@contextmanager
def udf_callbacks(callbacks: Mapping[str, Deserializer]) -> Iterator[None]:
    """Context in which the given callbacks take precedence over the registered ones, while a file is loaded."""
    before = dict(DESERIALIZERS)
    DESERIALIZERS.update(callbacks)
    try:
        yield
    finally:
        DESERIALIZERS.clear()
        DESERIALIZERS.update(before)
