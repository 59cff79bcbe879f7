"""Whether it can be seen how far sequences are padded that became arrays: if not, their lengths may be rounded up.

A step behind the end of its sequence holds some value; what operations make of it is followed through the graph. In
attention, the relevance there is -1e30, its exponential 0, and so is what it adds to a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...graph.axis import Axis
from ...graph.function import Function
from ...graph.shape import FREE
from ...graph.variable import Leaf, Variable

FAR = 1e30  # beyond all numbers that are meant: the exponential of its negative is 0
ANYTHING = np.nan

Padding = Mapping[Variable, float]  # what stands behind the ends of values that have an axis of unpacked steps


def padding_shows(nodes: Iterable[tuple[Function, Sequence[Variable]]], outputs: Sequence[Variable]) -> bool:
    """True if an output may depend on the number of steps to which sequences are padded.

    `nodes` are those of a plan with their operands, in the order of computation.
    """
    padding: dict[Variable, float] = {}
    for node, operands in nodes:
        if node.primitive.name == "UnpackSequenceOp":
            behind_values = (node.node_attributes["sequenceUnpackPaddingValue"], 0.0)
            padding.update(zip(node.node_outputs, behind_values, strict=False))  # the second says which steps there are
        elif any(FREE in v.shape for v in operands):
            if not all(v in padding for v in operands if FREE in v.shape):
                return True
            if FREE in node.node_outputs[0].shape:
                behind = _behind(node, operands, padding)
                if behind is None:
                    return True
                padding[node.node_outputs[0]] = behind
            elif not _is_neutral(node, operands, padding):
                return True
    return any(v in padding for v in outputs)


def _behind(node: Function, operands: Sequence[Variable], padding: Padding) -> float | None:
    """What a node with the axis of steps has behind their ends; None if it might mix the steps."""
    name, behind = node.primitive.name, [padding.get(v) for v in operands]
    if name in ("Reshape", "ReconcileDynamicAxis", "NoOp"):
        return behind[0]
    if name == "Times":
        return ANYTHING if behind[1] is None else None
    if name in ("Softmax", "LogSoftmax"):
        if node.node_attributes.get("axis", over := _steps(operands[0])) != over:
            return ANYTHING
        return None if not behind[0] <= -FAR else 0.0 if name == "Softmax" else behind[0]  # type: ignore[operator]
    if name in ("ReduceElements", "Contraction"):  # of each step on its own
        if any(_reduces_steps(node, v) is not False for v in operands if FREE in v.shape):
            return None
        return 0.0 if 0 in behind and node.node_attributes["reductionOpName"] == "Sum" else ANYTHING
    if not node.primitive.elementwise:
        return None
    if (name == "ElementTimes" and 0 in behind) or (name == "Quotient" and behind[0] == 0):
        return 0.0
    if name == "Exp" and behind[0] <= -FAR:  # type: ignore[operator]
        return 0.0
    if name == "Minus" and behind[1] is None and abs(behind[0]) >= FAR:  # type: ignore[arg-type]
        return behind[0]
    if name == "Select" and behind[0] == 0:
        return _number(operands[2]) if behind[2] is None else behind[2]
    return ANYTHING


def _steps(v: Variable) -> Axis:
    """The axis of the steps."""
    return Axis(v.shape.index(FREE) - len(v.shape))


def _reduces_steps(node: Function, v: Variable) -> bool | None:
    """Whether a node reduces over the steps of an operand; None if it has several such axes."""
    if v.shape.count(FREE) > 1:
        return None
    axes = node.node_attributes.get("axisVec") or [node.node_attributes.get("axis")]
    return any(axis in (_steps(v), Axis.all_static_axes()) for axis in axes)


def _number(v: Variable) -> float:
    return float(v._value) if isinstance(v, Leaf) and v.is_constant and v.shape == () else ANYTHING


def _is_neutral(node: Function, operands: Sequence[Variable], padding: Padding) -> bool:
    """True for a reduction or product over the steps that does not see what is behind them."""
    if node.primitive.name in ("Times", "TransposeTimes"):
        return any(padding.get(v) == 0 and v.shape.count(FREE) == 1 for v in operands)
    if not all(_reduces_steps(node, v) for v in operands if FREE in v.shape):
        return False
    if node.primitive.name == "Contraction":
        return any(padding.get(v) == 0 for v in operands)
    behind = padding[operands[0]]
    if len(operands) > 1:
        return False
    operation = node.node_attributes.get("reductionOpName", "")
    return (
        (operation == "Sum" and behind == 0)
        or (operation in ("Max", "LogSum") and behind <= -FAR)
        or (operation == "Min" and behind >= FAR)
    )
