"""The table of operations: how each node of ONNX is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dictionary import FormatError
from .._onnx import onnx
from .values import FLOAT, Dim, Tensor, output_of

if TYPE_CHECKING:
    from .graph import Reader

Read = Callable[["Node"], Any]
OPERATIONS: dict[str, Read] = {}
FOLDED: dict[str, Callable[..., Any]] = {}  # operations on arrays that are known


def reads(*ops: str) -> Callable[[Read], Read]:
    """Register how operations are read: a function of the node that returns a variable, array or Tensor, or a list."""

    def register(read: Read) -> Read:
        OPERATIONS.update(dict.fromkeys(ops, read))
        return read

    return register


def folds(*ops: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register how operations are computed on known arrays: a function of the node that returns an array or a list."""

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        FOLDED.update(dict.fromkeys(ops, compute))
        return compute

    return register


class Node:
    """A node of the graph with its operands."""

    def __init__(self, reader: Reader, proto: Any, where: str) -> None:
        self.reader, self.proto, self.where = reader, proto, where
        self.op, self.name, self.opset = proto.op_type, proto.name, reader.opset
        self._attributes = {a.name: a for a in proto.attribute}

    def fail(self, what: str) -> FormatError:
        """The error for a node that cannot be read."""
        return FormatError(f"{self.where}: {what}")

    # ---- operands
    def __len__(self) -> int:
        return len(self.proto.input)

    def has(self, i: int) -> bool:
        """True if the i-th operand is given; those that may be left out are empty."""
        return i < len(self.proto.input) and bool(self.proto.input[i])

    def tensor(self, i: int) -> Tensor:
        """The i-th operand."""
        if not self.has(i):
            raise self.fail(f"operand {i} is missing")
        return self.reader.tensors[self.proto.input[i]]

    def x(self, i: int = 0) -> Any:
        """The i-th operand as a variable."""
        return self.tensor(i).variable

    def xs(self) -> list[Any]:
        """All operands as variables."""
        return [self.x(i) for i in range(len(self)) if self.has(i)]

    def known(self, i: int) -> np.ndarray | None:
        """The i-th operand as an array, if it does not depend on data."""
        return self.tensor(i).array

    def array(self, i: int, what: str = "") -> np.ndarray:
        """The i-th operand, which has to be known."""
        value = self.known(i)
        if value is None:
            raise self.fail(f"operand {i} ({what or self.proto.input[i]}) has to be a constant")
        return value

    def integers(self, i: int, what: str = "") -> list[int]:
        """The i-th operand as a list of known integers."""
        value = self.array(i, what)
        if value.size > 1024 or any(isinstance(v, Dim) for v in value.reshape(-1).tolist()):
            raise self.fail(f"operand {i} ({what or self.proto.input[i]}) has to be a short list of known integers")
        return [int(v) for v in value.reshape(-1).tolist()]

    @property
    def kind(self) -> str:
        """What all operands are, or else floats."""
        kinds = {self.tensor(i).kind for i in range(len(self)) if self.has(i)}
        return kinds.pop() if len(kinds) == 1 else FLOAT

    def of_kind(self, value: Any, kind: str | None = None) -> Tensor:
        """A result that is not of floats, or of the kind of the operands."""
        return Tensor(kind or self.kind, output_of(value))

    # ---- attributes
    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute: number, text, list, TensorProto or GraphProto."""
        if name not in self._attributes:
            return default
        value = onnx().helper.get_attribute_value(self._attributes[name])
        if default is not None and not isinstance(default, type(value)) and not (
            isinstance(default, float) and isinstance(value, int)
        ):
            if isinstance(value, bytes) and isinstance(default, str):
                return value.decode("utf-8", "replace")
            raise self.fail(f"attribute {name} is {type(value).__name__}, not {type(default).__name__}")
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def number(self, name: str, default: float) -> float:
        """A number."""
        value = self.attribute(name, None)
        if value is None:
            return default
        if not isinstance(value, (int, float)):
            raise self.fail(f"attribute {name} has to be a number")
        return float(value)

    def whole(self, name: str, default: int) -> int:
        """A whole number."""
        value = self.attribute(name, None)
        if value is None:
            return default
        if not isinstance(value, int):
            raise self.fail(f"attribute {name} has to be a whole number")
        return value

    def text(self, name: str, default: str) -> str:
        """A text."""
        value = self.attribute(name, None)
        if value is not None and not isinstance(value, str):
            raise self.fail(f"attribute {name} has to be a text")
        return default if value is None else value

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int] | None:
        """A list of whole numbers; the default if it is not there."""
        value = self.attribute(name, None)
        if value is None:
            return None if default is None else [int(v) for v in default]
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value) or len(value) > 1024:
            raise self.fail(f"attribute {name} has to be a list of whole numbers")
        return [int(v) for v in value]

    def axes(self, operand: int) -> list[int] | None:
        """Axes from the attribute, or from an operand, as they are since opset 13 or 18; None if they are not given."""
        return self.integers(operand, "axes") if self.has(operand) else self.ints("axes")

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < rank:
            raise self.fail(f"there is no axis {axis} in a tensor of rank {rank}")
        return axis % rank
