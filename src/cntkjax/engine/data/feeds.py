"""From what users feed (arrays, lists of sequences, sparse matrices, minibatches) to `Ragged`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from ...graph.errors import ShapeError, explain
from ...graph.shape import FREE, INFERRED, Shape, filled, is_known, matches, shape_text
from ...graph.variable import Variable
from .ragged import Ragged, SparseRows


def to_ragged(variable: Variable, data: Any) -> Ragged | np.ndarray:
    """What is fed for a variable, checked against its declaration; a bare array for one without dynamic axes.

    Shapes: with the batch axis [samples, *shape] or one sample [*shape]; with a sequence axis a list of sequences
            [steps, *shape], or [sequences, steps, *shape], or one sequence [steps, *shape].
    Errors: ShapeError, TypeError, or ValueError that name the variable, its shape and what was given.
    """
    data = _bare(variable, data)
    ragged = getattr(data, "ragged", None)
    if ragged is not None:
        return _checked(variable, ragged) if variable.dynamic_axes else _static(variable, _whole(ragged))
    if hasattr(data, "eval") and not isinstance(data, (np.ndarray, list, tuple)):
        raise TypeError(explain(f"{variable!r} is fed with {data!r}, which is no data", fix="evaluate it first"))
    if isinstance(data, tuple) and len(data) == 2 and _are_flags(data[1]):
        return _started(variable, *data)
    if not variable.dynamic_axes:
        return _static(variable, data)
    if variable.sequence_axis is None:
        return _batch(variable, data)
    return sequences(variable, data)


def with_starts(arguments: Any) -> Any:
    """What is fed; start flags that are given once, ({variable: data}, flags), put beside the data of each variable."""
    if not (isinstance(arguments, tuple) and len(arguments) == 2 and isinstance(arguments[0], Mapping)):
        return arguments
    data, starts = arguments
    return {v: d if starts is None or hasattr(d, "ragged") else (d, starts) for v, d in data.items()}


def _bare(variable: Variable, data: Any) -> Any:
    """Array views as what they hold; a sparse one of several sequences has a row for each of them."""
    if isinstance(data, list) and data and hasattr(data[0], "held"):
        return [d.held for d in data]
    held = getattr(data, "held", data)
    if _is_csr(held) and held is not data and len(data.shape) == len(variable.shape) + 2:
        return [held[i].reshape((data.shape[1], -1)).tocsr() for i in range(data.shape[0])]
    return held


def _are_flags(data: Any) -> bool:
    several = isinstance(data, (list, tuple, np.ndarray)) and len(data) > 0
    return several and all(isinstance(flag, (bool, np.bool_)) for flag in data)


def _started(variable: Variable, data: Any, starts: Any) -> Ragged:
    """Sequences, and for each whether it begins here or continues that of the minibatch before."""
    if hasattr(data, "ragged"):
        raise ValueError(explain(f"{variable!r} is fed with a value, which knows where its sequences begin: no flags"))
    made = to_ragged(variable, list(data) if len(data) == len(starts) else data)
    if not isinstance(made, Ragged) or made.num_sequences != len(starts):
        raise ValueError(explain(f"{variable!r} is fed with {len(starts)} start flags; each sequence needs one"))
    return Ragged(made.data, made.lengths, np.asarray(starts, bool))


def as_array(variable: Variable, data: Any) -> np.ndarray:
    """Numbers as an array of the variable's type; one that is on the device already stays there."""
    if isinstance(data, jax.Array) and data.dtype == variable.dtype:
        return data  # type: ignore[return-value]
    try:
        array = np.asarray(data)
    except ValueError:
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise ValueError(explain(
            f"{variable!r} is fed with {type(data).__name__} of type {array.dtype}, "
            "which are not numbers in a regular array",
            fix="feed integers, booleans or floating point numbers; sequences of different lengths as a list of arrays",
        ))
    return np.asarray(array, variable.dtype)


def _whole(ragged: Ragged) -> Any:
    """All samples as one array, for a variable without dynamic axes."""
    return ragged.to_csr() if ragged.is_sparse else ragged.data


def _static(variable: Variable, data: Any) -> np.ndarray:
    array = as_array(variable, data.toarray() if _is_csr(data) else data)
    while array.ndim > len(variable.shape) and array.shape[0] == 1:
        array = array[0]
    if not matches(variable.shape, array.shape):
        raise _mismatch(variable, array.shape, "has no dynamic axes, so it takes one array of its shape")
    return array


def _batch(variable: Variable, data: Any) -> Ragged:
    shape = variable.shape
    listed = isinstance(data, (list, tuple)) and len(data)
    if _is_csr(data) or (listed and _is_csr(data[0])):
        return Ragged(_sparse(variable, [_by_sample(variable, d) for d in (data if listed else [data])]), None)
    if listed and not variable.is_sparse and isinstance(data[0], (np.ndarray, list)):
        data = [_one_sample(variable, d) for d in data]
        if shape and all(isinstance(d, np.ndarray) and d.ndim == 0 for d in data):
            raise _mismatch(variable, (), "takes [samples, *shape]")
    array = as_array(variable, data)
    if array.ndim == len(shape) and matches(shape, array.shape):
        array = array[None]
    elif array.ndim == len(shape) + 2 and array.shape[1] == 1:  # steps of length one
        array = array[:, 0]
    if array.ndim != len(shape) + 1 or not matches(shape, array.shape[1:]):
        raise _mismatch(variable, array.shape, "takes [samples, *shape]")
    return _filled(variable, Ragged(SparseRows.from_dense(array) if variable.is_sparse else array, None))


