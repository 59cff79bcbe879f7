"""From the data that users feed (arrays, lists of sequences, sparse matrices, minibatches) to `Ragged`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import jax
import numpy as np

from ..._typing import AnyArray, Shape
from ..._user_code import warn
from ...graph.dtypes import holds_numbers
from ...graph.errors import IndexRangeError, ShapeError, explain
from ...graph.shape import FREE, INFERRED, filled, is_known, matches, shape_text
from ...graph.variable import Edge
from .ragged import Ragged, SparseRows, check_sparse_indices

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

T = TypeVar("T")


def to_ragged(variable: Edge, data: object) -> Ragged | np.ndarray:
    """The data fed for a variable, checked against its declaration; a bare array for one without dynamic axes.

    Shapes: with the batch axis [samples, *shape] or one sample [*shape]; with a sequence axis a list of sequences
            [steps, *shape], or [sequences, steps, *shape], or one sequence [steps, *shape].
    Errors: ShapeError, TypeError, or ValueError that name the variable, its shape and that of the data.
    """
    feed = exact(variable, data)
    if feed is not None:
        return feed
    data = _without_views(variable, data)
    ragged = getattr(data, "ragged", None)
    if ragged is not None:
        return _from_minibatch(variable, ragged) if variable.dynamic_axes else _static(variable, _all_samples(ragged))
    if hasattr(data, "eval") and not isinstance(data, (np.ndarray, list, tuple)):
        raise TypeError(explain(
            f"{variable!r} is fed with {data!r}, which is not data",
            fix="evaluate it first and feed the result: {variable: function.eval(...)}",
        ))
    if isinstance(data, tuple) and len(data) == 2 and (data[1] is None or _are_flags(data[1])):
        return to_ragged(variable, data[0]) if data[1] is None else _with_flags(variable, *data)
    if not variable.dynamic_axes:
        return _static(variable, data)
    if variable.sequence_axis is None:
        return _batch(variable, data)
    return sequences(variable, data)


def exact(variable: Edge, data: object) -> Ragged | None:
    """Arrays of exactly the form that is documented, in the variable's type; None for all else, wrong data included."""
    if variable.is_sparse or not variable.dynamic_axes:
        return None
    shape, dtype, has_steps = variable.shape, variable.dtype, variable.sequence_axis is not None
    if type(data) is list and has_steps:
        if not all(type(a) is np.ndarray and a.dtype == dtype and a.ndim and a.size and matches(shape, a.shape[1:])
                   for a in data):
            return None
        if len(data) > 1 and len({a.shape[1:] for a in data}) == 1:
            return Ragged(np.concatenate(data), np.fromiter(map(len, data), np.int32, len(data)))
        data = data[0] if len(data) == 1 else None
    if type(data) is not np.ndarray or data.dtype != dtype or not data.size:
        return None
    lead = data.ndim - len(shape)
    if not 1 <= lead <= 1 + has_steps or not matches(shape, data.shape[lead:]):
        return None
    if not has_steps:
        return Ragged(data, None)
    number, steps = data.shape[:2] if lead == 2 else (1, len(data))
    return Ragged(data.reshape(-1, *data.shape[lead:]), np.full(number, steps, np.int32))


def with_start_flags(arguments: T) -> T | dict[Any, object]:
    """The feeds, in which start flags that are given once for all, ({variable: data}, flags), accompany all data."""
    if not (isinstance(arguments, tuple) and len(arguments) == 2 and isinstance(arguments[0], Mapping)):
        return arguments
    data, flags = arguments
    return {v: (d, flags) for v, d in data.items()}


def _without_views(variable: Edge, data: object) -> object:
    """Array views replaced by the arrays that they hold; a sparse one of several sequences has a row for each."""
    if isinstance(data, list) and data and hasattr(data[0], "held"):
        return [view.held for view in data]
    held = getattr(data, "held", data)
    if _is_sparse(held) and held is not data:
        shape: Shape = data.shape  # type: ignore[attr-defined]
        if len(shape) == len(variable.shape) + 2:
            return [held[i].reshape((shape[1], -1)).tocsr() for i in range(shape[0])]
    return held


