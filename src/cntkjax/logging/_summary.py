"""The layers of a model with their parameters, FLOPs and memory."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..graph.arguments import public
from ..graph.function import Node, nodes, nodes_inside
from ..graph.shape import is_known, shape_text
from ..graph.variable import Edge, Leaf

# These only move or pass on their operands.
_DATA_MOVEMENT = frozenset({
    "Reshape", "Slice", "Splice", "Squeeze", "TransposeAxes", "Combine", "Pass", "NoOp", "StopGradient", "PastValue",
    "FutureValue", "ToSequenceOp", "ToSequenceLikeOp", "UnpackSequenceOp", "ToBatchAxis", "UnpackBatchAxis", "Where",
    "ReconcileDynamicAxis", "PackedIndex", "GatherPacked", "ScatterPacked", "Gather", "Crop", "Pad", "Assign",
})
_PRODUCTS = frozenset({"Times", "TransposeTimes"})
_COLUMNS = ("Layer", "Operation", "Output", "Parameters", "FLOPs", "Memory")
_NUMBER_COLUMNS = 3


@dataclass(frozen=True)
class SummaryRow:
    """A block, or an operation outside of blocks.

    Units: parameters in elements, memory in bytes; FLOPs of a forward pass and memory of the results are for one
           sample, and one step of a sequence. None: shapes are not known yet.
    """

    name: str
    operation: str
    output: str
    parameters: int | None
    flops: int | None
    memory: int | None


@dataclass(frozen=True)
class Summary:
    """Layers, operands first, and their totals; prints as a table, in notebooks as an HTML table.

    Units: `trained` and `constant` are numbers of elements, `parameter_memory` is in bytes, the rest as in
    ``SummaryRow``.
    """

    title: str
    layers: tuple[SummaryRow, ...]
    trained: int | None
    constant: int | None
    parameter_memory: int | None

    @property
    def flops(self) -> int | None:
        """FLOPs of a forward pass of one sample."""
        return _sum(layer.flops for layer in self.layers)

    @property
    def memory(self) -> int | None:
        """Bytes of the results for one sample, which training keeps for the backward pass."""
        return _sum(layer.memory for layer in self.layers)

    def _rows(self) -> list[tuple[str, ...]]:
        """The titles of columns, and a row for each layer; without names, if no layer has one."""
        rows = [
            (r.name, r.operation, r.output, _number(r.parameters), _number(r.flops), _bytes(r.memory))
            for r in self.layers
        ]
        return [row if self._has_names else row[1:] for row in (_COLUMNS, *rows)]

    @property
    def _has_names(self) -> bool:
        return any(layer.name for layer in self.layers)

    def _totals(self) -> list[str]:
        return [
            f"Parameters: {_number(self.trained)} trained, {_number(self.constant)} constant, "
            f"{_bytes(self.parameter_memory)}",
            f"Forward pass of a sample: {_number(self.flops)} FLOPs, {_bytes(self.memory)} of results",
        ]

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        aligned = [*[str.ljust] * (len(widths) - _NUMBER_COLUMNS), *[str.rjust] * _NUMBER_COLUMNS]
        lines = ["  ".join(f(c, w) for f, c, w in zip(aligned, row, widths, strict=True)) for row in rows]
        rule = "-" * len(lines[0])
        all_lines = [self.title, rule, lines[0], rule, *lines[1:], rule, *self._totals()]
        return "\n".join(line.rstrip() for line in all_lines)

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            text, numbers = cells[:-_NUMBER_COLUMNS], cells[-_NUMBER_COLUMNS:]
            start = "".join(f'<{tag} style="text-align: left">{html.escape(c)}</{tag}>' for c in text)
            end = "".join(f'<{tag} style="text-align: right">{html.escape(c)}</{tag}>' for c in numbers)
            return f"<tr>{start}{end}</tr>"

        titles, *rows = self._rows()
        body = "".join(row(cells, "td") for cells in rows)
        totals = "<br>".join(map(html.escape, self._totals()))
        return f"<table><thead>{row(titles, 'th')}</thead><tbody>{body}</tbody></table><p>{totals}</p>"


@public
def summary(model: Node) -> Summary:
    """Summarize the layers of a model: output shapes, parameters, FLOPs and memory. CNTK has no such function.

    A parameter that several layers share is counted in the first. A ``?`` marks shapes that are not known before the
    first minibatch.

    Units: FLOPs are those of a forward pass of one sample. Products and convolutions count multiplications and
           additions, reductions and pooling the elements they read, operations that only move data nothing, and all
           others the elements they compute.

    >>> import cntkjax as C
    >>> x = C.input_variable(3, name='x')
    >>> print(summary(C.layers.Sequential([C.layers.Dense(4, activation=C.relu, name='h'), C.layers.Dense(2)])(x)))
    Composite(x: Tensor[3]) -> Tensor[2]
    ----------------------------------------------------
    Layer  Operation  Output   Parameters  FLOPs  Memory
    ----------------------------------------------------
    h      Dense      [#] [4]          16     32    48 B
           Dense      [#] [2]          10     18    16 B
    ----------------------------------------------------
    Parameters: 26 trained, 0 constant, 104 B
    Forward pass of a sample: 50 FLOPs, 64 B of results
    """
    counted: set[Edge] = set()
    layers = [_layer(node, counted) for node in nodes([model.root_function]) if not node.primitive.passes_through]
    leaves = [*model.parameters, *model.constants]
    return Summary(
        str(model), tuple(layers), _sum(_size(p) for p in model.parameters), _sum(_size(c) for c in model.constants),
        _sum(_bytes_of(v) for v in leaves),
    )


def _layer(node: Node, counted: set[Edge]) -> SummaryRow:
    """The layer of a node; ``counted`` are the parameters of the layers before it, and is updated."""
    computing = [n for n in (node, *nodes_inside(node)) if not n.is_block]
    parameters = [v for v in node.node_inputs if isinstance(v, Leaf) and v.is_parameter and v not in counted]
    counted.update(parameters)
    shapes = ", ".join(f"{_axes(v)} {shape_text(v.shape)}".strip() for v in node.node_outputs)
    results = [v for n in computing if n.primitive.name not in _DATA_MOVEMENT for v in n.node_outputs]
    return SummaryRow(
        node.name, node.op_name, shapes, _sum(_size(p) for p in dict.fromkeys(parameters)),
        _sum(map(_flops, computing)), _sum(map(_bytes_of, results)),
    )


def _axes(variable: Edge) -> str:
    signs = ["*" if axis.is_sequence_axis else "#" for axis in variable.dynamic_axes]
    return f"[{','.join(signs)}]" if signs else ""


def _flops(node: Node) -> int | None:
    """FLOPs of an operation on one sample; None if a shape is not known yet."""
    name = node.primitive.name
    if name in _DATA_MOVEMENT:
        return 0
    outputs, operands = _sum(map(_size, node.node_outputs)), [_size(v) for v in node.node_inputs]
    sizes = [n for n in operands if n is not None]
    if outputs is None or len(sizes) < len(operands):
        return None
    if name in _PRODUCTS:  # [l, k] and [k, r] yield [l, r]
        return 2 * outputs * math.isqrt(sizes[0] * sizes[1] // outputs) if outputs else 0
    if name == "Convolution":
        attributes = node.node_attributes
        positions = sizes[1] if attributes["transpose"] else outputs  # each is multiplied by a whole kernel
        return 2 * positions * math.prod(attributes["kernelShape"])
    if name == "Pooling":
        window = node.node_attributes["poolingWindowShape"]
        return outputs * math.prod(window) if is_known(window) else sum(sizes)
    if name == "OptimizedRNNStack":
        return 2 * sizes[1]  # each weight is multiplied once per step
    return max(outputs, sum(sizes)) if name in ("ReduceElements", "ROIPooling") else outputs


def _size(variable: Edge) -> int | None:
    return math.prod(variable.shape) if is_known(variable.shape) else None


def _bytes_of(variable: Edge) -> int | None:
    size = _size(variable)
    return None if size is None else size * np.dtype(variable.dtype or np.float32).itemsize


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum, or None if a number is unknown."""
    known = list(numbers)
    return None if None in known else sum(n or 0 for n in known)


def _number(n: int | None) -> str:
    return "?" if n is None else f"{n:,}"


def _bytes(n: int | None) -> str:
    if n is None:
        return "?"
    size, unit = float(n), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{n} B" if unit == "B" else f"{size:.1f} {unit}"


__all__ = ["SummaryRow", "Summary", "summary"]
