"""Variables, parameters and constants."""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np

from ._arrays import NDArrayView
from ._typing import AnyArray, ArrayLike, ElementType, ShapeLike
from .default_options import default_override_or, get_default_override
from .device import Device
from .engine.run.handover import STATE, settle
from .graph.arguments import public
from .graph.axis import BATCH, UNKNOWN_AXES, AxesLike, Axis
from .graph.dtypes import NUMBERS, as_dtype, holds_numbers
from .graph.errors import ShapeError, VariableShapeError, explain
from .graph.function import Node
from .graph.public import classes
from .graph.shape import UNKNOWN_SHAPE, Shape, as_shape, is_known, matches, shape_text
from .graph.variable import (
    Edge,
    Leaf,
    Sampler,
    VariableKind,
    cell_of,
    default_axes,
    infer_shape,
    relocate,
    set_value,
    value_of,
)
from .initializer import Initializer
from .tensor import ArrayMixin, TensorOpsMixin

Init: TypeAlias = Initializer | ArrayLike | NDArrayView | default_override_or | None  # initial values


@public
class Record(dict):
    """An immutable dict whose items can be read as attributes.

    >>> r = Record(x=1, y=2)
    >>> r.x, r.updated_with(y=3)
    (1, {'x': 1, 'y': 3})
    """

    def __init__(self, **args_dict: Any) -> None:
        super().__init__(**args_dict)
        self.__dict__.update(args_dict)  # so that dir() lists them, and they come before methods of dict: r.values

    def __getattr__(self, key: str) -> Any:
        raise AttributeError(f"record has no attribute '{key}'; it has {', '.join(map(str, self)) or 'none'}")

    def __missing__(self, key: object) -> Any:
        raise KeyError(f"record has no item {key!r}; it has {', '.join(map(str, self)) or 'none'}")

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError("record is immutable: updated_with(...) returns a changed copy")

    def updated_with(self, **kwargs: Any) -> Record:
        """A copy with some items changed or added."""
        return Record(**{**self, **kwargs})


@public
class VariableMixin:
    """Properties of all variables, defined in the graph and repeated here where CNTK has them."""

    dtype = Edge.dtype
    dynamic_axes = Edge.dynamic_axes
    is_constant = Edge.is_constant
    is_input = Edge.is_input
    is_output = Edge.is_output
    is_parameter = Edge.is_parameter
    is_placeholder = Edge.is_placeholder
    is_sparse = Edge.is_sparse
    name = Edge.name
    needs_gradient = Edge.needs_gradient
    shape = Edge.shape
    uid: Any = Edge.uid

    @property
    def owner(self: Any) -> Node:
        """The function whose output this is; RuntimeError for other variables, as in CNTK (see ``is_output``)."""
        if not self.is_output:
            raise RuntimeError(f"{self!r} is not the output of a function, so it has no owner: check is_output first")
        return self._owner

    def get_data_type(self: Any) -> int:
        """CNTK's number of the element type; 0 (``cntk_py.DataType_Unknown``) while it is unknown."""
        return 0 if self.dtype is None else NUMBERS[self.dtype]

    def has_batch_axis(self: Any) -> bool:
        """Whether the batch axis is one of the dynamic axes."""
        return BATCH in self.dynamic_axes

    def has_sequence_axis(self: Any) -> bool:
        """Whether one of the dynamic axes is a sequence axis."""
        return any(axis.is_sequence_axis for axis in self.dynamic_axes)

    def __copy__(self) -> Self:
        """``copy.copy`` returns the object itself, because a graph contains each variable and function only once."""
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be copied by copy.deepcopy or pickled, as in CNTK: keep its value or shape, and make a "
            "variable of these"
        )

    @property
    def _type(self: Any) -> Variable._Type:
        """Shape, element type and axes in one object, as used in signatures."""
        return Variable._Type(
            shape=self.shape, dtype=self.dtype, needs_gradient=self.needs_gradient, is_sparse=self.is_sparse,
            dynamic_axes=self.dynamic_axes,
        )

    def kind(self: Any) -> int:
        """The number of the kind of variable, such as ``cntk_py.VariableKind_Parameter``."""
        return int(getattr(self, "_kind", VariableKind.Output))  # a function represents its output

    def as_string(self: Any) -> str:
        """The printed form of the variable."""
        return repr(self)

    def is_initialized(self: Any) -> bool:
        """Always True: only CNTK's C++ objects can be uninitialized."""
        return True

    def current_value_time_stamp(self: Any) -> int:
        """The number of updates of a parameter or constant; RuntimeError for other variables."""
        raise RuntimeError(f"{self!r} is not a Parameter or Constant: only these have a value")

    def get_value(self: Any) -> NDArrayView:
        """A view of the value of a parameter or constant; writing to it changes the value.

        Errors: RuntimeError for other variables.

        >>> w = Parameter((2,), init=1.0)
        >>> w.get_value().set_value(3.0)
        >>> w.value
        array([3., 3.], dtype=float32)
        """
        raise RuntimeError(f"{self!r} is not a Parameter or Constant: only these have a value")

    def as_parameter(self: Any) -> Parameter:
        """This variable as a Parameter; TypeError if it is not one."""
        if not isinstance(self, Parameter):
            raise TypeError(f"{self!r} cannot be converted to Parameter: check is_parameter first")
        return self

    def as_constant(self: Any) -> Constant:
        """This variable as a Constant; TypeError if it is not one."""
        if not isinstance(self, Constant):
            raise TypeError(f"{self!r} cannot be converted to Constant: check is_constant first")
        return self


