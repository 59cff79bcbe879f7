"""Minibatches on their way into a program: feeds packed into arrays of few shapes, with the layouts of sequences."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import jax
import numpy as np

from ..._best_effort import BestEffort
from ..._typing import AnyArray, Array
from ...graph.axis import Axis
from ...graph.errors import AxisError, BatchSizeError, ShapeError, explain
from ...graph.shape import filled
from ...graph.variable import Edge
from ..data.interchange import host_view
from ..data.layout import Batch, Layout
from ..data.packing import Columns, Grid, bucket, columns, with_padding
from ..data.ragged import Ragged, SparseRows
from ..data.shape_policy import Prices
from ..data.shapes import AxisTraits, MinibatchShape, MinibatchSpace
from ..data.sparse import Sparse
from ..lower.carry import Memory, slots_of
from ..plan.parts import resolve
from ..plan.plan import Plan
from .index_check import check_indices
from .prices import FREE
from .python_callbacks import CallbackResults
from .shape_choice import Agreed, Choice, Packing, ShapeChoice, Sizes

_PACKING = BestEffort("pack a minibatch in a better fitting shape", "it runs in the program that there is")

Feed = Ragged | np.ndarray | jax.Array
Feeds = Mapping[Edge, Feed]
PackedArray: TypeAlias = "AnyArray | Sparse"


class MinibatchColumns:
    """Where CNTK has the samples of a minibatch, in all its shares; see `Columns`.

    `count`: the number of sequences, or of samples without a sequence axis; None if only the program knows it.
    `slots`: see `columns`.
    """

    def __init__(
        self, count: int | None, lengths: Mapping[Axis, np.ndarray], slots: Mapping[Axis, np.ndarray | None]
    ) -> None:
        self._count, self._lengths, self._slots = count, lengths, slots
        self._of: dict[Axis | None, Columns | None] = {}

    @classmethod
    def of_feeds(cls, plan: Plan, feeds: Sequence[Feed]) -> MinibatchColumns:
        """Those of what is fed for the arguments of a plan; none if it draws no random numbers."""
        if not plan.random:
            return cls(None, {}, {})
        fed = [(v.sequence_axis, f) for v, f in zip(plan.arguments, feeds, strict=True) if isinstance(f, Ragged)]
        counts = {f.num_sequences for _, f in fed}
        along = {axis: f for axis, f in fed if axis is not None}
        lengths = {axis: f.lengths for axis, f in along.items() if f.lengths is not None}
        return cls(counts.pop() if len(counts) == 1 else None, lengths, {axis: f.slots for axis, f in along.items()})

    def of(self, axis: Axis | None) -> Columns | None:
        """The columns of samples along a sequence axis, or of the batch; None if only the program knows its lengths."""
        if axis not in self._of:
            if axis is not None:
                self._of[axis] = self._of_sequences(axis)
            else:
                n = self._count
                self._of[axis] = None if n is None else Columns(np.arange(n), n, max(n, 1))
        return self._of[axis]

    def _of_sequences(self, axis: Axis) -> Columns | None:
        return columns(self._lengths[axis], self._slots[axis]) if axis in self._lengths else None


@dataclass
class PackedMinibatch:
    """Arguments packed for a program, and what the host knows of their layouts.

    `signature` is equal for minibatches that run the same compiled computation. If sequences continue from the previous
    minibatch, `past` holds the values that each delay carries over, and `slots` the slot of each piece.
    """

    arguments: list[PackedArray]
    batch: Batch | None
    layouts: list[Layout]
    grids: dict[Axis, Grid]
    signature: Hashable
    past: list[Array | None]
    slots: dict[Axis, np.ndarray]
    shape: MinibatchShape
    work: float  # of the shape, see `MinibatchSpace`
    variant: Hashable  # what else decides on the program
    columns: MinibatchColumns
    callback_results: CallbackResults | None = None  # of user functions that were called for this minibatch before
    alternative: PackedMinibatch | None = None  # in shapes for which a program is wanted
    others: Sequence[PackedMinibatch] = ()  # the shares of further devices, in the same shapes

    def with_arguments(self, arguments: list[PackedArray]) -> PackedMinibatch:
        """One that differs in its data alone; in each evaluation, so by less than `replace` and `copy` do."""
        other = object.__new__(PackedMinibatch)
        other.__dict__ = self.__dict__ | {"arguments": arguments}
        return other

    def extend_signature(self, key: Hashable) -> None:
        """Distinguish computations by something besides their shapes."""
        for minibatch in (self, self.alternative):
            if minibatch is not None:
                minibatch.signature = (minibatch.signature, key)

    @property
    def count(self) -> int:
        """Number of sequences, or of samples without a sequence axis."""
        return 1 if self.batch is None else int(self.batch.count)

    def samples(self, axes: Sequence[Axis]) -> int | None:
        """Number of samples of a value with these axes, in all shares; None if only the program knows."""
        if self.others and axes:
            shares = [share.samples(axes) for share in (replace(self, others=()), *self.others)]
            return None if None in shares else sum(filter(None, shares))
        sequence = next((a for a in axes if a.is_sequence_axis), None)
        if sequence is not None:
            grid = self.grids.get(sequence)
            return None if grid is None else int(grid.length.sum())
        return self.count if axes else 1


Agree: TypeAlias = Callable[[Sequence[Sizes], Prices], Agreed | None]
"""The sizes of the minibatches of all workers, given this one's; None if some do not take part."""


