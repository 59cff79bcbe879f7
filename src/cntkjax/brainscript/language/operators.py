"""Infix and unary operators: on numbers and strings now, on nodes by functions of the library."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from . import syntax
from .values import Fields, NetNode, check_length, kind_of

_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, ".*": operator.mul, "/": operator.truediv,
    "%": operator.mod,
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}
_NODES = {
    "+": "Plus", "-": "Minus", "*": "Times", ".*": "ElementTimes", "<": "Less", ">": "Greater", "<=": "LessEqual",
    ">=": "GreaterEqual", "==": "Equal", "!=": "NotEqual",
}
_LIMIT = 1e300


def unary(evaluator: Any, expression: syntax.Unary, value: Any, scope: Fields, path: str) -> Any:
    """``-x``, ``+x``, ``!x``."""
    if isinstance(value, NetNode):
        function = {"-": "Negate", "!": "BS.Boolean.Not"}.get(expression.operator)
        return value if function is None else _library(evaluator, function, [value], path, expression)
    if expression.operator == "!":
        return not evaluator.expect(bool, value, expression.place, "a truth value")
    number = float(evaluator.expect(float, value, expression.operand.place, "a number"))
    return -number if expression.operator == "-" else number


def binary(evaluator: Any, expression: syntax.Binary, scope: Fields, path: str) -> Any:
    """``x operator y``; the second operand of && and || is evaluated only if it matters."""
    symbol = expression.operator
    name = f"{path}.{_NODES.get(symbol, '')}Args"
    left = evaluator.evaluate(expression.left, scope, f"{name}[0]")
    if symbol in ("&&", "||"):
        if evaluator.expect(bool, left, expression.left.place, "a truth value") == (symbol == "||"):
            return left
        right = evaluator.evaluate(expression.right, scope, f"{name}[1]")
        return evaluator.expect(bool, right, expression.right.place, "a truth value")
    right = evaluator.evaluate(expression.right, scope, f"{name}[1]")
    if symbol == "with":
        return _merged(evaluator, expression, left, right)
    if isinstance(left, NetNode) or isinstance(right, NetNode):
        return _nodes(evaluator, expression, left, right, path)
    return _immediate(evaluator, expression, left, right)


def _merged(evaluator: Any, expression: syntax.Binary, left: Any, right: Any) -> Fields:
    """The members of both records; the right one's count."""
    for value, operand in ((left, expression.left), (right, expression.right)):
        evaluator.expect(Fields, value, operand.place, "a record")
    merged = Fields(left.outer, left.path)
    merged.members = left.members | right.members
    return merged


def _immediate(evaluator: Any, expression: syntax.Binary, left: Any, right: Any) -> Any:
    """An operation on two numbers, or two strings."""
    symbol = expression.operator
    if symbol in ("==", "!="):
        return (left == right) == (symbol == "==")
    if isinstance(left, str) and isinstance(right, str) and symbol in ("+", "<", ">", "<=", ">="):
        try:
            check_length(len(left) + len(right))
        except ValueError as error:
            raise evaluator.error(expression.place, str(error)) from error
        return _NUMBERS[symbol](left, right)
    if not (isinstance(left, float) and isinstance(right, float)):
        raise evaluator.error(expression.place, f"{kind_of(left)} {symbol} {kind_of(right)} has no meaning")
    if symbol in ("/", "%") and right == 0:
        raise evaluator.error(expression.place, "division by zero")
    return _NUMBERS[symbol](left, right) if symbol in _NUMBERS else _power(left, right)


def _power(left: float, right: float) -> float:
    try:
        power = left**right
    except (OverflowError, ZeroDivisionError):
        power = _LIMIT
    return float(power) if isinstance(power, float) else float("nan")


def _nodes(evaluator: Any, expression: syntax.Binary, left: Any, right: Any, path: str) -> Any:
    """An operation on nodes; a number becomes a constant, and a factor scales."""
    symbol = expression.operator
    for value, operand in ((left, expression.left), (right, expression.right)):
        evaluator.expect((NetNode, float), value, operand.place, "a node of the network, or a number")
    if symbol == "/":
        return _quotient(evaluator, expression, left, right, path)
    if symbol not in _NODES:
        raise evaluator.error(expression.place, f"'{symbol}' applies to numbers, not to nodes of the network")
    function = _NODES[symbol]
    if symbol == "*" and not (isinstance(left, NetNode) and isinstance(right, NetNode)):
        function = "ElementTimes"
    return _library(evaluator, function, [left, right], path, expression)


def _quotient(evaluator: Any, expression: syntax.Binary, left: Any, right: Any, path: str) -> Any:
    if isinstance(right, float):
        if right == 0:
            raise evaluator.error(expression.place, "division by zero")
        return _library(evaluator, "ElementTimes", [left, 1 / right], path, expression)
    inverse = _library(evaluator, "Reciprocal", [right], f"{path}.ElementTimesArgs[1]", expression)
    return _library(evaluator, "ElementTimes", [left, inverse], path, expression)


def _library(evaluator: Any, function: str, values: list[Any], path: str, expression: syntax.Expression) -> Any:
    """A function of the library; numbers become constants that are named like the operation."""
    arguments = []
    for value in values:
        if isinstance(value, float):
            value = evaluator.call_library("ConstantTensor", [value, 1.0], path, expression.place)
        arguments.append(value)
    return evaluator.call_library(function, arguments, path, expression.place)


__all__ = ["binary", "unary"]
