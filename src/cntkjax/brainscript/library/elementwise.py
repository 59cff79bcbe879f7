"""Elementwise operations, reductions and reshaping."""

from __future__ import annotations

from typing import Any

from .table import axis, direct, integers, operation
from .table import shape as _shape

_OPERATIONS = {  # that take their inputs in the order of the description
    "Abs": "abs", "Ceil": "ceil", "Cosine": "cos", "Sin": "sin", "Tan": "tan", "Acos": "acos", "Asin": "asin",
    "Atan": "atan", "Cosh": "cosh", "Sinh": "sinh", "Exp": "exp", "Floor": "floor", "Hardmax": "hardmax", "Log": "log",
    "Negate": "negate", "Reciprocal": "reciprocal", "RectifiedLinear": "relu", "Round": "round", "Sigmoid": "sigmoid",
    "Sqrt": "sqrt", "Tanh": "tanh", "ExponentialLinearUnit": "elu", "StraightThrough": "straight_through_impl",
    "StopGradient": "stop_gradient", "Pass": "alias", "Softplus": "softplus", "Softsign": "softsign",
    "ToBatch": "to_batch", "UnpackBatch": "to_batch", "Plus": "plus", "Minus": "minus", "LogPlus": "log_add_exp",
    "ElementTimes": "element_times", "DiagTimes": "element_times", "RowElementTimes": "element_times",
    "ColumnElementTimes": "element_times", "Scale": "element_times", "ElementDivide": "element_divide",
    "Less": "less", "Equal": "equal", "Greater": "greater", "GreaterEqual": "greater_equal", "NotEqual": "not_equal",
    "LessEqual": "less_equal", "Pow": "pow", "If": "element_select",
}
for _name, _function in _OPERATIONS.items():
    operation(_name)(direct(_function))
operation("Clip")(direct("clip", 2, 0, 1))
operation("Gather")(direct("gather", 1, 0))


@operation("Trace")
def trace(
    C: Any, x: Any, *, say: str = "", logFrequency: float = 100, logFirst: float = 10, logGradientToo: bool = False,
    onlyUpToRow: float = 0, onlyUpToT: float = 0, format: str = "", name: str,
) -> Any:
    """The operand, whose values are logged while a network trains: see actions/traces.py."""
    return C.alias(x, name=name)


@operation("Softmax")
def softmax(C: Any, x: Any, *, axis: float = 0, name: str) -> Any:
    """Normalized exponentials, along an axis or of all elements (axis 0)."""
    return C.softmax(x, **({"axis": -int(axis)} if axis else {}), name=name)


@operation("LogSoftmax")
def log_softmax(C: Any, x: Any, *, axis: float = 0, name: str) -> Any:
    """The logarithm of the softmax."""
    if axis or len(x.shape) < 2:
        return C.log_softmax(x, axis=-int(axis) or -1, name=name)
    return C.minus(x, C.reduce_log_sum_exp(x, axis=C.Axis.all_static_axes()), name=name)


_REDUCTIONS = {
    "Sum": "reduce_sum", "Mean": "reduce_mean", "Max": "reduce_max", "Min": "reduce_min", "Prod": "reduce_prod",
    "LogSum": "reduce_log_sum_exp", "Argmax": "argmax", "Argmin": "argmin",
}


@operation("ReduceElements", "SumColumnElements")
def reduce_elements(C: Any, x: Any, *, reductionOp: str = "Sum", axis: Any = 0, name: str) -> Any:
    """A reduction of some static axes, or of all of them (axis 0)."""
    function = getattr(C, _REDUCTIONS[reductionOp])
    if axis == 0:
        return C.reshape(function(x, axis=C.Axis.all_static_axes()), (1,), name=name)
    axes = [-each for each in integers(axis)]
    return function(x, axis=axes[0] if len(axes) == 1 else axes, name=name)


@operation("SumElements")
def sum_elements(C: Any, x: Any, *, name: str) -> Any:
    """The sum over everything, samples included."""
    return C.reduce_sum(x, axis=C.Axis.all_axes(), name=name)


@operation("Reshape", "LegacyReshape")
def reshape(C: Any, x: Any, *, shape: Any, beginAxis: float = 0, endAxis: float = 0, name: str) -> Any:
    """Axes `beginAxis` up to but without `endAxis` in another shape; 0 is inferred."""
    new = _shape(shape)
    begin = max(int(beginAxis) - 1, 0)
    end = int(endAxis) - 1 if endAxis > 0 else None
    if begin == 0 and end is None:
        return C.reshape(x, new, name=name)
    rank = len(x.shape)
    last = rank if end is None else min(end, rank)
    return C.reshape(x, new, begin_axis=rank - last, end_axis=rank - begin, name=name)


@operation("TransposeDimensions")
def transpose_dimensions(C: Any, x: Any, *, axis1: float = 1, axis2: float = 2, name: str) -> Any:
    """Two axes exchanged; one that is missing has dimension 1."""
    return C.swapaxes(_of_rank(C, x, int(max(axis1, axis2))), axis(axis1), axis(axis2), name=name)


@operation("Slice")
def slice_(C: Any, x: Any, *, beginIndex: Any, endIndex: Any, axis: Any = 1, stride: Any = 1, name: str) -> Any:
    """Part of a static axis, or of the sequence (axis -1); end 0 is its end."""
    if axis == -1 or axis == [-1.0]:
        return C.sequence.slice(x, int(beginIndex), int(endIndex), name=name)
    axes = [-each for each in integers(axis)]
    return C.slice(x, axes, integers(beginIndex), integers(endIndex), name=name)


@operation("RowStack", "Splice")
def row_stack(C: Any, *inputs: Any, spliceDim: float = 1, name: str) -> Any:
    """Inputs beside each other along an axis."""
    rank = max(int(spliceDim), *(len(each.shape) for each in inputs))
    operands = [_of_rank(C, each, rank) for each in inputs]
    return C.splice(*operands, axis=-int(spliceDim), name=name)


def _of_rank(C: Any, x: Any, rank: int) -> Any:
    """x with further axes of dimension 1; in a loop the sizes of its own may not be known yet."""
    missing = rank - len(x.shape)
    return C.reshape(x, (1,) * missing, begin_axis=0, end_axis=0) if missing > 0 else x


@operation("RowRepeat")
def row_repeat(C: Any, x: Any, *, numRepeats: float, name: str) -> Any:
    """The input several times along its first axis."""
    return C.splice(*[x] * int(numRepeats), axis=-1, name=name)


@operation("OneHot")
def one_hot(C: Any, x: Any, *, numClass: float, outputSparse: bool = False, axis: float = 1, name: str) -> Any:
    """Indicator vectors of indices."""
    return C.one_hot(x, int(numClass), sparse_output=bool(outputSparse), axis=-int(axis), name=name)