class MinibatchPacker:
    """Packs what is fed for the arguments of a plan into arrays for the plan's program, in shapes that it chooses."""

    def __init__(self, plan: Plan, prices: Prices = FREE) -> None:
        self.plan, self.prices = plan, prices
        self.axes = list(dict.fromkeys(v.sequence_axis for v in plan.arguments if v.sequence_axis is not None))
        self.has_batch = any(v.dynamic_axes for v in plan.arguments)
        traits = (
            AxisTraits(
                axis in plan.loop_axes, plan.unpacks_sequences, axis in plan.unpacked_axes and plan.masks is None
            )
            for axis in self.axes
        )
        self.shapes = ShapeChoice(MinibatchSpace(tuple(traits), plan.needs_exact_batch), prices)

    def pack(
        self, plan: Plan, feeds: Sequence[Feed], memory: Memory, variant: Hashable = (), in_background: bool = False,
        shares: int = 1, agree: Agree | None = None,
    ) -> PackedMinibatch:
        """Pack feeds, which are in the order of the arguments of `plan`: this plan or one of the same structure.

        `memory`: what delays carry over from the previous minibatch. `variant`: what decides on the computation besides
        the shapes of arguments. `in_background`: a better shape is not used yet, but becomes the `alternative`.
        `shares`: into how many minibatches of the same shapes it is divided, by sequences; there are as many sequences,
        and none is a piece of a longer one. `agree`: learns the sizes of other workers' minibatches, so that all can
        have one shape.
        Errors: BatchSizeError for different numbers of sequences or samples; AxisError or ShapeError for sequences
                whose lengths do not agree; IndexRangeError for indices out of range.
        """
        check_indices(plan, feeds)
        columns = MinibatchColumns.of_feeds(self.plan, feeds)
        divided = _divided(feeds, shares, self.shapes.space.shares_rows)
        sizes = [self._sizes(plan, share, variant) for share in divided]
        _check_longest(plan, feeds)
        agreed = None if agree is None else agree(sizes, self.prices)
        if agreed is not None:
            sizes = [s._replace(variant=(s.variant, "of all workers")) for s in sizes]
        packings = self.shapes.choose(sizes, plan.arguments, agreed)
        better = self.shapes.improve(sizes, agreed)
        if better is not None and not in_background:
            self.shapes.policy(sizes[0].variant).add(better[0].shape)
            packings, better = better, None
        minibatch = self._packed_shares(packings, plan, divided, memory, sizes, columns)
        if better is not None:
            minibatch.alternative = _PACKING.attempt(self._packed_shares, better, plan, divided, memory, sizes, columns)
        return minibatch

    def _packed_shares(
        self, packings: Sequence[Packing], plan: Plan, divided: Sequence[Sequence[Feed]], memory: Memory,
        sizes: Sequence[Sizes], columns: MinibatchColumns,
    ) -> PackedMinibatch:
        shares = [
            self._packed(packing, plan, feeds, memory, s, columns)
            for packing, feeds, s in zip(packings, divided, sizes, strict=True)
        ]
        if len(shares) > 1:
            _number_samples(shares)
        shares[0].others = shares[1:]
        return shares[0]

    def _sizes(self, plan: Plan, feeds: Sequence[Feed], variant: Hashable) -> Sizes:
        """The sizes of what is fed. Errors: see `pack`."""
        count = common_count(plan.arguments, feeds) if self.has_batch else 0
        lengths: dict[Axis, np.ndarray] = {}
        for variable, feed in zip(plan.arguments, feeds, strict=True):
            axis = variable.sequence_axis
            if axis is None:
                continue
            assert isinstance(feed, Ragged) and feed.lengths is not None
            if not np.array_equal(lengths.setdefault(axis, feed.lengths), feed.lengths):
                raise AxisError(explain(
                    f"the sequences fed for {variable!r} have other lengths than those of another argument with the "
                    f"same sequence axis: {_abbreviated(feed.lengths)} against {_abbreviated(lengths[axis])}",
                    fix="feed sequences of the same lengths, or declare the arguments with different sequence axes",
                ))
        _check_equal_lengths(plan, lengths)
        _check_lengths_fit(plan, feeds, lengths)
        widths = tuple(map(_width, feeds))
        starts = any(isinstance(feed, Ragged) and feed.starts is not None for feed in feeds)
        samples = tuple(map(_sample_key, feeds))
        return Sizes(count, lengths, widths, (variant, starts, samples))

    def _packed(
        self, packing: Packing, plan: Plan, feeds: Sequence[Feed], memory: Memory, sizes: Sizes,
        columns: MinibatchColumns,
    ) -> PackedMinibatch:
        shape = packing.shape
        batch = Batch(np.int32(sizes.number), shape.batch, shape.full) if self.has_batch else None
        grids = dict(zip(self.axes, packing.grids, strict=True))
        arguments = [self._argument(i, feed, shape, batch, grids) for i, feed in enumerate(feeds)]
        slots = self._continue_sequences(grids, plan, feeds, memory)
        past = [memory.carried.value.values.get(n) for n in plan.delays] if slots else []
        layouts = [grids[axis].layout for axis in self.axes]
        signature = (
            batch and (batch.size, batch.full),
            tuple((g.index.shape, g.simple, g.full, g.origin is None) for g in grids.values()),
            tuple(shape_key(a) for a in arguments),
            tuple(None if p is None else p.shape for p in past),
        )
        work = self.shapes.space.work(shape)
        return PackedMinibatch(
            arguments, batch, layouts, grids, signature, past, slots, shape, work, sizes.variant, columns
        )

    def packed_like(self, minibatch: PackedMinibatch, feeds: Sequence[Feed]) -> PackedMinibatch:
        """Feeds of the sizes of those that this minibatch was packed from, packed in the same way.

        Arrays that are in that form already are not copied, so what runs with them has to be waited for.
        """
        shape, batch, grids = minibatch.shape, minibatch.batch, minibatch.grids
        arguments = [
            cast(Ragged, f).data if _is_packed(f, shape.batch) else self._argument(i, f, shape, batch, grids)
            for i, f in enumerate(feeds)
        ]
        return minibatch.with_arguments(cast("list[PackedArray]", arguments))

    def _argument(
        self, place: int, feed: Feed, shape: MinibatchShape, batch: Batch | None, grids: Mapping[Axis, Grid]
    ) -> PackedArray:
        """The packed feed of the argument at this place."""
        argument, width = self.plan.arguments[place], shape.widths[place]
        if not argument.dynamic_axes:
            return _own_copy(cast(AnyArray, feed))
        assert batch is not None and isinstance(feed, Ragged)
        axis = argument.sequence_axis
        if axis is None:
            return pad_rows(feed.data, batch.size, argument, width)
        return gather_rows(feed.data, grids[axis].index, argument, width)

    def choice(self, plan: Plan, feeds: Sequence[Feed], minibatch: PackedMinibatch) -> Choice:
        """What decided on the shape of a minibatch with these feeds; see `Choice`."""
        return self.shapes.choice(self._sizes(plan, feeds, ())._replace(variant=minibatch.variant))

    def _continue_sequences(
        self, grids: dict[Axis, Grid], plan: Plan, feeds: Sequence[Feed], memory: Memory
    ) -> dict[Axis, np.ndarray]:
        """Enter in the grids, where delays need it, which sequence continues which; the slots by axes of `plan`."""
        delayed_axes = {n.node_outputs[0].sequence_axis for n in self.plan.delays}
        slots: dict[Axis, np.ndarray] = {}
        for argument, variable, feed in zip(self.plan.arguments, plan.arguments, feeds, strict=True):
            axis, plan_axis = argument.sequence_axis, variable.sequence_axis
            if axis not in delayed_axes or not isinstance(feed, Ragged) or feed.starts is None or plan_axis in slots:
                continue
            assert axis is not None and plan_axis is not None
            grids[axis] = replace(grids[axis], origin=memory.origin(plan_axis, feed, len(grids[axis].length)))
            slots[plan_axis] = slots_of(feed)
        return slots