@public
class Variable(VariableMixin, TensorOpsMixin, Edge):
    """An edge of a graph: an input, a placeholder, or the output of a function.

    Shapes: ``shape`` is that of one sample; the batch axis and the sequence axis are in ``dynamic_axes``.
    """

    class _Type(Record):
        """The declared part of the type of a variable; undeclared items are omitted."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            raise TypeError("abstract types cannot be instantiated: pass the type to input_variable(...) as keywords")

        def __str__(self) -> str:
            return type_text(self)

    def __init__(
        self,
        shape: ShapeLike | None = None,
        dtype: ElementType | None = None,
        needs_gradient: bool = False,
        is_sparse: bool = False,
        dynamic_axes: AxesLike = (BATCH,),
        name: str = "",
    ) -> None:
        super().__init__(
            VariableKind.Input, UNKNOWN_SHAPE if shape is None else shape, np.float32 if dtype is None else dtype,
            default_axes(dynamic_axes), name=name, needs_gradient=needs_gradient, is_sparse=is_sparse,
        )

    @classmethod
    def _new(cls, *args: Any, **kwargs: Any) -> Variable:
        """Create a variable of any kind; called by the graph."""
        variable = object.__new__(cls)
        Edge.__init__(variable, *args, **kwargs)
        return variable


class _LeafMixin(ArrayMixin, Variable, Leaf):
    """The part that parameters and constants have in common: a value.

    They are kinds of ``Variable``, because ``f.inputs`` contains them, where CNTK's contains plain variables.
    """

    @classmethod
    def _new(cls, *args: Any, **kwargs: Any) -> Self:
        leaf = object.__new__(cls)
        Leaf.__init__(leaf, *args, **kwargs)  # not that of Variable, which is for inputs
        return leaf

    @property
    def value(self) -> np.ndarray:
        """The value as a NumPy array of `shape`; it can be set to an array of this shape.

        Errors: ValueError while the shape is unknown; ShapeError for an array of another shape; TypeError for a number,
        unless the shape is [], and for what is neither numbers nor an array.
        """
        with STATE:
            settle()
            return np.array(value_of(self))

    @value.setter
    def value(self, value: object) -> None:
        array = _as_array(value)
        if array is None:
            raise TypeError(explain(
                f"{self!r} cannot be set to {value!r}", fix=f"pass an array of numbers, of shape {self.shape}"
            ))
        array = array.astype(self.dtype)
        if not matches(self.shape, array.shape):
            kind = TypeError if np.isscalar(value) else ShapeError
            raise kind(explain(
                f"a value of shape {shape_text(array.shape)} does not fit {self!r}", {"set": self},
                f"pass an array of shape {self.shape}, such as np.full({self.shape}, number)",
            ))
        with STATE:
            settle()
            if self.has_inferred:
                infer_shape(self, array.shape)
            set_value(self, array)

    def asarray(self) -> np.ndarray:
        """The same as `value`, which is a copy already."""
        return self.value

    def set_value(self, value: object) -> None:
        """Set `value`."""
        self.value = value

    def current_value_time_stamp(self) -> int:
        """The number of updates of the value, by learners and by assignment."""
        return cell_of(self).value.updates

    def record_value_update(self) -> None:
        """Count an update that was written through ``get_value()``."""
        set_value(self, value_of(self))

    def get_value(self) -> NDArrayView:
        return _LeafView(self)

    def __str__(self) -> str:
        return repr(self)


def _as_array(value: object) -> np.ndarray | None:
    """A value as an array; None for what is neither numbers nor an array: a text, None, lists of unequal lengths."""
    try:
        array = np.asarray(getattr(value, "asarray", lambda: value)())
    except ValueError:
        return None
    return None if array.dtype.kind in "OSU" and not isinstance(value, np.ndarray) else array


@public
class Parameter(_LeafMixin):
    """A trainable value.

    The element type ``cntk_py.DataType_Unknown`` is inferred at first use, like the shape.

    Shapes: sizes of InferredDimension (-1) in ``shape`` are inferred at first use; the value is initialized then.
    Errors: ValueError if neither a shape nor an array is given.

    >>> Parameter((2,), init=1.5).value
    array([1.5, 1.5], dtype=float32)
    """

    def __init__(
        self,
        shape: ShapeLike | None = None,
        init: Init = None,
        dtype: ElementType | default_override_or | None = default_override_or(np.float32),
        device: Device = None,
        name: str = "",
    ) -> None:
        _check_shape_is_no_variable(shape, "Parameter")
        element: ElementType | None = get_default_override(Parameter, dtype=dtype)
        init = 0 if init is None else init
        array: np.ndarray | None = None
        initializer: Sampler | None = None
        if isinstance(init, Initializer):
            initializer = init.seeded().sample
        elif shape is None or not (isinstance(init, (int, float)) or getattr(init, "ndim", None) == 0):
            array, element = _array(init, element)
            shape = array.shape  # as in CNTK, an array takes precedence over `shape`
        else:
            initializer = partial(_full, init)
        if shape is None:
            raise ValueError(f"Parameter '{name}': pass a shape, or an array as init")
        Leaf.__init__(
            self, VariableKind.Parameter, shape, _known_dtype(element), array=array, initializer=initializer, name=name,
            needs_gradient=True,
        )


@public
class Constant(_LeafMixin):
    """A value that training does not change.

    Errors: ValueError if neither a value nor a shape is given.

    >>> Constant([1, 2]).value
    array([1., 2.], dtype=float32)
    """

    def __init__(
        self,
        value: Init = None,
        shape: ShapeLike | None = None,
        dtype: ElementType | default_override_or | None = default_override_or(np.float32),
        device: Device = None,
        name: str = "",
    ) -> None:
        _check_shape_is_no_variable(shape, "Constant")
        element: ElementType | None = get_default_override(Constant, dtype=dtype)
        if value is None and shape is None:
            raise ValueError(f"Constant '{name}': neither a value nor a shape was given: pass at least one of them")
        value = 0 if value is None else value
        if isinstance(value, Initializer):
            if shape is None:
                raise ValueError(f"Constant '{name}': an initializer needs a shape: pass shape=...")
            sample = value.seeded().sample
            Leaf.__init__(self, VariableKind.Constant, shape, element or np.float32, initializer=sample, name=name)
            return
        array, element = _array(value, element)
        if shape is None or array.ndim:
            shape = array.shape  # as in CNTK, `shape` applies to numbers only
        shape = as_shape(shape)

        def broadcast_value(shape: Shape, dtype: type) -> np.ndarray:
            return np.array(np.broadcast_to(array, shape))

        Leaf.__init__(
            self, VariableKind.Constant, shape, element, initializer=broadcast_value, name=name,
            array=broadcast_value(shape, array.dtype.type) if is_known(shape) else None,
        )

    @staticmethod
    def scalar(data_type: ElementType, value: float, device: Device = None) -> Constant:
        """A scalar constant. `data_type` is a number such as ``cntk_py.DataType_Float``, or a NumPy type.

        >>> Constant.scalar(2, 2.5).value
        array(2.5)
        """
        return Constant(value, (), as_dtype(data_type))

    def clone_as(self, dataType: ElementType) -> Constant:
        """A float64 copy of a float32 constant; as in CNTK, ValueError for any other conversion."""
        dtype = as_dtype(dataType)
        if (self.dtype, dtype) != (np.float32, np.float64):
            raise ValueError(f"{self!r} of {np.dtype(self.dtype)} cannot be cloned as {np.dtype(dtype)}: use cntk.cast")
        return Constant(self.value, dtype=dtype, name=self.name)


class _LeafView(NDArrayView):
    """A view of the current value of a parameter or constant."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf, self._shape, self._read_only = leaf, leaf.shape, False

    def _numbers(self) -> Any:
        with STATE:
            settle()
            return super()._numbers()

    @property
    def held(self) -> Any:
        return value_of(self._leaf)

    @held.setter
    def held(self, array: AnyArray) -> None:
        relocate(self._leaf, array)


