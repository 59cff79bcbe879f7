"""Functions that users write in Python, called from inside compiled programs."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import AnyArray, Array, DTypeLike
from ..engine.data.ragged import Ragged
from ..engine.lower.values import Axes, Context, Traced
from ..engine.plan.parts import resolve
from ..engine.run.python_callbacks import OutputResized, call_once, callback
from ..graph.build import Spec
from ..graph.errors import BatchSizeError, ResultError, explain
from ..graph.function import Node
from ..graph.shape import FREE, Shape, filled, matches
from ..graph.variable import Edge, producer
from .base import Attrs, Primitive

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_NUMBERS = itertools.count()

# Data as users get and return them: an array [*shape], or [samples, *shape] with the batch axis, or a list of sequences
# [steps, *shape]; sparse operands are CSR matrices.
UserData: TypeAlias = "np.ndarray | csr_matrix | Sequence[np.ndarray | csr_matrix]"
Feed: TypeAlias = "Ragged | np.ndarray"


class PythonFunction(Protocol):
    """What is called of a user's function; `UserFunction` provides it."""

    @property
    def node_inputs(self) -> Sequence[Edge]:
        """The operands."""

    @property
    def node_outputs(self) -> Sequence[Edge]:
        """The outputs."""

    def output_specs(self) -> list[Spec]:
        """The shapes and axes of the outputs."""

    def copied(self, inputs: Sequence[Edge], /) -> Node:
        """The function with other operands."""

    def run_forward(self, operands: list[UserData], keep: bool, /) -> tuple[object, Sequence[UserData]]:
        """The state for the backward pass if it is kept, and the outputs."""

    def run_backward(
        self, state: object, gradients: list[UserData], needed: list[bool], /
    ) -> Sequence[UserData | None]:
        """The gradients of the operands."""

    def serialize(self) -> dict[str, Any]:
        """The record of the function in a model file."""


class UserDefined(Primitive):
    """Calls the methods of one function object; each is a primitive with programs of its own.

    Shapes: those of the function's `infer_outputs`.
    """

    name = "UserFunction"
    packed = True
    infers_partially = True
    calls_python = True
    runs_on_host = True

    def __init__(self, function: PythonFunction) -> None:
        self.function = function
        self.states: dict[int, object] = {}  # what forward saves for backward, by the number of the call
        self.samples: dict[int, Shape] = {}  # the last sample shapes, by the number of an output with free axes

    def outputs(self, inputs: Sequence[Edge], attrs: Attrs) -> list[Spec]:
        """The shapes that the user declared, along the axes of the operands: those of a copy may be others."""
        own = {v.dynamic_axes: given.dynamic_axes for v, given in zip(self.function.node_inputs, inputs, strict=True)}
        specs = self.function.output_specs()
        for spec in specs:
            spec.axes = own.get(spec.axes, spec.axes)  # type: ignore[arg-type]
        return specs

    def cache_key(self, node: Node) -> Hashable:
        """The primitive itself."""
        return self

    def free_dimension_sizes(self) -> Hashable:
        """The last sample shapes of outputs with free axes."""
        return tuple(self.samples.items())

    def copy(self, node: Node, inputs: Sequence[Edge]) -> Node:
        """The user's function with other operands."""
        return self.function.copied(inputs)

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Traced) -> list[Traced]:
        """Two callbacks; the forward one returns a number that identifies the state for the backward one.

        The forward one also gets the number of the call before it, so that functions are called in the order of the
        graph, as in CNTK: they may draw numbers from one generator.
        """
        assert ctx.node is not None
        outputs = ctx.node.node_outputs  # of a copy, which may be along other axes than those of the function
        data = [ctx.array(v) for v in values]
        call = _Call.of(self, ctx, values, data)
        before = ctx.python_calls[-1:]
        where = [f.where for f in call.input_formats], [f.where for f in call.output_formats], before
        results = (call.output_shapes, jax.ShapeDtypeStruct((), jnp.int32))

        @jax.custom_vjp
        def run(data: list[Array], where: Any) -> tuple[list[Array], Array]:
            return callback(partial(call.forward, False), results, data, where)

        def forward(data: list[Array], where: Any) -> tuple[tuple[list[Array], Array], tuple[Array, Any]]:
            arrays, number = callback(partial(call.forward, True), results, data, where)
            return (arrays, number), (number, where)

        def backward(saved: tuple[Array, Any], gradients: tuple[list[Array], Any]) -> tuple[list[Array], None]:
            number, where = saved
            return callback(call.backward, call.input_shapes, number, gradients[0], where), None

        run.defvjp(forward, backward)
        flows = any(call.needed) and any(v.needs_gradient for v in outputs)
        arrays, number = run(data if flows else jax.lax.stop_gradient(data), where)
        ctx.python_calls.append(number)
        stopped = [d if v.needs_gradient else jax.lax.stop_gradient(d) for d, v in zip(arrays, outputs, strict=True)]
        return [Traced(d, v.dynamic_axes) for d, v in zip(stopped, outputs, strict=True)]

    def forward_on_host(self, feeds: Sequence[Feed], keep: bool) -> tuple[object, list[Feed]]:
        """The state, and the outputs as feeds, from feeds of the operands, with any number of samples."""
        operands = [_from_feed(v, f) for v, f in zip(self.function.node_inputs, feeds, strict=True)]
        state, results = call_once(self, lambda: self.function.run_forward(operands, keep))
        return state, [_to_feed(v, r) for v, r in zip(self.function.node_outputs, results, strict=True)]

    def backward_on_host(
        self, state: object, feeds: Sequence[Feed], gradients: Sequence[Feed]
    ) -> list[Feed | None]:
        """The gradients of the operands, in the format of their feeds, or None, from those of the outputs."""
        inputs, outputs = self.function.node_inputs, self.function.node_outputs
        needed = [_needs_gradient(v) for v in inputs]
        if not any(needed) or not any(v.needs_gradient for v in outputs):
            return [None] * len(inputs)
        output_gradients = [_from_feed(v, g) for v, g in zip(outputs, gradients, strict=True)]
        results = self.function.run_backward(state, output_gradients, needed)
        return [
            None if r is None else _to_feed(v, r, _Format.of_feed(f))
            for v, f, r in zip(inputs, feeds, results, strict=True)
        ]


