"""The members that values inherit from their base class in CNTK's compiled module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._arrays import NDArrayView
from .._typing import ShapeLike
from ..core import NativeValue, Value
from ..engine.data.ragged import Ragged
from ..graph.dtypes import NUMBERS
from ..graph.proxy import add_members
from ..graph.shape import as_shape, is_known, matches, size
from ..variables import Variable


class ValueMembers(Value):
    """Members of `Value`, added to it when the package is imported.

    Values are also created from lists of numbers, with ``_float`` or ``_double`` appended to the name: `create_dense`
    (sample shape, sequences of numbers), `create_one_hot` (number of classes, sequences of indices), `create_batch`
    (number of classes, indices of samples) and `create_sequence` (number of classes, indices, whether it begins here).
    Sequences may be followed by a list of flags, True for those that begin here; then a device and a read-only flag.

    >>> from cntkjax import Value
    >>> Value.create_dense_float((2,), [[1, 2, 3, 4], [5, 6]]).asarray().tolist()
    [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [0.0, 0.0]]]
    >>> Value.create_one_hot_double(3, [[0, 1], [2]]).shape, Value.create_batch_float(3, [0, 2]).shape
    ((2, 2, 3), (2, 1, 3))
    """

    one_hot_skip = Value.ONE_HOT_SKIP

    def as_string(self) -> str:
        """As it is printed."""
        return repr(self)

    def get_data_type(self: Any) -> int:
        """CNTK's number of the element type, as ``cntk_py.DataType_Float``."""
        return NUMBERS[self.dtype]

    def get_storage_format(self: Any) -> int:
        """0 (``cntk_py.StorageFormat_Dense``) or 1 (``cntk_py.StorageFormat_SparseCSC``)."""
        return int(self.is_sparse)

    def alias(self, readOnly: bool = False) -> Value:
        """Another value of the same data."""
        value = object.__new__(type(self))
        value.__dict__.update(self.__dict__, _read_only=readOnly)
        return value

    def copy_from(self: Any, source: Value | NativeValue) -> None:
        """Copy the data and the mask of a value of the same shape.

        Errors: TypeError for anything but a Value; ValueError for another shape; RuntimeError if this one is read-only.
        """
        source = getattr(source, "_value", source)
        if not isinstance(source, Value):
            raise TypeError(f"copy_from takes a Value, not {source!r}")
        if self.is_read_only:
            raise RuntimeError(f"{self!r} is read-only: create it with read_only=False, or use deep_clone()")
        if source.shape != self.shape:
            raise ValueError(f"copy_from: {source!r} does not have the shape of {self!r}")
        copy = source.deep_clone().__dict__
        self.__dict__.clear()
        self.__dict__.update(copy)

    def unpack_variable_value(
        self: Any, variable: Variable, *sequences_only_and_device: Any
    ) -> tuple[NDArrayView, ...]:
        """The sequences of a variable without padding: [steps, *shape] each.

        Errors: ValueError for a variable of another shape, or without a sequence axis if there are several steps.
        """
        lengths = self.ragged.lengths
        several = lengths is not None and lengths.max(initial=0) > 1
        shape, own = variable.shape, self._shape
        fits = size(shape) == size(own) if is_known(shape) else matches(shape, own)
        if not fits or (several and not variable.has_sequence_axis()):
            raise ValueError(f"{self!r} is not a value of {variable!r}: the shapes or the sequence axes differ")
        sequences = [self.asarray()] if self._static else self.as_sequences()
        parts = [s if hasattr(s, "tocsr") else s.reshape(-1, *own) for s in sequences]
        return tuple(NDArrayView.from_data(part, borrow=True) for part in parts)


def _creators(dtype: type) -> dict[str, Any]:
    """The functions that create values of an element type."""

    def new_value(cls: type[Value], ragged: Ragged, shape: ShapeLike, rest: tuple[Any, ...]) -> Value:
        starts = next((part for part in rest if isinstance(part, (list, tuple)) and part), None)
        value = cls.from_ragged(ragged.with_starts(starts), as_shape(shape))
        value._read_only = any(part is True for part in rest)
        return value

    def create_dense(
        cls: type[Value], sample_shape: ShapeLike, sequences: Sequence[Sequence[float]], *rest: Any
    ) -> Value:
        """Sequences of numbers, the elements of their samples one after the other.

        Shapes: sample_shape is that of a sample; each sequence has a multiple of its size in numbers.
        """
        shape = as_shape(sample_shape)
        parts: list[Any] = [np.reshape(s, (-1, *shape)).astype(dtype) for s in sequences]
        return new_value(cls, Ragged.from_sequences(parts), shape, rest)

    def create_one_hot(
        cls: type[Value], sample_shape: ShapeLike, sequences: Sequence[Sequence[int]], *rest: Any
    ) -> Value:
        """Sequences of one-hot vectors, stored sparsely, from the indices of their ones; the last axis is that long."""
        ones = cls.one_hot([list(s) for s in sequences], sample_shape, dtype)
        return new_value(cls, ones.ragged, as_shape(sample_shape), rest)

    def create_batch(cls: type[Value], dimension: int, indices: Sequence[int], *rest: Any) -> Value:
        """One-hot vectors, stored sparsely: a sample for each index."""
        return create_one_hot(cls, dimension, [[i] for i in indices], *rest)

    def create_sequence(
        cls: type[Value], dimension: int, indices: Sequence[int], begins: bool = True, *rest: Any
    ) -> Value:
        """One sequence of one-hot vectors, stored sparsely; `begins` is False if it continues one."""
        return create_one_hot(cls, dimension, [indices], [] if begins else [False], *rest)

    return {f.__name__: f for f in (create_dense, create_one_hot, create_batch, create_sequence)}


CREATORS = {
    f"{name}_{kind}": creator
    for kind, dtype in (("float", np.float32), ("double", np.float64)) for name, creator in _creators(dtype).items()
}


def add_value_members() -> None:
    """Add the members to `Value` and `NativeValue`."""
    members = {name: member for name, member in vars(ValueMembers).items() if not name.startswith("__")}
    add_members(Value, members | {name: classmethod(creator) for name, creator in CREATORS.items()})
    add_members(NativeValue, {name: staticmethod(getattr(Value, name)) for name in CREATORS})
