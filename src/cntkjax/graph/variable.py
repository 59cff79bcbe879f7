"""Variables: the edges of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._typing import AnyArray, DTypeLike, ElementType, ShapeLike
from .._user_code import Place, user_place
from .axis import BATCH, UNKNOWN_AXES, AxesLike, Axis, axes_text
from .cells import Cell, Changes, commit
from .dtypes import as_dtype
from .errors import ShapeError, explain
from .shape import FREE, INFERRED, UNKNOWN_SHAPE, Shape, as_shape, is_known, is_unknown, shape_text, size
from .uid import new_uid

if TYPE_CHECKING:
    from .function import Node

Axes = tuple[Axis, ...]
Sampler = Callable[[Shape, Any], np.ndarray]  # (shape, dtype) -> a leaf's first value


class VariableKind(IntEnum):
    """What a variable is; the numbers are those of the v2 model format."""

    Input = 0
    Output = 1
    Parameter = 2
    Constant = 3
    Placeholder = 4


class Edge:
    """A tensor-valued edge: shape, type and axes, but no data (except in Leaf).

    Shapes: ``shape`` is that of one sample, without the dynamic axes, row-major.
    """

    public_name = "Variable"  # in messages: users know its subclass

    def __init__(
        self,
        kind: VariableKind,
        shape: ShapeLike,
        dtype: ElementType | None,
        dynamic_axes: Sequence[Axis],
        *,
        name: str = "",
        uid: str | None = None,
        needs_gradient: bool = False,
        is_sparse: bool = False,
        owner: Node | None = None,
        assumed_dtype: bool = False,
    ) -> None:
        self._kind = kind
        self._shape: Shape = as_shape(shape)
        self._dtype = None if dtype is None else as_dtype(dtype)
        self._has_assumed_dtype = assumed_dtype
        self._dynamic_axes: Axes = tuple(dynamic_axes)
        self._name = name or ""
        self._uid = uid or new_uid(kind.name)
        self._needs_gradient = needs_gradient
        self._is_sparse = is_sparse
        self._owner = owner
        self._bound: Edge | None = None  # of an argument inside a block: its operand outside
        self._origin: Place | None = user_place() if owner is None else owner._origin

    # ---- properties as in CNTK
    @property
    def uid(self) -> str:
        """The unique name: the kind and a number."""
        return self._uid

    @property
    def shape(self) -> Shape:
        """Shape of one sample: (-2,) if it is unknown; -1 for an inferred, -3 for a free dimension."""
        return self._shape

    @property
    def dtype(self) -> type | None:
        """NumPy type of the elements; None if not known yet."""
        return self._dtype

    @property
    def dynamic_axes(self) -> Axes:
        """Batch and sequence axes, the batch axis first."""
        return self._dynamic_axes

    @property
    def name(self) -> str:
        """The name given by the user, or ''; an argument inside a block has the name of its operand outside."""
        return outside(self)._name

    @property
    def needs_gradient(self) -> bool:
        """True if gradients flow into this variable."""
        return self._needs_gradient

    @property
    def is_sparse(self) -> bool:
        """True if the values are held as a sparse matrix."""
        return self._is_sparse

    @property
    def is_input(self) -> bool:
        """True for an argument that is fed with data."""
        return self._kind == VariableKind.Input

    @property
    def is_output(self) -> bool:
        """True for the output of a function."""
        return self._kind == VariableKind.Output

    @property
    def is_parameter(self) -> bool:
        """True for a parameter."""
        return self._kind == VariableKind.Parameter

    @property
    def is_constant(self) -> bool:
        """True for a constant."""
        return self._kind == VariableKind.Constant

    @property
    def is_placeholder(self) -> bool:
        """True for a placeholder."""
        return self._kind == VariableKind.Placeholder

    # ---- structure
    @property
    def sequence_axis(self) -> Axis | None:
        """The sequence axis, if the variable has one."""
        for axis in self._dynamic_axes:  # asked several times in each evaluation, so not as a generator
            if axis.is_sequence_axis:
                return axis
        return None

    def __repr__(self) -> str:
        return f"{self._kind.name}('{self.name or self.uid}', {axes_text(self.dynamic_axes)}, {shape_text(self.shape)})"


def bindings(variable: Edge) -> Iterator[Edge]:
    """The variable, the operand it is bound to if it is an argument of a block, and so on outwards."""
    bound: Edge | None = variable
    while bound is not None:
        yield bound
        bound = bound._bound


def outside(variable: Edge) -> Edge:
    """The variable itself; for an argument inside a block, the variable outside all blocks that is bound to it."""
    *_, outermost = bindings(variable)
    return outermost


class Held(NamedTuple):
    """The value of a leaf, None until it is first needed, and how often it was replaced by a new one."""

    array: AnyArray | None
    updates: int


class Leaf(Edge):
    """A variable with a value of its own: a parameter or a constant.

    The value is a NumPy or device array, or made by `initializer` when shape and type are known: parameters with an
    inferred dimension get it at first use. Programs read it (`value_of`) each time they run.
    """

    def __init__(
        self,
        kind: VariableKind,
        shape: ShapeLike,
        dtype: ElementType | None,
        *,
        array: AnyArray | None = None,
        initializer: Sampler | None = None,
        name: str = "",
        uid: str | None = None,
        needs_gradient: bool = False,
    ) -> None:
        super().__init__(kind, shape, dtype, (), name=name, uid=uid, needs_gradient=needs_gradient)
        _check_size(self, self.shape)
        self._cell = Cell(Held(array, 0))
        self._initializer = initializer

    @property
    def has_inferred(self) -> bool:
        """True if a dimension is still to be inferred."""
        return INFERRED in self._shape


# ---- Attributes with an underscore, for other packages: users may set any attribute of a variable, so its own state
# keeps underscored names, and these functions give access to it.
def producer(variable: Edge) -> Node | None:
    """The node whose output a variable is; None for leaves."""
    return variable._owner


def kind_of(variable: Edge) -> VariableKind:
    """What a variable is."""
    return variable._kind


def block_operand(argument: Edge) -> Edge | None:
    """The operand that is bound to an argument inside a block; None for other variables."""
    return argument._bound


def bind(argument: Edge, operand: Edge) -> None:
    """Let an argument inside a block stand for an operand."""
    argument._bound = operand


def is_undetermined(variable: Edge) -> bool:
    """True while the shape or the axes are still to be inferred."""
    return is_unknown(variable._shape) or variable._dynamic_axes == UNKNOWN_AXES


def has_assumed_dtype(variable: Edge) -> bool:
    """True while the element type follows from constants, beside operands whose types are still unknown."""
    return variable._has_assumed_dtype


def set_type(
    variable: Edge, shape: Shape, dtype: type | None, axes: Axes, is_sparse: bool, needs_gradient: bool,
    assumed_dtype: bool = False,
) -> bool:
    """Set what was inferred; True if anything changed."""
    new = (shape, dtype, axes, is_sparse, needs_gradient, assumed_dtype)
    old = (
        variable._shape, variable._dtype, variable._dynamic_axes, variable._is_sparse, variable._needs_gradient,
        variable._has_assumed_dtype,
    )
    (
        variable._shape, variable._dtype, variable._dynamic_axes, variable._is_sparse, variable._needs_gradient,
        variable._has_assumed_dtype,
    ) = new
    return new != old


def confirm_dtype(variable: Edge) -> None:
    """Keep an assumed element type: no operand is left that could have another."""
    variable._has_assumed_dtype = False


def rename(item: Edge | Node, name: str) -> None:
    """Change the name of a variable or a node, whatever it is called now."""
    item._name = name


# ---- leaves
_LARGEST = 2**38  # elements: a terabyte of float32


def infer_shape(leaf: Leaf, shape: Shape) -> None:
    """Fill in the inferred dimensions of a leaf's shape. Errors: ShapeError for sizes that only the data determine."""
    _check_size(leaf, shape)
    leaf._shape = as_shape(shape)