@dataclass(frozen=True)
class _Call:
    """One place in a program that calls a user's function: the formats and shapes of its operands and outputs.

    `needed`: which operands need a gradient. `saves_state`: a backward pass follows, though no gradient may flow
    through the function.
    """

    primitive: UserDefined
    input_formats: list[_Format]
    input_shapes: list[jax.ShapeDtypeStruct]
    output_formats: list[_Format]
    output_shapes: list[jax.ShapeDtypeStruct]
    needed: list[bool]
    saves_state: bool

    @classmethod
    def of(cls, primitive: UserDefined, ctx: Context, values: Sequence[Traced], data: Sequence[Array]) -> _Call:
        """The call of a node with these operands."""
        function, outputs = primitive.function, primitive.function.node_outputs
        formats = [
            replace(_Format.of(ctx, x.axes), is_sparse=_is_sparse(v, x.is_sparse))
            for v, x in zip(function.node_inputs, values, strict=True)
        ]
        assert ctx.node is not None
        output_formats = [_Format.of(ctx, v.dynamic_axes) for v in ctx.node.node_outputs]
        samples = [
            primitive.samples.get(i) or _guess_sample(function, v, formats, data) for i, v in enumerate(outputs)
        ]
        output_shapes = [
            jax.ShapeDtypeStruct((*f.lead, *sample), v.dtype)
            for f, sample, v in zip(output_formats, samples, outputs, strict=True)
        ]
        input_shapes = [jax.ShapeDtypeStruct(d.shape, d.dtype) for d in data]
        needed = [_needs_gradient(v) for v in function.node_inputs]
        saves_state = ctx.training or ctx.differentiates
        return cls(primitive, formats, input_shapes, output_formats, output_shapes, needed, saves_state)

    def forward(self, keep: bool, data: Sequence[AnyArray], where: Any) -> tuple[list[np.ndarray], np.int32]:
        """The outputs, packed for the program, and the number of the call, under which the state is kept."""
        function = self.primitive.function
        of_inputs, of_outputs, _ = jax.tree.map(np.asarray, where)
        # Copies: users may modify them, and arrays of a program are read-only.
        operands = [f.unpack(np.array(d), w) for f, d, w in zip(self.input_formats, data, of_inputs, strict=True)]
        state: object = None
        if _are_empty(operands):  # a step in which no sequence is left
            results: Sequence[UserData] = [list[np.ndarray]() for _ in self.output_formats]
        else:
            state, results = call_once(self.primitive, lambda: function.run_forward(operands, self.saves_state))
            self._check_sizes(results)
        number = np.int32(next(_NUMBERS) % 2**31)
        if keep:
            self.primitive.states[int(number)] = state
        columns = (self.output_formats, results, of_outputs, self.output_shapes, function.node_outputs)
        return [f.pack(r, w, s, v) for f, r, w, s, v in zip(*columns, strict=True)], number

    def backward(self, number: AnyArray, gradients: Sequence[AnyArray], where: Any) -> list[np.ndarray]:
        """The gradients of the operands, packed for the program; zeros where the function returns none."""
        function = self.primitive.function
        of_inputs, of_outputs, _ = jax.tree.map(np.asarray, where)
        state = self.primitive.states.pop(int(number))
        output_gradients = [
            f.unpack(np.array(g), w) for f, g, w in zip(self.output_formats, gradients, of_outputs, strict=True)
        ]
        results: Sequence[UserData | None] = [None] * len(self.input_formats)
        if not _have_no_sequences(output_gradients):
            results = function.run_backward(state, output_gradients, self.needed)
        columns = (self.input_formats, results, of_inputs, self.input_shapes, function.node_inputs)
        return [
            np.zeros(s.shape, s.dtype) if r is None else f.pack(r, w, s, v, fill=False)
            for f, r, w, s, v in zip(*columns, strict=True)
        ]

    def _check_sizes(self, results: Sequence[UserData]) -> None:
        """Record the sizes of free axes. Errors: OutputResized if the program was compiled with others."""
        before = self.primitive.free_dimension_sizes()
        columns = (self.output_formats, self.output_shapes, results, self.primitive.function.node_outputs)
        for i, (f, shape, result, v) in enumerate(zip(*columns, strict=True)):
            sample = f.sample(result, len(v.shape)) if FREE in v.shape else None
            if sample is not None and matches(v.shape, sample) and sample != shape.shape[len(f.lead) :]:
                self.primitive.samples[i] = sample
        if self.primitive.free_dimension_sizes() != before:
            raise OutputResized


