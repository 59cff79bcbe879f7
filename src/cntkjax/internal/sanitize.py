"""Normalization of the arguments that CNTK's functions accept in several forms.

Axes and permutations are returned counted from the opposite end, like those of CNTK's own helpers of these names,
because its compiled module stores shapes in reverse.
"""
from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from .._typing import ArrayLike, ElementType, ShapeLike
from .._user_code import warn
from ..core import NativeValue, NDArrayView, Value
from ..device import Device
from ..engine.data.feeds import with_start_flags
from ..graph.axis import Axis
from ..graph.dtypes import NUMBERS, as_dtype
from ..graph.function import Node
from ..graph.variable import Edge
from ..ops._calling import as_outputs
from ..ops._operand import Operand, as_variable
from ..variables import Variable


@runtime_checkable
class _MinibatchData(Protocol):
    """The data of a stream in a minibatch of a reader."""

    data: Any
    end_of_sweep: bool


def is_string(s: object) -> bool:
    """Whether `s` is a str.

    >>> is_string("a"), is_string(b"a")
    (True, False)
    """
    return isinstance(s, str)


def is_byte_buffer(s: object) -> bool:
    """Whether `s` is a bytes-like object.

    >>> is_byte_buffer(b"a"), is_byte_buffer("a")
    (True, False)
    """
    return isinstance(s, bytes | bytearray)


def _as_tuple(x: Any) -> tuple[Any, ...]:
    """An iterable as a tuple; a number or a str as a tuple of one item.

    >>> _as_tuple(3), _as_tuple([3, 4])
    ((3,), (3, 4))
    """
    return (x,) if is_string(x) or np.isscalar(x) else tuple(x)


def sanitize_shape(shape: int | Iterable[int]) -> tuple[int, ...]:
    """A shape as a tuple.

    >>> sanitize_shape(3), sanitize_shape([2, 3])
    ((3,), (2, 3))
    """
    return _as_tuple(shape)


sanitize_dtype_numpy = as_dtype


def sanitize_precision(precision: ElementType | None) -> type[np.generic]:
    """NumPy's type for the precision of a model.

    Errors: ValueError for types that CNTK has no tensors of.

    >>> sanitize_precision("double")
    <class 'numpy.float64'>
    """
    return as_dtype(precision)


def sanitize_dtype_cntk(dtype: DTypeLike | int) -> int:
    """CNTK's number of an element type; 0 (unknown) for None.

    Errors: ValueError for an element type that CNTK does not support.

    >>> sanitize_dtype_cntk(np.float64)
    2
    """
    return 0 if dtype is None else NUMBERS[as_dtype(dtype)]


def data_type_to_dtype(data_type: int) -> type:
    """The NumPy type for CNTK's number; ``object`` for 0 (unknown).

    Errors: ValueError for other numbers.

    >>> data_type_to_dtype(1)
    <class 'numpy.float32'>
    """
    return object if data_type == 0 else as_dtype(data_type)


def sanitize_2d_number(x: float | tuple[float, float]) -> tuple[float, float]:
    """A number as a pair (x, x); a pair unchanged.

    Errors: ValueError for anything else.

    >>> sanitize_2d_number(3), sanitize_2d_number((3, 4))
    ((3, 3), (3, 4))
    """
    if isinstance(x, numbers.Real):
        return x, x
    if isinstance(x, tuple) and len(x) == 2 and all(isinstance(number, numbers.Real) for number in x):
        return x
    raise ValueError(f"expected a number or a tuple of two numbers, got {x!r}")


sanitize_range = sanitize_2d_number


def sanitize_axis(axis: Axis | int | None) -> Axis:
    """A static axis counted from the opposite end; other axes unchanged. None means all static axes.

    Errors: TypeError for anything else.

    >>> sanitize_axis(0), sanitize_axis(-1), sanitize_axis(None)
    (Axis('staticAxisIdx=-1'), Axis('staticAxisIdx=0'), Axis('AllStaticAxes'))
    """
    if axis is None:
        return Axis.all_static_axes()
    if isinstance(axis, numbers.Integral):
        return Axis(-1 - int(axis))
    if not isinstance(axis, Axis):
        raise TypeError(f"expected an Axis, an int or None, got {axis!r}")
    if not axis.is_static_axis or axis == Axis.end_static_axis():
        return axis
    return Axis(-1 - axis.static_axis_index())


