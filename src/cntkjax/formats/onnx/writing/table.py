"""The table of operations: how each primitive and each block that ONNX knows is written.

An emitter gets the writer, the node, and the tensors of its operands; it returns the tensors of the outputs. A block
without an entry, or that its entry does not take, is written as what is inside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....graph.function import Function, nodes
from ....graph.variable import Variable, outside

Emitter = Callable[..., Any]


@dataclass
class BlockEntry:
    """How a block is written, and which blocks of that name are."""

    emit: Emitter
    fits: Callable[[Function], bool]


PRIMITIVES: dict[str, Emitter] = {}
BLOCKS: dict[str, BlockEntry] = {}


def writes(*names: str) -> Callable[[Emitter], Emitter]:
    """Register the emitter of primitives."""

    def register(emit: Emitter) -> Emitter:
        PRIMITIVES.update(dict.fromkeys(names, emit))
        return emit

    return register


def writes_block(*names: str, fits: Callable[[Function], bool] = lambda block: True) -> Callable[[Emitter], Emitter]:
    """Register the emitter of blocks; `fits` says which of them."""

    def register(emit: Emitter) -> Emitter:
        BLOCKS.update(dict.fromkeys(names, BlockEntry(emit, fits)))
        return emit

    return register


def operands(block: Function) -> list[Variable]:
    """What the arguments inside a block stand for."""
    return [outer for _, outer in block.block_map]


def inside(block: Function, op: str) -> Function:
    """The first node of an operation inside a block, to tell the roles of its operands."""
    return next(n for n in inner_nodes(block) if n.op_name == op)


def inner_nodes(block: Function) -> list[Function]:
    """The nodes inside a block, those of blocks in it too, the root last."""
    assert block.block_composite is not None
    return nodes([block.block_composite.root_function], into_blocks=True)


def role(variable: Variable) -> Variable:
    """What an argument inside a block stands for outside."""
    return outside(variable)
