"""Operations on sequences: selecting and spreading steps, packing and unpacking.

They use one sequence axis, or create another. A new axis keeps its sequences in the rows of the old one, each from
where the old one began; so axes of the same name have the same layout, and values along them can be combined,
whatever they were computed from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from weakref import WeakKeyDictionary, ref

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import Array
from ..engine.data.dimensions import expand_to, flat
from ..engine.data.layout import Layout
from ..engine.data.sparse import with_values
from ..engine.lower.values import Context, Traced
from ..engine.plan.padding import IN_NONE, PaddedOperand
from ..engine.plan.parts import resolve
from ..graph.axis import BATCH, UNKNOWN_AXES, Axis
from ..graph.build import Spec
from ..graph.errors import AxisError, ShapeError, explain
from ..graph.function import Node
from ..graph.shape import FREE, UNKNOWN_SHAPE, Shape, is_known, is_unknown, size
from ..graph.variable import Edge, Leaf, producer, value_of
from .base import Attrs, AxisOf, Bool, Double, Int, Primitive, Size, String, primitive


def _needs_sequence(op: str, label: str, x: Edge) -> Axis:
    """The sequence axis of an operand."""
    axis = x.sequence_axis
    if axis is None or len(x.dynamic_axes) > 2:
        raise AxisError(explain(
            f"{op}: the {label} has no sequence axis", {label: x}, "declare the input with cntk.sequence.input_variable"
        ))
    return axis


def _axes_unknown(*operands: Edge) -> bool:
    return any(v.dynamic_axes == UNKNOWN_AXES for v in operands)


def _shape_beside(x: Edge, *others: Edge) -> Shape:
    """The shape of an operand; unknown as in CNTK while that of another operand is, even if it only gives its axes."""
    return UNKNOWN_SHAPE if any(is_unknown(v.shape) for v in others) else x.shape


def _new_axis(name: str, lengths: str, attrs: Attrs) -> Axis:
    """The axis that a node makes: of that name, or in a clone of the name in the original, with its own lengths."""
    first = next((axis.name for axis in attrs.get("newDynamicAxes", ()) if axis.is_sequence_axis), name)
    return Axis(name) if first == name else Axis(first).with_lengths(lengths)


@primitive("Where", 13)
class Where(Primitive):
    """The numbers of the steps at which a condition is not 0, as a new sequence; where it is n, a step counts n times.

    Fractions add up: 1.5 at each of two steps counts three times. The maximum is known only for conditions that are
    constants; of other conditions each step counts at most once.

    Shapes: condition [], [1], [1, 1], ... with a sequence axis -> [] along the new axis, or along the batch axis alone
            if the sequence is known to have one step.
    Source: CNTK 2.7.
    """

    attributes = {
        "newDynamicAxes": AxisOf(None).vector, "newSequenceAxisLengthScalingFactor": Size(None),
        "newSequenceAxisLengthAdditiveFactor": Int(None),
    }
    packed = True
    infers_partially = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """A scalar along an axis that is named after the condition, or after its axis and the change of length."""
        (condition,) = inputs
        if _axes_unknown(condition):
            return Spec(UNKNOWN_SHAPE)
        if not is_unknown(condition.shape) and set(condition.shape) - {1}:
            raise ShapeError(explain(
                f"{self.name}: the condition has to be one number for each step", {"condition": condition},
                "reduce it to one number for each step (cntk.reduce_sum)",
            ))
        axis = self._axis(_needs_sequence(self.name, "condition", condition), condition, attrs)
        if not resolve(condition).is_placeholder:  # the name comes with what replaces it
            attrs["newDynamicAxes"] = [BATCH] if axis is None else [axis, BATCH]
        return Spec((), axes=(BATCH,) if axis is None else (BATCH, axis))

    def _axis(self, old: Axis, condition: Edge, attrs: Attrs) -> Axis | None:
        scale = attrs.get("newSequenceAxisLengthScalingFactor")
        add = attrs.get("newSequenceAxisLengthAdditiveFactor", 0)
        if scale is None:
            source = resolve(condition).uid
            return _new_axis(f"whereNodeDynamicAxis_conditionVar_{source}", source, attrs)
        if (scale, add) == (0, 1):
            return None
        if scale == 0:
            if add <= 0:
                raise AxisError(explain(
                    f"{self.name}: sequences of {add} steps are not possible", fix="give a length of at least 1"
                ))
            return Axis(f"{old.name}_fixedSliceOf_{add}")
        if (scale, add) == (1, 0):  # declared to keep all steps, which a condition need not do
            return old.with_lengths(resolve(condition).uid)
        return Axis(f"{old.name}_times_{scale}_{'plus' if add > 0 else 'minus'}_{abs(add)}")

    def growth(self, node: Node) -> int:
        """How many times as long the new sequences can be."""
        scale = node.node_attributes.get("newSequenceAxisLengthScalingFactor", 1)
        value = _constant_of(node.node_inputs[0])
        return max(1, scale, 1 if value is None else ceil(float(np.max(value))))

    cache_key = growth

    @staticmethod
    def _limited(attrs: Attrs, layout: Layout, steps: int) -> int:
        """Steps of the new grid: no more than the attributes promise, where sequences begin at its first step."""
        scale = attrs.get("newSequenceAxisLengthScalingFactor")
        if scale is None or not layout.simple:
            return steps
        return max(1, min(steps, scale * layout.time + attrs.get("newSequenceAxisLengthAdditiveFactor", 0)))

    def lower_packed(self, ctx: Context, attrs: Attrs, condition: Traced) -> Traced:
        """Numbers of steps, counted within their sequences."""
        assert ctx.node is not None
        old = ctx.layout(condition.axes)
        axes = ctx.node.node_outputs[0].dynamic_axes
        counts = ctx.array(condition)
        dtype = counts.dtype
        counts = jnp.where(old.mask, counts.reshape(old.time, old.rows), jnp.zeros((), dtype))
        time = lax.broadcasted_iota(jnp.int32, counts.shape, 0)
        if len(axes) == 1:
            return Traced(first_step(old, counts > 0).astype(dtype), axes)
        growth = self.growth(ctx.node)
        before, after = _counted(old, counts, growth)
        length = jnp.where(old.length > 0, after.reshape(-1)[old.cell(old.length - 1)], 0)
        steps = self._limited(attrs, old, old.time * growth)
        length = jnp.minimum(length, jnp.minimum(old.length * growth, steps))
        new = replace(old, start=old.start * growth, length=length, time=steps, full=False)
        new = ctx.layouts.setdefault(axes[1], new)
        base = old.start
        if new.row is not old.row:  # of data that are fed along this axis: each row may hold other sequences
            base = new.start * old.time
            time = base[old.seq] + old.position
        # Each step marks the cell of its first copy; its other copies, and unused cells, repeat the mark before them.
        cell = (new.start[old.seq] + before) * new.rows + new.row[old.seq]
        cell = jnp.where((after > before) & old.mask, cell, new.time * new.rows)
        marks = jnp.full(new.time * new.rows, -1, jnp.int32).at[cell.reshape(-1)].set(time.reshape(-1), mode="drop")
        source = lax.cummax(marks.reshape(new.time, new.rows), axis=0)
        numbers = jnp.clip(source - base[new.seq], 0, jnp.maximum(old.length[new.seq] - 1, 0))
        return Traced(numbers.astype(dtype), axes)


def first_step(layout: Layout, condition: Array) -> Array:
    """The first step of each sequence at which a condition holds; its length or more if it never does.

    Shapes: condition bool [time, rows] -> [size].
    """
    time = lax.broadcasted_iota(jnp.int32, condition.shape, 0)
    times = jnp.where(condition, time, layout.time)
    if layout.simple:
        return jnp.min(times, axis=0)
    return lax.cummin(times, axis=0, reverse=True).reshape(-1)[layout.cell(0)] - layout.start


def _counted(layout: Layout, counts: Array, growth: int) -> tuple[Array, Array]:
    """How many steps of the new sequence come from before each step, and from before the next, [time, rows] each.

    Negative counts take none away again: as in CNTK the number is the largest sum so far.
    """
    total = jnp.cumsum(counts, axis=0)
    if not layout.simple:
        total = total - (total - counts).reshape(-1)[layout.cell(0)][layout.seq]
    after = jnp.clip(jnp.ceil(total - 1e-4).astype(jnp.int32), 0, layout.length[layout.seq] * growth)
    base = layout.start[layout.seq] * growth  # above all numbers of the sequences before it in the row
    after = lax.cummax(after + base, axis=0) - base
    return jnp.where(layout.position == 0, 0, jnp.roll(after, 1, axis=0)), after


def _constant_of(variable: Edge) -> np.ndarray | None:
    """The value that a variable has at all steps, if it is a constant spread over them."""
    variable = resolve(variable)
    while (node := producer(variable)) is not None and node.primitive is ReconcileDynamicAxis:
        variable = resolve(node.node_inputs[0])
    return np.asarray(value_of(variable)) if isinstance(variable, Leaf) and variable.is_constant else None


def _operand_of(operation: object, v: Edge, place: int) -> Edge | None:
    """An operand of the node that computes a variable, if that is such an operation."""
    owner = producer(resolve(v))
    return resolve(owner.node_inputs[place]) if owner is not None and owner.primitive is operation else None


@primitive("PackedIndex", 28)
class PackedIndex(Primitive):
    """The cells of the steps that `Where` selects of a sequence; for GatherPacked and ScatterPacked only."""

    packed = True
    infers_partially = True

    def step_condition(self, node: Node) -> Edge | None:
        """That of the steps, if `Where` computed them."""
        return _operand_of(Where, node.node_inputs[1], 0)

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """Like the steps."""
        source, steps = inputs
        return Spec(_shape_beside(steps, source), axes=steps.dynamic_axes, dtype=steps.dtype)

    def lower_packed(self, ctx: Context, attrs: Attrs, source: Traced, steps: Traced) -> Traced:
        """Flat indices of cells; of a single step that a sequence does not have one past the end."""
        if len(source.axes) < 2:
            assert ctx.batch is not None
            sequences = jnp.arange(ctx.batch.size) if len(steps.axes) == 1 else ctx.layout(steps.axes).seq
            return Traced(sequences, steps.axes)
        layout, step = ctx.layout(source.axes), ctx.array(steps).astype(jnp.int32)
        if len(steps.axes) == 1:
            is_missing = (step >= layout.length) & ctx.mask((BATCH,))
            return Traced(jnp.where(is_missing, layout.time * layout.rows, layout.cell(step)), steps.axes)
        return Traced(layout.cells(ctx.layout(steps.axes).seq, step), steps.axes)


@primitive("GatherPacked", 29)
class GatherPacked(Primitive):
    """The steps of a sequence that an index names.

    Shapes: source [*shape] with a sequence axis (or one value for all its steps, or for all sequences), index [] ->
            [*shape] with the axes of the index.
    """

    packed = True
    infers_partially = True

    def step_condition(self, node: Node) -> Edge | None:
        """That of the steps of the index, if `Where` computed them."""
        steps = _operand_of(PackedIndex, node.node_inputs[1], 1)
        return None if steps is None else _operand_of(Where, steps, 0)

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """The shape of the source, the axes of the index."""
        source, index = inputs
        return Spec(_shape_beside(source, index), axes=index.dynamic_axes, dtype=source.dtype)

    def lower_packed(self, ctx: Context, attrs: Attrs, source: Traced, index: Traced) -> Traced:
        """A gather of cells, zeros for those past the end; sparse samples stay sparse."""
        data = ctx.data(source)
        if not source.axes:
            return Traced(jnp.broadcast_to(data, (*index.data.shape, *data.shape)), index.axes)
        cells = flat(data) if len(source.axes) > 1 else data
        assert ctx.node is not None
        if len(source.axes) > 1 and not source.is_sparse and _is_one_to_one(ctx.node.node_inputs[1]):
            size = cells.shape[0]
            inverse = _inverse(jnp.where(ctx.mask(index.axes), index.data, size), size)
            permuted = _permuted_cells(cells, index.data.reshape(-1), inverse)
            return Traced(permuted.reshape(*index.data.shape, *permuted.shape[1:]), index.axes)
        if len(index.axes) == 1 and len(source.axes) > 1:
            cells = jax.tree.map(lambda d: d.at[index.data].get(mode="fill", fill_value=0), with_values(cells))
            return Traced(cells, index.axes)
        return Traced(jax.tree.map(lambda d: d[index.data], cells), index.axes)


def _is_one_to_one(index: Edge) -> bool:
    """True for the index of steps that a condition selects, each of which counts once."""
    packed = producer(resolve(index))
    where = producer(resolve(packed.node_inputs[1])) if packed is not None and packed.primitive is PackedIndex else None
    if where is None or where.op_name != "Where" or len(index.dynamic_axes) < 2:
        return False
    return bool(where.primitive.growth(where) == 1)


def _inverse(index: Array, size: int) -> Array:
    """For each of `size` cells its place in an index, or the length of the index if it is not in it."""
    places = jnp.arange(index.size, dtype=jnp.int32)
    return jnp.full(size, index.size, jnp.int32).at[index.reshape(-1)].set(places, mode="drop")


@jax.custom_vjp
def _permuted_cells(cells: Array, index: Array, inverse: Array) -> Array:
    """Cells in another order: `index` is the old place of each new cell, `inverse` the new place of each old one.

    A place past the end gives zeros. XLA:CPU takes several times as long for the scatter that is the gradient of a
    gather as for the gather by the inverse that it is here.

    Shapes: cells [n, *shape], index [m], inverse [n] -> [m, *shape].
    """
    return cells.at[index].get(mode="fill", fill_value=0)


_permuted_cells.defvjp(
    lambda cells, index, inverse: (_permuted_cells(cells, index, inverse), (index, inverse)),
    lambda residuals, g: (_permuted_cells(g, *residuals[::-1]), None, None),
)


@primitive("ScatterPacked", 30)
class ScatterPacked(Primitive):
    """The steps of a sequence put in the places of an index, zeros elsewhere; what is put in the same place adds up.

    Shapes: source [*shape], index [] and condition of one element -> [*shape] with the axes of the condition.
    """

    packed = True
    infers_partially = True
    equal_lengths = "computed"

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """The shape of the source, the axes of the condition."""
        source, index, condition = inputs
        if source.sequence_axis is not None and index.dynamic_axes == (BATCH,):
            raise AxisError(explain(
                f"{self.name}: the condition is promised to hold once, so there is no place for sequences",
                {"source": source, "condition": condition}, "scatter one value a sequence, or promise nothing",
            ))
        return Spec(_shape_beside(source, index, condition), axes=condition.dynamic_axes, dtype=source.dtype)

    def lower_packed(self, ctx: Context, attrs: Attrs, source: Traced, index: Traced, condition: Traced) -> Traced:
        """A scatter of cells."""
        layout = ctx.layout(condition.axes)
        data = ctx.array(source)
        if not source.axes:
            data = jnp.broadcast_to(data, (*index.data.shape, *data.shape))
        elif len(index.axes) == 2:
            data = ctx.to_axes(ctx.canonical(source), index.axes).data
        size, shape = layout.time * layout.rows, data.shape[index.data.ndim :]
        cells = jnp.where(ctx.mask(index.axes), index.data, size).reshape(-1)
        source_cells = data.reshape(-1, *shape)
        assert ctx.node is not None
        if _is_one_to_one(ctx.node.node_inputs[1]):
            scattered = _permuted_cells(source_cells, _inverse(cells, size), cells)
        else:
            scattered = jnp.zeros((size, *shape), data.dtype).at[cells].add(source_cells, mode="drop")
        return Traced(scattered.reshape(layout.time, layout.rows, *shape), condition.axes)


@primitive("ReconcileDynamicAxis", 50)
class ReconcileDynamicAxis(Primitive):
    """A value with the dynamic axes of another: one value a sequence, or one for all, is spread over the steps.

    Shapes: x [*shape] without dynamic axes, with the batch axis, or with a sequence axis of equal lengths -> [*shape].
    Errors: AxisError if the other operand has no dynamic axes, ShapeError if it has another element type.
    """

    packed = True
    infers_partially = True
    stepwise = True
    rearranged_operands = slice(1)
    equal_lengths = "fed"

    def place_in_output(self, attrs: Attrs, shapes: Sequence[Shape]) -> int | None:
        """That in the first operand."""
        return shapes[0].index(FREE) - len(shapes[0]) if FREE in shapes[0] else None

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """That of the first operand."""
        return operands[0].padding

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """The shape of the first operand, the axes of the second."""
        x, like = inputs
        if not like.dynamic_axes:
            raise AxisError(explain(
                f"{self.name}: the operand whose axes are taken has no dynamic axes", {"operand": x, "like": like},
                "give an operand that depends on an input",
            ))
        return Spec(_shape_beside(x, like), axes=like.dynamic_axes)

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced, like: Traced) -> Traced:
        """A broadcast, or a gather of cells."""
        axes = like.axes
        if not x.axes:
            data = ctx.array(x)
            lead = jax.tree.leaves(like.data)[0].shape[: ctx.lead(axes)]
            return Traced(jnp.broadcast_to(data, (*lead, *data.shape)), axes)
        x = ctx.canonical(x)
        if len(axes) == 1:
            return Traced(ctx.layout(x.axes).at(x.data, 0), axes) if len(x.axes) > 1 else x
        return ctx.to_axes(x, axes)


@primitive("UnpackSequenceOp", 72)
class UnpackSequenceOp(Primitive):
    """Sequences as arrays: the steps become the first static axis, and shorter sequences are padded.

    Shapes: x [*shape] with a sequence axis -> [longest, *shape], and unless suppressed a mask [longest].
    Errors: AxisError for an operand without a sequence axis.
    """

    attributes = {"sequenceUnpackPaddingValue": Double, "sequenceUnpackSuppressMaskOutput": Bool(False)}
    packed = True
    infers_partially = True
    unpacks_sequences = True
    output_names = "", "_UnpackSequenceMask"

    def unpacked_padding(self, attrs: Attrs) -> Sequence[float]:
        """As the attribute says, and 0 in the mask."""
        return attrs["sequenceUnpackPaddingValue"], 0.0

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> list[Spec]:
        """A free axis before the shape."""
        (x,) = inputs
        n = 1 if attrs["sequenceUnpackSuppressMaskOutput"] else 2
        unknown = _axes_unknown(x)
        if not unknown:
            _needs_sequence(self.name, "operand", x)
        axes = UNKNOWN_AXES if unknown else (BATCH,)
        steps = UNKNOWN_SHAPE if is_unknown(x.shape) else (FREE, *x.shape)
        return [Spec(steps, axes=axes), Spec((FREE,), axes=axes, needs_gradient=False)][:n]

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced) -> list[Traced]:
        """The grid transposed where each row holds one sequence, otherwise a gather of cells."""
        layout, data = ctx.layout(x.axes), ctx.array(x)
        steps = jnp.arange(layout.time)
        if layout.simple:
            data = jnp.moveaxis(data, 0, 1)
        else:
            data = flat(data)[layout.cells(jnp.arange(layout.size)[:, None], steps[None, :])]
        mask = steps[None, :] < layout.length[:, None]
        if not layout.full:
            padding = jnp.asarray(attrs["sequenceUnpackPaddingValue"], data.dtype)
            data = jnp.where(expand_to(mask, data.ndim), data, padding)
        if ctx.masks and not layout.full:
            # What is masked later repeats the last step, so that neither it nor its gradient is less finite than that.
            data, mask = (_last_repeated(a, layout.longest) for a in (data, mask))
        outputs = [data, mask.astype(data.dtype)]
        return [Traced(d, (BATCH,)) for d in outputs[: 1 if attrs["sequenceUnpackSuppressMaskOutput"] else 2]]


def _last_repeated(data: Array, longest: Array) -> Array:
    """The last of these steps from there on. Shapes: data [batch, time, *shape]."""
    last = lax.dynamic_index_in_dim(data, jnp.maximum(longest - 1, 0), 1)
    steps = expand_to(jnp.arange(data.shape[1]), data.ndim - 1)
    return jnp.where(steps < longest, data, lax.stop_gradient(last))


def _without_steps(op: str, x: Edge) -> Shape:
    """The shape of a step of an array whose first axis becomes a sequence axis."""
    if x.dynamic_axes != (BATCH,):
        raise AxisError(explain(
            f"{op}: the operand needs the batch axis and no other dynamic axis", {"operand": x},
            "declare the input with cntk.input_variable, its first static axis for the steps",
        ))
    if not x.shape:
        raise AxisError(explain(
            f"{op}: the operand has no static axis for the steps", {"operand": x},
            "declare the input with the shape (steps, *shape); steps may be cntk.FreeDimension",
        ))
    return x.shape[1:]


def _needs_a_number_for_each_sample(op: str, lengths: Edge) -> None:
    if lengths.dynamic_axes not in (UNKNOWN_AXES, (BATCH,)) or (is_known(lengths.shape) and size(lengths.shape) != 1):
        raise AxisError(explain(
            f"{op}: the lengths are not one number for each array", {"lengths": lengths},
            "pass a variable of one element with the batch axis and no other dynamic axis",
        ))


_first_lengths: WeakKeyDictionary[Edge, ref[Edge]] = WeakKeyDictionary()


def _are_first_lengths(array: Edge, lengths: Edge) -> bool:
    """Whether these are the lengths that an array was first made sequences with.

    Their axis has a name and nothing else, as in model files, so that inputs along it match it there as well.
    """
    first = _first_lengths.get(array)
    if first is None or (variable := first()) is None:
        _first_lengths[array] = ref(lengths)
        return True
    return resolve(variable) is lengths


@primitive("ToSequenceOp", 70)
class ToSequenceOp(Primitive):
    """Arrays as sequences: the first static axis becomes a new sequence axis.

    Shapes: x [steps, *shape], lengths of one element (default: all steps) -> [*shape] with a new sequence axis.
    """

    attributes = {"sequenceAxis": String("toSequence_"), "newDynamicAxes": AxisOf(None).vector}
    packed = True
    infers_partially = True
    packs_sequences = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """The shape without its first axis, along an axis named after the operand."""
        x = inputs[0]
        if is_unknown(x.shape) or _axes_unknown(x):
            return Spec(UNKNOWN_SHAPE if is_unknown(x.shape) else x.shape[1:], axes=UNKNOWN_AXES)
        shape = _without_steps(self.name, x)
        for operand in inputs[1:]:
            _needs_a_number_for_each_sample(self.name, operand)
        lengths = resolve(inputs[-1])  # the array itself for all its steps
        axis = _new_axis(attrs["sequenceAxis"] + resolve(x).uid, lengths.uid, attrs)
        if not _are_first_lengths(resolve(x), lengths):
            axis = axis.with_lengths(lengths.uid)
        if not resolve(x).is_placeholder:  # the name comes with what replaces it
            attrs["newDynamicAxes"] = [axis, BATCH]
        return Spec(shape, axes=(BATCH, axis), dtype=x.dtype)

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced, *lengths: Traced) -> Traced:
        """One sequence in each row of the grid, unless data along the new axis are fed, which are packed already."""
        assert ctx.node is not None and ctx.batch is not None
        axes, data = ctx.node.node_outputs[0].dynamic_axes, ctx.array(x)
        rows, steps = data.shape[:2]
        length = jnp.full(rows, steps, jnp.int32)
        if lengths:
            length = jnp.clip(ctx.array(lengths[0]).reshape(rows).astype(jnp.int32), 0, steps)
        is_empty = steps == 0  # a convolution of sequences shorter than its window; a grid has a step all the same
        if is_empty:
            data = jnp.zeros((rows, 1, *data.shape[2:]), data.dtype)
        row = jnp.arange(rows, dtype=jnp.int32)
        if not ctx.batch.full:  # a full one may have another size than that which is fed
            length = jnp.where(ctx.batch.mask, length, 0)
        full = ctx.batch.full and not lengths and not is_empty
        new = Layout(row, jnp.zeros_like(row), length, data.shape[1], rows, simple=True, full=full)
        return Traced(_packed(ctx.layouts.setdefault(axes[1], new), data), axes)


@primitive("ToSequenceLikeOp", 71)
class ToSequenceLikeOp(Primitive):
    """Arrays as sequences along the axis of another operand, whose lengths they take.

    Shapes: x [steps, *shape], like with a sequence axis of at most `steps` steps -> [*shape].
    """

    packed = True
    infers_partially = True
    packs_sequences = True

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> Spec:
        """The shape without its first axis, the axes of the other operand."""
        x, like = inputs
        if is_unknown(x.shape) or _axes_unknown(x, like):
            return Spec(UNKNOWN_SHAPE, axes=like.dynamic_axes)
        _needs_sequence(self.name, "operand whose axes are taken", like)
        shape = _without_steps(self.name, x)
        return Spec(shape, axes=like.dynamic_axes, dtype=x.dtype)

    def place_in_output(self, attrs: Attrs, shapes: Sequence[Shape]) -> int | None:
        """None for the first axis, that in the first operand for others."""
        x, like = shapes
        return None if FREE in like else x.index(FREE) - len(x) if x[0] != FREE else IN_NONE

    def padding_value(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> float | None:
        """That of the first operand, of whose first axis the padding is left out."""
        x, _ = operands
        return x.padding if x.has_steps and x.shape[0] != FREE else None

    def ignores_padding(self, attrs: Attrs, operands: Sequence[PaddedOperand]) -> bool:
        """For the steps of the sequences whose axis the output has."""
        x, like = operands
        return x.has_steps and x.shape[0] == FREE and x.unpacked_axis == like.variable.sequence_axis

    def lower_packed(self, ctx: Context, attrs: Attrs, x: Traced, like: Traced) -> Traced:
        """The steps put into the cells of the grid."""
        return Traced(_packed(ctx.layout(like.axes), ctx.array(x)), like.axes)


def _packed(layout: Layout, data: Array) -> Array:
    """Steps put into the cells of the grid. Shapes: [size, steps, *shape] -> [time, rows, *shape]."""
    steps = data.shape[1]
    if layout.simple and steps >= layout.time:
        return jnp.moveaxis(data[:, : layout.time], 0, 1)
    return data[layout.seq, jnp.minimum(layout.position, steps - 1)]