def _check_size(leaf: Leaf, shape: Shape) -> None:
    if is_known(shape) and size(shape) > _LARGEST:
        raise ShapeError(explain(
            f"{leaf!r} of {size(shape):,} elements: a parameter or constant is held in memory, which limits it to "
            f"{_LARGEST:,}", {}, "give a smaller shape",
        ))
    if FREE in shape:
        raise ShapeError(explain(
            f"{leaf!r}: parameters and constants cannot have a free dimension, as in {shape_text(shape)}", {},
            "declare the input with a fixed size along the axes that these share",
        ))


def infer_dtype(leaf: Leaf, dtype: DTypeLike) -> None:
    """Fill in the element type of a leaf."""
    leaf._dtype = as_dtype(dtype)


def has_value(leaf: Leaf) -> bool:
    """True if a leaf has a value already; its initializer makes that of a parameter when it is first needed."""
    return leaf._cell.value.array is not None


def initializer_of(leaf: Leaf) -> Sampler | None:
    """What makes a leaf's value from its shape and type."""
    return leaf._initializer


def cell_of(leaf: Leaf) -> Cell[Held]:
    """Where the value of a leaf is held."""
    return leaf._cell


def value_of(leaf: Leaf) -> Any:
    """The value, a NumPy or device array, made by the initializer at the first call.

    Errors: ValueError while the shape or the type is not known.
    """
    held = leaf._cell.value
    if held.array is None:
        held = leaf._cell.value = held._replace(array=_initial_value(leaf))
    return held.array


