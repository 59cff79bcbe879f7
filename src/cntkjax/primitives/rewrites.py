"""The rewrite rules: which compositions are computed as one fused primitive. `engine.plan.rewrite` applies them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.plan.indices import are_in_range
from ..engine.plan.parts import resolve
from ..engine.plan.rewrite import BLOCK_RULES, NODE_RULES, Rewrite, Rule
from ..graph.axis import BATCH, SEQUENCE, Axis
from ..graph.function import Node
from ..graph.shape import is_unknown
from ..graph.variable import Edge, Leaf, producer, value_of
from ._patterns import Bind, Bindings, OperationPattern, Pattern, match_block, matches, op
from .base import Attrs
from .contraction import CONTRACTION, reduced_axes
from .elementwise import QUOTIENT
from .fused import GRID_SLICE, LOCAL_RESPONSE_NORMALIZATION, SEQUENCE_FIRST, SEQUENCE_LAST, SEQUENCE_SOFTMAX
from .legacy import LogSoftmax
from .pooling import MAX, RECTIFIED_POOLING
from .reduce import ReduceElements, Softmax, axes_of
from .select import GATHER_IN_RANGE


# ---- quotients
def quotient(node: Node) -> Rewrite | None:
    """A product with a reciprocal of its own size; one that is spread is better divided first and multiplied then."""
    for dividend, factor in (node.node_inputs, node.node_inputs[::-1]):
        reciprocal = producer(resolve(factor))
        if reciprocal is not None and reciprocal.op_name == "Reciprocal":
            divisor = reciprocal.node_inputs[0]
            same_size = (dividend.shape, dividend.dynamic_axes) == (divisor.shape, divisor.dynamic_axes)
            if same_size and not is_unknown(dividend.shape):
                return Rewrite(QUOTIENT, [dividend, divisor], {})
    return None


# ---- reductions
def contraction(node: Node) -> Rewrite | None:
    """A sum of products over axes that both factors have, where one of them lacks another axis, as in attention."""
    attrs = node.node_attributes
    product = producer(resolve(node.node_inputs[0]))
    if attrs["reductionOpName"] != "Sum" or product is None or product.op_name != "ElementTimes":
        return None
    a, b = product.node_inputs
    if any(v.is_sparse or is_unknown(v.shape) for v in (a, b)) or not all(x.is_static_axis for x in axes_of(attrs)):
        return None
    rank = max(len(a.shape), len(b.shape))
    sizes = list(zip(*((1,) * (rank - len(v.shape)) + v.shape for v in (a, b)), strict=True))
    reduced = reduced_axes(attrs, rank)
    broadcast = [sizes[k] for k in range(rank) if k not in reduced and 1 in sizes[k] and sizes[k] != (1, 1)]
    if not broadcast or not any(1 not in sizes[k] for k in reduced):
        return None
    if all(b_size == 1 for _, b_size in broadcast):  # the larger factor becomes the weight in a loop
        a, b = b, a
    return Rewrite(CONTRACTION, [a, _before_spreading(b, a)], attrs | {"rank": rank})


def _before_spreading(factor: Edge, other: Edge) -> Edge:
    """A factor before it was spread over the steps that the other one has in any case."""
    node = producer(resolve(factor))
    if node is None or node.op_name != "ReconcileDynamicAxis" or factor.dynamic_axes != other.dynamic_axes:
        return factor
    return node.node_inputs[0] if node.node_inputs[0].dynamic_axes == (BATCH,) else factor


def _over_steps(reduction: str) -> Attrs:
    return {"reductionOpName": reduction, "axis": SEQUENCE, "reductionKeepDimensions": False}


def sequence_reduction(block: Node) -> Rewrite | None:
    """Sequences unpacked with neutral padding, and reduced over the steps."""
    for reduction, padding in (("Sum", 0.0), ("Max", float("-inf"))):
        unpacked = op("UnpackSequenceOp", "x", sequenceUnpackPaddingValue=padding)
        steps = Axis(-1 - len(block.node_outputs[0].shape))
        bindings = match_block(block, op("ReduceElements", unpacked, **_over_steps(reduction) | {"axis": steps}))
        if bindings is not None:
            return Rewrite(ReduceElements, [bindings["x"]], _over_steps(reduction))
    return None


# ---- indices
def gather_in_range(node: Node) -> Rewrite | None:
    """A gather by indices that cannot be out of range, which needs no comparison with the size."""
    size = node.primitive.index_limit(node)
    if size is None or node.primitive is GATHER_IN_RANGE or not are_in_range(node.node_inputs[1], size):
        return None
    return Rewrite(GATHER_IN_RANGE, list(node.node_inputs), node.node_attributes)


# ---- maxima
def rectified_pooling(node: Node) -> Rewrite | None:
    """Max pooling of relu's values, unless these are scalars, which stay."""
    relu = producer(resolve(node.node_inputs[0]))
    if relu is None or relu.op_name != "ReLU" or node.node_attributes["poolingType"] != MAX:
        return None
    if not relu.node_inputs[0].shape:
        return None
    return Rewrite(RECTIFIED_POOLING, list(relu.node_inputs), node.node_attributes)


# ---- softmax
def _reduced(reduction: str, x: Pattern) -> Bind:
    return Bind(reduction, op("ReduceElements", x, reductionOpName=reduction, reductionKeepDimensions=True))


_SHIFTED = op("Minus", "x", _reduced("Max", "x"))
_TOTAL = _reduced("Sum", op("Exp", _SHIFTED))