def _one_sample(variable: Variable, data: Any) -> np.ndarray:
    array = as_array(variable, data)
    return array[0] if array.ndim == len(variable.shape) + 1 and array.shape[0] == 1 else array


def sequences(variable: Variable, data: Any) -> Ragged:
    """Sequences of samples of the variable's shape, whether or not it has a sequence axis.

    Shapes, Errors: see `to_ragged`.
    """
    shape = variable.shape
    if _is_csr(data):
        data = [data]
    if isinstance(data, (list, tuple)) and len(data) and _is_csr(data[0]):
        data = [_by_sample(variable, d) for d in data]
        lengths = np.fromiter((d.shape[0] for d in data), np.int32, len(data))
        return _filled(variable, Ragged(_sparse(variable, data), lengths))
    if isinstance(data, (list, tuple)):
        items = [as_array(variable, d) for d in data]
    else:
        array = as_array(variable, data)
        if array.ndim == len(shape) + 2 and array.size and matches(shape, array.shape[2:]) and not variable.is_sparse:
            lengths = np.full(array.shape[0], array.shape[1], np.int32)
            return Ragged(array.reshape(-1, *array.shape[2:]), lengths)
        items = [array] if array.ndim <= len(shape) + 1 else list(array)
    items = [_one_sequence(variable, item) for item in items]
    if not items:
        raise _mismatch(variable, (0,), "takes at least one sequence")
    lengths = np.fromiter((len(i) for i in items), np.int32, len(items))
    rows = np.concatenate(items) if len(items) > 1 else items[0]
    return _filled(variable, Ragged(SparseRows.from_dense(rows) if variable.is_sparse else rows, lengths))


def _one_sequence(variable: Variable, item: np.ndarray) -> np.ndarray:
    shape = variable.shape
    if item.ndim == len(shape) + 1 and matches(shape, item.shape[1:]):
        return item
    if item.ndim == len(shape) and matches(shape, item.shape):
        return item[None]
    if item.ndim == 1 and shape == (1,):
        return item[:, None]
    if item.ndim == len(shape) + 2 and item.shape[0] == 1 and matches(shape, item.shape[2:]):
        return item[0]
    raise _mismatch(variable, item.shape, "takes sequences [steps, *shape]")


def _is_csr(data: Any) -> bool:
    return hasattr(data, "tocsr")


def _by_sample(variable: Variable, matrix: Any) -> Any:
    """One row a sample; a matrix may also have the last axis of the samples as columns, and the others in its rows."""
    shape = variable.shape
    rows = prod(shape[:-1])
    if len(shape) < 2 or not is_known(shape) or matrix.shape[-1] != shape[-1] or matrix.shape[0] % rows:
        return matrix
    return matrix.reshape((matrix.shape[0] // rows, prod(shape)))


def _sparse(variable: Variable, matrices: Sequence[Any]) -> Any:
    for m in matrices:
        if filled(variable.shape, m.shape[-1]) is None:
            takes = "takes sparse matrices with a row for each sample and a column for each element"
            raise _mismatch(variable, m.shape, takes)
    rows = SparseRows.concatenate([SparseRows.from_csr(m) for m in matrices])
    if variable.is_sparse:
        return SparseRows(rows.indptr, rows.indices, np.asarray(rows.values, variable.dtype), rows.width)
    return np.asarray(rows.to_dense(), variable.dtype).reshape(-1, *filled(variable.shape, rows.width))  # type: ignore[misc]


def _checked(variable: Variable, ragged: Ragged) -> Ragged:
    """A minibatch that comes ready made, in the form that the variable needs."""
    data = ragged.data
    if isinstance(data, SparseRows):
        shape = filled(variable.shape, data.width)
        if shape is None:
            raise _mismatch(variable, (data.width,), "takes sparse samples of its size")
        if not variable.is_sparse:
            data = data.to_dense().reshape(-1, *shape)
    elif variable.is_sparse:
        data = SparseRows.from_dense(np.asarray(data))
    elif not matches(variable.shape, data.shape[1:]):
        if prod(data.shape[1:]) != prod(variable.shape) or FREE in variable.shape or INFERRED in variable.shape:
            raise _mismatch(variable, data.shape, "takes samples of its shape")
        data = data.reshape(-1, *variable.shape)
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
    pieces = (None, None) if lengths is None else (ragged.starts, ragged.slots)
    return _filled(variable, Ragged(data, lengths, *pieces))


def _filled(variable: Variable, ragged: Ragged) -> Ragged:
    if ragged.num_samples == 0:
        raise ValueError(explain(f"{variable!r} is fed with an empty minibatch", fix="feed at least one sample"))
    return ragged


def _mismatch(variable: Variable, given: Shape, takes: str) -> ShapeError:
    return ShapeError(explain(
        f"data of shape {shape_text(given)} do not match the variable {variable!r} "
        f"of shape {shape_text(variable.shape)}, which {takes}",
        {"variable": variable},
    ))
