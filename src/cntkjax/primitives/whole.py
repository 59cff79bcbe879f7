"""What CNTK composes of other operations and is computed as one here: softmax and reductions of sequences, last steps.

A rule compares the graph inside a block with a pattern: (name of the operation, attributes that it has, operands...). A
string in it stands for a variable, the same wherever it stands; a number for a constant of that value.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..engine.layout import Layout
from ..engine.plan import resolve
from ..engine.values import Context, Value
from ..engine.whole import RULES
from ..graph.axis import BATCH, SEQUENCE, Axis
from ..graph.errors import AxisError, explain
from ..graph.function import Function
from ..graph.variable import Leaf, Variable
from .base import Attrs, Primitive
from .reduce import ReduceElements, over_steps

Pattern = str | float | tuple[Any, ...]
Found = tuple[Any, list[Variable], Attrs]


def _argument(block: Function, pattern: Pattern) -> Variable | None:
    """The argument of a block that is nothing but this pattern of x; None for other blocks."""
    assert block.block_composite is not None
    found: dict[str, Variable] = {}
    arguments = [inner for inner, _ in block.block_map]
    is_it = len(arguments) == 1 and _fits(block.block_composite.root_function.node_outputs[0], pattern, found)
    return arguments[0] if is_it and found["x"] is resolve(arguments[0]) else None


def _fits(variable: Variable, pattern: Pattern, found: dict[str, Variable]) -> bool:
    """Whether a variable is computed like that; `found` takes up what strings stand for."""
    variable = resolve(variable)
    if isinstance(pattern, str):
        return found.setdefault(pattern, variable) is variable
    if not isinstance(pattern, tuple):
        return isinstance(variable, Leaf) and variable.is_constant and bool((variable.array == pattern).all())
    name, attributes, *operands = pattern
    node = variable._owner
    return (
        node is not None
        and node.primitive.name == name
        and variable is node.node_outputs[0]
        and all(node.node_attributes.get(k) == v for k, v in attributes.items())
        and len(node.node_inputs) == len(operands)
        and all(_fits(v, p, found) for v, p in zip(node.node_inputs, operands, strict=True))
    )


# ---- reductions
def _reduction(name: str) -> Attrs:
    return {"reductionOpName": name, "axis": SEQUENCE, "reductionKeepDimensions": False}


def _reduced(block: Function) -> Found | None:
    """Steps unpacked, with padding that does not count, and reduced."""
    for name, padding in (("Sum", 0.0), ("Max", float("-inf"))):
        steps = {"axis": Axis(-1 - len(block.node_outputs[0].shape))}
        unpacked = ("UnpackSequenceOp", {"sequenceUnpackPaddingValue": padding}, "x")
        x = _argument(block, ("ReduceElements", _reduction(name) | steps, unpacked))
        if x is not None:
            return ReduceElements, [x], _reduction(name)
    return None


# ---- softmax
class SequenceSoftmax(Primitive):
    """exp(x) / sum(exp(x)) over the steps of each sequence, element by element.

    Shapes: x [*shape] with a sequence axis -> [*shape].
    """

    name = "Sequence::Softmax"
    packed = True

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Value) -> Value:
        """In both kinds of grid."""
        if ctx.step is not None and ctx.sequence_axis(x.axes) == ctx.step.axis:
            assert ctx.node is not None
            raise AxisError(explain(
                f"{self.name}: a recurrent loop cannot go on from all steps of its own sequences",
                {"operand": ctx.node.node_inputs[0]}, "only delayed values may close a loop",
            ))
        return Value(_softmax(ctx.array(x), ctx.layout(x.axes)), x.axes)


@jax.custom_vjp
def _softmax(x: Any, layout: Layout) -> Any:
    """[time, rows, *shape]. Where padding stands, something finite."""
    above = x - layout.spread(over_steps("Max", x, layout))
    powers = jnp.exp(above if layout.full else jnp.minimum(above, 0))  # padding may hold more than the maximum
    return powers * layout.spread(1 / over_steps("Sum", powers, layout))


def _softmax_forward(x: Any, layout: Layout) -> Any:
    made = _softmax(x, layout)
    return made, (made, layout)


def _softmax_backward(kept: tuple[Any, Layout], g: Any) -> Any:
    made, layout = kept
    if not layout.full:  # otherwise padding would learn from the sum
        made = jnp.where(layout.mask.reshape(*layout.mask.shape, *(1,) * (made.ndim - 2)), made, 0)
    return made * (g - layout.spread(over_steps("Sum", made * g, layout))), None


_softmax.defvjp(_softmax_forward, _softmax_backward)


def _spread(pattern: Pattern) -> Pattern:
    return ("ReconcileDynamicAxis", {}, pattern, "x")


_POWERS: Pattern = ("Exp", {}, ("Minus", {}, "x", _spread(("ReduceElements", _reduction("Max"), "x"))))
_SOFTMAX: Pattern = (
    "ElementTimes", {}, _POWERS, ("Reciprocal", {}, _spread(("ReduceElements", _reduction("Sum"), _POWERS)))
)


def _softmaxed(block: Function) -> Found | None:
    x = _argument(block, _SOFTMAX)
    return None if x is None else (SEQUENCE_SOFTMAX, [x], {})


# ---- last steps
class SequenceLast(Primitive):
    """The last step of each sequence.

    Shapes: x [*shape] with a sequence axis -> [*shape] with the batch axis alone.
    """

    name = "Sequence::Last"
    packed = True

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Value) -> Value:
        """A slice of the grid where all sequences end together, otherwise a gather of cells; sparse data stay so."""
        layout, data = ctx.layout(x.axes), x.data if x.is_sparse else ctx.array(x)
        together = layout.simple and layout.full
        return Value(
            jax.tree.map(lambda d: d[-1] if together else layout.at(d, layout.length - 1), data), (BATCH,)
        )


_AT_LAST: Pattern = ("FutureValue", {"offset": 1}, ("ReconcileDynamicAxis", {}, 0, "x"), 1)
_ONE_STEP = {"newSequenceAxisLengthScalingFactor": 0, "newSequenceAxisLengthAdditiveFactor": 1}
_LAST: Pattern = ("GatherPacked", {}, "x", ("PackedIndex", {}, "x", ("Where", _ONE_STEP, _AT_LAST)))


def _sliced(block: Function) -> Found | None:
    x = _argument(block, _LAST)
    return None if x is None else (SEQUENCE_LAST, [x], {})


SEQUENCE_SOFTMAX, SEQUENCE_LAST = SequenceSoftmax(), SequenceLast()
RULES.update({
    "Sequence::ReduceElements": _reduced, "Sequence::Softmax": _softmaxed, "Sequence::Slice": _sliced,
})