def _are_flags(data: object) -> bool:
    if not isinstance(data, (list, tuple, np.ndarray)) or not len(data):
        return False
    return all(isinstance(flag, (bool, np.bool_)) for flag in data)


def _with_flags(variable: Edge, data: Sequence[object], flags: Sequence[bool]) -> Ragged:
    """Sequences, and for each whether it begins here or continues that of the minibatch before.

    Minibatches of readers know that themselves: as in CNTK, flags do not matter for them.
    """
    if hasattr(data, "end_of_sweep"):
        return to_ragged(variable, data)  # type: ignore[return-value]
    if hasattr(data, "ragged"):
        raise ValueError(explain(
            f"{variable!r} is fed with a value, which knows where its sequences begin, and with start flags",
            fix="feed the value alone, or make it with the flags: Value.create(variable, data, flags)",
        ))
    if variable.sequence_axis is None:
        raise ValueError(explain(
            f"{variable!r} has no sequence axis but is fed with start flags",
            fix="feed the data alone, or declare it with cntk.sequence.input_variable",
        ))
    ragged = to_ragged(variable, list(data) if not _is_sparse(data) and len(data) == len(flags) else data)
    assert isinstance(ragged, Ragged)
    if ragged.num_sequences != len(flags):
        raise ValueError(explain(
            f"{variable!r} is fed with {len(flags)} start flags for {ragged.num_sequences} sequences; each sequence "
            "needs one",
            fix="feed (data, flags) with one flag for each sequence: True where it begins, False where it continues",
        ))
    return Ragged(ragged.data, ragged.lengths, np.asarray(flags, bool))


def as_array(variable: Edge, data: object) -> np.ndarray:
    """Numbers as an array of the variable's type; one of that type that is on the device stays there.

    Errors: ValueError for anything but numbers in a regular array.
    """
    if isinstance(data, jax.Array) and data.dtype == variable.dtype:
        return data  # type: ignore[return-value]
    return _converted(variable, [data], [_numbers(variable, data)])[0]


def _numbers(variable: Edge, data: object) -> np.ndarray:
    """Numbers as an array of any type. Errors: as in `as_array`."""
    try:
        array = np.asarray(data)
    except ValueError:
        array = np.empty(0, object)
    if not holds_numbers(array):
        raise ValueError(explain(
            f"{variable!r} is fed with {type(data).__name__} of type {array.dtype}, "
            "which are not numbers in a regular array",
            fix="feed integers, booleans or floating point numbers; sequences of different lengths as a list of arrays",
        ))
    return array


def fed_array(variable: Edge, data: object) -> np.ndarray:
    """As `as_array`; but integers that the variable's type cannot hold stay integers, if int32 holds them.

    A program converts them, except for operations that take indices.
    """
    return fed_arrays(variable, [data])[0]


def fed_arrays(variable: Edge, items: Sequence[object]) -> list[np.ndarray]:
    """The same for several arrays, all in one type."""
    if any(isinstance(item, jax.Array) for item in items):
        return [as_array(variable, item) for item in items]
    arrays = [_numbers(variable, item) for item in items]
    if any(_are_rounded(a, variable) for a in arrays) and all(map(_fit_int32, arrays)):
        return [np.asarray(a, np.int32) for a in arrays]
    return _converted(variable, items, arrays)


