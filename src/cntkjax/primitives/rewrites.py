"""What CNTK composes of other operations and is computed as one here: see the primitives and reductions below.

A rule compares the graph inside a block with a pattern: (name of the operation, attributes that it has, operands...). A
string in it is a name for a variable, the same wherever it stands; a number is a constant of that value; ("=name",
pattern) names what the pattern fits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..engine.data.layout import Layout
from ..engine.lower.values import Context, Value
from ..engine.plan.parts import resolve
from ..engine.plan.rewrite import BLOCK_RULES, NODE_RULES, Rewrite, Rule
from ..graph.axis import BATCH, SEQUENCE, Axis
from ..graph.errors import AxisError, explain
from ..graph.function import Function
from ..graph.variable import Leaf, Variable
from ._maxima import padded, total
from ._window import place
from .base import Attrs, Primitive
from .elementwise import ELEMENTWISE
from .legacy import LogSoftmax
from .reduce import ReduceElements, Softmax, over_steps
from .sequence import GatherPacked, first_step

Pattern = str | float | tuple[Any, ...]


def _found(block: Function, pattern: Pattern) -> dict[str, Variable] | None:
    """What the names in a pattern stand for, if a block of one argument x is nothing else; None for other blocks."""
    assert block.block_composite is not None
    found: dict[str, Variable] = {}
    arguments = [inner for inner, _ in block.block_map]
    is_it = len(arguments) == 1 and _fits(block.block_composite.root_function.node_outputs[0], pattern, found)
    if not is_it or found["x"] is not resolve(arguments[0]):
        return None
    return found | {"x": arguments[0]}


def _fits(variable: Variable, pattern: Pattern, found: dict[str, Variable]) -> bool:
    """Whether a variable is computed like that; `found` takes up what names stand for."""
    variable = resolve(variable)
    if isinstance(pattern, str):
        return found.setdefault(pattern, variable) is variable
    if not isinstance(pattern, tuple):
        if not isinstance(variable, Leaf) or not variable.is_constant:
            return False
        return bool((np.asarray(variable._value) == pattern).all())  # with NumPy, also while a program is traced
    if pattern[0][0] == "=":
        return _fits(variable, pattern[0][1:], found) and _fits(variable, pattern[1], found)
    name, attributes, *operands = pattern
    node = variable._owner
    if node is not None and node.primitive.name == "Quotient" and name == "ElementTimes":
        dividend, inverse = operands  # the graph has a product with a reciprocal
        return inverse[0] == "Reciprocal" and all(
            _fits(v, p, found) for v, p in zip(node.node_inputs, (dividend, inverse[2]), strict=True)
        )
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


def _reduced(block: Function) -> Rewrite | None:
    """Steps unpacked, with padding that does not count, and reduced."""
    for name, padding in (("Sum", 0.0), ("Max", float("-inf"))):
        steps = {"axis": Axis(-1 - len(block.node_outputs[0].shape))}
        unpacked = ("UnpackSequenceOp", {"sequenceUnpackPaddingValue": padding}, "x")
        found = _found(block, ("ReduceElements", _reduction(name) | steps, unpacked))
        if found is not None:
            return Rewrite(ReduceElements, [found["x"]], _reduction(name))
    return None


# ---- softmax
def _along(name: str, x: Pattern) -> Pattern:
    return ("=" + name, ("ReduceElements", {"reductionOpName": name, "reductionKeepDimensions": True}, x))


_SHIFTED: Pattern = ("Minus", {}, "x", _along("Max", "x"))
_TOTAL = _along("Sum", ("Exp", {}, _SHIFTED))


def _static_softmax(primitive: Any, pattern: Pattern) -> Rule:
    """Along one static axis: with a gradient that keeps nothing but the result."""

    def rule(block: Function) -> Rewrite | None:
        found = _found(block, pattern)
        if found is None:
            return None
        axes = {found[name]._owner.node_attributes["axis"] for name in ("Max", "Sum")}  # type: ignore[union-attr]
        return Rewrite(primitive, [found["x"]], {"axis": axes.pop()}) if len(axes) == 1 else None

    return rule


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
    # A sum is below 1 only of no steps at all: a sequence that fills up the batch
    return powers * layout.spread(1 / jnp.maximum(over_steps("Sum", powers, layout), 1))


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


def _softmaxed(block: Function) -> Rewrite | None:
    found = _found(block, _SOFTMAX)
    return None if found is None else Rewrite(SEQUENCE_SOFTMAX, [found["x"]], {})


# ---- first and last steps
class SequenceFirst(Primitive):
    """The first step of each sequence.

    Operands: the sequence, and what marks its first step: where pieces of sequences go on, none is marked.
    Shapes: x [*shape] with a sequence axis -> [*shape] with the batch axis alone.
    """

    name = "Sequence::First"
    packed = True

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Value, marked: Value) -> Value:
        """A slice of the grid if each row begins with a sequence, otherwise a gather of cells; sparse data stay so."""
        layout = ctx.layout(x.axes)
        step = 0 if layout.origin is None else first_step(layout, (ctx.array(marked) > 0) & layout.mask)
        return _at(ctx, x, step)


class SequenceLast(Primitive):
    """The last step of each sequence; see `SequenceFirst`."""

    name = "Sequence::Last"
    packed = True

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Value) -> Value:
        """A slice of the grid where all sequences end together, otherwise a gather of cells."""
        layout = ctx.layout(x.axes)
        return _at(ctx, x, -1 if layout.simple and layout.full else layout.length - 1)


def _at(ctx: Context, x: Value, step: Any) -> Value:
    layout = ctx.layout(x.axes)
    given = x.data if x.is_sparse else ctx.array(x)
    return Value(jax.tree.map(lambda d: d[-1] if isinstance(step, int) and step < 0 else layout.at(d, step), given),
                 (BATCH,))  # fmt: skip


_ONE_STEP = {"newSequenceAxisLengthScalingFactor": 0, "newSequenceAxisLengthAdditiveFactor": 1}
_ZEROS: Pattern = ("ReconcileDynamicAxis", {}, 0, "x")


def _step_at(delay: str) -> Pattern:
    mark = ("=marked", (delay, {"offset": 1}, _ZEROS, 1))
    return ("GatherPacked", {}, "x", ("PackedIndex", {}, "x", ("Where", _ONE_STEP, mark)))


def _sliced(block: Function) -> Rewrite | None:
    """The last step of all, or the first; for other slices nothing is known that is better."""
    if (found := _found(block, _step_at("FutureValue"))) is not None:
        return Rewrite(SEQUENCE_LAST, [found["x"]], {})
    if (found := _found(block, _step_at("PastValue"))) is not None:
        return Rewrite(SEQUENCE_FIRST, [found["x"], found["marked"]], {})
    return None


# ---- slices
class Shifted(type(GatherPacked)):  # type: ignore[misc]
    """The steps from `begin` to before `end`, counted from the end if not positive, as a slice of the grid.

    Nothing but the lengths of the sequences depends on the index, and not even these where all are known to be equal.
    Shapes: source [*shape] with a sequence axis, index [] -> [*shape] with the axes of the index.
    """

    name = "Sequence::Shifted"

    def step_condition(self, node: Function) -> Variable | None:
        """None: the steps are known, whatever the condition."""
        return None

    def lower_packed(self, ctx: Context, attrs: Attrs, source: Value, index: Value) -> Value:
        """Sequences stay in their rows and begin where they began; behind their ends stands whatever stood there."""
        old, new = ctx.layout(source.axes), ctx.layout(index.axes)
        if old.origin is not None:  # pieces of sequences that go on have their first steps elsewhere
            return super().lower_packed(ctx, attrs, source, index)
        given = source.data if source.is_sparse else ctx.array(source)
        begin, end, steps = min(attrs["begin"], old.time - 1), attrs["end"], new.time
        if old.simple and old.full and begin + steps == (min(end, old.time) if end > 0 else old.time + end):
            axis = ctx.sequence_axis(index.axes)
            ctx.layouts[axis] = replace(new, length=jnp.full_like(new.length, steps), full=True)  # type: ignore[index]

        def moved(d: Any) -> Any:
            rest = d[begin : begin + steps]
            return jnp.concatenate([rest, jnp.broadcast_to(d[-1:], (steps - len(rest), *d.shape[1:]))])

        return Value(jax.tree.map(moved, given), index.axes)


_PAST: Pattern = ("=begin", ("PastValue", {}, _ZEROS, 1))
_FROM: Pattern = ("Minus", {}, 1, _PAST)  # all but the first steps
_ENDS: tuple[Pattern, ...] = (
    ("=first", ("PastValue", {}, _ZEROS, 1)), ("Minus", {}, 1, ("=last", ("FutureValue", {}, _ZEROS, 1)))
)
_RANGES: tuple[Pattern, ...] = (_FROM, *_ENDS, *(("ElementTimes", {}, _FROM, end) for end in _ENDS))


def _shifted(gather: Function) -> Rewrite | None:
    """The steps from a fixed one on, up to one counted from either end."""
    x, index = gather.node_inputs
    if index.sequence_axis is None or x.sequence_axis is None:
        return None
    for condition in _RANGES:
        found = {"x": resolve(x)}
        if _fits(index, ("PackedIndex", {}, "x", ("Where", {}, condition)), found):
            steps = {n: v._owner.node_attributes["offset"] for n, v in found.items() if n != "x" and v._owner}
            end = steps.get("first", 0) - steps.get("last", 0)
            return Rewrite(SHIFTED, [x, index], {"begin": steps.get("begin", 0), "end": end})
    return None


# ---- normalization over neighbouring channels
class ChannelNormalization(Primitive):
    """x / (bias + a sum(x**2 over neighbouring channels))**beta: a few sums, where a convolution would be slow.

    Operands: x, the kernel that has `a` in all places, bias, beta.
    Shapes: x [C, H, W], kernel [1, channels in the window, 1, 1], scalars -> as x.
    """

    name = "LocalResponseNormalization"
    packed = True

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Value, kernel: Value, bias: Value, beta: Value) -> Value:
        """In the order of axes in which the data come."""
        data = x.data if x.channels_last else ctx.array(x)
        axis = data.ndim - 1 if x.channels_last else ctx.lead(x.axes)
        window = place(data.shape[axis], kernel.data.size, auto=True)
        squares = padded(data * data, axis, window, 0)
        base = bias.data + kernel.data.reshape(-1)[0] * total(squares, axis, window, squares.shape[axis])
        power = jnp.exp(-beta.data * ELEMENTWISE["Log"].lower({}, base))
        return Value(data * power, x.axes, channels_last=x.channels_last)


_ALONG = {
    "strides": (1,) * 4, "autoPadding": [True] * 4, "dilation": (1,) * 4, "transpose": False, "groups": 1,
}  # fmt: skip
_SQUARES: Pattern = ("Reshape", {"newShape": (1, -1)}, ("ElementTimes", {}, "x", "x"))
_NEAR: Pattern = ("Reshape", {"newShape": (-1,)}, ("Convolution", _ALONG, "kernel", _SQUARES))
_NORMALIZED: Pattern = ("ElementTimes", {}, "x", ("Reciprocal", {}, (
    "Exp", {}, ("ElementTimes", {}, "beta", ("Log", {}, ("Plus", {}, "bias", _NEAR)))
)))


def _normalized(block: Function) -> Rewrite | None:
    """Images only, by a kernel with the same number everywhere."""
    found = _found(block, _NORMALIZED)
    if found is None or len(found["x"].shape) != 3:
        return None
    named = [found[name] for name in ("kernel", "bias", "beta")]
    constants = [v for v in named if isinstance(v, Leaf) and v.is_constant]
    if constants != named:
        return None
    kernel = np.asarray(constants[0]._value)
    fits = kernel.ndim == 4 and kernel.shape[1] == kernel.size and (kernel == kernel.flat[0]).all()
    return Rewrite(CHANNEL_NORMALIZATION, [found["x"], *constants], {}) if fits else None


SEQUENCE_SOFTMAX, SEQUENCE_FIRST, SEQUENCE_LAST, SHIFTED = SequenceSoftmax(), SequenceFirst(), SequenceLast(), Shifted()
CHANNEL_NORMALIZATION = ChannelNormalization()
NODE_RULES["GatherPacked"] = _shifted
BLOCK_RULES.update({
    "LocalResponseNormalization": _normalized,
    "LogSoftmax": _static_softmax(LogSoftmax, ("Minus", {}, _SHIFTED, ("Log", {}, _TOTAL))),
    "Softmax": _static_softmax(Softmax, ("ElementTimes", {}, ("Exp", {}, _SHIFTED), ("Reciprocal", {}, _TOTAL))),
    "Sequence::ReduceElements": _reduced, "Sequence::Softmax": _softmaxed, "Sequence::Slice": _sliced,
})
