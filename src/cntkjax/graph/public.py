"""The public classes of a graph's nodes and variables, registered by the modules that define them.

The graph imports from no layer above it, but the objects it creates need the public methods (eval, operators).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .function import Node
from .variable import Edge, Leaf


@dataclass
class Classes:
    """A constructor for each kind of object."""

    function: Callable[..., Node] = Node
    variable: Callable[..., Edge] = Edge
    parameter: Callable[..., Leaf] = Leaf
    constant: Callable[..., Leaf] = Leaf
    user_function: Callable[..., Any] | None = None  # from its record in a model file


classes = Classes()
operators: dict[str, Callable[..., Any]] = {}  # what `x + y`, `x[i]` and so on compute, by the name of the operation
