"""Indexing: ``x[...]`` slices static axes."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

from ..default_options import get_global_option
from ..graph.errors import AxisError, OperandError, ShapeError, explain
from ..graph.public import operators
from ..graph.shape import is_unknown

if TYPE_CHECKING:
    from ..variables import Variable
    from .functions import Function

Index: TypeAlias = "int | slice | EllipsisType | Sequence[int | slice | EllipsisType | Sequence[int]]"


def index(x: Variable | Function, arg: Index) -> Variable | Function:
    """Index a tensor with ints, slices and ``...``; a list of indices gathers.

    With the global option ``align_axis`` set to 1, as in Keras, positions count the dynamic axes too; an index for a
    dynamic axis applies to the axis counted from the last one.

    Shapes: every indexed axis is kept; an int leaves it with size 1. Those behind ``...`` count from the last axis, and
            one that is indexed from both ends is indexed twice, as in CNTK.
    Errors: AxisError for too many indices; IndexError for an object that is not an index; ShapeError for one that
            selects nothing.
    """
    keys: list[Any] = list(arg) if isinstance(arg, tuple) else [arg]
    before = len(x.dynamic_axes) if get_global_option("align_axis", 0) == 1 else 0
    rank = len(x.shape)
    dots = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
    for i, key in enumerate(keys):
        _check_not_empty(x, arg, key)
        if key is Ellipsis or (isinstance(key, slice) and not (key.start or key.stop) and key.step in (None, 1)):
            continue
        is_list = isinstance(key, (list, tuple))
        if is_list and not all(isinstance(k, int) for k in key):
            raise OperandError(f"{x!r}[{arg!r}]: {key!r} is not a list of ints, which would gather elements")
        axis = i - len(keys) if i > dots else i if is_list else i - before
        if not (-rank <= axis < rank or is_unknown(x.shape)):
            raise AxisError(f"too many indices for {x!r}: {arg!r} for {rank} static axes; dynamic axes are not indexed")
        if is_list:
            parts = [operators["slice"](x, axis, k, k + 1 if k != -1 else 0) for k in key]
            x = operators["splice"](*parts, axis=axis) if len(parts) > 1 else parts[0]
        elif isinstance(key, slice):
            x = operators["slice"](x, axis, key.start or 0, key.stop or 0, key.step)
        elif isinstance(key, int):
            x = operators["slice"](x, axis, key, key + 1 if key != -1 else 0)
        else:
            raise IndexError(f"{key!r} is not an index: use ints, slices, lists of ints, or ...")
    return x


def _check_not_empty(x: Variable | Function, arg: Index, key: object) -> None:
    """Errors: ShapeError for a key that selects nothing, for which CNTK returns the whole axis."""
    if isinstance(key, slice):
        if key.step == 0:
            raise OperandError(f"{x!r}[{arg!r}]: a stride of 0 selects nothing: give 1, or -1 to reverse")
        is_empty = key.stop is not None and not key.stop and not key.start
    else:
        is_empty = isinstance(key, (list, tuple)) and not key
    if is_empty:
        raise ShapeError(explain(
            f"{key!r} selects nothing of an axis, and there are no tensors without elements", {"operand": x},
            "leave the index out for the whole axis, or give a range of at least one element",
        ))
