"""Gradients as Functions."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.arguments import public_operation
from ..graph.build import composite, make_node
from ..graph.errors import explain
from ..graph.function import nodes
from ..graph.variable import Edge, producer
from ..primitives.gradient import Gradient
from ._operand import Operand, as_list, as_variable
from .functions import Function


@public_operation
def gradient(loss: Operand, wrt: Operand | Sequence[Operand], name: str = "") -> Function:
    """The gradient of a loss as a Function of the same inputs, which can be part of another loss. Not in CNTK.

    Nested calls give higher-order gradients. As in ``Function.grad``, the sum of the loss over its elements and over
    all samples of the minibatch is differentiated.

    Args:
        loss: any Function; if it has several elements, the gradient of their sum is computed.
        wrt: one or more variables of its graph: inputs, parameters, constants, or intermediate values.

    Shapes: one output for each of `wrt`, with its shape and dynamic axes; the gradient of a parameter is summed over
            the samples, so it has no dynamic axes.
    Errors: ValueError if a variable of `wrt` is not in the graph of the loss; on evaluation, ValueError if it is sparse
            or inside a recurrent loop.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> slope = gradient(C.reduce_sum(x ** 3), x)
    >>> slope.eval({x: [[1, 2]]}), gradient(C.reduce_sum(slope), x).eval({x: [[1, 2]]})
    (array([[ 3., 12.]], dtype=float32), array([[ 6., 12.]], dtype=float32))
    """
    root = as_variable(loss)
    targets = [as_variable(v) for v in as_list(wrt)]
    if not targets:
        raise ValueError("gradient: wrt is empty; pass at least one variable to differentiate with respect to")
    inside = _variables(root)
    for v in targets:
        if v not in inside:
            raise ValueError(explain(
                f"gradient: {root!r} does not depend on {v!r}, so there is no gradient", {"loss": root, "wrt": v},
                "pass variables of the loss's own graph; for a clone, those of the clone",
            ))
    return composite(make_node(Gradient, [root, *targets], {}, name))  # type: ignore[return-value]


def _variables(root: Edge) -> set[Edge]:
    """All variables of the graph that a variable depends on."""
    variables, owner = {root}, producer(root)
    for node in nodes([owner], into_blocks=True) if owner is not None else ():
        variables.update(node.node_inputs, node.node_outputs)
        variables.update(outer for _, outer in node.block_map)
    return variables


__all__ = ["gradient"]
