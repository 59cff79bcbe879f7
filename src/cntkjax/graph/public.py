"""The public classes of which the graph makes its nodes; set once by the modules that define them.

The graph holds structure and never calls up, but what it creates has to carry the public methods (eval, operators).
"""

from __future__ import annotations

from dataclasses import dataclass

from .function import Function
from .variable import Leaf, Variable


@dataclass
class Classes:
    """Which class stands for which kind of object."""

    function: type[Function] = Function
    variable: type[Variable] = Variable
    parameter: type[Leaf] = Leaf
    constant: type[Leaf] = Leaf


classes = Classes()