def _divided(feeds: Sequence[Feed], shares: int, by_samples: bool) -> list[Sequence[Feed]]:
    """The feeds of each share: its sequences, and all of what has no batch axis.

    All have about as many sequences, or `by_samples`, as many samples in them; each has at least one sequence.
    """
    if shares == 1:
        return [feeds]
    ragged = [feed for feed in feeds if isinstance(feed, Ragged)]
    lengths = [feed.lengths for feed in ragged if feed.lengths is not None] if by_samples else []
    ends = _ends(np.sum(lengths, axis=0) if lengths else np.ones(ragged[0].num_sequences, np.int32), shares)
    ranges = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    return [[feed.take(part) if isinstance(feed, Ragged) else feed for feed in feeds] for part in ranges]


def _ends(sizes: np.ndarray, parts: int) -> list[int]:
    """Where to cut a list for parts of about the same size; it has as many elements, and none is left empty."""
    part, number = np.arange(1, parts), len(sizes)
    middles = np.cumsum(sizes) - sizes / 2
    ends = np.searchsorted(middles, sizes.sum() / parts * part)
    return [*np.clip(ends, part, number - parts + part), number]


def _number_samples(shares: Sequence[PackedMinibatch]) -> None:
    """Let each share know how many samples are in those before it, and the longest sequences of all."""
    before, samples_before = 0, [0] * len(shares[0].layouts)
    longest = np.max([[layout.length.max() for layout in share.layouts] for share in shares], axis=0)
    for share in shares:
        assert share.batch is not None
        share.batch = replace(share.batch, first=np.int32(before))
        share.layouts = [
            replace(layout, first=np.int32(first), longest_of_all=np.int32(n))
            for layout, first, n in zip(share.layouts, samples_before, longest, strict=True)
        ]
        before += share.count
        samples_before = [n + int(g.length.sum()) for n, g in zip(samples_before, share.grids.values(), strict=True)]


