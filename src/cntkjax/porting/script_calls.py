"""Operations of a graph as calls of the public API: what makes a node, or a block, of its operands."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ..engine.plan.rewrite import rewritten
from ..graph.axis import END_STATIC, Axis
from ..graph.function import Node, nodes_inside
from ..graph.variable import Leaf, outside, value_of
from .script import CALLS, NAMED, Code, call, operands, rows, text_of

_INFIX = {"Plus": "+", "Minus": "-", "ElementTimes": "*"}
_SIMPLE = {
    "Plus": "plus", "Minus": "minus", "ElementTimes": "element_times", "Negate": "negate", "Exp": "exp", "Log": "log",
    "Sqrt": "sqrt", "Floor": "floor", "Abs": "abs", "Reciprocal": "reciprocal", "Tanh": "tanh", "ReLU": "relu",
    "StableSigmoid": "sigmoid", "Sigmoid": "sigmoid", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin",
    "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh", "Acosh": "acosh",
    "Atanh": "atanh", "ELU": "elu", "SELU": "selu", "LeakyReLU": "leaky_relu", "Softplus": "softplus",
    "Softsign": "softsign", "PReLU": "param_relu", "LogPlus": "log_add_exp",
    "Pow": "pow", "Less": "less", "LessEqual": "less_equal", "Greater": "greater", "GreaterEqual": "greater_equal",
    "Equal": "equal", "NotEqual": "not_equal", "Select": "element_select", "Clip": "clip",
    "StopGradient": "stop_gradient", "NoOp": "alias", "Assign": "assign", "Hardmax": "hardmax",
    "StraightThrough": "straight_through_impl", "ElementDivide": "element_divide", "ElementMax": "element_max",
    "ElementMin": "element_min", "And": "element_and", "Or": "element_or", "Xor": "element_xor", "Not": "element_not",
    "Mean": "mean", "Sum": "sum", "TransposeTimes": "times_transpose", "CosDistance": "cosine_distance",
    "SquaredError": "squared_error", "BinaryCrossEntropy": "binary_cross_entropy",
    "LabelsToGraph": "labels_to_graph", "UnpackBatch": "unpack_batch", "ToBatch": "to_batch",
    "Sequence::IsFirst": "sequence.is_first", "Sequence::IsLast": "sequence.is_last",
    "Sequence::BroadcastAs": "sequence.broadcast_as", "Sequence::Softmax": "sequence.softmax",
    "Sequence::Gather": "sequence.gather", "Sequence::Scatter": "sequence.scatter",
    "ReconcileDynamicAxis": "reconcile_dynamic_axes", "Where": "sequence.where", "ToSequenceOp": "to_sequence",
    "ToSequenceLikeOp": "to_sequence_like", "PerDimMeanVarianceNormalize": "per_dim_mean_variance_normalize",
}
_REDUCTIONS = {
    "Sum": "reduce_sum", "Mean": "reduce_mean", "Max": "reduce_max", "Min": "reduce_min", "Prod": "reduce_prod",
    "LogSum": "reduce_log_sum_exp", "Argmax": "argmax", "Argmin": "argmin",
}
_WITH_AXES = {
    "ReduceL1": "reduce_l1", "ReduceL2": "reduce_l2", "ReduceSumSquare": "reduce_sum_square",
    "Softmax": "softmax", "LogSoftmax": "log_softmax", "ExpandDims": "expand_dims", "Flatten": "flatten",
    "GatherOp": "gather", "Gather": "gather", "Squeeze": "squeeze", "Splice": "splice",
    "CrossEntropyWithSoftmax": "cross_entropy_with_softmax",
}


NAMED |= {name for name in _SIMPLE if name.startswith("Sequence::")}


def _stored(values: Any) -> Any:
    """Files have flags for each axis from the last one on; one flag is for all axes."""
    return [bool(v) for v in values][::-1]


@rows(CALLS, *_SIMPLE)
def _simple(node: Node, x: list[str]) -> Iterator[str]:
    if node.op_name in _INFIX and not node.name and any(not t[0].isdigit() and t[0] != "-" for t in x):
        yield f"{x[0]} {_INFIX[node.op_name]} {x[1]}"
    else:
        yield call(_SIMPLE[node.op_name], *x, name=node.name)


@rows(CALLS, "Combine")
def _combine(node: Node, x: list[str]) -> Iterator[str]:
    yield call("combine", f"[{', '.join(x)}]", name=node.name)


@rows(CALLS, "Times")
def _times(node: Node, x: list[str]) -> Iterator[str]:
    rank, mapped = (int(node.node_attributes[k]) for k in ("outputRank", "inferInputRankToMap"))
    yield call("times", *x, output_rank=None if rank == 1 else rank,
               infer_input_rank_to_map=None if mapped == -1 else mapped, name=node.name)


@rows(CALLS, "PastValue", "FutureValue")
def _delay(node: Node, x: list[str]) -> Iterator[str]:
    path = {"PastValue": "sequence.past_value", "FutureValue": "sequence.future_value"}[node.op_name]
    steps, (_, initial) = int(node.node_attributes["offset"]), map(outside, node.node_inputs)
    if isinstance(initial, Leaf) and initial.is_constant and prod(initial.shape) == 1:
        x = [x[0], repr(float(np.ravel(value_of(initial))[0]))]
    yield call(path, *x, time_step=None if steps == 1 else steps, name=node.name)


# ---- along axes
@rows(CALLS, *_WITH_AXES)
def _with_axes(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    axis = a["axisVec"] if "axisVec" in a else a.get("axis")
    if axis is None and node.is_block:  # CNTK's files have the axis inside only
        axis = next((n.node_attributes["axis"] for n in nodes_inside(node) if "axis" in n.node_attributes), None)
    key = "axes" if node.op_name == "Squeeze" else "axis"
    keep = False if a.get("reductionKeepDimensions") is False else None
    value = axis[0] if isinstance(axis, list) and len(axis) == 1 else axis
    yield call(_WITH_AXES[node.op_name], *x, **{key: value}, keepdims=keep, name=node.name)


@rows(CALLS, "ReduceElements")
def _reduce(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    axes = list(a["axisVec"]) if "axisVec" in a else [a["axis"]]
    op = a["reductionOpName"]
    keep = False if not a.get("reductionKeepDimensions", True) and not op.startswith("Arg") else None
    axis = axes[0] if len(axes) == 1 else axes
    yield call(_REDUCTIONS[op], *x, axis=axis, keepdims=keep if axis != Axis.all_static_axes() else None,
               name=node.name)


@rows(CALLS, "Sequence::ReduceElements")
def _reduce_steps(node: Node, x: list[str]) -> Iterator[str]:
    for path in ("sequence.reduce_sum", "sequence.reduce_max"):
        yield call(path, *x, name=node.name)


@rows(CALLS, "Sequence::Slice")
def _slice_steps(node: Node, x: list[str]) -> Iterator[str]:
    for path in ("sequence.first", "sequence.last"):
        yield call(path, *x, name=node.name)
    attributes = [rewritten(n).node_attributes for n in (node, *nodes_inside(node))]
    for begin, end in ((str(int(a["begin"])), str(int(a["end"]))) for a in attributes if "begin" in a):
        yield call("sequence.slice", *x, begin, end, name=node.name)


# ---- shapes
def _position(axis: Axis) -> int | Axis:
    """A place between axes as the API counts it, from how files count it."""
    if axis == END_STATIC:
        return 0
    return END_STATIC if axis == Axis(-1) else axis.static_axis_index() + 1


@rows(CALLS, "Reshape")
def _reshape(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    begin, end = a["endAxis"], a["beginAxis"]
    whole = (begin == END_STATIC or -begin.static_axis_index() > len(node.node_inputs[0].shape)) and end == Axis(-1)
    yield call("reshape", *x, text_of(tuple(a["newShape"])), begin_axis=None if whole else _position(begin),
               end_axis=None if whole or end == Axis(-1) else _position(end), name=node.name)


@rows(CALLS, "TransposeAxes")
def _transpose(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    if "axisVec" in a:
        rank = len(a["axisVec"])
        order = tuple(axis.static_axis_index() % rank for axis in reversed(a["axisVec"]))
        yield call("transpose", *x, text_of(order), name=node.name)
    else:
        yield call("swapaxes", *x, text_of(a["axis1"]), text_of(a["axis2"]), name=node.name)


@rows(CALLS, "Slice")
def _slice(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    keys = ("axis", "beginIndex", "endIndex", "sliceStrides")
    many = "axisVec" in a
    axis, begin, end, step = (a.get(f"{k}Vec" if many else k) for k in keys)
    assert begin is not None and end is not None
    plain = step in (None, 1) or (many and all(s == 1 for s in step or []))
    begin, end = ([*map(int, v)] if many else int(v) for v in (begin, end))
    yield call("slice", *x, *map(text_of, (axis, begin, end)), strides=None if plain else step, name=node.name)


@rows(CALLS, "Pad")
def _pad(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    pattern = list(zip(map(int, a["paddingHead"]), map(int, a["paddingFoot"]), strict=True))[::-1]
    yield call("pad", *x, text_of(pattern), mode=int(a["paddingMode"]) or None,
               constant_value=float(a["paddingConstantValue"]) or None, name=node.name)


@rows(CALLS, "OneHotOp")
def _one_hot(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    yield call("one_hot", *x, str(int(a["numClass"])), sparse_output=bool(a["oneHotOutputSparse"]) or None,
               axis=a["onehotAxis"], name=node.name)


@rows(CALLS, "TopK")
def _top_k(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    yield call("top_k", *x, str(int(a["numItems"])), axis=a["axis"], name=node.name)


@rows(CALLS, "Cast")
def _cast(node: Node, x: list[str]) -> Iterator[str]:
    yield call("cast", *x, dtype=node.node_outputs[0].dtype, name=node.name)


@rows(CALLS, "ConstantOp")
def _filled(node: Node, x: list[str]) -> Iterator[str]:
    yield call({0.0: "zeros_like", 1.0: "ones_like"}[float(node.node_attributes["fillValue"])], *x, name=node.name)


@rows(CALLS, "EyeLikeOp")
def _eye(node: Node, x: list[str]) -> Iterator[str]:
    yield call("eye_like", *x, sparse_output=bool(node.node_attributes["OutputSparse"]), name=node.name)


@rows(CALLS, "Crop")
def _crop(node: Node, x: list[str]) -> Iterator[str]:
    offset = node.node_attributes.get("offset")
    if offset:
        yield call("crop_manual", *x, *(str(int(v)) for v in offset), name=node.name)
    else:
        yield call("crop_automatic" if len(x) == 2 else "crop_automatic_with_ancestors", *x, name=node.name)


@rows(CALLS, "UnpackSequenceOp")
def _unpack(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    yield call("sequence.unpack", *x, repr(float(a["sequenceUnpackPaddingValue"])),
               no_mask_output=bool(a["sequenceUnpackSuppressMaskOutput"]) or None, name=node.name)


# ---- windows
@rows(CALLS, "Convolution")
def _convolution(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    options: dict[str, Any] = {
        "strides": tuple(map(int, a["strides"])), "auto_padding": _stored(a["autoPadding"]),
        "dilation": tuple(map(int, a["dilation"])), "sharing": _stored(a["sharing"]),
    }
    if a["transpose"]:
        shape = tuple(map(int, a["outputShape"]))
        yield call("convolution_transpose", *x, **options, output_shape=shape if shape != (0,) else None,
                   name=node.name)
    else:
        yield call("convolution", *x, **options, groups=None if a["groups"] == 1 else int(a["groups"]), name=node.name)


@rows(CALLS, "Pooling", "Unpooling")
def _pooling(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    is_pooling = node.op_name == "Pooling"
    kind = ("C.MAX_POOLING", "C.AVG_POOLING")[int(a["poolingType"])] if is_pooling else "C.MAX_UNPOOLING"
    window = tuple(map(int, a["poolingWindowShape" if is_pooling else "unpoolingWindowShape"]))
    yield call("pooling" if is_pooling else "unpooling", *x, kind, text_of(window),
               strides=tuple(map(int, a["strides"])), auto_padding=_stored(a["autoPadding"]),
               ceil_out_dim=a.get("ceilOutDim") or None, include_pad=a.get("includePad") or None, name=node.name)


@rows(CALLS, "ROIPooling")
def _regions(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    kind = ("C.MAX_POOLING", "C.AVG_POOLING")[int(a["poolingType"])]
    yield call("roipooling", *x, kind, text_of(tuple(map(int, a["roiOutputShape"]))), repr(float(a["spatialScale"])),
               name=node.name)


@rows(CALLS, "BatchNormalization")
def _normalization(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    yield call(
        "batch_normalization", *x[:5], spatial=bool(a["spatial"]),
        normalization_time_constant=float(a["normalizationTimeConstant"]),
        blend_time_constant=float(a["blendTimeConstant"]) or None, epsilon=float(a["epsilon"]),
        use_cudnn_engine=bool(a["useCuDNNEngine"]) or None,
        disable_regularization=bool(a["disableRegularization"]) or None,
        running_count=Code(x[5]) if len(x) > 5 else None, name=node.name,
    )


@rows(CALLS, "OptimizedRNNStack")
def _stack(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    yield call("optimized_rnnstack", *x, str(int(a["hiddenSize"])), str(int(a["numLayers"])),
               bidirectional=bool(a["bidirectional"]) or None, recurrent_op=a["recurrentOp"], name=node.name)


# ---- criteria and random numbers
@rows(CALLS, "ClassificationError")
def _classification_error(node: Node, x: list[str]) -> Iterator[str]:
    best = outside(node.node_inputs[2]) if len(node.node_inputs) > 2 else None
    count = int(value_of(best)) if isinstance(best, Leaf) else None
    yield call("classification_error", *x[:2], topN=count, name=node.name)


@rows(CALLS, "CosDistanceWithNegativeSamples")
def _cosines(node: Node, x: list[str]) -> Iterator[str]:
    numbers = (str(int(np.ravel(value_of(v))[0])) for v in map(outside, node.node_inputs[2:]) if isinstance(v, Leaf))
    yield call("cosine_distance_with_negative_samples", *x[:2], *numbers, name=node.name)


@rows(CALLS, "Logistic")
def _logistic(node: Node, x: list[str]) -> Iterator[str]:
    path = "binary_cross_entropy" if len(operands(node)) == 2 else "weighted_binary_cross_entropy"
    yield call(path, *x, name=node.name)


@rows(CALLS, "ForwardBackward")
def _forward_backward(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    delay = int(a["DelayConstraint"])
    yield call("forward_backward", *x, str(int(a["BlankTokenId"])), delayConstraint=None if delay == -1 else delay,
               name=node.name)


def _seed(node: Node) -> int:
    return int(node.node_attributes["rngSeed"])


@rows(CALLS, "Dropout")
def _dropout(node: Node, x: list[str]) -> Iterator[str]:
    yield call("dropout", *x, dropout_rate=float(node.node_attributes["dropoutRate"]), seed=_seed(node), name=node.name)


@rows(CALLS, "RandomSample", "RandomSampleInclusionFrequency")
def _sample(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    path = "random_sample" if node.op_name == "RandomSample" else "random_sample_inclusion_frequency"
    yield call(path, *x, str(int(a["numSamples"])), repr(bool(a["allowDuplicates"])), seed=_seed(node), name=node.name)


_RANDOM = {
    "uniform": ("uniform", "low", "high"), "normal": ("normal", "mean", "scale"), "gumbel": ("gumbel", "loc", "scale"),
    "bernoulli": ("bernoulli", "mean"),
}


@rows(CALLS, "RandomDistribution")
def _random(node: Node, x: list[str]) -> Iterator[str]:
    a = node.node_attributes
    name, *parameters = _RANDOM[a["randomDistributionType"]]
    options = dict(zip(parameters, map(float, a["randomDistributionArgs"]), strict=True))
    if x:
        yield call(f"random.{name}_like", *x, **options, seed=_seed(node), name=node.name)
    else:
        yield call(f"random.{name}", text_of(tuple(a["newShape"])), text_of(a["newDataType"]), **options,
                   seed=_seed(node), name=node.name)


__all__: list[str] = []