def _have_no_sequences(data: Sequence[UserData]) -> bool:
    """Whether all are empty lists: no sequence is left."""
    return all(isinstance(d, list) and not d for d in data)


def _are_empty(data: Sequence[UserData]) -> bool:
    return bool(data) and _have_no_sequences(data)


def _needs_gradient(variable: Edge) -> bool:
    """Whether a gradient flows to a variable; inside a block, whose arguments never need one, to its operands."""
    visited: set[Edge] = set()
    waiting = [resolve(variable)]
    while waiting:
        v = waiting.pop()
        if v.needs_gradient:
            return True
        if v not in visited and (node := producer(v)) is not None:
            waiting += map(resolve, node.node_inputs)
        visited.add(v)
    return False


@dataclass(frozen=True)
class _Format:
    """The layout of data with some dynamic axes in arrays of a program, and its conversion to and from `UserData`.

    Inside a loop users get sequences of the one step that is computed. `lead` are the leading dimensions of the array,
    `where` describes its sequences or samples. `is_sparse`: whether users get CSR matrices.
    """

    kind: str
    lead: tuple[int, ...] = ()
    where: tuple[Any, ...] = ()
    is_sparse: bool = False

    @classmethod
    def of(cls, ctx: Context, axes: Axes) -> _Format:
        """The format in a program."""
        sequence = ctx.sequence_axis(axes)
        if not axes:
            return cls("static")
        assert ctx.batch is not None
        if sequence is None:
            return cls("batch", (ctx.batch.size,), (ctx.batch.count,))
        layout = ctx.layout(axes)
        if ctx.step is not None and sequence == ctx.step.axis:
            return cls("step", (layout.rows,), (ctx.step.mask,))
        where = layout.row, layout.start, layout.length, ctx.batch.count
        return cls("sequences", (layout.time, layout.rows), where)

    @classmethod
    def concatenated(cls, count: int, lengths: np.ndarray | None) -> _Format:
        """The format outside of programs: samples end to end."""
        return cls("batch", (count,), (count,)) if lengths is None else cls("end to end", (count,), (lengths,))

    @classmethod
    def of_feed(cls, feed: Feed) -> _Format:
        """The format of a feed."""
        return cls.concatenated(feed.num_samples, feed.lengths) if isinstance(feed, Ragged) else cls("static")

    @classmethod
    def of_result(cls, variable: Edge, result: UserData) -> _Format:
        """The format of a user's result, outside of programs."""
        if not variable.dynamic_axes:
            return cls("static")
        rank = len(variable.shape)
        if variable.sequence_axis is None:
            return cls.concatenated(len(_batch(result, rank)), None)
        lengths = np.array([len(s) for s in _sequences(result, rank)], np.int32)
        return cls.concatenated(int(lengths.sum()), lengths)

    def _slices(self, where: Any) -> list[Any]:
        """The index of each sequence in the array."""
        if self.kind == "step":
            return [np.s_[r : r + 1] for r in np.flatnonzero(where[0])]
        if self.kind == "end to end":
            return [np.s_[end - n : end] for end, n in zip(np.cumsum(where[0]), where[0], strict=True)]
        row, start, length, count = where
        return [np.s_[start[i] : start[i] + length[i], row[i]] for i in range(count)]

    def unpack(self, data: np.ndarray, where: Any) -> UserData:
        """The data of a program, for users."""
        if self.kind == "static":
            return data
        convert = _csr if self.is_sparse else np.asarray
        if self.kind == "batch":
            return convert(data[: int(where[0])])
        return [convert(data[p]) for p in self._slices(where)]

    def sample(self, result: UserData, rank: int) -> Shape | None:
        """The shape of a sample in a user's result; None if there are no samples."""
        if self.kind == "static":
            return np.shape(result)
        if self.kind == "batch":
            return _batch(result, rank).shape[1:]
        sequences = _sequences(result, rank)
        return np.shape(sequences[0])[1:] if len(sequences) else None

    def pack(
        self, result: UserData, where: Any, like: jax.ShapeDtypeStruct, variable: Edge, fill: bool = True
    ) -> np.ndarray:
        """A user's result as an array of a program; padding is zero, or with `fill` the first sample.

        Errors: ResultError if the result is no data, or of another shape than the variable; BatchSizeError for values
                of another number of samples.
        """
        with _converting(result, variable):
            return self._pack(result, where, like, variable, fill)

    def _pack(
        self, result: UserData, where: Any, like: jax.ShapeDtypeStruct, variable: Edge, fill: bool
    ) -> np.ndarray:
        sample = like.shape[len(self.lead) :]
        if self.kind == "static":
            return _checked(result, sample, like.dtype, variable)
        data = np.zeros(like.shape, like.dtype)
        if self.kind != "batch":
            return self._pack_sequences(_sequences(result, len(sample)), self._slices(where), data, variable, fill)
        count, batch = int(where[0]), _batch(result, len(sample))
        if fill and batch.shape[1:] == sample and 0 < len(batch) != count:
            raise _batch_size_error(variable, len(batch), count)
        data[:count] = _checked(batch, (count, *sample), like.dtype, variable)
        data[count:] = data[:1] if fill else 0
        return data

    def _pack_sequences(
        self, sequences: Sequence[np.ndarray], slices: list[Any], data: np.ndarray, variable: Edge, fill: bool
    ) -> np.ndarray:
        """Write the sequences into an array of a program; returns it."""
        sample = data.shape[len(self.lead) :]
        if fill and self.kind == "sequences" and all(len(s) and np.shape(s)[1:] == sample for s in sequences):
            lengths, expected = [len(s) for s in sequences], [len(data[index]) for index in slices]
            if lengths and lengths != expected:
                raise _batch_size_error(variable, lengths, expected)
        if len(sequences) != len(slices):
            raise ResultError(explain(
                f"a user function made {len(sequences)} sequences for {variable!r}; the minibatch has {len(slices)}",
                fix="return as many sequences as the operands have",
            ))
        for index, sequence in zip(slices, sequences, strict=True):
            steps = _checked(sequence, data[index].shape, data.dtype, variable)
            if fill and len(steps):
                data[...], fill = steps[0], False
            data[index] = steps
        return data