def sanitize_axis_list(axes: Axis | int | Sequence[Axis | int] | None) -> list[Axis]:
    """One or more axes as a list; see ``sanitize_axis``.

    >>> sanitize_axis_list((0, 1))
    [Axis('staticAxisIdx=-1'), Axis('staticAxisIdx=-2')]
    """
    given: Sequence[Any] = axes if isinstance(axes, list | tuple) else [axes]
    return [sanitize_axis(axis) for axis in given]


sanitize_multi_axis_reduction_list = sanitize_axis_list


def sanitize_dynamic_axes(axes: Axis | Sequence[Axis]) -> tuple[Axis, ...]:
    """Dynamic axes as a tuple in the order in which CNTK stores them, the reverse of Python's.

    Errors: TypeError for anything but axes.

    >>> sanitize_dynamic_axes(Axis.default_input_variable_dynamic_axes())
    (Axis('defaultDynamicAxis'), Axis('defaultBatchAxis'))
    """
    items = axes if isinstance(axes, list | tuple) else [axes]
    for axis in items:
        if not isinstance(axis, Axis):
            raise TypeError(f"type Axis expected, got {type(axis)} instead: pass Axis objects")
    return tuple(reversed(items))


def sanitize_permutation(perm: Sequence[int]) -> list[int]:
    """The equivalent permutation of the axes counted from the opposite end.

    Errors: ValueError for anything but a permutation.

    >>> sanitize_permutation((1, 2, 0))
    [2, 0, 1]
    """
    rank = len(perm)
    counted = [index + rank if index < 0 else index for index in perm]
    if sorted(counted) != list(range(rank)):
        raise ValueError(f"{list(perm)} is no permutation: name each of the axes 0 to {rank - 1} once")
    return [rank - 1 - index for index in reversed(counted)]


def sanitize_input(
    arg: Operand, fallback_dtype: ElementType = np.float32, reshape: ShapeLike | None = None
) -> Edge:
    """An operand as a variable; numbers and arrays become a constant of type ``fallback_dtype``.

    Shapes: with ``reshape``, an array is reshaped to it first.
    Errors: TypeError for anything but an operand.

    >>> sanitize_input([1, 2, 3, 4], reshape=(2, 2)).shape
    (2, 2)
    """
    if reshape is not None:
        arg = np.reshape(np.asarray(arg), sanitize_shape(reshape))
    return as_variable(arg, as_dtype(fallback_dtype))


def sanitize_value(shape: ShapeLike | None, value: ArrayLike | None, dtype: DTypeLike, device: Device) -> NDArrayView:
    """An array view of the value: a number is broadcast to ``shape``, an array keeps its own; None means 0.

    Errors: ValueError if a dimension is unknown.

    >>> sanitize_value((2, 3), 1, "float", None)
    NDArrayView([2 x 3], CPU)
    """
    value = 0 if value is None else value
    array = np.asarray(value, as_dtype(dtype))
    if array.ndim == 0 and shape is not None:
        array = np.full(sanitize_shape(shape), array)
    return NDArrayView.from_dense(array, borrow=True)


