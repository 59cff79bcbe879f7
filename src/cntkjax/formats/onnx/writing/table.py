"""The table of conversions to ONNX: one row for each primitive, and for each block that is one operation in ONNX.

A row is a function with a decorator, next to those of similar operations: `@writes("Pow")` for a primitive,
`@writes_block("Softsign")` for a block. The function gets the writer, the node, and the names of the tensors of its
operands; it adds ONNX nodes to the writer, and returns the name of the output tensor, or a list of several. Operations
that are a single ONNX node of the same operands are rows of `one_to_one.py`, which serve reading as well.

A primitive without a row is an error when a function is saved. A block without a row, or that its row does not match,
is written as the graph inside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....graph.function import Node, nodes_inside
from ....graph.variable import Edge

Converter = Callable[..., "str | list[str]"]


def _always(block: Node) -> bool:
    return True


@dataclass(frozen=True)
class WritingRule:
    """A row of the table.

    `matches`: whether a block of this name is the composition that the converter writes.
    `boolean`: the values are always 0 or 1.
    `batch_of_one`: without dynamic axes the output is [1, *shape], as CNTK writes it.
    """

    convert: Converter
    matches: Callable[[Node], bool] = _always
    boolean: bool = False
    batch_of_one: bool = False


PRIMITIVES: dict[str, WritingRule] = {}
BLOCKS: dict[str, WritingRule] = {}


def writes(*names: str, boolean: bool = False) -> Callable[[Converter], Converter]:
    """Decorator: register a function as the converter of primitives."""

    def register(convert: Converter) -> Converter:
        PRIMITIVES.update(dict.fromkeys(names, WritingRule(convert, boolean=boolean)))
        return convert

    return register


def writes_block(
    *names: str, matches: Callable[[Node], bool] = _always, boolean: bool = False, batch_of_one: bool = False
) -> Callable[[Converter], Converter]:
    """Decorator: register a function as the converter of blocks; see `WritingRule` for the options."""

    def register(convert: Converter) -> Converter:
        BLOCKS.update(dict.fromkeys(names, WritingRule(convert, matches, boolean, batch_of_one)))
        return convert

    return register


def conversion_of(node: Node) -> WritingRule | None:
    """The row of a primitive or block; None if it has none."""
    return (PRIMITIVES if node.block_composite is None else BLOCKS).get(node.op_name)


def operands(block: Node) -> list[Edge]:
    """The operands of a block, in the order of its arguments."""
    return [operand for _, operand in block.block_map]


def node_inside(block: Node, op_name: str) -> Node:
    """The first node of an operation inside a block, from which the roles of the block's operands follow."""
    return next(n for n in nodes_inside(block) if n.op_name == op_name)
