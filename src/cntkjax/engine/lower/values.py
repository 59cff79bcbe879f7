"""The data of a variable inside a program, and the context in which primitives compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from ..._typing import Array, DTypeLike, PyTree
from ...graph.axis import Axis
from ...graph.errors import AxisError, explain
from ...graph.function import Node
from ...graph.shape import FREE
from ...graph.variable import Edge, Leaf
from ..data.dimensions import flat
from ..data.layout import Batch, Layout
from ..data.sparse import Sparse, dense
from ..plan.padding import Mask
from ..plan.parts import resolve

Axes = tuple[Axis, ...]


@dataclass(frozen=True)
class Traced:
    """The data of a variable: an array, or `Sparse`.

    Shapes: data is [*shape] without dynamic axes, [batch, *shape] with the batch axis, [time, rows, *shape] with a
            sequence axis too ([rows, *shape] inside the loop over that axis). With `channels_last` a sample
            (C, *spatial) is stored as (*spatial, C); `Context.array` returns it in the order of the sample shape.
    `integers`: the same numbers as they were fed, if the type of the variable cannot hold them.
    """

    data: PyTree
    axes: Axes
    channels_last: bool = False
    integers: Array | None = None

    @property
    def is_sparse(self) -> bool:
        """True if the data are `Sparse`."""
        return isinstance(self.data, Sparse)


def _itself(value: Any) -> Any:
    return value


@dataclass
class LoopStep:
    """The current step of a loop: its axis, and the layout at this step.

    Shapes: seq, position, remaining int32 [rows], mask bool [rows], time int32 scalar.
    """

    axis: Axis
    seq: Array
    position: Array
    remaining: Array
    mask: Array
    time: Array


@dataclass
class Context:
    """What the computation of a primitive may depend on besides its operands, while a program is traced."""

    training: bool
    batch: Batch | None
    layouts: dict[Axis, Layout]
    stream_of: Callable[[Node], tuple[Array, Array | int]]
    random_numbers: dict[Node, Traced] = field(default_factory=dict)  # drawn on the host before the program runs
    differentiates: bool = False  # a backward pass follows, as always in a training step
    forward_only: bool = False  # nothing here is differentiated, by us or by whoever runs the traced function
    updates: dict[Leaf, Array] = field(default_factory=dict)  # new values of assigned leaves
    python_calls: list[Array] = field(default_factory=list)  # the numbers of the calls of users' functions
    node: Node | None = None  # the node that is being computed, and all values computed before it
    env: dict[Edge, Traced] | None = None
    step: LoopStep | None = None
    carried_in: dict[Node, Array] = field(default_factory=dict)  # last values of delays in the previous minibatch
    carried_out: dict[Node, Array] = field(default_factory=dict)  # and in this one
    operands: dict[Node, list[Traced]] = field(default_factory=dict)  # of nodes whose operands are replaced
    total: Callable[[Any], Any] = _itself  # the sum over the shares of the minibatch that other devices compute
    masks: Mapping[Node, Mask] = field(default_factory=dict)  # of operands; see `plan.padding`
    looped_nodes: int = 0  # in all loops of the plan
    product_dtype: DTypeLike | None = None  # of products with weights in mixed precision; None: that of their operands

    def lead(self, axes: Axes) -> int:
        """The number of leading dimensions of the data that are dynamic."""
        if not axes:
            return 0
        sequence = self.sequence_axis(axes)
        return 1 if sequence is None or (self.step is not None and sequence == self.step.axis) else 2

    @staticmethod
    def sequence_axis(axes: Axes) -> Axis | None:
        """The sequence axis among the axes."""
        return next((a for a in axes if a.is_sequence_axis), None)

    def layout(self, axes: Axes) -> Layout:
        """The layout of the sequence axis among the axes.

        Errors: AxisError if no input has that sequence axis.
        """
        axis = self.sequence_axis(axes)
        if axis is None or axis not in self.layouts:
            raise AxisError(explain(
                f"no input has the sequence axis {axis!r}, so the lengths of its sequences are not known",
                fix="give a sequence input of the graph this axis, or use that of an input",
            ))
        return self.layouts[axis]

    def extent(self, place: int, ndim: int) -> tuple[int, Array] | None:
        """Which dimension of an operand's data has unpacked steps, and their number, if the node masks those beyond.

        `place`: of the operand of the current node; `ndim`: that of its data.
        """
        mask = None if self.node is None else self.masks.get(self.node)
        if mask is None or self.node is None or (layout := self.layout((mask.axis,))).full:
            return None
        shape = resolve(self.node.node_inputs[place]).shape
        return (ndim - len(shape) + shape.index(FREE), layout.longest) if FREE in shape else None

    def mask(self, axes: Axes) -> Array:
        """True for samples, False for padding. Shapes: the dynamic dimensions of data with these axes."""
        sequence = self.sequence_axis(axes)
        if sequence is not None:
            return self.step.mask if self.step is not None and sequence == self.step.axis else self.layout(axes).mask
        return self.batch.mask if axes and self.batch is not None else jnp.asarray(True)

    def has_padding(self, axes: Axes) -> bool:
        """False if it is known that there is no padding."""
        if not axes:
            return False
        if self.sequence_axis(axes) is not None:
            return not self.layout(axes).full
        return self.batch is not None and not self.batch.full

    def count(self, value: Traced) -> Array:
        """The number of samples of a value, int32 scalar (1 without dynamic axes)."""
        if not self.has_padding(value.axes):
            cells = jax.tree.leaves(value.data)[0].shape[: self.lead(value.axes)]
            return jnp.asarray(prod(cells), jnp.int32)
        return jnp.sum(self.mask(value.axes), dtype=jnp.int32)

    def key(self) -> Array:
        """A fresh random key for the node being computed, in a loop another one for each step."""
        return jax.random.fold_in(*self.stream())

    def draw(self, axes: Axes, draw: Callable[[Array], Array]) -> Array:
        """Random numbers for a value with these axes: `draw` of a key for each sample.

        They depend on the number of the sample in the minibatch, and not on the cell in which it is.
        Shapes: draw: key -> [*shape]; the result is [*dynamic dimensions, *shape].
        """
        assert self.node is not None
        sequence = self.sequence_axis(axes)
        if not axes:
            return draw(self.key())
        if sequence is None:
            key, sample = self.key(), jnp.arange(0) if self.batch is None else self.batch.numbers()
        else:
            key, layout = jax.random.fold_in(*self.stream_of(self.node)), self.layout(axes)
            place = self.step if self.step is not None and sequence == self.step.axis else layout
            sample = layout.first_samples()[place.seq] + place.position
        for _ in range(sample.ndim):
            draw = jax.vmap(draw)
        return draw(_folded(key, sample))

    def stream(self) -> tuple[Array, Array | int]:
        """The random key of the node being computed, in a loop another one for each step, and its offset."""
        assert self.node is not None
        key, offset = self.stream_of(self.node)
        return (key if self.step is None else jax.random.fold_in(key, self.step.time)), offset

    def drawn(self) -> Traced | None:
        """The random numbers drawn on the host for the node being computed; None if it draws them by `key`."""
        numbers = None if self.node is None else self.random_numbers.get(self.node)
        if numbers is None:
            return None
        if self.step is not None and self.sequence_axis(numbers.axes) == self.step.axis:
            return replace(numbers, data=numbers.data[self.step.time])
        return numbers

    def update(self, leaf: Leaf, value: Array) -> None:
        """Set a parameter or constant to a new value after the whole forward pass."""
        self.updates[leaf] = value

    # ---- changing the form of values
    def array(self, value: Traced) -> Array:
        """Dense data in the order of the sample shape."""
        return self.canonical(value).data

    def data(self, value: Traced) -> PyTree:
        """Sparse data unchanged, dense data in the order of the sample shape."""
        return value.data if value.is_sparse else self.array(value)

    def canonical(self, value: Traced) -> Traced:
        """The value with dense data in the order of the sample shape."""
        if value.channels_last:
            return Traced(jnp.moveaxis(value.data, -1, self.lead(value.axes)), value.axes)
        return replace(value, data=dense(value.data)) if value.is_sparse else value

    def to_axes(self, value: Traced, axes: Axes) -> Traced:
        """A value broadcast to more dynamic axes, or along another sequence axis step by step.

        Static values are returned unchanged.
        """
        old, new = self.sequence_axis(value.axes), self.sequence_axis(axes)
        if not value.axes or old == new:
            return value
        layout = self.layout(axes)
        step = self.step
        if old is not None:
            cells = self.layout(value.axes).cells(layout.seq, layout.position)
            data = jax.tree.map(lambda d: flat(d)[cells], value.data)
        elif step is not None and new == step.axis:
            data = jax.tree.map(lambda d: d if layout.simple else d[step.seq], value.data)
        else:
            data = jax.tree.map(layout.spread, value.data)
        return replace(value, data=data, axes=axes)


def _folded(key: Array, numbers: Array) -> Array:
    """A key for each number. Shapes: numbers [*shape] -> keys [*shape]."""
    fold = partial(jax.random.fold_in, key)
    for _ in range(numbers.ndim):
        fold = jax.vmap(fold)
    return fold(numbers)


Environment = dict[Edge, Traced]
LayoutArrays = tuple[list[Layout], Batch | None]


def layouts_as_arguments(ctx: Context) -> tuple[LayoutArrays, Callable[[LayoutArrays], Context]]:
    """The layouts of a context as an argument, and the context with such an argument in their place.

    For functions with a gradient of their own: these are traced again later, when they must not hold on to arrays of
    the trace in which they were defined.
    """
    axes = list(ctx.layouts)

    def with_layouts(arrays: LayoutArrays) -> Context:
        layouts, batch = arrays
        return replace(ctx, layouts=dict(zip(axes, layouts, strict=True)), batch=batch)

    return (list(ctx.layouts.values()), ctx.batch), with_layouts


def common_axes(values: Sequence[Traced]) -> Axes:
    """The dynamic axes of values that are computed together."""
    return max((v.axes for v in values), key=len, default=())
