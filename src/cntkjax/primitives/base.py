"""What a primitive operation is, and the table of all of them.

A primitive is defined in one place: its name and number in the v2 model format, its attributes, the rule for shapes of
its outputs, and its computation. Everything else (evaluation, gradients, cloning, saving, loading) follows from it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..graph.build import BLOCK, Spec, make_node
from ..graph.function import Function
from ..graph.mersenne import MersenneTwister64
from ..graph.variable import Variable

REQUIRED: Any = object()


@dataclass(frozen=True)
class Attribute:
    """Type and default of an attribute, as the v2 format stores it.

    `kind` is one of Bool, Int, Size, Float, Double, String, Shape, Axis, DType; `many` makes it a vector.
    `optional`: left out of the file when its value is None.
    """

    kind: str
    default: Any = REQUIRED
    many: bool = False

    def __call__(self, default: Any) -> Attribute:
        """The same type with a default; None makes the attribute optional."""
        return replace(self, default=default)

    @property
    def vector(self) -> Attribute:
        """A vector of this type."""
        return replace(self, many=True)

    @property
    def optional(self) -> bool:
        """True if a file may lack it."""
        return self.default is None


Bool = Attribute("Bool")
Int = Attribute("Int")
Size = Attribute("Size")
Float = Attribute("Float")
Double = Attribute("Double")
String = Attribute("String")
ShapeOf = Attribute("Shape")
AxisOf = Attribute("Axis")
DTypeOf = Attribute("DType")

Attrs = dict[str, Any]


class StaticSlice(NamedTuple):
    """A range along one static axis, which is counted from the last (-1)."""

    axis: int
    begin: int
    stride: int


class Primitive:
    """One operation. Subclasses are registered by `@primitive` and used through their single instance.

    The computation is one of

    - `lower(attrs, *samples)`: on one sample; the engine maps it over batch and time. Operands without these axes come
      as they are. With `elementwise` it has to broadcast like NumPy and may be given whole grids.
    - `lower_packed(ctx, attrs, *values)` with `packed = True`: on `engine.lower.values.Value`s, for what needs to know
      sequences, samples or the minibatch.
    """

    name: ClassVar[str]
    cntk_id: ClassVar[int]
    attributes: ClassVar[dict[str, Attribute]] = {}
    number_of_outputs: ClassVar[int] = 1
    elementwise: ClassVar[bool] = False
    packed: ClassVar[bool] = False
    infers_partially: ClassVar[bool] = False  # its rule copes with operands of unknown shape
    typed_by: ClassVar[slice] = slice(None)  # the operands that share one element type and give it to the output
    takes_sparse: ClassVar[bool] = False  # lower() copes with Sparse operands; others get them dense
    passes_through: ClassVar[bool] = False  # its outputs are its operands themselves; it is never computed
    whole_batch: ClassVar[bool] = False  # it makes a static axis of the batch axis, which then may not be padded
    delay: ClassVar[int] = 0  # -1 looks back, +1 ahead: what closes a recurrent loop
    recomputes_operands: ClassVar[bool] = False  # it computes anew what its operands come from
    calls_python: ClassVar[bool] = False  # it runs Python on the host, which may fail
    runs_on_host: ClassVar[bool] = False  # it can run between two programs, on any number of samples
    draws_once: ClassVar[bool] = False  # its random numbers stay as long as its operand does
    weight_operand: ClassVar[int | None] = None  # bilinear: in loops, its gradient is one product at the end
    weight_per_sequence: ClassVar[bool] = False  # that operand may also be one array for each sequence
    autocasts: ClassVar[bool] = False  # mixed precision computes its product with a weight in the narrow type
    multiplies: ClassVar[bool] = False  # it is the element-wise product of its operands
    concatenates: ClassVar[bool] = False  # it joins its operands along a static axis

    def free_dimension_sizes(self) -> Hashable:
        """Sizes that no shapes of operands tell, but only what it made last: another one is another program."""
        return ()

    def complete(self, given: Attrs) -> Attrs:
        """Attributes with defaults filled in; TypeError for one that the operation does not have."""
        unknown = set(given) - set(self.attributes)
        if unknown:
            raise TypeError(f"{self.name} has no attribute {', '.join(sorted(unknown))}")
        made = {}
        for name, attribute in self.attributes.items():
            value = given.get(name, attribute.default)
            if value is REQUIRED:
                raise TypeError(f"{self.name} needs the attribute {name}")
            if value is not None:
                made[name] = value
        return made

    def form(self, attrs: Attrs) -> Primitive:
        """The primitive that computes with these attributes: itself, or a form of it that is lowered in another way."""
        return self

    def traits(self, node: Function) -> Hashable:
        """What the computation depends on besides attributes and operands; a program is compiled for each."""
        return None

    def looks_up_rows(self, node: Function) -> bool:
        """True for the product of a vector with a weight: of a sparse vector, only the rows that it names are read."""
        return False

    def static_slice(self, node: Function) -> StaticSlice | None:
        """The range that a node takes along one static axis; None if it computes anything else."""
        return None

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Any:
        """Shape, or Spec, or a list of them; raises ShapeError or AxisError when the operands don't fit."""
        raise TypeError(f"{self.name} has no shape rule")

    def copy(self, node: Function, inputs: Sequence[Variable]) -> Function:
        """A node like this one with other operands."""
        return make_node(self, inputs, node._copied_attributes(), node._name)

    def drawn(self, attrs: Attrs) -> int:
        """By how much one evaluation moves the offset of a node that draws random numbers."""
        return 1

    def draws_like_cntk(self, node: Function) -> bool:
        """Whether `draw` makes the random numbers of this node."""
        return False

    def draw(self, attrs: Attrs, generator: MersenneTwister64, weights: Any) -> tuple[np.ndarray, int]:
        """The numbers for one evaluation, given the operand if there is one, and how many the generator has made."""
        raise TypeError(f"{self.name} draws no numbers")

    def lower(self, attrs: Attrs, *samples: Any) -> Any:
        """The computation on one sample."""
        raise TypeError(f"{self.name} has no computation")

    def lower_packed(self, ctx: Any, attrs: Attrs, *values: Any) -> Any:
        """The computation on packed values."""
        raise TypeError(f"{self.name} has no computation")

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


BY_NAME: dict[str, Primitive] = {}
BY_ID: dict[int, Any] = {BLOCK.cntk_id: BLOCK}


def primitive(name: str, cntk_id: int) -> Any:
    """Register a class as the primitive of that name and number; the class name then means its single instance."""

    def register(cls: type[Primitive]) -> Primitive:
        cls.name, cls.cntk_id = name, cntk_id
        made = cls()
        assert name not in BY_NAME and cntk_id not in BY_ID, f"{name} ({cntk_id}) is registered twice"
        BY_NAME[name] = BY_ID[cntk_id] = made
        return made

    return register


__all__ = [
    "BY_ID", "BY_NAME", "AxisOf", "Attribute", "Attrs", "Bool", "DTypeOf", "Double", "Float", "Int", "Primitive",
    "ShapeOf", "Size", "Spec", "StaticSlice", "String", "primitive",
]