def _batch_size_error(variable: Edge, samples: int | list[int], expected: int | list[int]) -> BatchSizeError:
    return BatchSizeError(
        f"a user function made {samples} samples for {variable!r}, where its operands have {expected}"
    )


@contextmanager
def _converting(result: object, variable: Edge) -> Iterator[None]:
    """Around conversions of a user's result. Errors: ResultError if NumPy cannot convert it to an array of numbers."""
    try:
        yield
    except ResultError:
        raise
    except (TypeError, ValueError) as error:
        needs = "an array" if variable.sequence_axis is None else "a list of arrays"
        raise ResultError(explain(
            f"a user function made {result!r} for {variable!r}, which needs {needs}",
            fix=f"return {needs}; with several outputs or inputs, put them into the dict that is given",
        )) from error


def _from_feed(variable: Edge, feed: Feed) -> UserData:
    """A copy of the data that are fed for a variable, for users."""
    data: Any = feed.data if isinstance(feed, Ragged) else feed
    is_sparse = isinstance(feed, Ragged) and feed.is_sparse
    if is_sparse:
        data = data.to_dense().reshape(-1, *filled(variable.shape, data.width))  # type: ignore[misc]
    layout = replace(_Format.of_feed(feed), is_sparse=_is_sparse(variable, is_sparse))
    return layout.unpack(np.array(data), layout.where)