def sanitize_batch(
    var: Edge, batch: object, seq_starts: Sequence[bool] | None = None, device: Device = None
) -> Value:
    """The value for a variable from data; see ``Value.create``.

    Args:
        seq_starts: for each sequence, whether it begins here (True) or continues one of the previous minibatch.

    Warns: RuntimeWarning for arrays that are not contiguous in memory.
    Errors: ValueError if the data do not fit the variable, or if ``seq_starts`` is passed with data that already are a
            value.

    >>> import cntkjax as C
    >>> sanitize_batch(C.sequence.input_variable(()), [[5, 6, 7], [8]], [True, False]).mask
    array([[2, 1, 1],
           [1, 0, 0]], dtype=int8)
    """
    if isinstance(batch, NativeValue):
        if seq_starts is not None:
            raise ValueError("the data are a value, which already contains the sequence starts: omit seq_starts")
        return batch  # type: ignore[return-value]
    arrays = batch if isinstance(batch, list) else [batch]
    if any(isinstance(a, np.ndarray) and not a.flags.c_contiguous for a in arrays):
        what = f"the data for {var!r} are not contiguous in memory, which slows down copying: use np.ascontiguousarray"
        warn(what, RuntimeWarning)
    return Value.create(var, batch, seq_starts)


def sanitize_var_map(
    op_arguments: Sequence[Edge], arguments: object, precision: DTypeLike | None = None, device: Device = None,
    extract_values_from_minibatch_data: bool = True,
) -> dict[Any, Any]:
    """{variable: value} from {variable or its name: data}, or from the data of the only variable.

    Args:
        op_arguments: the variables, such as ``f.arguments``
        arguments: the data; ``(data, flags)`` says for each sequence whether it begins here
        precision: has no effect, as in CNTK: the variables have their types
        extract_values_from_minibatch_data: False leaves minibatches of readers as they are

    Errors: ValueError for data without variables if there are several, for None, and for names of no variable.

    >>> import cntkjax as C
    >>> x = C.input_variable(2, name="x")
    >>> sanitize_var_map([x], {"x": np.zeros((3, 2), np.float32)})
    {Input('x', [#], [2]): Value([3 x 2], CPU)}
    """
    if arguments is None or (isinstance(arguments, (tuple, Mapping)) and not arguments):
        if op_arguments:
            raise ValueError(f"function expects {len(op_arguments)} arguments: pass {{variable: data}}")
        return {}
    feeds = with_start_flags(arguments)
    if not isinstance(feeds, Mapping):
        if len(op_arguments) != 1:
            kind = type(arguments).__name__
            raise ValueError(
                f"non-dict argument ({kind}) is not supported for nodes with more than one input: "
                "pass {variable: data}"
            )
        feeds = {op_arguments[0]: arguments}
    by_name = {v.name: v for v in op_arguments}
    values: dict[Any, Any] = {}
    for key, data in feeds.items():
        if isinstance(key, str) and key not in by_name:
            names = ", ".join(filter(None, by_name)) or "no names"
            raise ValueError(f"there is no argument '{key}': there are {names}")
        variable: Any = by_name[key] if isinstance(key, str) else as_variable(key)
        flags = None
        if isinstance(data, tuple) and len(data) == 2:
            data, flags = data
        if isinstance(data, _MinibatchData):
            values[variable] = data.data if extract_values_from_minibatch_data else data
        else:
            values[variable] = sanitize_batch(variable, data, flags, device)
    return values


def _value_as_sequence_or_array(val: Value, var: Variable) -> Any:
    """A value as a list of sequences if the variable has a sequence axis, otherwise as an array or CSR matrix.

    >>> import cntkjax as C
    >>> x = C.sequence.input_variable(1)
    >>> _value_as_sequence_or_array(C.asvalue(x, [[[1.], [2.]]]), x)
    [array([[1.],
           [2.]], dtype=float32)]
    """
    return val.as_sequences(var) if var.has_sequence_axis() else val.asarray()


def _value_as_sequence(val: Value, var: Edge) -> list[Any]:
    """The sequences of a value, each as an array or a CSR matrix.

    >>> import cntkjax as C
    >>> x = C.sequence.input_variable(1)
    >>> _value_as_sequence(C.asvalue(x, [[[1.], [2.]]]), x)
    [array([[1.],
           [2.]], dtype=float32)]
    """
    return val.as_sequences(var)


def sanitize_function(arg: object) -> Node:
    """A function; a variable is wrapped in one.

    Errors: TypeError for anything else.

    >>> import cntkjax as C
    >>> sanitize_function(C.input_variable(2)).root_function.op_name
    'Combine'
    """
    return arg if isinstance(arg, Node) else as_outputs(sanitize_variable_or_function(arg))