def _full(number: Init, shape: Shape, dtype: type) -> np.ndarray:
    return np.full(shape, number, dtype)


def _check_shape_is_no_variable(shape: object, kind: str) -> None:
    if isinstance(shape, (Edge, Node)):
        raise VariableShapeError(explain(
            f"{kind}: the shape is a variable, {shape!r}, not a number or a tuple of numbers",
            fix="give the shape of the variable, v.shape, or numbers; a function that makes a layer is called with "
            "numbers first, and what it returns with variables",
        ))


def _known_dtype(dtype: ElementType | None) -> ElementType | None:
    """The element type of a parameter: float32 by default, None for 0, CNTK's number of an unknown type."""
    if dtype is None:
        return np.float32
    return None if isinstance(dtype, int) and dtype == 0 else dtype


def _array(value: object, dtype: ElementType | None) -> tuple[np.ndarray, type]:
    """Convert numbers to an array of the given type; by default floating-point arrays keep theirs, others get float32.

    Errors: ValueError for anything but a regular array of numbers.
    """
    try:
        array = np.asarray(getattr(value, "asarray", lambda: value)())
    except ValueError:  # lists of different lengths
        array = np.empty(0, object)
    if not holds_numbers(array):
        raise ValueError(
            f"{value!r} is not a number or a regular array of numbers, as parameters and constants need: "
            "pad lists to the same length, and convert other objects to an array first"
        )
    original = array.dtype.type if isinstance(value, np.ndarray) and array.dtype.kind == "f" else None
    element = as_dtype(dtype or original or np.float32)
    return np.array(array, element), element


