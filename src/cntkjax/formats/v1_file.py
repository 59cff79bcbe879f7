"""The bytes of a model of CNTK 1 (``.dnn``) as a list of nodes.

A file is a series of sections that begin with ``B<name>`` and end with ``E<name>``; strings are UTF-16 and end with a
zero, numbers are little-endian. Nodes follow one another: element type, operation, name, and the payload of the
operation, without its size, so that a reader has to know every operation. Payloads depend on the version of the file.

Source: files written by CNTK 2.7 (`save_as_legacy_model`), and how it reads files that were changed byte by byte.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from .wire import DAMAGED, FormatError

OLDEST, NEWEST = 4, 31  # versions of the format that CNTK 2.7 reads with these layouts
_FIRST_VERSIONS = {"Pooling": 5, "MaxUnpooling": 5, "BatchNormalization": 6}  # others have known layouts in all
LONGEST = 4096  # characters of a text
LATTICES = "lattices"  # the input that SequenceWithSoftmax gets here: in CNTK 1 its reader had them
MAGIC = b"B\0C\0N\0\0\0"  # "BCN" and zero in UTF-16
_ROLES = {  # by the names of the lists
    "FeatureNodes": "feature", "LabelNodes": "label", "CriterionNodes": "criterion", "CriteriaNodes": "criterion",
    "EvalNodes": "evaluation", "EvaluationNodes": "evaluation", "OutputNodes": "output",
}
_DTYPES: dict[str, type] = {"float": np.float32, "double": np.float64, "half": np.float16}

Values = dict[str, Any]


@dataclass
class V1Node:
    """One node: its operation, its inputs, and the values of its payload. Shapes are column-major, as in the file."""

    op: str
    name: str
    dtype: type
    values: Values
    inputs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class V1Network:
    """The nodes of a file by name, and the names of those with a role: features, labels, criteria, ... (`_ROLES`)."""

    version: int
    nodes: dict[str, V1Node]
    roles: dict[str, list[str]]


class V1Reader:
    """A position in the bytes of a file, from which numbers, strings and arrays are read; sizes are checked first."""

    def __init__(self, data: memoryview, name: str) -> None:
        self.data, self.name, self.at, self.version = data, name, 0, 0

    def fail(self, reason: str, fix: str = DAMAGED) -> NoReturn:
        """Errors: always a FormatError, with the file and the position."""
        raise FormatError(f"{self.name}, byte {self.at}: {reason}", fix)

    def bytes(self, size: int) -> memoryview:
        """The next ``size`` bytes, without a copy. Errors: FormatError if fewer are left."""
        if not 0 <= size <= len(self.data) - self.at:
            self.fail(f"{size} bytes are expected here, but only {len(self.data) - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, kind: str) -> Any:
        """A number; ``kind`` is the struct module's letter for its type."""
        return struct.unpack("<" + kind, self.bytes(struct.calcsize(kind)))[0]

    def flag(self) -> bool:
        """A boolean, a byte that is 0 or 1."""
        value = self.number("B")
        if value > 1:
            self.fail(f"{value} instead of true (1) or false (0)")
        return bool(value)

    def count(self, kind: str, size: int) -> int:
        """The number of items that follow, each of at least ``size`` bytes. Errors: FormatError if they cannot fit."""
        value = self.number(kind)
        if not 0 <= value * size <= len(self.data) - self.at:
            self.fail(f"{value} items of {size} bytes are expected, but only {len(self.data) - self.at} bytes are left")
        return value

    def text(self) -> str:
        """A string up to its zero. Errors: FormatError if it does not end, or is not UTF-16."""
        end = self.at
        while bytes(self.data[end : end + 2]) != b"\0\0":
            end += 2
            if end - self.at > 2 * LONGEST or end >= len(self.data):
                self.fail("a string does not end")
        try:
            text = str(self.data[self.at : end], "utf-16-le")
        except UnicodeDecodeError as error:
            self.fail(f"text is not UTF-16 ({error.reason})")
        self.at = end + 2
        return text

    def mark(self, expected: str) -> None:
        """Read the mark of a section. Errors: FormatError if it is another one than ``expected``."""
        at, mark = self.at, self.text()
        if mark != expected:
            self.at = at
            self.fail(f"{mark[:40]!r} instead of {expected!r}")

    def shape(self) -> tuple[int, ...]:
        """Dimensions, column-major."""
        rank = self.count("I", 4)
        if rank > 32:
            self.fail(f"a shape has {rank} dimensions")
        return tuple(self.number("i") for _ in range(rank))

    def flags(self) -> list[bool]:
        """A list of booleans."""
        return [self.flag() for _ in range(self.count("Q", 1))]

    def matrix(self, dtype: type) -> np.ndarray:
        """A dense matrix, [columns, rows]: the file has it column-major."""
        if self.number("c") != b"d":
            self.fail("a matrix is not dense")
        self.mark("BMAT")
        size = self.number("Q")
        self.text()
        self.number("i")
        rows, columns = self.number("Q"), self.number("Q")
        if size != np.dtype(dtype).itemsize:
            self.fail(f"elements of {size} bytes in a matrix of {np.dtype(dtype)}")
        values = np.frombuffer(self.bytes(rows * columns * size), np.dtype(dtype).newbyteorder("<"))
        self.mark("EMAT")
        return values.reshape(columns, rows)