def static_softmax(primitive: Any, pattern: Pattern) -> Rule:
    """The rule for a softmax along one static axis; its gradient needs no residual but the result."""

    def rule(block: Node) -> Rewrite | None:
        bindings = match_block(block, pattern)
        if bindings is None:
            return None
        axes = {_attribute(bindings[reduction], "axis") for reduction in ("Max", "Sum")}
        return None if len(axes) > 1 or None in axes else Rewrite(primitive, [bindings["x"]], {"axis": axes.pop()})

    return rule


def _attribute(v: Edge, name: str) -> Any:
    """An attribute of the node that computes a variable; None if it has none of this name."""
    node = producer(v)
    assert node is not None
    return node.node_attributes.get(name)


def _spread(pattern: Pattern) -> OperationPattern:
    return op("ReconcileDynamicAxis", pattern, "x")


_POWERS = op("Exp", op("Minus", "x", _spread(op("ReduceElements", "x", **_over_steps("Max")))))
_SEQUENCE_SOFTMAX = op(
    "ElementTimes", _POWERS, op("Reciprocal", _spread(op("ReduceElements", _POWERS, **_over_steps("Sum"))))
)


def sequence_softmax(block: Node) -> Rewrite | None:
    """The softmax over the steps of sequences."""
    bindings = match_block(block, _SEQUENCE_SOFTMAX)
    return None if bindings is None else Rewrite(SEQUENCE_SOFTMAX, [bindings["x"]], {})


# ---- steps of sequences
_ZEROS = _spread(0)


def _one_step(delay: str) -> OperationPattern:
    mark = Bind("mark", op(delay, _ZEROS, 1, offset=1))
    where = op("Where", mark, newSequenceAxisLengthScalingFactor=0, newSequenceAxisLengthAdditiveFactor=1)
    return op("GatherPacked", "x", op("PackedIndex", "x", where))


def first_or_last(block: Node) -> Rewrite | None:
    """The last step of sequences, or the first; `grid_slice` handles other slices."""
    if (bindings := match_block(block, _one_step("FutureValue"))) is not None:
        return Rewrite(SEQUENCE_LAST, [bindings["x"]], {})
    if (bindings := match_block(block, _one_step("PastValue"))) is not None:
        return Rewrite(SEQUENCE_FIRST, [bindings["x"], bindings["mark"]], {})
    return None


_SINCE = op("Minus", 1, Bind("begin", op("PastValue", _ZEROS, 1)))  # all but the first steps
_UNTIL = (Bind("first", op("PastValue", _ZEROS, 1)), op("Minus", 1, Bind("last", op("FutureValue", _ZEROS, 1))))
_RANGES: tuple[Pattern, ...] = (_SINCE, *_UNTIL, *(op("ElementTimes", _SINCE, until) for until in _UNTIL))


def grid_slice(gather: Node) -> Rewrite | None:
    """The steps from a fixed one on, up to one counted from either end."""
    x, index = gather.node_inputs
    if index.sequence_axis is None or x.sequence_axis is None:
        return None
    for condition in _RANGES:
        bindings: Bindings = {"x": resolve(x)}
        if matches(index, op("PackedIndex", "x", op("Where", condition)), bindings):
            offsets = {name: _attribute(v, "offset") for name, v in bindings.items() if name != "x"}
            end = offsets.get("first", 0) - offsets.get("last", 0)
            return Rewrite(GRID_SLICE, [x, index], {"begin": offsets.get("begin", 0), "end": end})
    return None


# ---- normalization over neighbouring channels
_SQUARES = op("Reshape", op("ElementTimes", "x", "x"), newShape=(1, -1))
_NEIGHBOURS = op("Reshape", op(
    "Convolution", "kernel", _SQUARES,
    strides=(1,) * 4, autoPadding=[True] * 4, dilation=(1,) * 4, transpose=False, groups=1,
), newShape=(-1,))
_BASE = op("Plus", "bias", _NEIGHBOURS)
_NORMALIZED = op("ElementTimes", "x", op("Reciprocal", op("Exp", op("ElementTimes", "beta", op("Log", _BASE)))))


def local_response_normalization(block: Node) -> Rewrite | None:
    """Of images, by a kernel with the same number everywhere."""
    bindings = match_block(block, _NORMALIZED)
    if bindings is None or len(bindings["x"].shape) != 3:
        return None
    operands = [bindings[name] for name in ("kernel", "bias", "beta")]
    constants = [v for v in operands if isinstance(v, Leaf) and v.is_constant]
    if constants != operands:
        return None
    kernel = np.asarray(value_of(constants[0]))
    if kernel.ndim != 4 or kernel.shape[1] != kernel.size or not (kernel == kernel.flat[0]).all():
        return None
    return Rewrite(LOCAL_RESPONSE_NORMALIZATION, [bindings["x"], *constants], {})


NODE_RULES.update({
    "ElementTimes": quotient, "Gather": gather_in_range, "GatherPacked": grid_slice, "Pooling": rectified_pooling,
    "ReduceElements": contraction,
})
BLOCK_RULES.update({
    "LocalResponseNormalization": local_response_normalization,
    "LogSoftmax": static_softmax(LogSoftmax, op("Minus", _SHIFTED, op("Log", _TOTAL))),
    "Softmax": static_softmax(Softmax, op("ElementTimes", op("Exp", _SHIFTED), op("Reciprocal", _TOTAL))),
    "Sequence::ReduceElements": sequence_reduction,
    "Sequence::Slice": first_or_last,
    "Sequence::Softmax": sequence_softmax,
})
