"""What a primitive operation is, and the table of all of them.

A primitive is defined in one place: its name and number in the v2 model format, its attributes, the rule for the shapes
of its outputs, its computation, and whatever else the engine has to know about it. Everything else (evaluation,
gradients, cloning, saving, loading) follows from that: no module of the engine knows an operation by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from .._typing import Array
from ..engine.plan.padding import ANYTHING, PaddedOperand
from ..graph.build import BLOCK, BlockPrimitive, Spec, make_node
from ..graph.function import Node, copied_attributes
from ..graph.mersenne import MersenneTwister64
from ..graph.shape import FREE, Shape, facing
from ..graph.variable import Edge

if TYPE_CHECKING:
    from ..engine.data.sparse import Sparse
    from ..engine.lower.values import Context, Traced
    from ..engine.native.program import Operation

REQUIRED: Any = object()  # the default of an attribute that has none


@dataclass(frozen=True)
class Attribute:
    """Type and default of an attribute, as the v2 format stores it.

    `kind` is one of Bool, Int, Size, Float, Double, String, Shape, Axis, DType; `many` makes it a vector.
    `optional`: left out of the file when its value is None.
    """

    kind: str
    default: Any = REQUIRED
    many: bool = False

    def __call__(self, default: object) -> Attribute:
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
Outputs: TypeAlias = Shape | Spec | list[Spec]  # of one output, or of each
Samples: TypeAlias = "Array | Sparse | Sequence[Array]"


class StaticSlice(NamedTuple):
    """A range along one static axis, which is counted from the last (-1)."""

    axis: int
    begin: int
    stride: int


class Primitive:
    """One operation. Subclasses are registered by `@primitive` and used through their single instance.

    An ordinary operation defines `attributes`, `outputs` and one of these computations:

    - `lower(attrs, *samples)` on one sample: the engine maps it over batch and time. Operands without these axes are
      passed unchanged. With `elementwise` it must broadcast like NumPy, and may be called with whole grids.
    - `lower_packed(ctx, attrs, *values)` with `packed = True`, on `engine.lower.values.Value`s: for operations that
      depend on sequences, on other samples or on the minibatch.
    """

    name: ClassVar[str]
    cntk_id: ClassVar[int]
    attributes: ClassVar[dict[str, Attribute]] = {}
    number_of_outputs: ClassVar[int] = 1
    output_names: ClassVar[tuple[str, ...]] = ("",)  # of a node with a name: what its outputs append to it

    # Everything that the graph and the engine may query; the defaults suit an ordinary operation.
    # ---- inference of shapes and types
    infers_partially: ClassVar[bool] = False  # `outputs` copes with operands of unknown shape
    dtype_operands: ClassVar[slice] = slice(None)  # the operands that share one element type, which is the output's
    passes_through: ClassVar[bool] = False  # its outputs are its operands themselves; it is never computed

    # ---- computation
    elementwise: ClassVar[bool] = False  # `lower` broadcasts like NumPy
    packed: ClassVar[bool] = False  # `lower_packed` computes it, not `lower`
    takes_sparse: ClassVar[bool] = False  # `lower` takes Sparse operands; others get them dense
    is_identity: ClassVar[bool] = False  # its output equals its operand
    keeps_elements: ClassVar[bool] = False  # its output has the elements of its operand, in their order
    multiplies: ClassVar[bool] = False  # it is the element-wise product of its operands
    concatenates: ClassVar[bool] = False  # it joins its operands along a static axis
    weight_operand: ClassVar[int | None] = None  # bilinear: in loops, this operand's gradient is one product at the end
    weight_per_sequence: ClassVar[bool] = False  # that operand may also be one array for each sequence
    autocasts: ClassVar[bool] = False  # mixed precision computes its product with a weight in the narrow type
    index_operand: ClassVar[int | None] = None  # its place: integers that are fed for it stay integers
    # Its output consists of all elements of these operands, maybe several times, and of no others.
    rearranged_operands: ClassVar[slice] = slice(0)

    # ---- sequences and the batch
    delay: ClassVar[int] = 0  # -1 looks back, +1 ahead; delays close recurrent loops
    stepwise: ClassVar[bool] = False  # although `packed`, each step depends on that step, and on delayed ones, alone
    unpacks_sequences: ClassVar[bool] = False  # sequences become arrays, padded to the longest
    packs_sequences: ClassVar[bool] = False  # arrays become sequences; its other operands give their lengths
    # Its first two operands, though along different axes, need sequences of equal lengths, which are checked when they
    # are fed, or when the program has computed them.
    equal_lengths: ClassVar[Literal["fed", "computed"] | None] = None
    needs_exact_batch: ClassVar[bool] = False  # it uses the whole batch axis, which then must not be padded
    makes_batch: ClassVar[bool] = False  # a static axis becomes the batch axis
    mixes_samples: ClassVar[bool] = False  # a sample's value depends on others, or on its place in the minibatch

    # ---- effects, and where it runs
    running_operands: ClassVar[slice] = slice(0)  # statistics, which it updates in training
    assigns_operand: ClassVar[bool] = False  # it writes its first operand, a parameter or constant
    recomputes_operands: ClassVar[bool] = False  # it computes once more what its operands are computed from
    calls_python: ClassVar[bool] = False  # it runs Python on the host, which may fail
    runs_on_host: ClassVar[bool] = False  # it can run between two programs, on any number of samples
    keeps_numbers: ClassVar[bool] = False  # the random numbers of `draw` stay until its operand changes

    def specialize(self, attrs: Attrs) -> Primitive:
        """The primitive that computes with these attributes: itself, or a variant with another computation."""
        return self

    def cache_key(self, node: Node) -> Hashable:
        """What a compiled program depends on besides attributes and operands: each key has a program of its own."""
        return None

    def free_dimension_sizes(self) -> Hashable:
        """The sizes of free dimensions in its last result, if no operand determines them; each has its own program."""
        return ()

    def by_numpy(self, node: Node, rows: int) -> Callable[..., Any] | None:
        """The computation of a node by NumPy for so many samples; None if there is none, or XLA takes less time.

        Shapes: it takes and returns [batch, *shape], or *shape of what has no dynamic axes.
        """
        return None

    def by_steps(self, node: Node) -> Operation | None:
        """How a node is written for the library in C; None if that does not compute it."""
        return None

    def stops_gradient(self, node: Node) -> bool:
        """True if nothing of the gradient of a node's output reaches its operands."""
        return False

    def gathers_rows(self, node: Node) -> bool:
        """True if a node contracts the last axis of its first operand with the first axis of the second one, so that
        sparse data read only some rows of the second."""
        return False

    def looks_up_rows(self, node: Node) -> bool:
        """True if it does so with one vector for each sample."""
        return self.gathers_rows(node) and len(node.node_inputs[0].shape) == 1

    def index_limit(self, node: Node) -> int | None:
        """The size of the axis in which the numbers of its `index_operand` have to be; None if it is not known."""
        return None

    def index_bound(self, node: Node, output: Edge) -> int | None:
        """A number, if all elements of an output are indices from 0 to below it; otherwise None."""
        return None

    def static_slice(self, node: Node) -> StaticSlice | None:
        """The range that a node takes along one static axis; None if it computes anything else."""
        return None

    def makes_sparse(self, attrs: Attrs) -> bool:
        """True if its output is computed as sparse samples."""
        return False

    def step_condition(self, node: Node) -> Edge | None:
        """The condition that selects the steps of its first operand that a node uses; None if it may use all."""
        return None

    def unpacked_padding(self, attrs: Attrs) -> Sequence[float]:
        """For `unpacks_sequences`: the value of each output after the ends of shorter sequences."""
        raise TypeError(f"{self.name} does not unpack sequences")

    def facing_sizes(self, attrs: Attrs, shapes: Sequence[Shape]) -> Iterable[Sequence[int]]:
        """The dimensions of its operands that have to be equal, together."""
        return facing(shapes) if self.elementwise else ()

    def place_in_output(self, attrs: Attrs, shapes: Sequence[Shape]) -> int | None:
        """Which axis of the output, counted from the end, is the axis of unpacked steps of an operand, of size `FREE`.

        It is asked only where there are further ones, of size `OTHER`. IN_NONE if it is contracted or the like; None if
        that is not known.
        """
        (place,) = {s.index(FREE) - len(s) for s in shapes if FREE in s}
        return place if self.elementwise else None

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """The value of its output, which has an axis of unpacked steps, in the padding of these steps.

        ANYTHING if it is not known. None if the operation may mix steps, so that padding gets into their values.
        """
        return ANYTHING if self.elementwise else None

    def ignores_padding(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> bool:
        """True if its output, which has no axis of unpacked steps, does not depend on their padding."""
        return False

    def draws(self, attrs: Attrs, training: bool) -> bool:
        """True if a node with a seed draws random numbers in such an evaluation."""
        return True

    def draws_columns(self, node: Node) -> bool:
        """True if `draw_columns` can draw the numbers of a node where the host knows how many samples there are."""
        return False

    def draw_columns(self, node: Node, generator: MersenneTwister64, number: int) -> tuple[np.ndarray, int]:
        """The numbers of all columns that CNTK has, and how many the generator has produced.

        Shapes: [number, *shape of the output].
        """
        raise TypeError(f"{self.name} draws no numbers")

    def draws_on_host(self, node: Node) -> bool:
        """True if `draw` draws the random numbers of a node, the same as CNTK's, before the program runs."""
        return False

    def draw(
        self, attrs: Attrs, generator: MersenneTwister64, weights: np.ndarray | None
    ) -> tuple[np.ndarray, int]:
        """The numbers for one evaluation, and how many the generator has produced; `weights` is its operand's value."""
        raise TypeError(f"{self.name} draws no numbers")

    # ---- what an operation defines
    def complete(self, attrs: Attrs) -> Attrs:
        """The attributes with defaults filled in.

        Errors: TypeError for an attribute that the operation does not have, or that it needs and that is missing.
        """
        if not attrs and not self.attributes:
            return {}
        unknown = set(attrs) - set(self.attributes)
        if unknown:
            raise TypeError(f"{self.name} has no attribute {', '.join(sorted(unknown))}")
        complete = {}
        for name, attribute in self.attributes.items():
            value = attrs.get(name, attribute.default)
            if value is REQUIRED:
                raise TypeError(f"{self.name} needs the attribute {name}")
            if value is not None:
                complete[name] = value
        return complete

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Outputs:
        """The shapes of the outputs; `Spec`s where type or axes are not merged from the operands.

        It may write attributes that depend on the operands, such as axes, which files count from the last.
        Errors: ShapeError or AxisError if the operands do not fit.
        """
        raise TypeError(f"{self.name} has no shape rule")

    def outputs_of_known(self, known: Sequence[Edge], attrs: Attrs) -> Outputs | None:
        """What `outputs` is in a loop whose state has no shape yet, as far as the other operands say; None: nothing."""
        return self.outputs(known, attrs) if self.elementwise else None

    def copy(self, node: Node, inputs: Sequence[Edge]) -> Node:
        """A node like this one with other operands."""
        return make_node(self, inputs, copied_attributes(node), node.name)

    def lower(self, attrs: Attrs, *samples: Any) -> Samples:
        """The computation on one sample of each operand."""
        raise TypeError(f"{self.name} has no computation")

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Any) -> Traced | list[Traced]:
        """The computation on packed values."""
        raise TypeError(f"{self.name} has no computation")

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


BY_NAME: dict[str, Primitive] = {}
BY_ID: dict[int, Primitive | BlockPrimitive] = {BLOCK.cntk_id: BLOCK}


P = TypeVar("P", bound=Primitive)


def primitive(name: str, cntk_id: int) -> Callable[[type[P]], P]:
    """Register a class as the primitive of that name and number; the class name then means its single instance.

    Errors: ValueError for a name or number that is taken.
    """

    def register(cls: type[P]) -> P:
        if name in BY_NAME or cntk_id in BY_ID:
            other = BY_NAME.get(name) or BY_ID[cntk_id]
            raise ValueError(
                f"operation {name!r} ({cntk_id}): {other.name!r} ({other.cntk_id}) is registered already; take another "
                "name and a number that is free, of your own module from 100,000 on"
            )
        cls.name, cls.cntk_id = name, cntk_id
        instance = cls()
        BY_NAME[name] = BY_ID[cntk_id] = instance
        return instance

    return register


__all__ = [
    "BY_ID", "BY_NAME", "AxisOf", "Attribute", "Attrs", "Bool", "DTypeOf", "Double", "Float", "Int", "Outputs",
    "Primitive", "Samples", "ShapeOf", "Size", "Spec", "StaticSlice", "String", "primitive",
]