def read(data: memoryview, name: str) -> V1Network:
    """The nodes of a file.

    Errors: FormatError, with the file and the position, if it is damaged, or if its version or an operation is not
    known.
    """
    r = V1Reader(data, name)
    r.mark("BCN")
    r.mark("BVersion")
    r.version = r.number("Q")
    if not OLDEST <= r.version <= NEWEST:
        r.fail(
            f"version {r.version} of CNTK 1's format; this package reads versions {OLDEST} to {NEWEST}",
            fix="load the model with a later release of CNTK 1, and save it again",
        )
    r.mark("EVersion")
    number = r.count("Q", 6)
    r.mark("BNodeList")
    nodes: dict[str, V1Node] = {}
    for _ in range(number):
        node = _node(r)
        if node.name in nodes:
            r.fail(f"two nodes have the name {node.name!r}")
        nodes[node.name] = node
    r.mark("ENodeList")
    r.mark("BRelation")
    for _ in range(number):
        at = r.at
        of, inputs = r.text(), [r.text() for _ in range(r.count("Q", 2))]
        missing = [n for n in (of, *inputs) if n not in nodes]
        if missing:
            r.at = at
            r.fail(f"the inputs of {of!r} name {missing[0]!r}, which is not in the file")
        nodes[of].inputs = inputs
    r.mark("ERelation")
    return V1Network(r.version, nodes, _roles(r, nodes))


def network_in(path: str) -> V1Network | None:
    """The nodes of a file of CNTK 1; None for another file. Errors: those of `read`."""
    with open(path, "rb") as file:
        start = file.read(len(MAGIC))
        return read(memoryview(start + file.read()), path) if start == MAGIC else None


def _roles(r: V1Reader, nodes: dict[str, V1Node]) -> dict[str, list[str]]:
    r.mark("BRootNodes")
    roles: dict[str, list[str]] = {}
    while (section := r.text()) != "ERootNodes":
        names = [r.text() for _ in range(r.count("Q", 2))]
        unknown = [n for n in names if n not in nodes]
        if not section.startswith("B") or unknown:
            r.fail(f"the list {section[:40]!r} of nodes is damaged")
        r.mark("E" + section[1:])
        roles.setdefault(_ROLES.get(section[1:], section), []).extend(names)
    r.mark("ECN")
    return roles


def _node(r: V1Reader) -> V1Node:
    precision = r.text() if r.version >= 7 else "float"
    op, name = r.text(), r.text()
    if precision not in _DTYPES:
        r.fail(f"node {name!r} has the unknown element type {precision[:40]!r}")
    if op not in PAYLOADS:
        r.fail(
            f"node {name!r} is the operation {op[:60]!r}, which is not known to this package",
            fix="save the model with CNTK 2.7 in its v2 format, or without this operation",
        )
    dtype = _DTYPES[precision]
    read_values = PAYLOADS[op]
    if r.version < _FIRST_VERSIONS.get(op, OLDEST):
        r.fail(
            f"node {name!r} is the operation {op!r}, whose layout in version {r.version} is not known",
            fix="load the model with a later release of CNTK 1, and save it again",
        )
    return V1Node(op, name, dtype, read_values(r, dtype) if read_values else {})


# ---- payloads of operations --------------------------------------------------------------------------------------


