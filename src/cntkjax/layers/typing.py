"""Types of arguments, such as ``Tensor[3]`` and ``Sequence[Tensor[3]]``: for annotations and `update_signature`.

>>> import numpy as np
>>> print(Sequence[Tensor[2, 3]], Tensor[np.float64, 3])
Sequence[Tensor[2,3]] Tensor[np.float64,3]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .._typing import ShapeLike
from ..axis import Axis
from ..graph.arguments import public
from ..graph.axis import BATCH
from ..graph.errors import explain
from ..graph.shape import as_shape
from ..ops._calling import annotated, declared_type
from ..variables import Record, Variable, tensor

Type: TypeAlias = Record  # a Variable._Type: shape, element type and axes of a variable


class _TensorMeta(type):
    """The class of types with ``[shape]`` or ``[element type, *shape]``."""

    is_sparse = False
    dynamic_axes: tuple[Axis, ...] = (BATCH,)
    __iter__ = None  # Python would iterate over Tensor[0], Tensor[1] ... without end where a shape is expected

    def __getitem__(cls, shape: ShapeLike | tuple[type | int, ...]) -> Type:
        first, *rest = shape if isinstance(shape, tuple) and shape else (shape,)
        known = {}
        if isinstance(first, type) and issubclass(first, np.floating):
            known, shape = {"dtype": first}, tuple(rest)
        return Variable._Type(
            shape=as_shape(shape), **known, is_sparse=cls.is_sparse, dynamic_axes=list(cls.dynamic_axes)
        )


@public
class Tensor(metaclass=_TensorMeta):
    """``Tensor[3]``, ``Tensor[np.float64,2,3]``: dense samples of this shape with the batch axis.

    >>> print(Tensor[3])
    Tensor[3]
    """


@public
class SparseTensor(metaclass=_TensorMeta):
    """``SparseTensor[1000]``: sparse samples of this shape with the batch axis.

    >>> print(SparseTensor[1000])
    SparseTensor[1000]
    """

    is_sparse = True


@public
class ParameterTensor(metaclass=_TensorMeta):
    """``ParameterTensor[3]``: a tensor without dynamic axes.

    >>> print(ParameterTensor[3])
    ParameterTensor[3]
    """

    dynamic_axes = ()


class _SequenceMeta(type):
    """The class of types with ``[type of a step]``."""

    axis: Axis = Axis.default_dynamic_axis()
    __iter__ = None

    def __getitem__(cls, item_type: Type | type) -> Type:
        step = declared_type(item_type)
        if step is None:
            raise TypeError(explain(
                f"{cls.__name__} takes the type of a step, not {item_type!r}",
                fix=f"write {cls.__name__}[Tensor[3]], or {cls.__name__}[np.float32] for scalars",
            ))
        if any(axis.is_sequence_axis for axis in step.get("dynamic_axes", ())):
            raise TypeError(explain(
                f"{cls.__name__} takes the type of a step, not of sequences: sequences of sequences are not supported",
                fix="declare one of the axes as a static axis",
            ))
        return Variable._Type(**{**step, "dynamic_axes": cls._axes()})

    def _axes(cls) -> tuple[Axis, ...] | list[Axis]:
        return BATCH, cls.axis


@public
class Sequence(metaclass=_SequenceMeta):
    """``Sequence[Tensor[3]]``, ``Sequence[np.float32]``: sequences along the default sequence axis.

    >>> print(Sequence[Tensor[3]])
    Sequence[Tensor[3]]
    """


class _SequenceOverMeta(_SequenceMeta):
    """The class of ``SequenceOver[axis]``."""

    def _axes(cls) -> list[Axis]:  # users see these in the printed type
        return [BATCH, cls.axis]


@public
class SequenceOverMeta(type):
    """The class of `SequenceOver`."""

    __iter__ = None

    def __getitem__(self, axis: Axis) -> _SequenceMeta:
        return _SequenceOverMeta("Sequence", (), {"axis": axis})


@public
class SequenceOver(metaclass=SequenceOverMeta):
    """``SequenceOver[axis][Tensor[3]]``: sequences along an axis other than the default one.

    >>> print(SequenceOver[Axis('words')][Tensor[3]])
    SequenceOver[words][Tensor[3]]
    """


@public
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