def _converted(variable: Edge, items: Sequence[object], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays in the variable's type, with CNTK's warning if any of the `items` that they are from has another."""
    for item in items:
        dtype = getattr(item, "dtype", variable.dtype)
        if dtype != variable.dtype:
            warn(
                f'your data is of type "{dtype}", but your input variable (uid "{variable.uid}") expects '
                f'"{variable.dtype}". Please convert your data beforehand to speed up training.'
            )
            break
    return [np.asarray(a, variable.dtype) for a in arrays]


def _are_rounded(array: np.ndarray, variable: Edge) -> bool:
    """True for integers of which the variable's type does not hold each one."""
    if array.dtype.kind not in "iu" or not array.size or variable.dtype is None:
        return False
    exact = 2 ** (np.finfo(variable.dtype).nmant + 1)
    return np.iinfo(array.dtype).max > exact and max(-int(array.min()), int(array.max())) > exact


def _fit_int32(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and (not array.size or bool((array == array.astype(np.int32)).all()))


def _all_samples(ragged: Ragged) -> AnyArray | csr_matrix:
    """All samples as one array, for a variable without dynamic axes."""
    return ragged.to_csr() if isinstance(ragged.data, SparseRows) else ragged.data


def _static(variable: Edge, data: object) -> np.ndarray:
    array = fed_array(variable, data.toarray() if _is_sparse(data) else data)
    while array.ndim > len(variable.shape) and array.shape[0] == 1:
        array = array[0]
    if not matches(variable.shape, array.shape):
        raise _mismatch(
            variable, array.shape, "has no dynamic axes, so it takes one array of its shape",
            f"feed an array of shape {shape_text(variable.shape)}, or declare it with cntk.input_variable to feed a "
            "minibatch of samples",
        )
    return array


def _batch(variable: Edge, data: object) -> Ragged:
    """Samples of a variable with the batch axis alone."""
    matrices = _sparse_list(data)
    if matrices is not None:
        return Ragged(_sparse_samples(variable, [_row_per_sample(variable, m) for m in matrices]), None)
    shape = variable.shape
    if isinstance(data, (list, tuple)) and len(data) and not variable.is_sparse:
        data = _samples(variable, data)
    array = fed_array(variable, data)
    if array.ndim == len(shape) and matches(shape, array.shape):
        array = array[None]
    elif array.ndim == len(shape) + 2 and array.shape[1] == 1:  # steps of length one
        array = array[:, 0]
    if array.ndim != len(shape) + 1 or not matches(shape, array.shape[1:]):
        raise _batch_mismatch(variable, array.shape)
    return _nonempty(variable, Ragged(SparseRows.from_dense(array) if variable.is_sparse else array, None))


def _samples(variable: Edge, data: Sequence[object]) -> Sequence[object]:
    """A list of samples, each without a leading axis of size 1."""
    if not isinstance(data[0], (np.ndarray, list)):
        return data
    samples = [_sample(variable, array) for array in fed_arrays(variable, data)]
    if variable.shape and all(isinstance(s, np.ndarray) and s.ndim == 0 for s in samples):
        raise _batch_mismatch(variable, ())
    return samples


def _sample(variable: Edge, array: np.ndarray) -> np.ndarray:
    return array[0] if array.ndim == len(variable.shape) + 1 and array.shape[0] == 1 else array


def sequences(variable: Edge, data: object) -> Ragged:
    """Sequences of samples of the variable's shape, whether or not it has a sequence axis.

    Shapes, Errors: see `to_ragged`.
    """
    matrices = _sparse_list(data)
    if matrices is not None:
        matrices = [_row_per_sample(variable, m) for m in matrices]
        lengths = np.fromiter((m.shape[0] for m in matrices), np.int32, len(matrices))
        return _nonempty(variable, Ragged(_sparse_samples(variable, matrices), lengths))
    arrays = fed_arrays(variable, data) if isinstance(data, (list, tuple)) else fed_array(variable, data)
    if isinstance(arrays, list):
        return _from_sequences(variable, arrays)
    shape, array = variable.shape, arrays
    if array.ndim == len(shape) + 2 and array.size and matches(shape, array.shape[2:]) and not variable.is_sparse:
        lengths = np.full(array.shape[0], array.shape[1], np.int32)
        return Ragged(array.reshape(-1, *array.shape[2:]), lengths)
    return _from_sequences(variable, [array] if array.ndim <= len(shape) + 1 else list(array))


def _from_sequences(variable: Edge, arrays: Iterable[np.ndarray]) -> Ragged:
    items = [_one_sequence(variable, array) for array in arrays]
    if not items:
        raise _mismatch(
            variable, (0,), "takes at least one sequence",
            "feed a list with an array [steps, *shape] for each sequence",
        )
    lengths = np.fromiter((len(item) for item in items), np.int32, len(items))
    samples = np.concatenate(items) if len(items) > 1 else items[0]
    return _nonempty(variable, Ragged(SparseRows.from_dense(samples) if variable.is_sparse else samples, lengths))


def _one_sequence(variable: Edge, array: np.ndarray) -> np.ndarray:
    """Shapes: [steps, *shape], [*shape], [1, steps, *shape], or [steps] for samples of size 1 -> [steps, *shape]."""
    shape = variable.shape
    if array.ndim == len(shape) + 1 and matches(shape, array.shape[1:]):
        return array
    if array.ndim == len(shape) and matches(shape, array.shape):
        return array[None]
    if array.ndim == 1 and shape == (1,):
        return array[:, None]
    if array.ndim == len(shape) + 2 and array.shape[0] == 1 and matches(shape, array.shape[2:]):
        return array[0]
    raise _mismatch(
        variable, array.shape, "takes sequences [steps, *shape]",
        f"feed a list of arrays of shape {_with_lead('steps', shape)}, one for each sequence, or declare the variable "
        "with the shape of one step",
    )


def _is_sparse(data: object) -> TypeGuard[csr_matrix]:
    """True for a SciPy matrix of any sparse format."""
    return hasattr(data, "tocsr")


def _sparse_list(data: object) -> list[csr_matrix] | None:
    """The sparse matrices that are fed, one or a list of them; None for other data."""
    if _is_sparse(data):
        return [data]
    return list(data) if isinstance(data, (list, tuple)) and len(data) and _is_sparse(data[0]) else None


def _row_per_sample(variable: Edge, matrix: csr_matrix) -> csr_matrix:
    """One row a sample; a matrix may also have the last axis of the samples as columns, and the others in its rows."""
    shape = variable.shape
    rows = prod(shape[:-1])
    if len(shape) < 2 or not is_known(shape) or matrix.shape[-1] != shape[-1] or matrix.shape[0] % rows:
        return matrix
    check_sparse_indices(matrix)  # SciPy would take indices of columns beyond the last for those of the next row
    return matrix.reshape((matrix.shape[0] // rows, prod(shape)))


def _sparse_samples(variable: Edge, matrices: Sequence[csr_matrix]) -> np.ndarray | SparseRows:
    for m in matrices:
        if filled(variable.shape, m.shape[-1]) is None:
            raise _mismatch(
                variable, m.shape, "takes sparse matrices with a row for each sample and a column for each element",
                f"feed matrices with {_num_elements(variable.shape)} columns, or declare the variable with shape "
                f"{shape_text((m.shape[-1],))}",
            )
    rows = SparseRows.concatenate([_rows_of(variable, number, m) for number, m in enumerate(matrices)])
    (values,) = _converted(variable, matrices[:1], [rows.values])
    rows = SparseRows(rows.indptr, rows.indices, values, rows.width)
    return rows if variable.is_sparse else rows.to_dense().reshape(-1, *filled(variable.shape, rows.width))  # type: ignore[misc]


def _rows_of(variable: Edge, number: int, matrix: csr_matrix) -> SparseRows:
    """The rows of a matrix. Errors: IndexRangeError that names the variable, and the place of the matrix in a list."""
    try:
        return SparseRows.from_csr(matrix)
    except IndexRangeError as error:
        raise IndexRangeError(explain(
            f"{variable!r} is fed with matrices, number {number} of which has an index out of range: {error}",
            {"variable": variable}, "make the matrix with its constructor, which checks the indices",
        )) from error


def _from_minibatch(variable: Edge, ragged: Ragged) -> Ragged:
    """A minibatch of a reader or a value, in the form that the variable needs."""
    ragged = _whole_samples(variable, ragged)
    data = _minibatch_samples(variable, ragged.data)
    if not isinstance(data, SparseRows) and data.dtype != variable.dtype:
        data = np.asarray(data).astype(variable.dtype)
    lengths = ragged.lengths
    if variable.sequence_axis is None and lengths is not None:
        if not (lengths == 1).all():
            raise ShapeError(explain(
                f"{variable!r} has no sequence axis but is fed with sequences of up to {lengths.max()} steps",
                fix="declare it with cntk.sequence.input_variable",
            ))
        lengths = None
    elif variable.sequence_axis is not None and lengths is None:
        lengths = np.ones(len(data), np.int32)
    starts, slots = (None, None) if lengths is None else (ragged.starts, ragged.slots)
    return _nonempty(variable, Ragged(data, lengths, starts, slots))


def _whole_samples(variable: Edge, ragged: Ragged) -> Ragged:
    """Sparse sequences whose steps are the rows of one sample each, as `Value.one_hot` makes them, as samples.

    For a variable with a sequence axis they are the steps of one sequence, as in CNTK.
    """
    shape, rows, lengths = variable.shape, ragged.data, ragged.lengths
    if not isinstance(rows, SparseRows) or lengths is None or len(shape) < 2 or not is_known(shape):
        return ragged
    if rows.width != shape[-1] or (lengths != prod(shape[:-1])).any():
        return ragged
    samples = SparseRows.from_csr(rows.to_csr().reshape((len(lengths), prod(shape))))
    return Ragged(samples, None if variable.sequence_axis is None else np.array([len(samples)], np.int32))


def _minibatch_samples(variable: Edge, data: np.ndarray | SparseRows) -> np.ndarray | SparseRows:
    """Samples of the variable's shape, dense or sparse as it is."""
    if isinstance(data, SparseRows):
        shape = filled(variable.shape, data.width)
        if shape is None:
            raise _mismatch(
                variable, (data.width,), "takes sparse samples of its size",
                f"declare the variable with shape {shape_text((data.width,))}, or the stream with "
                f"{_num_elements(variable.shape)} elements",
            )
        return data if variable.is_sparse else data.to_dense().reshape(-1, *shape)
    if variable.is_sparse:
        return SparseRows.from_dense(np.asarray(data))
    if matches(variable.shape, data.shape[1:]):
        return data
    if prod(data.shape[1:]) != prod(variable.shape) or FREE in variable.shape or INFERRED in variable.shape:
        raise _mismatch(
            variable, data.shape, "takes samples of its shape",
            f"declare the variable with shape {shape_text(data.shape[1:])}, or feed samples of shape "
            f"{shape_text(variable.shape)}",
        )
    return data.reshape(-1, *variable.shape)


def _nonempty(variable: Edge, ragged: Ragged) -> Ragged:
    has_elements = isinstance(ragged.data, SparseRows) or ragged.data.size  # an inferred dimension takes any size
    if ragged.num_samples == 0 or not has_elements:
        raise ShapeError(explain(f"{variable!r} is fed with an empty minibatch", fix="feed at least one sample"))
    return ragged


def _with_lead(axis: str, shape: Shape) -> str:
    """``[steps x 3]``."""
    return f"[{' x '.join([axis, shape_text(shape)[1:-1]])}]" if shape else f"[{axis}]"


def _num_elements(shape: Shape) -> str:
    """The number of elements of a sample, as far as it is known."""
    known = prod(d for d in shape if d >= 0)
    return str(known) if is_known(shape) else f"a multiple of {known}"


def _batch_mismatch(variable: Edge, shape: Shape) -> ShapeError:
    return _mismatch(
        variable, shape, "takes [samples, *shape]",
        f"feed an array of shape {_with_lead('samples', variable.shape)}, or declare the variable with the shape of "
        "one sample",
    )


def _mismatch(variable: Edge, shape: Shape, takes: str, fix: str) -> ShapeError:
    return ShapeError(explain(
        f"data of shape {shape_text(shape)} do not match the variable {variable!r} "
        f"of shape {shape_text(variable.shape)}, which {takes}",
        {"variable": variable}, fix,
    ))


__all__ = ["as_array", "exact", "sequences", "to_ragged", "with_start_flags"]