def _parameter(r: V1Reader, dtype: type) -> Values:
    rate, shape = r.number("f"), r.shape()
    values = r.matrix(dtype)
    if min(shape, default=1) < 0 or math.prod(shape) != values.size:
        r.fail(f"a parameter of shape {shape} has {values.size} values")
    return {"trained": rate > 0, "value": values.reshape(shape[::-1])}


def _computed_before(r: V1Reader, dtype: type) -> Values:
    r.flag()
    return {"value": r.matrix(dtype).reshape(-1)}


def _input(r: V1Reader, dtype: type) -> Values:
    r.bytes(16)
    shape = r.shape()
    axes = [r.text() for _ in range(r.count("I", 2))] if r.version >= 8 else [""]
    if r.version >= 10:
        r.number("f")
    if len(axes) != 1 or min(shape, default=1) < 1:
        r.fail(f"an input of shape {shape} with {len(axes)} dynamic axes; one can be read")
    return {"shape": shape, "axis": axes[0]}


def _times(r: V1Reader, _: type) -> Values:
    return {"rank": r.number("Q"), "map": r.number("i") if r.version >= 12 else -1}


def _slice(r: V1Reader, _: type) -> Values:
    count = r.count("I", 20) if r.version >= 22 else 1
    kinds = "qQii" if r.version >= 27 else "qQi"
    return {"axes": [[r.number(kind) for kind in kinds] for _ in range(count)]}


def _reduce(r: V1Reader, _: type) -> Values:
    axes = [r.number("i") for _ in range(r.count("I", 4))] if r.version >= 27 else [r.number("i")]
    op = r.text()
    return {"axes": axes, "op": op, "keep": r.flag() if r.version >= 24 else True}


def _delay(r: V1Reader, dtype: type) -> Values:
    step, _, initial = r.number("i"), r.shape(), r.number(np.dtype(dtype).char)
    return {"step": step, "initial": initial}


def _edits(r: V1Reader, _: type) -> Values:
    values: Values = {kind: r.number("f") for kind in ("Substitution", "Deletion", "Insertion")}
    return values | {"squash": r.flag(), "ignored": [r.number("Q") for _ in range(r.count("Q", 8))]}


def _repeat(r: V1Reader, _: type) -> Values:
    count = r.number("Q")
    if not 0 < count <= LONGEST:
        r.fail(f"rows that are repeated {count} times; up to {LONGEST} can be read")
    return {"count": count}


def _transpose(r: V1Reader, _: type) -> Values:
    pair = r.number("i"), r.number("i")
    return {"pair": pair, "order": [] if any(pair) else [r.number("Q") for _ in range(r.count("Q", 8))]}


def _window(r: V1Reader, _: type) -> Values:
    """Since version 5. The dimensions after the kernel's are the number of outputs, which is known anyway."""
    names = ("kernel", "", "strides")
    values: Values = dict(zip(names, (r.shape() for _ in names), strict=True))
    values |= {"sharing": r.flags(), "padding": r.flags(), "lower": r.shape(), "upper": r.shape()}
    values["pooling"] = r.number("i")  # 0: a convolution, 1: maxima, 2: means
    r.number("i")
    values |= {"memory": r.number("Q"), "transpose": r.flag() if r.version >= 9 else False}
    values["output"] = r.shape() if r.version >= 20 else (0,)
    values["ceil"] = r.flag() if r.version >= 21 else False
    values["padding_counts"] = r.flag() if r.version >= 23 else False
    return values


def _convolution(r: V1Reader, dtype: type) -> Values:
    if r.version < 5:
        return _old_convolution(r)
    values = _window(r, dtype)
    r.flag()
    return values | {"dilation": r.shape() if r.version >= 18 else (1,) * len(values["kernel"])}


def _check_layout(r: V1Reader, layout: int) -> None:
    if layout != 1:
        r.fail(f"images of the layout {layout}; only 1 (width, height, channels) can be read")


def _old_convolution(r: V1Reader) -> Values:
    """In two dimensions. The number of input channels follows from the kernels."""
    width, height, *strides = (r.number("Q") for _ in range(4))
    r.number("I")
    _check_layout(r, r.number("I"))
    padding, memory = r.flag(), r.number("Q")
    return {
        "kernel": (width, height, 0), "strides": (*strides, 0), "sharing": [True], "padding": [padding, padding, False],
        "lower": (0,), "upper": (0,), "pooling": 0, "memory": memory, "transpose": False, "output": (0,),
        "dilation": (1,),
    }


