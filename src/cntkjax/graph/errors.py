"""Errors that say what happened, where, and how to mend it. All are types that CNTK raises, so scripts catch them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def explain(what: str, operands: Mapping[str, Any] | None = None, fix: str = "") -> str:
    """A message of three parts: the mistake, the operands (with the line that made them), the mend."""
    lines = [what]
    for label, variable in (operands or {}).items():
        where = f"   {variable._origin}" if getattr(variable, "_origin", "") else ""
        lines.append(f"  {label:<8} {variable!r}{where}")
    if fix:
        lines.append(f"Fix: {fix}")
    return "\n".join(lines)


class ShapeError(ValueError, RuntimeError):
    """Shapes of operands that don't fit together. CNTK raises ValueError or RuntimeError; scripts may catch either."""


class AxisError(ValueError, RuntimeError):
    """Axes of operands that don't fit together."""


class OperandError(ValueError, TypeError):
    """What is no operand. CNTK raises ValueError or TypeError, which depends on the operation."""


class ResultError(ValueError, RuntimeError):
    """What a function of the user made does not fit. CNTK raises either, which depends on what it is."""


class BatchSizeError(ShapeError, ResultError):
    """Numbers of samples or lengths of sequences that differ, in what one program is to compute.

    `callback_results`, `random_state`: what functions of the user had returned, and the random numbers, if it was
    found on the way.
    """

    callback_results: Any = None
    random_state: Any = None


def layer_title(layer: str, name: str) -> str:
    """A layer as messages call it."""
    return f"{layer} '{name}'" if name else layer


def of_layer(error: Exception, title: str, operands: Iterable[Any]) -> Exception:
    """The error with the layer in front in which it was made, and what that was given."""
    what = str(error).removeprefix(f"{title}: ")
    return type(error)(f"{title} of {', '.join(map(repr, operands))}: {what}")


def in_layer(error: Exception, title: str) -> Exception:
    """The error of a node with the layer in front that it is part of."""
    return type(error)(f"{title}: {error}") if title else error


class OutputError(ValueError, RuntimeError):
    """A function with several outputs, or none, where one is needed."""
