"""Values: minibatches of data outside of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .device import DeviceDescriptor, DeviceKind, cpu, use_default_device
from .engine.feeds import as_array, sequences, to_ragged
from .engine.program import Result
from .engine.ragged import Ragged, SparseRows, offsets_of, ranges
from .graph.shape import Shape, as_shape, shape_text
from .graph.variable import VariableKind
from .tensor import ArrayMixin
from .variables import Variable


class NDArrayView(ArrayMixin):
    """A dense array or a sparse matrix, as CNTK's values hold it. Its data are never copied, unless they have to be.

    >>> NDArrayView.from_dense(np.ones((2, 3), np.float32))
    NDArrayView([2 x 3], CPU)
    """

    def __init__(self, shape: Any, data_type: Any, device: Any = None) -> None:
        self._hold(np.zeros(as_shape(shape), data_type), read_only=False)

    def _hold(self, array: Any, read_only: bool, shape: Shape | None = None) -> None:
        self.held = array  # the NumPy array, or a CSR matrix [shape[0], all other axes]
        self._shape: Shape = tuple(array.shape if shape is None else shape)
        self._read_only = read_only

    @classmethod
    def _of(cls, array: Any, read_only: bool, shape: Shape | None = None) -> NDArrayView:
        made = object.__new__(cls)
        made._hold(array, read_only, shape)
        return made

    @staticmethod
    def from_dense(np_array: Any, device: Any = None, read_only: bool = False, borrow: bool = False) -> NDArrayView:
        """From a NumPy array; with `borrow` without a copy."""
        array = np.asarray(np_array)
        if array.dtype.kind != "f":
            raise TypeError(f"an NDArrayView holds floating point numbers, not {array.dtype}")
        return NDArrayView._of(array if borrow else array.copy(), read_only)

    @staticmethod
    def from_csr(
        csr_array: Any, device: Any = None, read_only: bool = False, borrow: bool = False, shape: Any = None
    ) -> NDArrayView:
        """From a SciPy matrix in CSR format, which holds an array of the given shape with its last axis in the columns.

        Errors: TypeError for another format; ValueError if the shape does not fit.
        """
        if not hasattr(csr_array, "indptr") or csr_array.format != "csr":
            raise TypeError("an NDArrayView takes sparse data in CSR format only: convert them with tocsr()")
        array = csr_array if borrow else csr_array.copy()
        if shape is None:
            return NDArrayView._of(array, read_only)
        shape = as_shape(shape)
        if not shape or shape[-1] != array.shape[1] or prod(shape[:-1]) != array.shape[0]:
            raise ValueError(f"a CSR matrix of shape {array.shape} does not hold an array of shape {shape}")
        return NDArrayView._of(array.reshape(shape[0], -1).tocsr(), read_only, shape)

    @staticmethod
    def from_data(data: Any, device: Any = None, read_only: bool = False, borrow: bool = False) -> NDArrayView:
        """From a NumPy array or a CSR matrix."""
        make = NDArrayView.from_csr if hasattr(data, "tocsr") else NDArrayView.from_dense
        return make(data, device, read_only, borrow)

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        return self._shape

    @property
    def dtype(self) -> type:
        """NumPy type of the elements."""
        return self.held.dtype.type

    @property
    def device(self) -> DeviceDescriptor:
        """Where the data are."""
        return cpu()

    @property
    def is_sparse(self) -> bool:
        """True for a sparse matrix."""
        return hasattr(self.held, "tocsr")

    @property
    def is_read_only(self) -> bool:
        """True if the data may not be changed."""
        return self._read_only

    def _numbers(self) -> Any:
        return self.held.toarray().reshape(self._shape) if self.is_sparse and len(self._shape) != 2 else self.held

    def as_shape(self, new_shape: Any) -> NDArrayView:
        """The same data in another shape.

        Errors: ValueError if that has another size.
        """
        shape = as_shape(new_shape)
        if prod(shape) != prod(self._shape):
            raise ValueError(f"an array of shape {self._shape} cannot have shape {shape}, which is of another size")
        held = self.held.reshape(shape[0], -1).tocsr() if self.is_sparse else self.held.reshape(shape)
        return NDArrayView._of(held, self._read_only, shape)

    def slice_view(self, start_offset: Sequence[int], extent: Sequence[int], read_only: bool = True) -> NDArrayView:
        """A part of the array that shares its memory.

        Shapes: `start_offset` has a number for each axis; `extent` may leave out leading axes: the part lacks them.
        Errors: ValueError if the part lies outside, or is not contiguous in memory.
        """
        dropped = len(start_offset) - len(extent)
        sizes = (1,) * dropped + tuple(extent)
        if len(start_offset) != len(self.shape) or dropped < 0 or any(
            not 0 <= o <= o + e <= d for o, e, d in zip(start_offset, sizes, self.shape, strict=True)
        ):
            raise ValueError(f"slice at {tuple(start_offset)} of extent {tuple(extent)} is not inside {self!r}")
        where = [slice(o, o + e) for o, e in zip(start_offset, sizes, strict=True)]
        if self.is_sparse:
            part, contiguous = self.held[where[0]], not dropped and sizes[1:] == self.shape[1:]
        else:
            part = self.held[(*start_offset[:dropped], *where[dropped:], ...)]
            contiguous = part.flags.c_contiguous
        if not contiguous:
            raise ValueError(f"slice at {tuple(start_offset)} of extent {tuple(extent)} is not contiguous in memory")
        return NDArrayView._of(part, read_only, tuple(extent))

    def deep_clone(self, device: Any = None, read_only: bool = False) -> NDArrayView:
        """A copy."""
        return NDArrayView._of(self.held.copy(), read_only, self._shape)

    def __repr__(self) -> str:
        return f"NDArrayView({shape_text(self.shape)}, CPU)"

    __str__ = __repr__


class Value(ArrayMixin):
    """Data of one variable for a minibatch.

    Shapes: [samples, *shape], or with sequences [sequences, longest, *shape] with a mask, padded with zeros.

    >>> import cntkjax as C
    >>> x = C.sequence.input_variable(1)
    >>> value = Value.create(x, [[[1], [2]], [[3]]])
    >>> value.shape, value.mask.tolist()
    ((2, 2, 1), [[2, 1], [2, 0]])
    """

    ONE_HOT_SKIP = 2**32 - 1  # among the indices of `one_hot`: a sample of zeros only

    def __init__(self, batch: Any, seq_starts: Any = None, device: Any = None) -> None:
        array = batch.asarray() if isinstance(batch, NDArrayView) else batch
        if isinstance(array, (list, tuple)):
            ragged = Ragged.from_sequences([b if hasattr(b, "tocsr") else np.asarray(b) for b in array])
            self._hold(ragged, _sample_shape(ragged))
        elif hasattr(array, "tocsr"):
            self._hold(Ragged(SparseRows.from_csr(array), None), (array.shape[1],))
        else:
            array = np.asarray(array)
            if array.dtype.kind != "f":
                raise TypeError(f"a Value holds floating point numbers, not {array.dtype}")
            self._hold(Ragged(np.atleast_1d(array), None), array.shape[1:], static=array.ndim == 0)
            self.held = array  # fed like the array itself: which axes it has depends on the variable

    def _hold(self, ragged: Ragged, shape: Shape, static: bool = False) -> None:
        self.ragged, self._shape, self._static = ragged, tuple(shape), static

    @staticmethod
    def from_ragged(ragged: Ragged, shape: Shape, dtype: Any = None, static: bool = False) -> Value:
        """A value of samples that lie end to end; `shape` is that of one sample.

        `static`: there is only one, and no batch axis.
        """
        made = object.__new__(Value)
        made._hold(ragged, shape, static)
        return made

    @staticmethod
    def from_result(result: Result) -> Value:
        """The value that a program gave for a variable."""
        data = result.ragged()
        if isinstance(data, Ragged):
            return Value.from_ragged(data, _sample_shape(data))
        return Value.from_ragged(Ragged(data[None], None), data.shape, static=True)

    @staticmethod
    def create(var: Any, data: Any, seq_starts: Any = None, device: Any = None, read_only: bool = False) -> Value:
        """The value of a variable from arrays, lists of sequences, or CSR matrices.

        Shapes: a list makes sequences, of one step each if the variable has no sequence axis. An array stays as it is.
        `seq_starts`: for each sequence, whether it begins here or continues that of the minibatch before.
        """
        if isinstance(data, Value):
            return data
        if isinstance(data, list) and var.dynamic_axes and var.sequence_axis is None:
            ragged: Ragged | np.ndarray = sequences(var, data)
        else:
            ragged = to_ragged(var, data)
        if isinstance(data, np.ndarray) and seq_starts is None and not var.is_sparse:
            return Value(as_array(var, data))
        if not isinstance(ragged, Ragged):
            return Value.from_ragged(Ragged(ragged[None], None), ragged.shape, static=True)
        if seq_starts is not None:
            ragged = Ragged(ragged.data, ragged.lengths, np.asarray(seq_starts, bool))
        return Value.from_ragged(ragged, var.shape)

    @staticmethod
    def one_hot(batch: Any, num_classes: Any, dtype: Any = None, device: Any = None) -> Value:
        """One-hot samples from indices: a list of samples, or a list of sequences of them. `ONE_HOT_SKIP` gives zeros.

        `num_classes` may be a shape: then its last axis is one-hot, and a sample takes several indices.

        Errors: ValueError for an index outside of the classes.

        >>> Value.one_hot([[0, 1], [2]], 3).shape
        (2, 2, 3)
        """
        shape = as_shape(num_classes)
        width, per_sample = shape[-1], prod(shape[:-1])
        nested = len(batch) > 0 and not np.isscalar(batch[0])
        sequences = [np.asarray(s) for s in batch] if nested else [np.asarray(batch)]
        indices = np.concatenate([s.reshape(-1) for s in sequences])
        if indices.dtype.kind not in "iu":
            raise ValueError(f"one_hot takes integers, not {indices.dtype}")
        kept = indices != Value.ONE_HOT_SKIP
        chosen = indices[kept]
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < width:
            raise ValueError(f"one_hot: indices from {chosen.min()} to {chosen.max()} are not all in [0, {width})")
        if any(s.size % per_sample for s in sequences):
            raise ValueError(f"one_hot: samples of shape {shape} take {per_sample} indices each")
        values = np.ones(len(chosen), np.float32 if dtype is None else dtype)
        columns = (np.arange(len(kept)) % per_sample * width)[kept] + chosen
        counts = kept.reshape(-1, per_sample).sum(1)
        rows = SparseRows(offsets_of(counts), columns.astype(np.int32), values, prod(shape))
        lengths = np.array([s.size // per_sample for s in sequences], np.int32) if nested else None
        return Value.from_ragged(Ragged(rows, lengths), shape)

    @property
    def is_sparse(self) -> bool:
        """True if the data are sparse."""
        return self.ragged.is_sparse

    @property
    def dtype(self) -> type:
        """NumPy type of the elements."""
        return self.ragged.dtype.type

    @property
    def device(self) -> DeviceDescriptor:
        """Where the data are."""
        return cpu()

    @property
    def shape(self) -> Shape:
        """Shape of the padded data, dynamic axes included."""
        ragged = self.ragged
        if self._static:
            return self._shape
        if ragged.lengths is None:
            return (ragged.num_samples, *self._shape)
        return (ragged.num_sequences, int(ragged.lengths.max(initial=0)), *self._shape)

    @property
    def is_valid(self) -> bool:
        """True: the data do not lie in a buffer that the next step uses again."""
        return True

    @property
    def is_read_only(self) -> bool:
        """False."""
        return False

    @property
    def mask(self) -> np.ndarray:
        """2 where a sequence begins, 1 where it goes on, 0 in padding: [sequences, longest].

        Errors: AttributeError if all sequences begin here and have the same length: CNTK too has no mask then.
        """
        ragged = self.ragged
        lengths = ragged.lengths
        if lengths is None or (ragged.starts is None and (lengths == lengths[:1]).all()):
            raise AttributeError("this Value has no mask: nothing in it is padding")
        mask = (np.arange(int(lengths.max(initial=0)))[None, :] < lengths[:, None]).astype(np.int8)
        mask[:, 0] += np.ones(len(mask), np.int8) if ragged.starts is None else ragged.starts.astype(np.int8)
        return mask

    @property
    def masked_count(self) -> int:
        """Number of padded steps."""
        return int(np.prod(self.shape[:2])) - self.ragged.num_samples if self.ragged.lengths is not None else 0

    @property
    def data(self) -> NDArrayView:
        """The padded data."""
        if not self.is_sparse:
            return NDArrayView._of(self.asarray(), False)
        csr, lengths = self.ragged.to_csr(), self.ragged.lengths
        if lengths is not None:
            cells = ranges(np.arange(len(lengths)) * self.shape[1], lengths)  # where the samples are in the padded grid
            rows = np.zeros(prod(self.shape[:2]), np.int64)
            rows[cells] = np.diff(csr.indptr)
            csr = type(csr)((csr.data, csr.indices, offsets_of(rows)), shape=(len(rows), csr.shape[1]))
            csr = csr.reshape(len(lengths), -1).tocsr()
        return NDArrayView._of(csr, False, self.shape)

    def as_sequences(self, variable: Any = None) -> list[Any]:
        """The sequences one by one: arrays [time, *shape], or CSR matrices with a row a step."""
        ragged = self.ragged
        parts = ragged.sequences()
        if ragged.lengths is None and not ragged.is_sparse:
            return [np.asarray(s[0]) for s in parts]
        return [s.to_csr() if isinstance(s, SparseRows) else np.asarray(s).reshape(-1, *self._shape) for s in parts]

    def _numbers(self) -> Any:
        data = self.ragged.data
        if isinstance(data, SparseRows):
            if len(self.shape) == 2:
                return self.ragged.to_csr()
            data = data.to_dense()
        data = np.asarray(data).reshape(-1, *self._shape)
        if self._static:
            return data[0]
        if self.ragged.lengths is None:
            return data
        padded = np.zeros(self.shape, data.dtype)
        steps = np.arange(self.shape[1])[None, :] < self.ragged.lengths[:, None]
        padded[steps] = data
        return padded

    def deep_clone(self, read_only: bool = False) -> Value:
        """A copy."""
        ragged = self.ragged
        return Value.from_ragged(ragged.take(np.arange(ragged.num_sequences)), self._shape, static=self._static)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Value({shape_text(self.shape)}, CPU)"

    __str__ = __repr__


def _sample_shape(ragged: Ragged) -> Shape:
    return (ragged.data.width,) if isinstance(ragged.data, SparseRows) else ragged.data.shape[1:]


def asarray(value: Any, dtype: Any = None) -> np.ndarray:
    """A Value, parameter, constant, function without arguments, or what NumPy takes, as a NumPy array.

    >>> asarray(Value(np.ones((1, 2), np.float32)))
    array([[1., 1.]], dtype=float32)
    """
    array = value.asarray() if hasattr(value, "asarray") else np.asarray(value)
    if array.dtype == object:
        raise ValueError(f"could not convert instance of type {type(value)} to an array")
    return array if dtype is None else array.astype(dtype)


def asvalue(variable: Any, data_array: Any) -> Value:
    """The value of a variable from arrays, lists of sequences, or CSR matrices."""
    return Value.create(variable, data_array)


def like_input(variable: Any) -> Variable:
    """An input that takes what has the shape and axes of a variable."""
    return Variable._new(
        VariableKind.Input, variable.shape, variable.dtype, variable.dynamic_axes, name=variable.name,
        is_sparse=variable.is_sparse,
    )


__all__ = [
    "DeviceDescriptor", "DeviceKind", "NDArrayView", "Value", "asarray", "asvalue", "like_input", "use_default_device",
]
