"""Errors that say what happened, where, and how to fix it. Scripts catch them by the types that CNTK raises."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from .._user_code import line_of


def explain(what: str, operands: Mapping[str, Any] | None = None, fix: str = "") -> str:
    """A message of three parts: the problem, the operands with the lines that created them, and the fix."""
    lines = [what]
    for label, variable in (operands or {}).items():
        line = line_of(getattr(variable, "_origin", None))
        lines.append(f"  {label:<8} {variable!r}{line and '   ' + line}")
    if fix:
        lines.append(f"Fix: {fix}")
    return "\n".join(lines)


def working_directory() -> str:
    """Where relative paths are looked up, as part of a message."""
    try:
        return f"the working directory is {os.getcwd()!r}"
    except OSError:
        return "the working directory is no longer there"


class ShapeError(ValueError, RuntimeError):
    """Shapes of operands that do not match. CNTK raises ValueError or RuntimeError; scripts may catch either."""


class AxisError(ValueError, RuntimeError):
    """Axes of operands that do not match."""


class OperandError(ValueError, TypeError):
    """An object that cannot be an operand. CNTK raises ValueError or TypeError, depending on the operation."""


class VariableShapeError(OperandError):
    """A variable as the shape of a parameter, which is usually that of a layer applied where it should be made."""


class ArgumentError(ValueError, TypeError):
    """An argument that cannot be. CNTK raises ValueError or TypeError, depending on the operation."""


class IndexRangeError(ValueError, IndexError):
    """An index that is not one of an axis. CNTK reads or writes memory that is not the operand's."""


class ResultError(ValueError, RuntimeError):
    """A user function returned something unusable. CNTK raises ValueError or RuntimeError, depending on the case."""


class MissingFileError(ValueError, RuntimeError):
    """A model file that does not exist. CNTK raises ValueError if it is to be loaded, RuntimeError if restored."""


class UnwritableFileError(OSError, RuntimeError):
    """A file that cannot be written. CNTK raises RuntimeError."""


class OutOfMemoryError(RuntimeError, MemoryError):
    """A program does not fit into the memory of its device. CNTK raises RuntimeError."""


class BatchSizeError(ShapeError, ResultError):
    """Different numbers of samples, or lengths of sequences, in one program.

    `callback_results`, `random_state`: what functions of the user had returned, and the random numbers, if it was
    found on the way.
    """

    callback_results: Any = None
    random_state: Any = None


def layer_title(layer: str, name: str) -> str:
    """The name of a layer in messages."""
    return f"{layer} '{name}'" if name else layer


def of_layer(error: Exception, title: str, operands: Iterable[Any]) -> Exception:
    """The error, prefixed with the layer that raised it and the layer's operands."""
    what = str(error).removeprefix(f"{title}: ")
    return type(error)(f"{title} of {', '.join(map(repr, operands))}: {what}")


def in_layer(error: Exception, title: str) -> Exception:
    """The error of a node, prefixed with the layer that the node is part of."""
    return type(error)(f"{title}: {error}") if title else error


class OutputError(ValueError, RuntimeError):
    """A function with several outputs, or none, where exactly one is needed."""
