"""Losses of agents."""

from __future__ import annotations

from typing import TypeAlias

from ..... import ops
from .....ops.functions import Function
from .....variables import Variable

Value: TypeAlias = Variable | Function  # a function of one output


def huber_loss(output: Value, target: Value) -> Function:
    """Half the squared error where it is below 1, the absolute error minus a half elsewhere; summed over a sample.

    >>> import cntkjax as C
    >>> x, y = C.input_variable(2), C.input_variable(2)
    >>> huber_loss(x, y).eval({x: [[2, 1]], y: [[4, 1.5]]})
    array([1.625], dtype=float32)
    """
    error = ops.abs(target - output)
    return ops.reduce_sum(ops.element_select(ops.less(error, 1), 0.5 * error * error, error - 0.5))


def negative_of_entropy_with_softmax(p: Value) -> Function:
    """The sum of q log q for q = softmax(p), a regularizer against premature convergence of a policy.

    >>> import cntkjax as C
    >>> p = C.input_variable(2)
    >>> negative_of_entropy_with_softmax(p).eval({p: [[0.5, 0.5]]})
    array([-0.6931472], dtype=float32)
    """
    return ops.reduce_sum(ops.softmax(p) * p) - ops.reduce_log_sum_exp(p)
