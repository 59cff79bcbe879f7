"""Types of arguments: ``Tensor[3]``, ``Sequence[Tensor[3]]``, for annotations and ``Function.update_signature``.

>>> import numpy as np
>>> print(Sequence[Tensor[2, 3]], Tensor[np.float64, 3])
Sequence[Tensor[2,3]] Tensor[np.float64,3]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..axis import Axis
from ..graph.axis import BATCH
from ..graph.shape import as_shape
from ..ops._calling import annotated
from ..variables import Record, Variable, tensor

Type = Any  # Variable._Type: what is known of a variable


class _TensorMeta(type):
    """Classes whose ``[shape]``, or ``[element type, *shape]``, is a type."""

    is_sparse = False
    dynamic_axes: tuple[Axis, ...] = (BATCH,)

    def __getitem__(cls, shape: Any) -> Type:
        first, *rest = shape if isinstance(shape, tuple) and shape else (shape,)
        known = {}
        if isinstance(first, type) and issubclass(first, np.floating):
            known, shape = {"dtype": first}, tuple(rest)
        return Variable._Type(
            shape=as_shape(shape), **known, is_sparse=cls.is_sparse, dynamic_axes=list(cls.dynamic_axes)
        )


class Tensor(metaclass=_TensorMeta):
    """``Tensor[3]``, ``Tensor[np.float64,2,3]``: dense samples of this shape with the batch axis."""


class SparseTensor(metaclass=_TensorMeta):
    """``SparseTensor[1000]``: sparse samples of this shape with the batch axis."""

    is_sparse = True


class ParameterTensor(metaclass=_TensorMeta):
    """``ParameterTensor[3]``: a tensor without dynamic axes."""

    dynamic_axes = ()


class _SequenceMeta(type):
    """Classes whose ``[type]`` is that type along a sequence axis."""

    axis: Axis = Axis.default_dynamic_axis()

    def __getitem__(cls, item_type: Type) -> Type:
        if not isinstance(item_type, Record):
            raise TypeError(f"{cls.__name__} takes the type of a step, such as Tensor[3], not {item_type!r}")
        return Variable._Type(**{**item_type, "dynamic_axes": (BATCH, cls.axis)})


class Sequence(metaclass=_SequenceMeta):
    """``Sequence[Tensor[3]]``: sequences along the default sequence axis."""


class SequenceOverMeta(type):
    """The class of `SequenceOver`."""

    def __getitem__(self, axis: Axis) -> Any:
        return _SequenceMeta("Sequence", (), {"axis": axis})


class SequenceOver(metaclass=SequenceOverMeta):
    """``SequenceOver[axis][Tensor[3]]``: sequences along an axis of one's own.

    >>> print(SequenceOver[Axis('words')][Tensor[3]])
    SequenceOver[words][Tensor[3]]
    """


def Signature(*args: Type, **kwargs: Type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that annotates the arguments of a Python function, for use below ``@Function``.

    >>> import cntkjax as C
    >>> @C.Function
    ... @Signature(Tensor[2], Tensor[2])
    ... def difference(a, b):
    ...     return a - b
    >>> difference.shape
    (2,)
    """
    return lambda f: annotated(f, args, kwargs)


__all__ = ["Axis", "ParameterTensor", "Record", "Sequence", "SequenceOver", "SequenceOverMeta", "Signature",
           "SparseTensor", "Tensor", "Variable", "tensor"]
