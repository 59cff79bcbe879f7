"""Sequences, [T, N, *shape]. In ONNX, which has only tensors, all sequences of a batch have the same length T."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ....graph.function import Node, nodes_inside
from ....graph.shape import is_known
from ....graph.variable import Edge, outside, producer
from .._onnx import BOOL, INT64
from .graph import END, OPEN, ExportError, GraphWriter
from .table import conversion_of, operands, writes, writes_block


@writes("UnpackSequenceOp")
def _unpack(w: GraphWriter, node: Node, x: str) -> str | list[str]:
    (source,) = w.inputs(node)
    steps = _swapped(w, x, len(source.shape))
    if len(node.node_outputs) == 1:
        return steps
    mask = w.constant_of_shape(w.dimensions(steps, 0, 2), np.asarray(1, node.node_outputs[1].dtype))
    return [steps, mask]


@writes("ToSequenceOp", "ToSequenceLikeOp")
def _to_sequence(w: GraphWriter, node: Node, x: str, *others: str) -> str:
    steps = _swapped(w, x, len(node.node_outputs[0].shape))
    lengths = w.inputs(node)[1:] if node.op_name == "ToSequenceOp" else []
    if not lengths or ((source := producer(lengths[0])) is not None and source.op_name == "StopGradient"):
        return steps  # all steps: a convolution along time passes its length through stop_gradient
    count = w.reshape(w.slice(w.cast(others[0], INT64), [0], [1], [0]), 1)
    positions = w.reshape(w.node("NonZero", [w.constant_of_shape(count, np.float32(1))]), -1)
    return w.node("Gather", [steps, positions], axis=0)


def _swapped(w: GraphWriter, x: str, rank: int) -> str:
    """x with the axes of time and batch exchanged."""
    return w.node("Transpose", [x], perm=[1, 0, *range(2, rank + 2)])


@writes("ReconcileDynamicAxis")
def _reconciled(w: GraphWriter, node: Node, x: str, like: str) -> str:
    source, other = w.inputs(node)
    lead = w.lead(other)
    if w.lead(source) == lead:
        return x
    return w.expand(x, like, lead, len(source.shape))


@writes("PastValue", "FutureValue")
def _delay(w: GraphWriter, node: Node, x: str, initial: str) -> str:
    """The steps with the initial states before or after them, without as many steps at the other end."""
    value, state = w.inputs(node)
    out, k = node.node_outputs[0], int(node.node_attributes["offset"])
    past = node.primitive.delay < 0
    if state.sequence_axis is not None:
        begin, end = (-k, END) if past else (0, k)
        states = w.slice(initial, [begin], [end], [0])
    else:
        states = initial_states(w, node, initial, state, x, k)
    if len(value.shape) < len(out.shape):
        x = w.with_rank(x, value, len(out.shape))
    both = w.node("Concat", [states, x] if past else [x, states], axis=0)
    return w.slice(both, [0 if past else k], [-k if past else END], [0])


def initial_states(w: GraphWriter, node: Node, initial: str, state: Edge, like: str, steps: int = 0) -> str:
    """The initial state of each sequence, [steps, N, *shape], or [N, *shape] for no steps; `like` is [T, N, ...]."""
    shape = node.node_outputs[0].shape
    if any(d < 0 for d in shape):
        raise ExportError(f"{node!r}: a delay of values of free size cannot be written")
    initial = w.with_rank(initial, state, len(shape))
    sizes = [w.dimensions(like, 1, 2), w.ints(*shape)] if shape else [w.dimensions(like, 1, 2)]
    target = w.node("Concat", [w.ints(steps), *sizes] if steps else sizes, axis=0)
    return w.node("Expand", [initial, target])


# ---- steps selected by a condition
@writes("Where")
def _where(w: GraphWriter, node: Node, condition: str) -> str:
    """The numbers of the selected steps, [count, N]. A tensor holds them if each sequence has as many, otherwise a
    Reshape that says so in its name is an error where the file is run.

    A condition of n selects a step n times, and fractions add up: the number of output j is the number of steps up to
    which the conditions sum to at most j.
    """
    out = node.node_outputs[0]
    dtype = out.dtype or np.float32
    rows = w.node("Transpose", [w.reshape(condition, 0, 0)], perm=[1, 0])  # [N, T]
    if _is_boolean(w.inputs(node)[0]):
        counts = w.reduce("ReduceSum", w.cast(w.cast(rows, BOOL), INT64), [1], False)
        selected = w.slice(w.node("NonZero", [w.cast(rows, BOOL)]), [1], [2], [0])
        numbers = w.cast(_of_each_sequence(w, selected, counts), dtype)  # [N, count]
    else:
        sums = w.node("MatMul", [rows, _not_later(w, rows, dtype)])  # [N, T]
        counts = w.cast(w.node("Ceil", [w.reshape(w.slice(sums, [-1], [END], [1]), OPEN)]), INT64)
        every = w.node("NonZero", [w.constant_of_shape(w.reduce("ReduceSum", counts, [0], True), np.float32(1))])
        number = w.cast(w.slice(_of_each_sequence(w, every, counts), [0], [1], [0]), dtype)  # [1, count]
        later = w.node("Greater", [w.unsqueeze(sums, [1]), w.unsqueeze(number, [2])])  # [N, count, T]
        numbers = w.reduce("ReduceSum", w.cast(w.node("Not", [later]), dtype), [2], False)
    steps = w.node("Transpose", [numbers], perm=[1, 0])
    return steps if out.sequence_axis is not None else w.reshape(steps, OPEN)


def _of_each_sequence(w: GraphWriter, values: str, counts: str) -> str:
    """Values of one sequence after the other, as [N, count]; they do not fit unless all counts are equal."""
    shape = w.node("Concat", [w.node("Shape", [counts]), w.reduce("ReduceMax", counts, [0], True)], axis=0)
    fitting = w.node("Reshape", [values, shape])
    w.nodes[-1].name = w.unique(f"{w.label}: as many steps of each sequence")  # what errors of a runtime name
    return fitting


def _not_later(w: GraphWriter, rows: str, dtype: DTypeLike) -> str:
    """[T, T], with 1 where the first step is not later than the second; `rows` are [N, T]."""
    ones = w.constant_of_shape(w.dimensions(rows, 1, 2), np.float32(1))
    place = w.cast(w.node("NonZero", [ones]), dtype)  # [1, T]
    return w.cast(w.node("Not", [w.node("Greater", [w.node("Transpose", [place], perm=[1, 0]), place])]), dtype)


def _is_boolean(condition: Edge) -> bool:
    """True if a condition is known to be 0 or 1."""
    node = producer(condition)
    conversion = None if node is None else conversion_of(node)
    return conversion is not None and conversion.boolean


@writes("PackedIndex")
def _packed_index(w: GraphWriter, node: Node, source: str, steps: str) -> str:
    return steps


@writes("GatherPacked")
def _gather_packed(w: GraphWriter, node: Node, x: str, index: str) -> str:
    """Steps of each sequence, by their places among all steps of all sequences."""
    sequences = w.dimensions(x, 1, 2)
    numbers = w.cast(w.node("Reshape", [index, w.node("Concat", [w.ints(OPEN), sequences], axis=0)]), INT64)
    which = w.node("NonZero", [w.constant_of_shape(sequences, np.float32(1))])  # [1, N]
    places = w.node("Add", [w.node("Mul", [numbers, sequences]), which])
    flat = w.node("Concat", [w.ints(OPEN), w.dimensions(x, 2, END)], axis=0)
    steps = w.node("Gather", [w.node("Reshape", [x, flat]), places], axis=0)
    return steps if node.node_outputs[0].sequence_axis is not None else w.squeeze(steps, [0])


@writes("ScatterPacked")
def _scatter_packed(w: GraphWriter, node: Node, x: str, index: str, condition: str) -> str:
    """The steps scattered into zeros of the condition's length."""
    value = w.inputs(node)[0]
    rank = len(value.shape)
    zeros = w.node("Concat", [w.dimensions(condition, 0, 1), w.dimensions(x, 1, END)], axis=0)
    zeros = w.constant_of_shape(zeros, np.asarray(0, value.dtype))
    places = w.unsqueeze(w.cast(index, INT64), range(2, rank + 2)) if rank else w.cast(index, INT64)
    places = w.node("Expand", [places, w.node("Shape", [x])])
    return w.node("ScatterElements" if w.opset >= 11 else "Scatter", [zeros, places, x], axis=0)


@writes_block("Sequence::Slice", matches=lambda b: _range(b) is not None)
def _slice(w: GraphWriter, node: Node, x: str) -> str:
    """A range of steps; a single step without the axis (first, last)."""
    begin, end = _range(node) or (0, 0)
    steps = w.slice(x, [begin], [end or END], [0])
    out = node.node_outputs[0]
    if out.sequence_axis is not None:
        return steps
    if not is_known(out.shape):
        return w.squeeze(steps, [0])
    return w.reshape(steps, OPEN, *out.shape)  # CNTK 2.7 reads no Squeeze of a step


def _range(block: Node) -> tuple[int, int] | None:
    """Begin and end of a slice, from the delays inside, which select steps near the ends, or all others."""
    inner = nodes_inside(block)
    begin = end = 0
    if outside(operands(block)[0]).sequence_axis is None:
        return None
    for delay in (n for n in inner if n.block_composite is None and n.primitive.delay):
        steps, past = int(delay.node_attributes["offset"]), delay.primitive.delay < 0
        negated = any(n.op_name == "Minus" and delay.node_outputs[0] in n.node_inputs for n in inner)
        if past == negated:
            begin = steps if past else -steps
        else:
            end = steps if past else -steps
    return begin, end
