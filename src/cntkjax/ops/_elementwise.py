"""Elementwise operations: arithmetic, comparisons, activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..graph.arguments import public_operation
from ..graph.build import apply
from ..graph.errors import OperandError
from ..primitives.elementwise import ELEMENTWISE
from ..variables import Variable
from ._blocks import as_one_block
from ._operand import Operand, as_variable, as_variables, number, numpy_type
from .functions import Function

__all__ = [
    "abs", "acos", "asin", "asinh", "associative_multi_arg", "atan", "atanh", "ceil", "clip", "cos", "cosh",
    "element_divide", "element_select", "element_times", "equal", "exp", "floor", "greater", "greater_equal", "less",
    "less_equal", "log", "log_add_exp", "minus", "negate", "not_equal", "plus", "pow", "reciprocal", "relu", "round",
    "sigmoid", "sin", "sinh", "softplus", "sqrt", "square", "stop_gradient", "straight_through_impl", "tan", "tanh",
]


@public_operation
def associative_multi_arg(f: Callable[..., Function]) -> Callable[..., Function]:
    """Extend an associative binary operation to any number of operands, combined as a balanced tree.

    Shapes: those of `f`.

    >>> total = associative_multi_arg(lambda x, y, name='': x + y)
    >>> total(plus(1, 0), 2, 3).eval()
    array(6., dtype=float32)
    """

    @functools.wraps(f)
    def combined(*args: Any, **kwargs: Any) -> Function:
        name = kwargs.pop("name", "")
        operands = list(args)
        operands += [kwargs.pop(k) for k in ("left", "right", "x", "y") if k in kwargs]
        if operands and isinstance(operands[-1], str):
            name = operands.pop()
        if kwargs:
            raise TypeError(f"{f.__name__}() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if len(operands) < 2:
            named = f" and the name {name!r}" if name else ""
            raise OperandError(f"{f.__name__}() needs at least two operands, got {len(operands)}{named}")
        return halves(operands, name)

    def halves(operands: list[Any], name: str = "") -> Function:
        if len(operands) == 1:
            return operands[0]
        if len(operands) == 2:
            return f(*operands, name=name)
        middle = len(operands) // 2
        return f(halves(operands[:middle]), halves(operands[middle:]), name=name)

    return combined


def _apply(op: str, *operands: Operand, name: str) -> Function:
    return apply(ELEMENTWISE[op], as_variables(*operands), name=name)  # type: ignore[return-value]


def _unary(name: str, op: str, what: str, example: str, result: str) -> Callable[..., Function]:
    def f(x: Operand, name: str = "") -> Function:
        return _apply(op, as_variable(x), name=name)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = (
        f"{what}, element by element.\n\n    Shapes: x [*shape] -> [*shape], with the dynamic axes of x.\n\n"
        f"    >>> {name}([{example}]).eval().round(4)\n    array([{result}], dtype=float32)\n    "
    )
    return public_operation(f)


exp = _unary("exp", "Exp", "exp(x)", "0, 1", "1.    , 2.7183")
log = _unary("log", "Log", "Natural logarithm; -85.1 where x <= 0", "1, 10", "0.    , 2.3026")
sqrt = _unary("sqrt", "Sqrt", "Square root; 0 where x < 0", "4, 2", "2.    , 1.4142")
tanh = _unary("tanh", "Tanh", "Hyperbolic tangent", "0, 1", "0.    , 0.7616")
sigmoid = _unary("sigmoid", "StableSigmoid", "1 / (1 + exp(-x))", "0, 2", "0.5   , 0.8808")
relu = _unary("relu", "ReLU", "max(x, 0)", "-1, 2", "0., 2.")
negate = _unary("negate", "Negate", "-x", "1, -2", "-1.,  2.")
abs = _unary("abs", "Abs", "Absolute value", "-3, 2", "3., 2.")
reciprocal = _unary("reciprocal", "Reciprocal", "1 / x; 0 where x is 0", "4, 0", "0.25, 0.  ")
sin = _unary("sin", "Sin", "Sine", "0, 1", "0.    , 0.8415")
cos = _unary("cos", "Cos", "Cosine", "0, 1", "1.    , 0.5403")
tan = _unary("tan", "Tan", "Tangent", "0, 1", "0.    , 1.5574")
asin = _unary("asin", "Asin", "Inverse sine", "0, 1", "0.    , 1.5708")
acos = _unary("acos", "Acos", "Inverse cosine", "0, 1", "1.5708, 0.    ")
atan = _unary("atan", "Atan", "Inverse tangent", "0, 1", "0.    , 0.7854")
sinh = _unary("sinh", "Sinh", "Hyperbolic sine", "0, 1", "0.    , 1.1752")
cosh = _unary("cosh", "Cosh", "Hyperbolic cosine", "0, 1", "1.    , 1.5431")
asinh = _unary("asinh", "Asinh", "Inverse hyperbolic sine", "0, 1", "0.    , 0.8814")
atanh = _unary("atanh", "Atanh", "Inverse hyperbolic tangent", "0, 0.5", "0.    , 0.5493")
straight_through_impl = _unary(
    "straight_through_impl", "StraightThrough", "1 where x > 0, otherwise -1; the gradient passes where |x| <= 1",
    "-2, 0.5", "-1.,  1.",
)


@public_operation
def floor(arg: Operand, name: str = "") -> Function:
    """The largest integer <= x, element by element.

    Shapes: arg [*shape] -> [*shape].

    >>> floor([0.5, -0.5]).eval()
    array([ 0., -1.], dtype=float32)
    """
    return _apply("Floor", arg, name=name)


@public_operation
def ceil(arg: Operand, name: str = "") -> Function:
    """The smallest integer >= x, element by element.

    Shapes: arg [*shape] -> [*shape].

    >>> ceil([0.5, -0.5]).eval()
    array([ 1., -0.], dtype=float32)
    """
    x = as_variable(arg, numpy_type(arg))
    return negate(floor(negate(x)), name=name)


@public_operation
def round(arg: Operand, name: str = "") -> Function:
    """The nearest integer, element by element; halves are rounded up, as in CNTK: floor(x + 0.5).

    Shapes: arg [*shape] -> [*shape].

    >>> round([0.5, 1.5, -1.5]).eval()
    array([ 1.,  2., -1.], dtype=float32)
    """
    return floor(plus(arg, 0.5), name=name)


@public_operation
def square(x: Operand, name: str = "") -> Function:
    """x * x, element by element.

    Shapes: x [*shape] -> [*shape].

    >>> square([1, -3]).eval()
    array([1., 9.], dtype=float32)
    """
    x = as_variable(x)
    return element_times(x, x, name=name)


@public_operation
def stop_gradient(input: Operand, name: str = "") -> Function:
    """The operand unchanged, but no gradient flows back through it.

    Shapes: input [*shape] -> [*shape].

    >>> from cntkjax import input_variable
    >>> x = input_variable(2, needs_gradient=True)
    >>> (stop_gradient(x) * x).grad({x: [[1, 2]]})
    array([[1., 2.]], dtype=float32)
    """
    return _apply("StopGradient", input, name=name)


@public_operation
@associative_multi_arg
def plus(left: Operand, right: Operand, name: str = "") -> Function:
    """The elementwise sum of two or more operands.

    Shapes: operands broadcast, aligned at the last axis.
    Errors: ShapeError if they do not broadcast; OperandError for fewer than two operands.

    >>> plus([1, 2, 3], [4, 5, 6], 10).eval()
    array([15., 17., 19.], dtype=float32)
    """
    return _apply("Plus", left, right, name=name)


@public_operation
def minus(left: Operand, right: Operand, name: str = "") -> Function:
    """left - right, element by element.

    Shapes: operands broadcast, aligned at the last axis.

    >>> minus([1, 2, 3], [4, 5, 6]).eval()
    array([-3., -3., -3.], dtype=float32)
    """
    return _apply("Minus", left, right, name=name)


@public_operation
@associative_multi_arg
def element_times(left: Operand, right: Operand, name: str = "") -> Function:
    """The elementwise product of two or more operands.

    Shapes: operands broadcast, aligned at the last axis.
    Errors: ShapeError if they do not broadcast; OperandError for fewer than two operands.

    >>> element_times([1, 2], [3, 4], [5, 6]).eval()
    array([15., 48.], dtype=float32)
    """
    return _apply("ElementTimes", left, right, name=name)


@public_operation
def element_divide(left: Operand, right: Operand, name: str = "") -> Function:
    """left / right, element by element; 0 where the divisor is 0.

    Shapes: operands broadcast, aligned at the last axis.

    >>> element_divide([1, 2], [2, 0]).eval()
    array([0.5, 0. ], dtype=float32)
    """
    left, right = as_variables(left, right)
    return as_one_block("ElementDivide", lambda a, b: element_times(a, reciprocal(b)), [left, right], name)


@public_operation
@associative_multi_arg
def log_add_exp(left: Operand, right: Operand, name: str = "") -> Function:
    """log(exp(left) + exp(right)), element by element, computed without overflow; takes two or more operands.

    Shapes: operands broadcast, aligned at the last axis.

    >>> log_add_exp([1, 2], [2, 0]).eval().round(4)
    array([2.3133, 2.1269], dtype=float32)
    """
    return _apply("LogPlus", left, right, name=name)


@public_operation
def pow(base: Operand, exponent: Operand, name: str = "") -> Function:
    """base ** exponent, element by element.

    Shapes: operands broadcast, aligned at the last axis.

    >>> pow([1, 2, -2], [3, -2, 3]).eval()
    array([ 1.  ,  0.25, -8.  ], dtype=float32)
    """
    return _apply("Pow", base, exponent, name=name)


@public_operation
def softplus(x: Operand, steepness: float = 1, name: str = "") -> Function:
    """log(1 + exp(steepness * x)) / steepness, element by element: a smooth version of max(x, 0).

    Shapes: x [*shape] -> [*shape], with the dynamic axes of x.
    Errors: ValueError for a steepness of 0.

    >>> softplus([-1, 0, 1]).eval().round(4)
    array([0.3133, 0.6931, 1.3133], dtype=float32)
    """
    if steepness == 0:
        raise ValueError("softplus: the steepness must not be 0; the default is 1")
    if steepness == 1:
        return as_one_block("Softplus", lambda x: log_add_exp(x, number(0, x.dtype)), [_variable(x)], name)

    def steep(x: Variable) -> Function:
        return element_divide(softplus(element_times(steepness, x)), steepness)

    return as_one_block("softplus", steep, [_variable(x)], name)


@public_operation
def equal(left: Operand, right: Operand, name: str = "") -> Function:
    """1 where left == right, otherwise 0.

    Shapes: operands broadcast, aligned at the last axis.

    >>> equal([1, 2, 3], 2).eval()
    array([0., 1., 0.], dtype=float32)
    """
    return _apply("Equal", left, right, name=name)


@public_operation
def not_equal(left: Operand, right: Operand, name: str = "") -> Function:
    """1 where left != right, otherwise 0.

    Shapes: operands broadcast, aligned at the last axis.

    >>> not_equal([1, 2, 3], 2).eval()
    array([1., 0., 1.], dtype=float32)
    """
    return _apply("NotEqual", left, right, name=name)


@public_operation
def less(left: Operand, right: Operand, name: str = "") -> Function:
    """1 where left < right, otherwise 0.

    Shapes: operands broadcast, aligned at the last axis.

    >>> less([1, 2, 3], 2).eval()
    array([1., 0., 0.], dtype=float32)
    """
    return _apply("Less", left, right, name=name)


@public_operation
def less_equal(left: Operand, right: Operand, name: str = "") -> Function:
    """1 where left <= right, otherwise 0.

    Shapes: operands broadcast, aligned at the last axis.

    >>> less_equal([1, 2, 3], 2).eval()
    array([1., 1., 0.], dtype=float32)
    """
    return _apply("LessEqual", left, right, name=name)


@public_operation
def greater(left: Operand, right: Operand, name: str = "") -> Function:
    """1 where left > right, otherwise 0.

    Shapes: operands broadcast, aligned at the last axis.

    >>> greater([1, 2, 3], 2).eval()
    array([0., 0., 1.], dtype=float32)
    """
    return _apply("Greater", left, right, name=name)


@public_operation
def greater_equal(left: Operand, right: Operand, name: str = "") -> Function:
    """1 where left >= right, otherwise 0.

    Shapes: operands broadcast, aligned at the last axis.

    >>> greater_equal([1, 2, 3], 2).eval()
    array([0., 1., 1.], dtype=float32)
    """
    return _apply("GreaterEqual", left, right, name=name)


@public_operation
def element_select(flag: Operand, value_if_true: Operand, value_if_false: Operand, name: str = "") -> Function:
    """value_if_true where flag is nonzero, otherwise value_if_false.

    Shapes: operands broadcast, aligned at the last axis.

    >>> element_select([-10, 0, 0.3], [1, 10, 100], [2, 20, 200]).eval()
    array([  1.,  20., 100.], dtype=float32)
    """
    return _apply("Select", *as_variables(flag, value_if_true, value_if_false, widest=False), name=name)


@public_operation
def clip(x: Operand, min_value: Operand, max_value: Operand, name: str = "") -> Function:
    """x limited to the interval [min_value, max_value], element by element.

    Shapes: operands broadcast, aligned at the last axis.

    >>> clip([1, 2, 3, 4], 2, 3).eval()
    array([2., 2., 3., 3.], dtype=float32)
    """
    return _apply("Clip", x, min_value, max_value, name=name)


def _variable(x: Operand) -> Variable:
    return as_variable(x)
