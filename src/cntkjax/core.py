"""Values: minibatches of data that are passed to and from graphs."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import DataMixin, NativeArrayView, NDArrayView, NDMask, device_of, of_known_type
from ._typing import AnyArray, DTypeLike, ShapeLike
from .device import Device, DeviceDescriptor, DeviceKind, use_default_device
from .engine.data.feeds import as_array, sequences, to_ragged
from .engine.data.interchange import device_array, pad_sequences
from .engine.data.ragged import Ragged, SparseRows, offsets_of, ranges
from .engine.run.result import Result
from .graph.arguments import public
from .graph.errors import explain
from .graph.shape import NDShape, Shape, as_shape, is_known, shape_text
from .graph.variable import Edge, VariableKind
from .variables import Variable

if TYPE_CHECKING:
    import jax


@public
class Value(DataMixin):
    """The data of one variable for a minibatch.

    The result of a function with ``as_numpy=False`` stays on the device, and can be fed to another function from there.
    As in CNTK it is valid until that function is evaluated again; ``deep_clone`` copies it. NumPy, JAX and DLPack
    accept a Value directly.

    Shapes: [samples, *shape], or for sequences [sequences, longest, *shape], padded with zeros, with a mask.
    Errors: RuntimeError if the Value is used when it is no longer valid.

    >>> import cntkjax as C
    >>> x = C.sequence.input_variable(1)
    >>> value = Value.create(x, [[[1], [2]], [[3]]])
    >>> value.shape, value.mask.tolist()
    ((2, 2, 1), [[2, 1], [2, 0]])
    """

    held: Any  # an array or matrix, fed like that itself, because its axes depend on the variable
    ONE_HOT_SKIP = 2**32 - 1  # index that `one_hot` converts to zeros
    _read_only = False

    def __init__(self, batch: object, seq_starts: NDMask | Sequence[bool] | None = None, device: Device = None) -> None:
        array: Any = batch.held if isinstance(batch, NDArrayView) else batch
        if isinstance(seq_starts, NDMask):
            self._hold(_unmasked(array, seq_starts), array.shape[2:])
        elif isinstance(array, (list, tuple)):
            ragged = Ragged.from_sequences([b if hasattr(b, "tocsr") else np.asarray(b) for b in array])
            self._hold(ragged.with_starts(seq_starts), _sample_shape(ragged))
        elif hasattr(array, "tocsr"):
            samples = SparseRows.from_csr(array)
            self._hold(Ragged(samples, None).with_starts(seq_starts), (array.shape[1],))
            if seq_starts is None:
                self.held = samples.to_csr()
        else:
            # Copied as in CNTK, because the caller may write to its array later.
            array = of_known_type(array if hasattr(array, "devices") else np.array(array), "a Value")
            rows = array[None] if array.ndim == 0 else array
            self._hold(Ragged(rows, None).with_starts(seq_starts), array.shape[1:], static=array.ndim == 0)
            self.held = array

    def _hold(self, ragged: Ragged | Result, shape: Shape, static: bool = False, steps: int = 0) -> None:
        self._data: Ragged | Result | None = ragged
        self._shape, self._static, self._steps = tuple(shape), static, steps

    @property
    def ragged(self) -> Ragged:
        """The samples, concatenated; RuntimeError if they were erased."""
        if self._data is None:
            raise RuntimeError(explain(
                "this Value is no longer valid: the function that returned it has been evaluated again",
                fix="copy it with deep_clone() before the next evaluation, or request arrays with as_numpy=True",
            ))
        if isinstance(self._data, Result):
            data = self._data.ragged()
            self._data = data if isinstance(data, Ragged) else Ragged(data[None], None)  # type: ignore[arg-type]
        return self._data

    def erase(self) -> None:
        """Release the data."""
        self._data = None
        self.__dict__.pop("held", None)

    @staticmethod
    def from_ragged(ragged: Ragged, shape: Shape, static: bool = False, steps: int = 0) -> Value:
        """A value of concatenated samples; `shape` is the shape of one sample.

        `static`: the value is a single sample without a batch axis. `steps`: sequences are padded at least so far.
        """
        value = object.__new__(Value)
        value._hold(ragged, shape, static, steps)
        return value

    @staticmethod
    def from_result(result: Result) -> Value:
        """The value that a program computed for a variable."""
        value = object.__new__(Value)
        lead = 2 if result.layout is not None else 1 if result.variable.dynamic_axes else 0
        value._hold(result, result.sample_shape(lead), static=lead == 0)
        return value

    @staticmethod
    def create(
        var: Edge, data: object, seq_starts: Sequence[bool] | None = None, device: Device = None,
        read_only: bool = False,
    ) -> Value:
        """Create a value for a variable from arrays, lists of sequences, or CSR matrices.

        `seq_starts`: for each sequence, whether it begins here (True) or continues one of the previous minibatch.

        Shapes: an array is [batch, *shape]; a list contains one array [time, *shape] for each sequence, or samples if
                the variable has no sequence axis.
        Errors: ShapeError, TypeError or ValueError for data that do not fit the variable.
        """
        if isinstance(data, NativeValue):
            return data  # type: ignore[return-value]
        value = Value._of(var, data, seq_starts)
        value._read_only = read_only
        return value

    @staticmethod
    def _of(var: Edge, data: object, seq_starts: Sequence[bool] | None) -> Value:
        if not var.dynamic_axes:
            return Value(data.tocsr() if hasattr(data, "tocsr") else as_array(var, data))
        if isinstance(data, list) and var.sequence_axis is None:
            ragged: Ragged | np.ndarray = sequences(var, data)
        else:
            ragged = to_ragged(var, data)
        if isinstance(data, np.ndarray) and seq_starts is None and not var.is_sparse:
            return Value(as_array(var, data))
        assert isinstance(ragged, Ragged)
        shape = var.shape if is_known(var.shape) else _sample_shape(ragged)
        return Value.from_ragged(ragged.with_starts(seq_starts), shape)

    @staticmethod
    def one_hot(batch: Any, num_classes: ShapeLike, dtype: DTypeLike | None = None, device: Device = None) -> Value:
        """Sparse one-hot samples from a list of indices, or sequences from a list of lists; `ONE_HOT_SKIP` gives zeros.

        `num_classes` may be a shape, whose last axis is one-hot; each sample then takes several indices.

        Shapes: [samples, num_classes], or [sequences, longest, num_classes].
        Errors: ValueError for an empty batch, indices that are not integers, or indices outside [0, num_classes).

        >>> Value.one_hot([[0, 1], [2]], 3).shape
        (2, 2, 3)
        """
        if not len(batch):
            raise ValueError("one_hot: the batch is empty; pass at least one index")
        shape = as_shape(num_classes)
        width, per_sample = shape[-1], prod(shape[:-1])
        nested = not np.isscalar(batch[0])
        sequences = [np.asarray(s) for s in batch] if nested else [np.asarray(batch)]
        indices = np.concatenate([s.reshape(-1) for s in sequences])
        if indices.dtype.kind not in "iub":
            raise ValueError(f"one_hot takes integers, not {indices.dtype}: convert them with astype(int)")
        present = indices != Value.ONE_HOT_SKIP
        classes = indices[present]
        if classes.size and not 0 <= classes.min() <= classes.max() < width:
            raise ValueError(
                f"one_hot: indices from {classes.min()} to {classes.max()} are not all in [0, {width}): "
                "increase num_classes, or use Value.ONE_HOT_SKIP for zeros"
            )
        if any(s.size % per_sample for s in sequences):
            raise ValueError(f"one_hot: samples of shape {shape} take {per_sample} indices each: add the missing ones")
        values = np.ones(len(classes), np.float32 if dtype is None else dtype)
        columns = (np.arange(len(present)) % per_sample * width)[present] + classes
        counts = present.reshape(-1, per_sample).sum(1)
        rows = SparseRows(offsets_of(counts), columns.astype(np.int32), values, prod(shape))
        lengths = np.array([s.size // per_sample for s in sequences], np.int32) if nested else None
        value = Value.from_ragged(Ragged(rows, lengths), shape)
        if not nested:
            value.held = rows.to_csr()  # samples, the steps of a sequence, or the rows of one sample: see the variable
        return value

    @property
    def is_sparse(self) -> bool:
        """Whether the data are sparse."""
        return self.ragged.is_sparse

    @property
    def dtype(self) -> type:
        """The NumPy type of the elements."""
        return self.ragged.dtype.type

    @property
    def device(self) -> DeviceDescriptor:
        """The device that holds the data."""
        return device_of(self.ragged.data)

    @property
    def shape(self) -> Shape:
        """The shape of the padded data, including the dynamic axes."""
        ragged = self.ragged
        if self._static:
            return self._shape
        if ragged.lengths is None:
            return (ragged.num_samples, *self._shape)
        return (ragged.num_sequences, int(ragged.lengths.max(initial=self._steps)), *self._shape)

    @property
    def is_valid(self) -> bool:
        """False once the function that returned this Value has been evaluated again."""
        return self._data is not None

    @property
    def is_read_only(self) -> bool:
        """Whether the value is protected from `copy_from`."""
        return self._read_only

    @property
    def mask(self) -> np.ndarray:
        """2 at the first step of a sequence that begins here, 1 at the other steps, 0 in padding.

        Shapes: [sequences, longest].
        Errors: AttributeError if all sequences begin here and have the same length; as in CNTK there is no mask then.
        """
        ragged = self.ragged
        lengths = ragged.lengths
        if lengths is None or (ragged.starts is None and (lengths == self.shape[1]).all()):
            raise AttributeError("this Value has no mask: it contains no padding")
        mask = (np.arange(self.shape[1])[None, :] < lengths[:, None]).astype(np.int8)
        mask[:, 0] += np.ones(len(mask), np.int8) if ragged.starts is None else ragged.starts.astype(np.int8)
        return mask

    def masked_count(self) -> int:
        """The number of steps that are padding."""
        return int(np.prod(self.shape[:2])) - self.ragged.num_samples if self.ragged.lengths is not None else 0

    @property
    def data(self) -> NDArrayView:
        """The padded data."""
        if not self.is_sparse:
            return NDArrayView._of(self._padded(), False)
        csr, lengths = self.ragged.to_csr(), self.ragged.lengths
        if lengths is not None:
            cells = ranges(np.arange(len(lengths)) * self.shape[1], lengths)  # positions of samples in the padded grid
            rows = np.zeros(prod(self.shape[:2]), np.int64)
            rows[cells] = np.diff(csr.indptr)
            csr = type(csr)((csr.data, csr.indices, offsets_of(rows)), shape=(len(rows), csr.shape[1]))
            csr = csr.reshape(len(lengths), -1).tocsr()
        return NDArrayView._of(csr, False, self.shape)

    def as_sequences(self, variable: Edge | None = None) -> list[Any]:
        """The sequences as arrays [time, *shape], or as CSR matrices with one row per step.

        Without a sequence axis: the samples, or if they are sparse one matrix of all of them.
        """
        ragged = self.ragged
        if ragged.lengths is None:
            if ragged.is_sparse:
                return [ragged.to_csr()]
            array = np.asarray(self._padded())
            return list(array) if array.ndim else [array]
        return [
            s.to_csr() if isinstance(s, SparseRows) else np.asarray(s).reshape(-1, *self._shape)
            for s in ragged.sequences()
        ]

    def _numbers(self) -> Any:
        if self.is_sparse and len(self.shape) == 2 and not self._static:
            return self.ragged.to_csr()
        return np.asarray(self._padded())

    def _padded(self) -> AnyArray:
        """The padded data as a dense array on their device."""
        ragged = self.ragged
        data = ragged.data.to_dense() if isinstance(ragged.data, SparseRows) else ragged.data
        if self._static:
            return data.reshape(self._shape)
        data = data.reshape(-1, *self._shape)
        return data if ragged.lengths is None else pad_sequences(data, ragged.lengths, self._steps)

    def _on_device(self) -> jax.Array:
        return device_array(self._padded())

    def deep_clone(self, read_only: bool = False) -> Value:
        """A copy that remains valid when the function that returned this value is evaluated again."""
        ragged = self.ragged
        if isinstance(ragged.data, np.ndarray):  # device arrays are immutable
            ragged = ragged.take(np.arange(ragged.num_sequences))
        value = Value.from_ragged(ragged, self._shape, static=self._static)
        value._read_only = read_only
        return value

    def __getstate__(self) -> dict[str, Any]:
        """What pickles and copies have of it: the data, and not the function that returned it."""
        return self.deep_clone(self._read_only).__dict__

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Value({shape_text(self.shape)}, {self.device!r})" if self.is_valid else "Value(###)"

    __str__ = __repr__


@public
class NativeValue(DataMixin, metaclass=ABCMeta):
    """``cntk_py.Value``: a Value as in CNTK's compiled module, with methods instead of properties.

    User functions with ``as_numpy=False`` receive these. Every Value is an instance of this class too.

    >>> value = NativeValue(NDArrayView.from_dense(np.ones((2, 3), np.float32)))
    >>> value.shape().dimensions(), value.data().as_shape((3, 2)), value.mask()
    ((2, 3), NDArrayView([3 x 2], CPU), None)
    """

    def __init__(self, batch: object, mask: NDMask | None = None) -> None:
        self._value = batch if isinstance(batch, Value) else Value(batch, mask)

    def __getattr__(self, name: str) -> Any:
        if name == "_value":
            raise AttributeError(name)
        return getattr(self._value, name)

    def shape(self) -> NDShape:
        """The shape of the padded data, including the dynamic axes."""
        return NDShape(self._value.shape[::-1])

    def data(self) -> NativeArrayView:
        """The padded data."""
        held = self._value.data
        return NativeArrayView._of(held.held, held.is_read_only, held.shape)

    def mask(self) -> NDMask | None:
        """The mask of padding; None if there is none."""
        if not hasattr(self._value, "mask"):
            return None
        mask = NDMask(self._value.mask.shape)
        mask._numbers()[...] = self._value.mask
        return mask

    def device(self) -> DeviceDescriptor:
        """The device that holds the data."""
        return self._value.device

    def is_sparse(self) -> bool:
        """Whether the data are sparse."""
        return self._value.is_sparse

    def is_valid(self) -> bool:
        """False once the function that returned this Value has been evaluated again."""
        return self._value.is_valid

    def is_read_only(self) -> bool:
        """Whether the data are protected from changes."""
        return self._value.is_read_only

    def deep_clone(self, read_only: bool = False) -> NativeValue:
        """A copy that remains valid when the function that returned this value is evaluated again."""
        return NativeValue(self._value.deep_clone(read_only))

    def alias(self, readOnly: bool = False) -> NativeValue:
        """Another value of the same data."""
        return NativeValue(self._value.alias(readOnly))  # type: ignore[attr-defined]

    @staticmethod
    def create(shape: ShapeLike, views: Sequence[NDArrayView], *rest: Any) -> Value:
        """Create a value from one array view per sequence. `rest`: sequence start flags, device, read-only flag."""
        starts = next((part for part in rest if isinstance(part, (list, tuple)) and part), None)
        value = Value([view.asarray() for view in views], starts)
        value._shape, value._read_only = as_shape(shape), rest[-1:] == (True,)
        return value

    def _numbers(self) -> Any:
        return self._value._numbers()

    def _on_device(self) -> jax.Array:
        return self._value._on_device()

    def __repr__(self) -> str:
        return repr(self._value)


NativeValue.register(Value)


def _unmasked(padded: np.ndarray, mask: NDMask) -> Ragged:
    """The samples of an array [sequences, longest, *shape] without the padding, which must follow the steps."""
    valid = np.asarray(mask) != 0
    if padded.shape[:2] != valid.shape or (np.diff(valid.astype(np.int8), axis=1) > 0).any():
        raise ValueError(
            f"the mask {valid.tolist()} does not give the lengths of sequences in an array {padded.shape}: "
            "each of its rows must consist of valid steps followed by padding"
        )
    return Ragged(padded[valid], valid.sum(1).astype(np.int32), np.asarray(mask)[:, 0] == 2)


def _sample_shape(ragged: Ragged) -> Shape:
    return (ragged.data.width,) if isinstance(ragged.data, SparseRows) else ragged.data.shape[1:]


@public
def asarray(value: object, dtype: DTypeLike | None = None) -> np.ndarray:
    """Convert a Value, parameter, constant, function without arguments, or anything that NumPy accepts to an array.

    Errors: ValueError if the object has no numeric array.

    >>> asarray(Value(np.ones((1, 2), np.float32)))
    array([[1., 1.]], dtype=float32)
    """
    array = value.asarray() if hasattr(value, "asarray") else np.asarray(value)
    if array.dtype == object:
        raise ValueError(f"could not convert instance of type {type(value)} to an array")
    return array if dtype is None else array.astype(dtype)


@public
def asvalue(variable: Edge, data_array: object) -> Value:
    """Create a value for a variable from arrays, lists of sequences, or CSR matrices; see `Value.create`.

    >>> import cntkjax as C
    >>> asvalue(C.input_variable(2), [[1, 2], [3, 4]]).shape  # two sequences of one step
    (2, 1, 2)
    """
    return Value.create(variable, data_array)


@public
def like_input(variable: Edge) -> Variable:
    """An input variable with the name, shape, element type and axes of a variable."""
    return Variable._new(
        VariableKind.Input, variable.shape, variable.dtype, variable.dynamic_axes, name=variable.name,
        is_sparse=variable.is_sparse,
    )


__all__ = [
    "DeviceDescriptor", "DeviceKind", "NDArrayView", "NDMask", "NativeValue", "Value", "asarray", "asvalue",
    "like_input", "use_default_device",
]


