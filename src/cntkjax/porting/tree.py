"""What is ported, in terms of no target: modules with layers and assignments of calls to names.

Arrays are laid out as [batch, time, *shape] with a sequence axis, as [batch, *shape] with the batch axis alone, and as
[*shape] without. What stands after the end of a sequence means nothing.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..graph.errors import explain
from ..graph.function import Node


class PortError(ValueError):
    """A model that cannot be ported."""

    def __init__(self, node: Any, reason: str, fix: str = "port a part of the model without this node") -> None:
        super().__init__(explain(f"{node!r}: {reason}", fix=fix))


@dataclass(frozen=True)
class Op:
    """An operation on arrays: `op` is a row in the table of each target, `options` are numbers, texts and shapes."""

    op: str
    operands: tuple[Expression, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


Expression: TypeAlias = Op | str  # a text is the name of a local variable
Signature: TypeAlias = tuple[tuple[int | None, ...], str]  # dimensions, None if they are free, and the type's name


@dataclass
class LoopSource:
    """One step of a recurrent loop, a function inside of a module's method: from states and samples to both.

    It returns the next states and what it computes; one of either is by itself, several are a tuple.
    """

    name: str
    states: list[str]
    samples: list[str]
    body: list[Statement] = field(default_factory=list)
    next_states: list[Expression] = field(default_factory=list)
    results: list[Expression] = field(default_factory=list)


Statement: TypeAlias = tuple[str, Expression] | LoopSource


@dataclass
class Layer:
    """A layer with weights. `kind` is a row in the table of each target; the weights have the layout of CNTK.

    An "Array" is a parameter or constant by itself; its value is the weight "".
    """

    kind: str
    options: dict[str, Any]
    weights: dict[str, np.ndarray]
    node: Node | None = None  # what becomes this layer

    def refuse(self, reason: str) -> PortError:
        """The error for a layer that a target does not have."""
        return PortError(self.node, reason)


class Library(Protocol):
    """What the source of modules depends on.

    `helpers`: functions that the source can have. `reserved`: names that members cannot have. `layers`: kinds of them.
    """

    @property
    def helpers(self) -> Mapping[str, str]: ...
    @property
    def reserved(self) -> str: ...
    @property
    def layers(self) -> Container[str]: ...


@dataclass
class Module:
    """A block: its members by name, and the assignments that compute its results from its arguments.

    `signatures`: the dimensions and types of the arguments of the model itself.
    """

    title: str
    arguments: list[str] = field(default_factory=list)
    members: dict[str, Layer | Module] = field(default_factory=dict)
    body: list[Statement] = field(default_factory=list)
    results: list[Expression] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)


def member(name: str, *operands: Expression) -> Op:
    """The call of a layer or module; without operands, the value of an array."""
    return Op("member", operands, {"name": name})


def several(values: Sequence[Expression]) -> Expression:
    """A tuple; one value by itself."""
    return values[0] if len(values) == 1 else Op("tuple", tuple(values))


def refuse(node: Node, reason: str = "") -> PortError:
    """The error for a node that has no counterpart."""
    return PortError(node, reason or f"the operation {node.op_name} cannot be ported")


__all__ = [
    "Op", "Expression", "Layer", "Library", "Module", "PortError", "Signature", "Statement", "LoopSource", "member",
    "refuse", "several",
]
