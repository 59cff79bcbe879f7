"""Operations that CNTK composes of others and presents as one block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..graph.axis import UNKNOWN_AXES
from ..graph.build import apply, composite, make_block
from ..graph.shape import UNKNOWN_SHAPE
from ..graph.variable import Edge, VariableKind, set_type
from ..variables import Variable

if TYPE_CHECKING:
    from .functions import Function


def node(
    primitive: Any, operands: Sequence[Edge], attributes: dict[str, Any] | None = None, name: str = ""
) -> Function:
    """A Function consisting of one new node of a primitive."""
    return apply(primitive, operands, attributes, name)  # type: ignore[return-value]  # the graph creates public functions


def as_one_block(
    op_name: str, f: Callable[..., Any], operands: Sequence[Edge], name: str = "",
    attributes: dict[str, Any] | None = None,
) -> Function:
    """`f(*operands)` as a block named `op_name`, with the attributes that CNTK stores for such a block."""
    arguments = [Variable._new(VariableKind.Placeholder, UNKNOWN_SHAPE, None, UNKNOWN_AXES) for _ in operands]
    for argument, operand in zip(arguments, operands, strict=True):
        set_type(
            argument, operand.shape, operand.dtype, operand.dynamic_axes, operand.is_sparse, operand.needs_gradient
        )
    inner = f(*arguments)
    block = make_block(inner, list(zip(arguments, operands, strict=True)), op_name, name, attributes)
    return composite(block)  # type: ignore[return-value]