def arguments_in_order(plan: Plan, feeds: Feeds) -> list[Feed]:
    """The feeds in the order of the plan's arguments. Errors: ValueError for an argument that is not fed."""
    by_variable = {resolve(v): feed for v, feed in feeds.items()}
    missing = [v for v in plan.arguments if v not in by_variable]
    if missing:
        raise ValueError(explain(
            "no data are fed for " + ", ".join(f"argument {v.name or v.uid!r}" for v in missing),
            {"missing": missing[0]}, "give an array for each argument: {argument: array, ...}",
        ))
    return [by_variable[v] for v in plan.arguments]


def pad_rows(data: AnyArray | SparseRows, size: int, variable: Edge, width: int = 0) -> PackedArray:
    """Samples and padding behind them.

    Shapes: data [count, *shape] -> [size, *shape]. `width`: see `_pack_sparse`.
    """
    if isinstance(data, SparseRows):
        return gather_rows(data, _padded(len(data), size), variable, width)
    return _own_copy(data) if len(data) == size else gather_rows(data, _padded(len(data), size), variable)


def _is_packed(feed: Feed, size: int) -> bool:
    """True for dense samples without sequences, as many as the program takes."""
    return (
        isinstance(feed, Ragged) and feed.lengths is None and isinstance(feed.data, np.ndarray)
        and len(feed.data) == size
    )


