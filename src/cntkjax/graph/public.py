"""The public classes of which the graph makes its nodes; set once by the modules that define them.

The graph holds structure and never calls up, but what it creates has to carry the public methods (eval, operators).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .function import Function
from .variable import Leaf, Variable


@dataclass
class Classes:
    """What makes which kind of object."""

    function: Callable[..., Function] = Function
    variable: Callable[..., Variable] = Variable
    parameter: Callable[..., Leaf] = Leaf
    constant: Callable[..., Leaf] = Leaf
    user_function: Callable[..., Any] | None = None  # from its record in a model file


classes = Classes()
operators: dict[str, Callable[..., Any]] = {}  # what `x + y`, `x[i]` and so on compute, by the name of the operation
