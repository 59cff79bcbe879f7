"""The table of conversions from ONNX: one row for each operation.

A row is a function with a decorator, next to those of similar operations: `@reads("Gemm")`. It gets the node, and
returns its output, or a list of several. A second function with `@folds` computes the outputs as arrays where the
operands do not depend on data, such as shapes. Operations that are a single primitive of the same operands are rows of
`one_to_one.py`, which serve writing as well. An operation without a row is an error when a model is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dictionary import FormatError
from .._onnx import onnx
from .values import FLOAT, Dim, OnnxTensor, Operand, Outputs, output_of

if TYPE_CHECKING:
    from onnx import NodeProto

    from .graph import GraphReader

Converter = Callable[["OnnxNode"], Outputs]
Fold = Callable[["OnnxNode"], "np.ndarray | list[np.ndarray]"]

UNSUPPORTED = "export the model without this, for example with another opset, or rewrite the node with onnx's tools"


@dataclass(frozen=True)
class ReadingRule:
    """A row of the table. `same_elements`: the elements of the output are elements of the first operand."""

    convert: Converter
    same_elements: bool = False


OPERATIONS: dict[str, ReadingRule] = {}
FOLDED: dict[str, Fold] = {}
NEEDS_SIZES: set[str] = set()  # operations that are not folded if sizes of free axes are among the elements


def reads(*ops: str, same_elements: bool = False) -> Callable[[Converter], Converter]:
    """Decorator: register a function of the node as the converter of operations.

    It returns a variable, a function of one output, an array or a Tensor; or a list of these.
    """

    def register(convert: Converter) -> Converter:
        OPERATIONS.update(dict.fromkeys(ops, ReadingRule(convert, same_elements)))
        return convert

    return register


def folds(*ops: str, needs_sizes: bool = False) -> Callable[[Fold], Fold]:
    """Decorator: register a function of the node that computes operations on known arrays; it returns one or a list.

    `needs_sizes`: it cannot compute with the sizes of free axes.
    """

    def register(compute: Fold) -> Fold:
        FOLDED.update(dict.fromkeys(ops, compute))
        NEEDS_SIZES.update(ops if needs_sizes else ())
        return compute

    return register


class OnnxNode:
    """A node of the graph with its operands. `where` names the file and the node in errors."""

    def __init__(self, reader: GraphReader, proto: NodeProto, where: str) -> None:
        self.reader, self.proto, self.where = reader, proto, where
        self.op, self.name, self.opset = proto.op_type, proto.name, reader.opset
        self._attributes = {a.name: a for a in proto.attribute}

    def error(self, reason: str, fix: str = UNSUPPORTED) -> FormatError:
        """The exception to raise for a node that cannot be read."""
        return FormatError(f"{self.where}: {reason}", fix)

    # ---- operands
    def __len__(self) -> int:
        return len(self.proto.input)

    def has(self, i: int) -> bool:
        """True if the node has the i-th operand; the names of omitted operands are empty."""
        return i < len(self.proto.input) and bool(self.proto.input[i])

    def tensor(self, i: int) -> OnnxTensor:
        """The i-th operand."""
        if not self.has(i):
            raise self.error(f"operand {i} is missing")
        return self.reader.tensors[self.proto.input[i]]

    def operand(self, i: int = 0) -> Operand:
        """The i-th operand as a variable."""
        return self.tensor(i).variable

    def operands(self) -> list[Operand]:
        """All operands as variables."""
        return [self.operand(i) for i in range(len(self)) if self.has(i)]

    def known_array(self, i: int) -> np.ndarray | None:
        """The i-th operand as an array, if it does not depend on data."""
        return self.tensor(i).array

    def array(self, i: int, what: str = "") -> np.ndarray:
        """The i-th operand, which has to be known. Errors: FormatError if it depends on data."""
        value = self.known_array(i)
        if value is None:
            raise self.error(f"operand {i} ({what or self.proto.input[i]}) has to be a constant")
        return value

    def integers(self, i: int, what: str = "") -> list[int]:
        """The i-th operand as a list of known integers."""
        value = self.array(i, what)
        if value.size > 1024 or any(isinstance(v, Dim) for v in value.reshape(-1).tolist()):
            raise self.error(f"operand {i} ({what or self.proto.input[i]}) has to be a short list of known integers")
        return [int(v) for v in value.reshape(-1).tolist()]

    @property
    def kind(self) -> str:
        """The common kind of all operands; FLOAT if they differ."""
        kinds = {self.tensor(i).kind for i in range(len(self)) if self.has(i)}
        return kinds.pop() if len(kinds) == 1 else FLOAT

    def of_kind(self, value: Operand, kind: str | None = None) -> OnnxTensor:
        """An output of a kind, by default that of the operands."""
        return OnnxTensor(kind or self.kind, output_of(value))

    # ---- attributes
    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute: number, string, list, TensorProto or GraphProto."""
        if name not in self._attributes:
            return default
        value = onnx().helper.get_attribute_value(self._attributes[name])
        if default is not None and not isinstance(default, type(value)) and not (
            isinstance(default, float) and isinstance(value, int)
        ):
            if isinstance(value, bytes) and isinstance(default, str):
                return value.decode("utf-8", "replace")
            raise self.error(f"attribute {name} is {type(value).__name__}, not {type(default).__name__}")
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def number(self, name: str, default: float) -> float:
        """An attribute that is a number. Errors, here and below: FormatError for an attribute of another type."""
        value = self.attribute(name, None)
        if value is None:
            return default
        if not isinstance(value, (int, float)):
            raise self.error(f"attribute {name} has to be a number")
        return float(value)

    def integer(self, name: str, default: int) -> int:
        """An attribute that is an integer."""
        value = self.attribute(name, None)
        if value is None:
            return default
        if not isinstance(value, int):
            raise self.error(f"attribute {name} has to be an integer")
        return value

    def string(self, name: str, default: str) -> str:
        """An attribute that is a string."""
        value = self.attribute(name, None)
        if value is not None and not isinstance(value, str):
            raise self.error(f"attribute {name} has to be a string")
        return default if value is None else value

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int] | None:
        """An attribute that is a list of integers."""
        value = self.attribute(name, None)
        if value is None:
            return None if default is None else [int(v) for v in default]
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value) or len(value) > 1024:
            raise self.error(f"attribute {name} has to be a list of integers")
        return [int(v) for v in value]

    def axes(self, operand: int) -> list[int] | None:
        """Axes from the attribute, or from an operand, as since opset 13 or 18; None if there are none."""
        return self.integers(operand, "axes") if self.has(operand) else self.ints("axes")

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < rank:
            raise self.error(f"there is no axis {axis} in a tensor of rank {rank}")
        return axis % rank