def _padded(count: int, size: int) -> np.ndarray:
    index = np.arange(size)
    return with_padding(index, index < count)


def _own_copy(data: AnyArray) -> AnyArray:
    """An array that stays as it is, whatever the caller writes to its own afterwards.

    jax on the CPU reads a NumPy array in place, and a step may still run when `train_minibatch` has returned.
    """
    return data.copy() if isinstance(data, np.ndarray) else data


def gather_rows(
    data: AnyArray | SparseRows, index: np.ndarray, variable: Edge, width: int = 0
) -> PackedArray:
    """The samples with these indices. `width`: see `_pack_sparse`.

    Shapes: data [samples, *shape], index [time, rows] -> [time, rows, *shape].
    """
    if isinstance(data, SparseRows):
        return _pack_sparse(data, index, variable, width)
    data = host_view(data)
    return data.take(index, axis=0) if isinstance(data, np.ndarray) else data[index]


def shape_key(array: PackedArray) -> Hashable:
    """What a compiled computation depends on in an argument."""
    if isinstance(array, Sparse):  # its type is that of the variable
        return array.indices.shape, array.values is None, array.shape
    return array.shape, array.dtype


def unequal_lengths(a: Edge, b: Edge, lengths_a: np.ndarray, lengths_b: np.ndarray) -> AxisError:
    """The error for two variables whose sequences would have to be of equal lengths."""
    return AxisError(explain(
        f"sequences that are combined step by step differ in length: "
        f"{_abbreviated(lengths_a)} against {_abbreviated(lengths_b)}",
        {"operand": a, "like": b}, "feed sequences of the same lengths, or conditions that are true equally often",
    ))


def common_count(arguments: Sequence[Edge], feeds: Sequence[Feed]) -> int:
    """The number of sequences or samples that are fed, of the arguments that have a batch axis.

    Errors: BatchSizeError where it differs.
    """
    counts = {v: f.num_sequences for v, f in zip(arguments, feeds, strict=True) if isinstance(f, Ragged)}
    if len(set(counts.values())) > 1:
        raise BatchSizeError(explain(
            "the arguments are fed with different numbers of sequences or samples: "
            + ", ".join(f"{v!r}: {n}" for v, n in counts.items()),
            fix="feed the same number for all arguments",
        ))
    return next(iter(counts.values()))


def _check_equal_lengths(plan: Plan, lengths: Mapping[Axis, np.ndarray]) -> None:
    for a, b in plan.equal_lengths:
        assert a.sequence_axis is not None and b.sequence_axis is not None
        of_a, of_b = lengths.get(a.sequence_axis), lengths.get(b.sequence_axis)
        if of_a is not None and of_b is not None and not np.array_equal(of_a, of_b):
            raise unequal_lengths(a, b, of_a, of_b)


def _check_lengths_fit(plan: Plan, feeds: Sequence[Feed], lengths_of: Mapping[Axis, np.ndarray]) -> None:
    """ShapeError if a sequence would have more steps than its array, as far as this is known before the run."""
    if not plan.packed_arrays:
        return
    fed = {
        v: feed.data
        for v, feed in zip(plan.arguments, feeds, strict=True)
        if isinstance(feed, Ragged) and not isinstance(feed.data, SparseRows)
    }
    for array, lengths_from in plan.packed_arrays:
        axis = lengths_from.sequence_axis
        if (axis not in lengths_of if axis else lengths_from not in fed) or (array.shape[0] < 0 and array not in fed):
            continue
        steps = fed[array].shape[1] if array in fed else array.shape[0]
        lengths = np.asarray(lengths_of[axis] if axis else fed[lengths_from])
        if lengths.size and not 0 <= lengths.min() <= lengths.max() < steps + 1:
            raise ShapeError(explain(
                f"sequences of {_abbreviated(lengths.ravel())} steps are to be made of arrays of {steps}",
                fix="give lengths that are at most the first dimension of the arrays, or longer arrays",
            ))


