"""Composition of graphs: combine, alias, blocks, composites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..graph.arguments import public_operation
from ..graph.build import apply, composite, make_block
from ..graph.edit import Cloner
from ..graph.errors import explain
from ..graph.function import Node, leaves
from ..graph.proxy import unwrap
from ..graph.public import classes
from ..graph.variable import Edge, VariableKind, producer
from ..primitives.elementwise import ELEMENTWISE
from ..primitives.structure import Combine
from ._operand import Operand, as_variable

if TYPE_CHECKING:
    from .functions import Function

__all__ = [
    "alias", "as_block", "as_composite", "combine",
]

Operands = list[tuple[Edge, Edge]]  # pairs (argument inside the block, operand outside)


@public_operation
def combine(*operands: Operand | Sequence[Operand], **kw_name: str) -> Function:
    """A function with the outputs of all operands; without operands, it has no outputs.

    Shapes: those of the operands.

    >>> import cntkjax as C
    >>> x = C.input_variable(1)
    >>> [v.tolist() for v in combine([x + 1, x + 2]).eval({x: [[1]]}).values()]
    [[[2.0]], [[3.0]]]
    """
    name = kw_name.pop("name", "")
    if kw_name:
        raise TypeError(f"combine() got an unexpected keyword argument '{next(iter(kw_name))}'")
    items: Sequence[Any] = operands
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        items = operands[0]
    outputs = [v for o in items for v in (o.outputs if isinstance(o, Node) else (as_variable(o),))]
    return apply(Combine, outputs, name=name)  # type: ignore[return-value]


@public_operation
def alias(x: Operand, name: str = "") -> Function:
    """The operand under another name.

    Shapes: x [*shape] -> [*shape].

    >>> import cntkjax as C
    >>> alias(C.input_variable(2), 'scores').name
    'scores'
    """
    return apply(ELEMENTWISE["NoOp"], [as_variable(x)], name=name)  # type: ignore[return-value]


@public_operation
def as_composite(root_function: Function, name: str = "") -> Function:
    """The composite that represents the graph rooted at a node.

    Shapes: those of the outputs of the node.
    Errors: TypeError for anything but a function.

    >>> import cntkjax as C
    >>> node = (C.input_variable(2) + 1).root_function
    >>> node.is_primitive, as_composite(node).is_composite
    (True, True)
    """
    if not isinstance(root_function, Node):
        raise TypeError(f"as_composite takes a function, got {root_function!r}")
    node = unwrap(root_function)
    return node if node.is_composite else composite(node, name)  # type: ignore[return-value]


@public_operation
def as_block(
    composite: Function, block_arguments_map: Sequence[tuple[Any, Any]], block_op_name: str,
    block_instance_name: str = "",
) -> Function:
    """Wrap a composite in a block: a single node in the graph.

    `block_arguments_map`: pairs (argument of the composite, operand bound to it).

    Shapes: those of the outputs of the composite.
    Errors: TypeError for anything but a function; ValueError for an argument that is not a placeholder or has no
            operand.

    >>> import cntkjax as C
    >>> x, p = C.input_variable(2), C.placeholder()
    >>> block = as_block(2 * p + 1, [(p, x)], 'Affine')
    >>> block.root_function.is_block, block.eval({x: [[1, 2]]})
    (True, array([[3., 5.]], dtype=float32))
    """
    composite = as_composite(composite)
    operands: Operands = [(as_variable(inner), as_variable(outer)) for inner, outer in block_arguments_map]
    arguments = dict.fromkeys([*composite.arguments, *(inner for inner, _ in operands)])
    if others := [v for v in arguments if not v.is_placeholder]:
        raise ValueError(explain(
            f"as_block: {others[0]!r} is not a placeholder", fix="build the composite from cntk.placeholder()"
        ))
    if left := [v for v in composite.arguments if v not in dict(operands)]:
        raise ValueError(explain(
            f"as_block: no operand for {left[0]!r}", fix="pass a pair for each argument of the composite"
        ))
    if not set(arguments).isdisjoint(_leaves([outer for _, outer in operands])):
        composite, operands = _with_new_placeholders(composite, operands)
    block = make_block(composite, operands, block_op_name, block_instance_name)
    return as_composite(block, block_instance_name)  # type: ignore[arg-type]


def _leaves(variables: Sequence[Edge]) -> set[Edge]:
    """The leaves that the variables depend on."""
    owners = [(v, producer(v)) for v in variables]
    return {leaf for v, owner in owners for leaf in ([v] if owner is None else leaves(owner))}


def _with_new_placeholders(composite: Function, operands: Operands) -> tuple[Any, Operands]:
    """A copy for a block whose arguments also occur in its operands, as in ``as_block(f, [(p, p)], ...)``.

    A placeholder cannot be bound to a variable that depends on it, so the copy has new placeholders.
    """
    fresh = {
        inner: classes.variable(VariableKind.Placeholder, inner.shape, inner.dtype, inner.dynamic_axes, name=inner.name)
        for inner, _ in operands
    }
    copy = Cloner(lambda leaf: leaf, fresh).graph(composite)
    return copy, [(fresh[inner], outer) for inner, outer in operands]
