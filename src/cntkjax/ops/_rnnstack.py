"""Stacks of recurrent layers as a single operation."""

from __future__ import annotations

from .._typing import Count
from ..graph.arguments import public_operation
from ..primitives.rnnstack import CELLS
from ..primitives.rnnstack import OptimizedRNNStack as _OptimizedRNNStack
from ._blocks import node
from ._operand import Operand, as_variables
from .functions import Function

__all__ = [
    "optimized_rnnstack",
]


@public_operation
def optimized_rnnstack(
    operand: Operand, weights: Operand, hidden_size: Count, num_layers: Count, bidirectional: bool = False,
    recurrent_op: str = "lstm", name: str = "",
) -> Function:
    """A stack of recurrent layers whose weights are a single parameter in cuDNN's layout.

    Shapes: operand [inputs] with a sequence axis, weights [-1, hidden_size], whose first dimension is inferred
            -> [hidden_size]; [2 * hidden_size] with `bidirectional`, forward outputs first.
    Errors: ValueError for a `recurrent_op` other than lstm, gru, rnnTanh, rnnReLU; ShapeError if the weights have
            another size; AxisError if the operand has no sequence axis.

    >>> import cntkjax as C, numpy as np
    >>> x = C.sequence.input_variable(1)
    >>> weights = C.parameter((C.InferredDimension, 1), init=1)
    >>> optimized_rnnstack(x, weights, 1, 1, recurrent_op='rnnReLU').eval({x: [[[1], [2], [3]]]})
    [array([[ 3.],
           [ 7.],
           [12.]], dtype=float32)]
    """
    if recurrent_op not in CELLS:
        raise ValueError(f'unsupported recurrent_op value "{recurrent_op}": use one of {", ".join(CELLS)}')
    attributes = {
        "hiddenSize": int(hidden_size), "numLayers": int(num_layers), "bidirectional": bool(bidirectional),
        "recurrentOp": recurrent_op,
    }
    return node(_OptimizedRNNStack, as_variables(operand, weights), attributes, name)
