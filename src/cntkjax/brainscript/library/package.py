"""The public operations of the package, as one object."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ... import initializer, losses, metrics, ops
from ...axis import Axis
from ...variables import Constant, Parameter


def connect(functions: list[Any], known: dict[Any, Any]) -> None:
    """Replace placeholders, and infer the shapes of all these functions."""
    ops.combine(functions).replace_placeholders(known)


def read_matrix(path: str, dimensions: tuple[int, ...]) -> np.ndarray:
    """A text file of rows as the values of a parameter. Errors: ValueError for another number of elements."""
    rows = np.loadtxt(path, ndmin=2)
    values = rows.T
    if -1 not in dimensions and values.size != int(np.prod(dimensions)):
        have = " rows of ".join(map(str, rows.shape))
        raise ValueError(f"{path} has {have} numbers; the parameter has {dimensions[::-1]}")
    return np.ascontiguousarray(values if -1 in dimensions else values.reshape(dimensions), np.float32)


PACKAGE = SimpleNamespace(
    **{name: value for module in (losses, metrics, ops) for name, value in vars(module).items() if name[0] != "_"}
    | {"initializer": initializer, "Axis": Axis, "Constant": Constant, "Parameter": Parameter, "connect": connect,
       "read_matrix": read_matrix, "has_sequences": False,
       "lattice_options": lambda: dict.fromkeys(("symListPath", "phonePath", "stateListPath", "transProbPath"), "")},
)

__all__ = ["PACKAGE"]
