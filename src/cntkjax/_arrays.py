"""Array views and masks, which hold the data of CNTK's values."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from ._typing import ArrayLike, ElementType, ShapeLike
from .device import Device, DeviceDescriptor, DeviceKind, cpu, jax_device
from .engine.data.interchange import device_array, platform_of
from .graph.arguments import public
from .graph.dtypes import NUMBERS, as_dtype
from .graph.mersenne import MersenneTwister64
from .graph.seed import AUTO_SEED, resolve_seed
from .graph.shape import NDShape, Shape, as_shape, shape_text
from .tensor import ArrayMixin

if TYPE_CHECKING:
    import jax


A = TypeVar("A", bound="jax.Array | np.ndarray")


@public
class DataMixin(ArrayMixin):
    """Data that NumPy, JAX and libraries with DLPack (PyTorch, CuPy) accept directly."""

    def _on_device(self) -> jax.Array:
        return device_array(self._numbers())

    def __jax_array__(self) -> jax.Array:
        return self._on_device()

    def __dlpack__(self, **options: Any) -> Any:
        return self._on_device().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._on_device().__dlpack_device__()  # type: ignore[attr-defined]


@public
class NDArrayView(DataMixin):
    """A dense array or a sparse matrix, the data of CNTK's values. Data are copied only where necessary.

    NumPy, JAX and DLPack accept it directly.

    >>> NDArrayView.from_dense(np.ones((2, 3), np.float32))
    NDArrayView([2 x 3], CPU)
    """

    def __init__(self, shape: ShapeLike, data_type: ElementType, device: Device = None) -> None:
        self._hold(np.zeros(as_shape(shape), as_dtype(data_type)), read_only=False)

    def _hold(self, array: Any, read_only: bool, shape: Shape | None = None) -> None:
        self.held = array  # a NumPy array, one of jax, or a CSR matrix [shape[0], all other axes]
        self._shape: Shape = tuple(array.shape if shape is None else shape)
        self._read_only = read_only

    @classmethod
    def _of(cls, array: Any, read_only: bool, shape: Shape | None = None) -> Self:
        view = object.__new__(cls)
        view._hold(array, read_only, shape)
        return view

    @staticmethod
    def from_dense(
        np_array: ArrayLike, device: Device = None, read_only: bool = False, borrow: bool = False
    ) -> NDArrayView:
        """From a NumPy array; with `borrow` without a copy. A copy can be written to, whatever `read_only` says.

        Errors: TypeError for anything but an array; RuntimeError for an element type that CNTK does not have.
        """
        if not hasattr(np_array, "dtype"):
            raise TypeError(
                f"an NDArrayView is made of a NumPy array, not of {type(np_array).__name__}: convert it with np.asarray"
            )
        array = of_known_type(np.asarray(np_array), "an NDArrayView")
        return NDArrayView._of(array if borrow else array.copy(), read_only and borrow)

    @staticmethod
    def from_csr(
        csr_array: Any, device: Device = None, read_only: bool = False, borrow: bool = False,
        shape: ShapeLike | None = None,
    ) -> NDArrayView:
        """From a SciPy matrix in CSR format that holds an array of the given shape, with its last axis in the columns.

        Errors: TypeError for another format; ValueError if the shape does not match.
        """
        if not hasattr(csr_array, "indptr") or csr_array.format != "csr":
            raise TypeError("an NDArrayView takes sparse data in CSR format only: convert them with tocsr()")
        array, read_only = (csr_array, read_only) if borrow else (csr_array.copy(), False)
        if shape is None:
            return NDArrayView._of(array, read_only)
        shape = as_shape(shape)
        if not shape or shape[-1] != array.shape[1] or prod(shape[:-1]) != array.shape[0]:
            raise ValueError(f"a CSR matrix of shape {array.shape} does not hold an array of shape {shape}")
        return NDArrayView._of(array.reshape(shape[0], -1).tocsr(), read_only, shape)

    @staticmethod
    def from_data(data: Any, device: Device = None, read_only: bool = False, borrow: bool = False) -> NDArrayView:
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
        """The device that holds the data."""
        return device_of(self.held)

    @property
    def is_sparse(self) -> bool:
        """True for a sparse matrix."""
        return self._is_sparse

    @property
    def is_read_only(self) -> bool:
        """True if the data may not be changed."""
        return self._read_only

    @property
    def _is_sparse(self) -> bool:
        return hasattr(self.held, "tocsr")

    def _numbers(self) -> Any:
        if self._is_sparse:
            return self.held if len(self._shape) == 2 else self.held.toarray().reshape(self._shape)
        return np.asarray(self.held)

    def _on_device(self) -> jax.Array:
        return device_array(self.held.toarray().reshape(self._shape) if self._is_sparse else self.held)

    to_ndarray = ArrayMixin.asarray

    def get_data_type(self) -> int:
        """CNTK's number of the element type, as ``cntk_py.DataType_Float``."""
        return NUMBERS[self.dtype]

    def get_storage_format(self) -> int:
        """0 (``cntk_py.StorageFormat_Dense``) or 1 (``cntk_py.StorageFormat_SparseCSC``)."""
        return int(self._is_sparse)

    def copy_from(self, source: NDArrayView) -> None:
        """Copy the data of another array of the same shape into this one's memory.

        Errors: ValueError for another shape; RuntimeError if this one is read-only.
        """
        if source._shape != self._shape:
            raise ValueError(f"copy_from: {source!r} does not have the shape of {self!r}: reshape it with as_shape")
        self._write(source)

    def set_value(self, value: float) -> None:
        """Fill the array with a number.

        Errors: TypeError for anything but a number; RuntimeError if the array is read-only or sparse.

        >>> view = NDArrayView.from_dense(np.ones((2, 3), np.float32))
        >>> view.set_value(2.5)
        >>> view.asarray().tolist()
        [[2.5, 2.5, 2.5], [2.5, 2.5, 2.5]]
        """
        if not isinstance(value, (int, float, np.number)):
            raise TypeError(f"set_value fills an array with a number, not {value!r}: copy_from takes an NDArrayView")
        if self._is_sparse:
            raise RuntimeError(f"{self!r} is sparse: a number can only be written to a dense array")
        self._write(NDArrayView.from_dense(np.full(self._shape, value, self.dtype), borrow=True))

    def _write(self, source: NDArrayView) -> None:
        if self._read_only:
            raise RuntimeError(f"{self!r} is read-only: create it with read_only=False, or copy it with deep_clone()")
        if isinstance(self.held, np.ndarray) and self.held.flags.writeable:  # the arrays of a file are not
            self.held[...] = source._numbers()
        else:
            self.held = source.held.copy()

    def change_device(self, device: DeviceDescriptor) -> None:
        """Move the data to a device. Errors: TypeError for anything but a device; ValueError for sparse data."""
        if not isinstance(device, DeviceDescriptor):
            raise TypeError(f"change_device needs a device such as cpu() or gpu(0), not {device!r}")
        if device != device_of(self.held):
            if self._is_sparse:
                raise ValueError(f"{self!r} is sparse: sparse data stay on the CPU until a function uses them")
            self.held = np.asarray(self.held) if device == cpu() else device_array(self.held, jax_device(device))

    @staticmethod
    def random_uniform_float(
        shape: ShapeLike, range_begin: float, range_end: float, seed: int = AUTO_SEED, device: Device = None
    ) -> NDArrayView:
        """Uniformly distributed random numbers; the same seed gives the same numbers.

        >>> NDArrayView.random_uniform_float((2, 3), -1, 1, seed=7)
        NDArrayView([2 x 3], CPU)
        """
        return _random(np.float32, shape, range_begin, range_end, seed)

    @staticmethod
    def random_uniform_double(
        shape: ShapeLike, range_begin: float, range_end: float, seed: int = AUTO_SEED, device: Device = None
    ) -> NDArrayView:
        """The same in double precision."""
        return _random(np.float64, shape, range_begin, range_end, seed)

    def as_shape(self, newShape: ShapeLike) -> NDArrayView:
        """The same data in another shape.

        Errors: ValueError if the sizes differ.
        """
        shape = as_shape(newShape)
        if prod(shape) != prod(self._shape):
            raise ValueError(
                f"an array of shape {self._shape} cannot have shape {shape}: it has {prod(self._shape)} elements, "
                f"not {prod(shape)}"
            )
        held = self.held.reshape(shape[0], -1).tocsr() if self._is_sparse else self.held.reshape(shape)
        return self._of(held, self._read_only, shape)

    def slice_view(self, start_offset: Sequence[int], extent: Sequence[int], read_only: bool = True) -> NDArrayView:
        """A part of the array that shares its memory.

        Shapes: `start_offset` has a number for each axis; leading axes that `extent` leaves out are dropped.
        Errors: ValueError if the part is out of bounds, or not contiguous in memory.
        """
        dropped = len(start_offset) - len(extent)
        sizes = (1,) * dropped + tuple(extent)
        if len(start_offset) != len(self._shape) or dropped < 0 or any(
            not 0 <= o <= o + e <= d for o, e, d in zip(start_offset, sizes, self._shape, strict=True)
        ):
            raise ValueError(f"slice at {tuple(start_offset)} of extent {tuple(extent)} is not inside {self!r}")
        split = [i for i, (e, d) in enumerate(zip(sizes, self._shape, strict=True)) if e != d]
        if (split and any(e > 1 for e in sizes[: split[-1]])) or (self._is_sparse and (dropped or split[1:])):
            raise ValueError(f"slice at {tuple(start_offset)} of extent {tuple(extent)} is not contiguous in memory")
        where = [slice(o, o + e) for o, e in zip(start_offset, sizes, strict=True)]
        part = self.held[where[0]] if self._is_sparse else self.held[(*start_offset[:dropped], *where[dropped:], ...)]
        return self._of(part, read_only, tuple(extent))

    def deep_clone(self, device: Device = None, read_only: bool = False) -> NDArrayView:
        """A copy."""
        return self._of(self.held.copy(), read_only, self._shape)

    def alias(self, readOnly: bool = False) -> NDArrayView:
        """Another view of the same memory."""
        return self._of(self.held, readOnly, self._shape)

    def __repr__(self) -> str:
        """As it is printed."""
        return f"NDArrayView({shape_text(self._shape)}, {device_of(self.held)!r})"

    __str__ = as_string = __repr__