def _old_pooling(kind: int) -> Callable[[V1Reader, type], Values]:
    def values(r: V1Reader, _: type) -> Values:
        width, layout, height, *strides = (r.number(k) for k in "IIQQQ")
        _check_layout(r, layout)
        return {
            "kernel": (width, height, 1), "strides": (*strides, 1), "padding": [False], "lower": (0,), "upper": (0,),
            "pooling": kind, "ceil": False, "padding_counts": False,
        }

    return values


def _normalization(r: V1Reader, _: type) -> Values:
    values = {"spatial": r.flag(), "time": r.number("d"), "blend": r.number("d")}
    r.number("i")
    r.bytes(1 if r.version == 19 else 8)  # how many samples were counted, which CNTK 2 does not use
    return values | {"epsilon": r.number("d"), "own": r.flag()}


def _roi(r: V1Reader, _: type) -> Values:
    output = r.shape()
    pooling, scale = (r.number("i"), r.number("d")) if r.version >= 26 else (1, 1 / 16)
    return {"output": output, "pooling": pooling, "scale": scale}


def _rnn_stack(r: V1Reader, _: type) -> Values:
    values = {k: r.number("Q") for k in ("both", "layers", "hidden")} | {"op": r.text()}
    if r.version >= 14:
        r.number("i")
    return values


def _sample(r: V1Reader, _: type) -> Values:
    return {"duplicates": r.flag(), "samples": r.number("Q")} | _seed(r, _)


def _seed(r: V1Reader, _: type) -> Values:
    return {"seed": r.number("Q"), "offset": r.number("Q")} if r.version >= 16 else {"seed": 0, "offset": 0}


PAYLOADS: dict[str, Callable[[V1Reader, type], Values] | None] = {
    "LearnableParameter": _parameter, "InputValue": _input, "SparseInputValue": _input, "Mean": _computed_before,
    "InvStdDev": _computed_before, "Times": _times, "TransposeTimes": _times, "Slice": _slice, "RowSlice": _slice,
    "ReduceElements": _reduce, "PastValue": _delay, "FutureValue": _delay, "Delay": _delay,
    "TransposeDimensions": _transpose, "Transpose": _transpose, "EditDistanceError": _edits,
    "Convolution": _convolution, "Pooling": _window, "MaxUnpooling": _window, "MaxPooling": _old_pooling(1),
    "AveragePooling": _old_pooling(2), "BatchNormalization": _normalization, "ROIPooling": _roi,
    "OptimizedRNNStack": _rnn_stack, "RandomSample": _sample, "RandomSampleInclusionFrequency": _sample,
    "RowStack": lambda r, _: {"axis": r.number("i")}, "RowRepeat": _repeat,
    "Reshape": lambda r, _: {"begin": r.number("i"), "end": r.number("i"), "shape": r.shape()},
    "Dropout": _seed,
    "Where": lambda r, _: {"axis": r.text() if r.version >= 11 else "WhereNodeAxis"},
    "Crop": lambda r, _: {"offset": (r.number("d"), r.number("d"))},
    "EnvironmentInput": lambda r, dtype: {"property": r.text(), "dtype": dtype},
    "ForwardBackward": lambda r, _: {"delay": r.number("i"), "blank": r.number("Q")},
} | dict.fromkeys((
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "ClassificationError", "Clip", "ColumnElementTimes",
    "CosDistance", "CosDistanceWithNegativeSamples", "Cosh", "Cosine", "CrossEntropyWithSoftmax", "DiagTimes",
    "DynamicAxis", "ElementTimes", "Equal", "ErrorPrediction", "Exp", "ExponentialLinearUnit", "Floor",
    "GatherPacked", "Greater", "GreaterEqual", "Hardmax", "If", "LabelsToGraph", "LambdaRank", "Less", "LessEqual",
    "Log", "LogPlus", "LogSoftmax", "Logistic", "LookupTable", "Minus", "NDCG1Eval", "Negate", "NotEqual",
    "PackedIndex", "Pass", "PerDimMeanVarDeNormalization", "PerDimMeanVarNormalization", "Plus", "Pow",
    "Reciprocal", "ReconcileDynamicAxis", "RectifiedLinear", "RowElementTimes", "Scale", "ScatterPacked",
    "SequenceWithSoftmax", "Sigmoid", "Sin", "Sinh", "Softmax", "Sqrt", "SquareError", "StableSigmoid", "StopGradient",
    "SumColumnElements", "SumElements", "Tan", "Tanh",
))