def type_text(kind: Record) -> str:
    """A type as CNTK prints it, such as ``Sequence[Tensor[3]]``."""
    shape, dtype, axes = kind.get("shape", UNKNOWN_SHAPE), kind.get("dtype"), kind.get("dynamic_axes", ())
    element = "float" if dtype is None else f"np.{np.dtype(dtype).type.__name__}"
    if shape == UNKNOWN_SHAPE:
        text = "tensor"
    elif shape == ():
        text = element
    else:
        sizes = ",".join(map(str, shape if element in ("float", "np.float32") else (element, *shape)))
        text = f"{'Sparse' if kind.get('is_sparse') else '' if len(axes) else 'Parameter'}Tensor[{sizes}]"
    for axis in axes if axes != UNKNOWN_AXES else (Axis.default_dynamic_axis(),):
        if axis.is_sequence_axis:
            default = axis == Axis.default_dynamic_axis()
            text = f"Sequence[{text}]" if default else f"SequenceOver[{axis.name}][{text}]"
    return text


tensor = Variable._Type(shape=UNKNOWN_SHAPE, is_sparse=False, dynamic_axes=[BATCH])  # of any shape, for signatures
classes.variable, classes.parameter, classes.constant = Variable._new, Parameter._new, Constant._new
__all__ = ["Constant", "Node", "Parameter", "Record", "Variable", "VariableMixin", "tensor"]