def _check_longest(plan: Plan, feeds: Sequence[Feed]) -> None:
    """ShapeError if arrays become sequences as long as others and have not as many steps as the longest, as in CNTK.

    As far as this is known before the run; the minibatch is not divided yet, in which a part may have shorter ones.
    """
    fed = {v: feed for v, feed in zip(plan.arguments, feeds, strict=True) if isinstance(feed, Ragged)}
    for array, like in plan.packed_arrays if fed else ():
        axis = like.sequence_axis
        longest = next((f.lengths.max(initial=0) for v, f in fed.items()
                        if axis and v.sequence_axis == axis and f.lengths is not None), 0)
        data = fed[array].data if array in fed else None
        steps = array.shape[0] if data is None or isinstance(data, SparseRows) else data.shape[1]
        if longest and 0 <= steps != longest:
            raise ShapeError(explain(
                f"the first dimension of arrays that become sequences, {steps}, does not match the longest sequence "
                f"whose length they take, {longest}",
                {"like": like}, "give arrays of as many steps as the longest sequence has, or slice them",
            ))


def _pack_sparse(rows: SparseRows, index: np.ndarray, variable: Edge, width: int) -> Sparse:
    """The sparse samples with these indices, in the padded form that programs take.

    `width`: the number of elements for which a sample has room; 0: one-hot if they are, otherwise as many as it takes.
    """
    shape = filled(variable.shape, rows.width)
    assert shape is not None
    if rows.is_one_hot and not width:
        return Sparse(rows.indices[index].astype(np.int32), None, shape, np.dtype(variable.dtype))
    width = width or _width_of(rows)
    counts = np.diff(rows.indptr)
    slot = np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], counts)
    row = np.repeat(np.arange(len(rows)), counts)
    indices = np.zeros((len(rows), width), np.int32)
    values = np.zeros((len(rows), width), variable.dtype)
    indices[row, slot], values[row, slot] = rows.indices, rows.values
    return Sparse(indices[index], values[index], shape, np.dtype(variable.dtype))


def _width_of(rows: SparseRows) -> int:
    return bucket(max(int(np.diff(rows.indptr).max(initial=1)), 1))


def _width(feed: Feed) -> int:
    """See `Need.widths`."""
    is_list = isinstance(feed, Ragged) and isinstance(feed.data, SparseRows) and not feed.data.is_one_hot
    return _width_of(cast(SparseRows, cast(Ragged, feed).data)) if is_list else 0


def _sample_key(feed: Feed) -> Hashable:
    """What a compiled computation depends on in a feed besides its type and the number of samples."""
    if not isinstance(feed, Ragged):
        return np.shape(feed)
    data = feed.data
    return data.width if isinstance(data, SparseRows) else data.shape[1:]


def size_key(feed: Feed) -> Hashable:
    """Equal for feeds of one argument that are packed alike; None for sequences that continue others."""
    if not isinstance(feed, Ragged):
        return feed.shape, feed.dtype
    lengths = feed.lengths
    if feed.starts is not None:
        return None
    return _sample_key(feed), _width(feed), len(feed.data), feed.dtype, None if lengths is None else lengths.tobytes()


def _abbreviated(lengths: np.ndarray) -> str:
    text = ", ".join(str(n) for n in lengths[:5])
    return f"[{text}{', ...' if len(lengths) > 5 else ''}]"


__all__ = [
    "Agree", "Feed", "Feeds", "MinibatchColumns", "PackedMinibatch", "MinibatchPacker", "PackedArray",
    "arguments_in_order", "common_count", "gather_rows", "pad_rows", "shape_key", "size_key", "unequal_lengths",
]