def sanitize_variable_or_function(arg: object) -> Edge | Node:
    """Return a variable or a function unchanged; TypeError for anything else.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> sanitize_variable_or_function(x) is x
    True
    """
    if not isinstance(arg, Edge | Node):
        raise TypeError(f"expected a variable or a function, got {arg!r}")
    return arg


def sanitize_variables_or_functions(arg: object) -> list[Any]:
    """One or more variables or functions as a list; TypeError for anything else.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> sanitize_variables_or_functions((x, x)) == [x, x]
    True
    """
    items = arg if isinstance(arg, list | tuple) else [arg]
    return [sanitize_variable_or_function(item) for item in items]


def sanitize_random_args(shape: int | Iterable[int], dtype: DTypeLike) -> tuple[tuple[int, ...], int]:
    """A shape as a tuple, and CNTK's number of an element type.

    >>> sanitize_random_args(2, np.float64)
    ((2,), 2)
    """
    return sanitize_shape(shape), sanitize_dtype_cntk(dtype)


def sanitize_convolution_args(
    strides: int | Iterable[int], sharing: bool | Iterable[bool], auto_padding: bool | Iterable[bool]
) -> tuple[Any, list[bool], list[bool]]:
    """Strides as a tuple, and the per-axis flags in reverse order.

    >>> sanitize_convolution_args((2,), (False, True), (True,))
    ((2,), [True, False], [True])
    """
    return sanitize_shape(strides), list(_as_tuple(sharing))[::-1], list(_as_tuple(auto_padding))[::-1]


def sanitize_pooling_args(
    pooling_window_shape: int | Iterable[int], strides: int | Iterable[int], auto_padding: bool | Iterable[bool]
) -> tuple[Any, Any, list[bool]]:
    """Window and strides as tuples, and the per-axis flags in reverse order.

    >>> sanitize_pooling_args((2, 3), 1, (True, False))
    ((2, 3), (1,), [False, True])
    """
    return sanitize_shape(pooling_window_shape), sanitize_shape(strides), list(_as_tuple(auto_padding))[::-1]


def sanitize_Function_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes of a function, with its per-axis flags put into the opposite order in place.

    >>> sanitize_Function_attributes({"autoPadding": [False, True, True], "strides": (1, 2)})
    {'autoPadding': [True, True, False], 'strides': (1, 2)}
    """
    for name in {"autoPadding", "sharing"} & attributes.keys():
        attributes[name] = list(reversed(attributes[name]))
    return attributes


def sanitize_variable_value_dict(var_value_dict: Mapping[Any, Any]) -> Any:
    """The values of several variables as they are; of a single one just its value.

    Errors: ValueError without any.

    >>> sanitize_variable_value_dict({"x": 1}), sanitize_variable_value_dict({"x": 1, "y": 2})
    (1, {'x': 1, 'y': 2})
    """
    if len(var_value_dict) > 1:
        return var_value_dict
    if not var_value_dict:
        raise ValueError("there is no value: pass {variable: value}")
    return next(iter(var_value_dict.values()))


__all__ = [
    "Axis", "data_type_to_dtype", "is_byte_buffer", "is_string", "np", "numbers", "sanitize_2d_number",
    "sanitize_Function_attributes", "sanitize_axis", "sanitize_axis_list", "sanitize_batch",
    "sanitize_convolution_args", "sanitize_dtype_cntk", "sanitize_dtype_numpy", "sanitize_dynamic_axes",
    "sanitize_function", "sanitize_input", "sanitize_multi_axis_reduction_list", "sanitize_permutation",
    "sanitize_pooling_args", "sanitize_precision", "sanitize_random_args", "sanitize_range", "sanitize_shape",
    "sanitize_value", "sanitize_var_map", "sanitize_variable_or_function", "sanitize_variable_value_dict",
    "sanitize_variables_or_functions",
]