@public
class NativeArrayView(NDArrayView):
    """An array view as in CNTK's compiled module, where its properties are methods.

    >>> NativeArrayView._of(np.ones((2, 3)), False).shape().dimensions()
    (2, 3)
    """

    def shape(self) -> NDShape:  # type: ignore[override]
        """Shape of the array."""
        return NDShape(self._shape[::-1])

    def is_sparse(self) -> bool:  # type: ignore[override]
        """True for a sparse matrix."""
        return self._is_sparse

    def is_read_only(self) -> bool:  # type: ignore[override]
        """True if the data may not be changed."""
        return self._read_only

    def device(self) -> DeviceDescriptor:  # type: ignore[override]
        """The device that holds the data."""
        return device_of(self.held)


@public
class NDMask(ArrayMixin):
    """The mask of padded sequences: 2 at the first step of a sequence, 1 at the others, 0 in padding.

    >>> mask = NDMask((2, 3))
    >>> mask.mark_sequence_begin((0, 0))
    >>> mask.invalidate_section((1, 1), (1, 2))
    >>> mask.asarray().tolist(), mask.masked_count()
    ([[2, 1, 1], [1, 0, 0]], 2)
    """

    def __init__(self, shape: ShapeLike, device: Device = None) -> None:
        self._mask = np.ones(as_shape(shape), np.int8)

    def _numbers(self) -> np.ndarray:
        return self._mask

    to_ndarray = ArrayMixin.asarray

    def shape(self) -> Shape:
        """[sequences, longest]."""
        return self._mask.shape

    def device(self) -> DeviceDescriptor:
        """Masks are on the CPU."""
        return cpu()

    def masked_count(self) -> int:
        """Number of steps that are padding."""
        return int((self._mask == 0).sum())

    def mark_sequence_begin(self, offset: Sequence[int], section_shape: Sequence[int] | None = None) -> None:
        """Mark a step, or all steps of a section, as the first of a sequence."""
        self._mask[self._section(offset, section_shape or (1,) * len(offset))] = 2

    def invalidate_section(self, sectionOffset: Sequence[int], sectionShape: Sequence[int]) -> None:
        """Mark a section as padding."""
        self._mask[self._section(sectionOffset, sectionShape)] = 0

    def __repr__(self) -> str:
        return f"NDMask({self._mask.tolist()})"

    def clear(self) -> None:
        """Remove all marks: nothing is padding, and nothing begins."""
        self._mask[...] = 1

    def alias(self) -> NDMask:
        """Another view of the same memory."""
        view = NDMask(())
        view._mask = self._mask
        return view

    def copy_from(self, source: NDMask) -> None:
        """Take over what another mask of the same shape says. Errors: ValueError for another shape."""
        if source.shape() != self.shape():
            raise ValueError(f"copy_from: a mask {source.shape()} does not have the shape {self.shape()}")
        self._mask[...] = source._mask

    def deep_clone(self, device: Device = None) -> NDMask:
        """A copy."""
        copy = NDMask(self.shape())
        copy._mask[...] = self._mask
        return copy

    def _section(self, offset: Sequence[int], extent: Sequence[int]) -> tuple[slice, ...]:
        if len(offset) != self._mask.ndim or any(
            not 0 <= o <= o + e <= d for o, e, d in zip(offset, extent, self._mask.shape, strict=True)
        ):
            raise ValueError(f"a section at {tuple(offset)} of {tuple(extent)} is not in a mask of {self._mask.shape}")
        return tuple(slice(o, o + e) for o, e in zip(offset, extent, strict=True))


def _random(dtype: type, shape: ShapeLike, begin: float, end: float, seed: int) -> NDArrayView:
    values = MersenneTwister64(resolve_seed(seed)).uniform(prod(as_shape(shape)), begin, end)
    return NDArrayView._of(values.astype(dtype).reshape(as_shape(shape)), False)


@public
def of_known_type(array: A, what: str) -> A:
    """The array; RuntimeError if CNTK does not have its element type."""
    if array.dtype.type not in NUMBERS:
        raise RuntimeError(
            f"{what} holds float16, float32, float64, int8 or int16, not {array.dtype}: convert the array with astype"
        )
    return array


@public
def device_of(data: Any) -> DeviceDescriptor:
    """The device that holds an array."""
    platform, number = platform_of(data)
    return cpu() if platform == "cpu" else DeviceDescriptor(DeviceKind.GPU, number)


__all__ = ["DataMixin", "NDArrayView", "NDMask", "NativeArrayView", "device_of", "of_known_type"]