_held_array: Callable[[Leaf], Any] = attrgetter("_cell.value.array")


def held_arrays(leaves: Iterable[Leaf]) -> list[Any]:
    """The values as they are held, NumPy or device arrays; None where there is none yet."""
    return [*map(_held_array, leaves)]


def _initial_value(leaf: Leaf) -> np.ndarray:
    if not is_known(leaf._shape):
        raise ValueError(explain(
            f"{leaf!r} has no value yet: its shape {shape_text(leaf._shape)} is inferred when it is first used",
            fix="apply its function to an operand; one that it was applied to may lack an axis, such as channels",
        ))
    if leaf._dtype is None:
        raise ValueError(f"{leaf!r} has no value yet: its element type is inferred when it is first used")
    if leaf._initializer is None:
        raise ValueError(f"{leaf!r} has neither a value nor an initializer")
    return np.asarray(leaf._initializer(leaf._shape, leaf._dtype), leaf._dtype)


def new_value(leaf: Leaf, array: AnyArray) -> Changes:
    """What changes when a leaf gets a new value."""
    return {leaf._cell: Held(array, leaf._cell.value.updates + 1)}


def set_value(leaf: Leaf, array: AnyArray) -> None:
    """Give a leaf a new value."""
    commit(new_value(leaf, array))


def relocate(leaf: Leaf, array: AnyArray) -> None:
    """Hold the same value in another array, for example on another device: it does not count as a new value."""
    leaf._cell.value = leaf._cell.value._replace(array=array)


def default_axes(dynamic_axes: AxesLike) -> Axes:
    """Dynamic axes from a user's argument: an axis, a list of them, or None for the batch axis alone."""
    if dynamic_axes is None:
        return (BATCH,)
    if isinstance(dynamic_axes, Axis):
        dynamic_axes = [dynamic_axes]
    axes = tuple(dynamic_axes)
    if invalid := [a for a in axes if not isinstance(a, Axis)]:
        raise TypeError(f"dynamic axes are a list of Axis objects, which {invalid[0]!r} is not: use Axis(name)")
    if len(set(axes)) < len(axes):
        raise ValueError(f"dynamic axes {axes_text(axes)}: an axis is specified more than once; list each once")
    return axes


def unknown() -> tuple[Shape, None, Axes]:
    """Unknown shape, type and axes."""
    return UNKNOWN_SHAPE, None, UNKNOWN_AXES
