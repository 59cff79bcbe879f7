"""Classes of CNTK's compiled module whose constructors differ from those of its Python API."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _arrays, variables
from .._typing import ShapeLike
from ..device import Device
from ..graph.dtypes import as_dtype
from ..graph.shape import as_shape
from ..learners import TrainingParameterSchedule
from ..train.training_session import MinibatchSizeSchedule


class _Native(ABCMeta):
    """These classes create objects of the public class, all of which are instances of both."""

    public: Any

    def __getattr__(cls, name: str) -> object:
        if name.startswith("_") or "public" not in cls.__dict__:
            raise AttributeError(name)
        return getattr(cls.public, name)


class NDArrayView(metaclass=_Native):
    """An array of zeros: ``NDArrayView(DataType_Float, (2, 3))``; the storage format may precede the shape."""

    public = _arrays.NDArrayView

    def __new__(cls, data_type: int, *arguments: Any) -> Any:
        shape = next(a for a in arguments if not isinstance(a, int))
        view = cls.public(shape, data_type)
        if not isinstance(arguments[0], int) or arguments[0] == 0:
            return view
        from scipy.sparse import csr_matrix

        return cls.public.from_csr(csr_matrix((as_shape(shape)[0], view.held.size // shape[0]), dtype=view.dtype))


class Parameter(metaclass=_Native):
    """A parameter from an array view and a name, or a shape, an element type, a number or initializer, device and name.

    >>> Parameter((1, 2), 1, 5.0).value
    array([[5., 5.]], dtype=float32)
    """

    public = variables.Parameter

    def __new__(cls, given: ShapeLike | _arrays.NDArrayView, *arguments: Any) -> Any:
        if isinstance(given, _arrays.NDArrayView):
            return cls.public(init=given, dtype=given.dtype, name=_name(arguments))
        data_type, value = arguments[:2]
        return cls.public(given, value, data_type, name=_name(arguments))


class Constant(metaclass=_Native):
    """A constant from an array view and a name, or a shape, an element type, a number, a device and a name.

    >>> Constant((2,), 2, 3.5).value
    array([3.5, 3.5])
    """

    public = variables.Constant

    def __new__(cls, given: ShapeLike | _arrays.NDArrayView, *arguments: Any) -> Any:
        if isinstance(given, _arrays.NDArrayView):
            return cls.public(given, dtype=given.dtype, name=_name(arguments))
        data_type, value = arguments[:2]
        return cls.public(value, given, data_type, name=_name(arguments))


class _Schedule(metaclass=_Native):
    def __new__(cls, schedule: Any, *sizes: int) -> Any:
        if isinstance(schedule, (int, float)):
            return cls.public(schedule, minibatch_size=next(iter(sizes), None))
        return cls.public(list(schedule), *sizes)


class training_double_parameter_schedule(_Schedule):
    """A schedule from a number and a reference minibatch size, or a list, an epoch size and that.

    >>> training_double_parameter_schedule(0.5, 3).minibatch_size
    3
    """

    public = TrainingParameterSchedule


class minibatch_size_schedule(_Schedule):
    """The same for sizes of minibatches."""

    public = MinibatchSizeSchedule


for _class in (NDArrayView, Parameter, Constant, training_double_parameter_schedule, minibatch_size_schedule):
    _class.register(_class.public)


def _name(arguments: tuple[Any, ...]) -> str:
    return next((a for a in arguments if isinstance(a, str)), "")


def _leaf(kind: type[Parameter] | type[Constant], dtype: type) -> Callable[..., Any]:
    def make(shape: ShapeLike, value: float, *device_and_name: Any) -> Any:
        return kind(shape, as_dtype(dtype), value, *device_and_name)
    make.__doc__ = f"A {kind.__name__.lower()} of {dtype.__name__} numbers from its shape, value, device and name."
    return make


def _view(dtype: type) -> Callable[..., _arrays.NDArrayView]:
    def make(
        value: float, shape: ShapeLike = (1,), device: Device = None, read_only: bool = False
    ) -> _arrays.NDArrayView:
        return _arrays.NDArrayView.from_dense(np.full(as_shape(shape), value, dtype), device, read_only)
    make.__doc__ = f"An array view that has one {dtype.__name__} number everywhere."
    return make


ParameterFloat, ParameterDouble = _leaf(Parameter, np.float32), _leaf(Parameter, np.float64)
ConstantFloat, ConstantDouble = _leaf(Constant, np.float32), _leaf(Constant, np.float64)
NDArrayViewFloat, NDArrayViewDouble = _view(np.float32), _view(np.float64)