def _is_sparse(variable: Edge, is_computed_so: bool) -> bool:
    """Whether users get CSR matrices: for sparse inputs, and where CNTK computes sparse vectors, as by `one_hot`."""
    return variable.is_sparse or (is_computed_so and len(variable.shape) == 1)


def _csr(array: np.ndarray) -> csr_matrix:
    from scipy.sparse import csr_matrix

    return csr_matrix(array.reshape(len(array), -1))


def _to_feed(variable: Edge, result: UserData, layout: _Format | None = None) -> Feed:
    """A user's result for a variable as a feed: in this format, or with the number of samples in the result.

    Errors: as in `_Format.pack`.
    """
    with _converting(result, variable):
        layout = layout or _Format.of_result(variable, result)
        if layout.lead == (0,):
            raise ResultError(explain(f"a user function made no samples for {variable!r}"))
        sample = layout.sample(result, len(variable.shape))
        if sample is None or not matches(variable.shape, sample):
            sample = tuple(variable.shape)
        like = jax.ShapeDtypeStruct((*layout.lead, *sample), variable.dtype)
        data = layout.pack(result, layout.where, like, variable, fill=False)
    if layout.kind == "static":
        return data
    return Ragged(data, layout.where[0] if layout.kind == "end to end" else None)


def _batch(result: UserData, rank: int) -> np.ndarray:
    """Samples with the batch axis: users may omit it for a single sample, or return sequences of one step."""
    array = np.asarray(result)
    if array.ndim == rank:
        return array[None]
    return array[:, 0] if array.ndim == rank + 2 and array.shape[1] == 1 else array


def _sequences(result: UserData, rank: int) -> Sequence[np.ndarray]:
    """Sequences in a list or array; a single sequence may come without the list."""
    return [result] if isinstance(result, np.ndarray) and result.ndim == rank + 1 else result  # type: ignore[return-value]


def _checked(result: UserData, shape: Shape, dtype: DTypeLike, variable: Edge) -> np.ndarray:
    array = np.asarray(result, dtype)
    if array.shape != shape:
        raise ResultError(explain(
            f"a user function made data of shape {array.shape} for {variable!r}, which has to be of shape {shape}",
            fix="return arrays of the shape that infer_outputs declares, gradients of that of the inputs",
        ))
    return array


def _guess_sample(
    function: PythonFunction, output: Edge, formats: Sequence[_Format], data: Sequence[Array]
) -> Shape:
    """The shape of a sample, with free dimensions guessed from an operand of the same shape, or one that matches."""
    if FREE not in output.shape:
        return tuple(output.shape)
    samples = [tuple(d.shape[len(f.lead) :]) for f, d in zip(formats, data, strict=True)]
    same = [shape for v, shape in zip(function.node_inputs, samples, strict=True) if v.shape == output.shape]
    candidates = same or [shape for shape in samples if matches(output.shape, shape)]
    return candidates[0] if candidates else tuple(1 if n == FREE else n for n in output.shape)
