"""Functions that users write in Python, called from inside compiled programs."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..engine.data.ragged import Ragged
from ..engine.lower.values import Axes, Context, Value
from ..engine.plan.parts import resolve
from ..engine.run.python_callbacks import OutputResized, call_once, callback
from ..graph.errors import BatchSizeError, ResultError, explain
from ..graph.function import Function
from ..graph.shape import FREE, filled, matches
from ..graph.variable import Variable, producer
from .base import Attrs, Primitive

_NUMBERS = itertools.count()


class UserDefined(Primitive):
    """Calls the methods of one function object; it is its own primitive, and no two share a program.

    Shapes: what its `infer_outputs` says.
    """

    name = "UserFunction"
    packed = True
    infers_partially = True
    calls_python = True
    runs_on_host = True

    def __init__(self, function: Any) -> None:
        self.function = function
        self.states: dict[int, Any] = {}  # what forward keeps for backward, by the number of the call
        self.samples: dict[int, tuple[int, ...]] = {}  # shapes made last, by the number of an output with free axes

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Any:
        return self.function.output_specs()

    def cache_key(self, node: Function) -> Any:
        return self

    def free_dimension_sizes(self) -> Hashable:
        return tuple(self.samples.items())

    def copy(self, node: Function, inputs: Sequence[Variable]) -> Function:
        return self.function.copied(inputs)

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Value) -> list[Value]:
        """A callback forward and one backward; a number that the first returns tells the second whose state to take."""
        function = self.function
        data = [ctx.array(v) for v in values]
        forms = [_Form.of(ctx, v.axes) for v in values]
        made = [_Form.of(ctx, v.dynamic_axes) for v in function.node_outputs]
        shapes = [
            jax.ShapeDtypeStruct((*form.lead, *(self.samples.get(i) or _sample(function, v, forms, data))), v.dtype)
            for i, (form, v) in enumerate(zip(made, function.node_outputs, strict=True))
        ]
        arriving = [jax.ShapeDtypeStruct(d.shape, d.dtype) for d in data]
        where = [form.where for form in forms], [form.where for form in made]
        needed = [_needs_gradient(v) for v in function.node_inputs]
        backward_follows = ctx.training or ctx.differentiates  # though no gradient may flow through the function

        def call_forward(keep: bool, data: Any, where: Any) -> Any:
            of_inputs, of_outputs = jax.tree.map(np.asarray, where)
            # Copies: users may change what they get, and what comes from a program is read-only.
            given = [form.unpacked(np.array(d), w) for form, d, w in zip(forms, data, of_inputs, strict=True)]
            if all(isinstance(g, list) and not g for g in given) and given:  # a step in which no sequence is left
                state, results = None, [list[Any]() for _ in made]
            else:
                state, results = call_once(self, lambda: function.run_forward(given, backward_follows))
                self._check_sizes(made, shapes, results)
            number = np.int32(next(_NUMBERS) % 2**31)
            if keep:
                self.states[int(number)] = state
            return [
                form.packed(r, w, s, v)
                for form, r, w, s, v in zip(made, results, of_outputs, shapes, function.node_outputs, strict=True)
            ], number

        def call_backward(number: Any, gradients: Any, where: Any) -> Any:
            of_inputs, of_outputs = jax.tree.map(np.asarray, where)
            state = self.states.pop(int(number))
            given = [form.unpacked(np.array(g), w) for form, g, w in zip(made, gradients, of_outputs, strict=True)]
            if all(isinstance(g, list) and not g for g in given):
                found: Sequence[Any] = [None] * len(forms)
            else:
                found = function.run_backward(state, given, needed)
            return [
                np.zeros(s.shape, s.dtype) if r is None else form.packed(r, w, s, v, fill=False)
                for form, r, w, s, v in zip(forms, found, of_inputs, arriving, function.node_inputs, strict=True)
            ]

        number = jax.ShapeDtypeStruct((), jnp.int32)

        @jax.custom_vjp
        def run(data: Any, where: Any) -> Any:
            return callback(partial(call_forward, False), (shapes, number), data, where)[0]

        def forward(data: Any, where: Any) -> Any:
            results, call_number = callback(partial(call_forward, True), (shapes, number), data, where)
            return results, (call_number, where)

        def backward(kept: Any, gradients: Any) -> Any:
            call_number, where = kept
            return callback(call_backward, arriving, call_number, gradients, where), None

        run.defvjp(forward, backward)
        outputs = function.node_outputs
        flows = any(needed) and any(v.needs_gradient for v in outputs)
        results = run(data if flows else jax.lax.stop_gradient(data), where)
        stopped = [d if v.needs_gradient else jax.lax.stop_gradient(d) for d, v in zip(results, outputs, strict=True)]
        return [Value(d, v.dynamic_axes) for d, v in zip(stopped, outputs, strict=True)]

    def forward_on_host(self, feeds: Sequence[Any], keep: bool) -> tuple[Any, list[Any]]:
        """State, and data of the outputs, as they can be fed, from those of the operands: of any number of samples."""
        given = [_unfed(v, f) for v, f in zip(self.function.node_inputs, feeds, strict=True)]
        state, results = call_once(self, lambda: self.function.run_forward(given, keep))
        return state, [_fed(v, r) for v, r in zip(self.function.node_outputs, results, strict=True)]

    def backward_on_host(self, state: Any, feeds: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        """Gradients of the operands, in the form of what was fed for them, or None, from those of the outputs."""
        inputs, outputs = self.function.node_inputs, self.function.node_outputs
        needed = [_needs_gradient(v) for v in inputs]
        if not any(needed) or not any(v.needs_gradient for v in outputs):
            return [None] * len(inputs)
        given = [_unfed(v, g) for v, g in zip(outputs, gradients, strict=True)]
        found = self.function.run_backward(state, given, needed)
        return [None if r is None else _fed(v, r, _Form.fed(f)) for v, f, r in zip(inputs, feeds, found, strict=True)]

    def _check_sizes(self, forms: Sequence[_Form], shapes: Sequence[Any], results: Sequence[Any]) -> None:
        """Note which sizes free axes have. Errors: Resized if the program has them otherwise."""
        before = self.free_dimension_sizes()
        outputs = self.function.node_outputs
        for i, (form, shape, made, v) in enumerate(zip(forms, shapes, results, outputs, strict=True)):
            sample = form.sample(made, len(v.shape)) if FREE in v.shape else None
            if sample is not None and matches(v.shape, sample) and sample != shape.shape[len(form.lead) :]:
                self.samples[i] = sample
        if self.free_dimension_sizes() != before:
            raise OutputResized


def _needs_gradient(variable: Variable) -> bool:
    """Whether a gradient flows on from there; inside a block, where arguments never say so, that of what they are."""
    seen: set[Variable] = set()
    waiting = [resolve(variable)]
    while waiting:
        v = waiting.pop()
        if v.needs_gradient:
            return True
        if v not in seen and (node := producer(v)) is not None:
            waiting += map(resolve, node.node_inputs)
        seen.add(v)
    return False


@dataclass(frozen=True)
class _Form:
    """How data with some dynamic axes lie in arrays, and in the hands of users.

    Users get an array [*shape], or [samples, *shape] with the batch axis, or a list of sequences [steps, *shape];
    inside a loop sequences of the one step that is computed.
    """

    kind: str
    lead: tuple[int, ...] = ()
    where: tuple[Any, ...] = ()

    @classmethod
    def of(cls, ctx: Context, axes: Axes) -> _Form:
        """In a program."""
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
    def apart(cls, count: int, lengths: np.ndarray | None) -> _Form:
        """Outside of programs: samples end to end."""
        return cls("batch", (count,), (count,)) if lengths is None else cls("end to end", (count,), (lengths,))

    @classmethod
    def fed(cls, feed: Any) -> _Form:
        """That of what is fed."""
        return cls.apart(feed.num_samples, feed.lengths) if isinstance(feed, Ragged) else cls("static")

    @classmethod
    def made(cls, variable: Variable, given: Any) -> _Form:
        """That of what a user made, outside of programs."""
        if not variable.dynamic_axes:
            return cls("static")
        rank = len(variable.shape)
        if variable.sequence_axis is None:
            return cls.apart(len(_batch(given, rank)), None)
        lengths = np.array([len(s) for s in _sequences(given, rank)], np.int32)
        return cls.apart(int(lengths.sum()), lengths)

    def _places(self, where: Any) -> list[Any]:
        """Where in the array each sequence stands."""
        if self.kind == "step":
            return [np.s_[r : r + 1] for r in np.flatnonzero(where[0])]
        if self.kind == "end to end":
            return [np.s_[end - n : end] for end, n in zip(np.cumsum(where[0]), where[0], strict=True)]
        row, start, length, count = where
        return [np.s_[start[i] : start[i] + length[i], row[i]] for i in range(count)]

    def unpacked(self, data: np.ndarray, where: Any) -> Any:
        """From the form of a program to that of a user."""
        if self.kind == "static":
            return data
        return data[: int(where[0])] if self.kind == "batch" else [data[p] for p in self._places(where)]

    def sample(self, given: Any, rank: int) -> tuple[int, ...] | None:
        """The shape of a sample in what a user made; None if there are no samples."""
        if self.kind == "static":
            return np.shape(given)
        if self.kind == "batch":
            return _batch(given, rank).shape[1:]
        given = _sequences(given, rank)
        return np.shape(given[0])[1:] if len(given) else None

    def packed(self, given: Any, where: Any, like: Any, variable: Variable, fill: bool = True) -> np.ndarray:
        """From what a user made to the form of a program; padding is zero, or with `fill` the first sample.

        Errors: ResultError if that is no data, or of other shapes than the variable has; BatchSizeError for values of
                another number of samples.
        """
        with _taking(given, variable):
            return self._packed(given, where, like, variable, fill)

    def _packed(self, given: Any, where: Any, like: Any, variable: Variable, fill: bool) -> np.ndarray:
        sample = like.shape[len(self.lead) :]
        if self.kind == "static":
            return _fitting(given, sample, like.dtype, variable)
        data = np.zeros(like.shape, like.dtype)
        if self.kind == "batch":
            count, made = int(where[0]), _batch(given, len(sample))
            if fill and made.shape[1:] == sample and 0 < len(made) != count:
                raise _other_size(variable, len(made), count)
            data[:count] = _fitting(made, (count, *sample), like.dtype, variable)
            data[count:] = data[:1] if fill else 0
            return data
        places, given = self._places(where), _sequences(given, len(sample))
        if fill and self.kind == "sequences" and all(len(s) and np.shape(s)[1:] == sample for s in given):
            steps, own = [len(s) for s in given], [len(data[place]) for place in places]
            if steps and steps != own:
                raise _other_size(variable, steps, own)
        if len(given) != len(places):
            raise ResultError(explain(
                f"a user function made {len(given)} sequences for {variable!r}; the minibatch has {len(places)}"
            ))
        for i, (place, sequence) in enumerate(zip(places, given, strict=True)):
            piece = _fitting(sequence, data[place].shape, like.dtype, variable)
            if fill and i == 0:
                data[...] = piece[0]
            data[place] = piece
        return data


def _other_size(variable: Variable, made: Any, own: Any) -> BatchSizeError:
    return BatchSizeError(f"a user function made {made} samples for {variable!r}, where its operands have {own}")


@contextmanager
def _taking(given: Any, variable: Variable) -> Iterator[None]:
    """Around what makes arrays of what a user made. Errors: ResultError where NumPy makes no array of numbers of it."""
    try:
        yield
    except ResultError:
        raise
    except (TypeError, ValueError) as error:
        needs = "an array" if variable.sequence_axis is None else "a list of arrays"
        raise ResultError(explain(
            f"a user function made {given!r} for {variable!r}, which needs {needs}",
            fix=f"return {needs}; with several outputs or inputs, put them into the dict that is given",
        )) from error


def _unfed(variable: Variable, feed: Any) -> Any:
    """What is fed for a variable in the hands of users: a copy, which they may change."""
    data: Any = feed.data if isinstance(feed, Ragged) else feed
    if isinstance(feed, Ragged) and feed.is_sparse:
        data = data.to_dense().reshape(-1, *filled(variable.shape, data.width))  # type: ignore[misc]
    form = _Form.fed(feed)
    return form.unpacked(np.array(data), form.where)


def _fed(variable: Variable, given: Any, form: _Form | None = None) -> Any:
    """What a user made of a variable as it can be fed: in this form, or of as many samples as there are.

    Errors: as in `_Form.packed`.
    """
    with _taking(given, variable):
        form = form or _Form.made(variable, given)
        if form.lead == (0,):
            raise ResultError(explain(f"a user function made no samples for {variable!r}"))
        sample = form.sample(given, len(variable.shape))
        if sample is None or not matches(variable.shape, sample):
            sample = tuple(variable.shape)
        like = jax.ShapeDtypeStruct((*form.lead, *sample), variable.dtype)
        data = form.packed(given, form.where, like, variable, fill=False)
    if form.kind == "static":
        return data
    return Ragged(data, form.where[0] if form.kind == "end to end" else None)


def _batch(given: Any, rank: int) -> np.ndarray:
    """Samples with the batch axis: users may leave it out of a single one, or make sequences of one step."""
    array = np.asarray(given)
    if array.ndim == rank:
        return array[None]
    return array[:, 0] if array.ndim == rank + 2 and array.shape[1] == 1 else array


def _sequences(given: Any, rank: int) -> Any:
    """Sequences in a list or array; the only one may come without it."""
    return [given] if isinstance(given, np.ndarray) and given.ndim == rank + 1 else given


def _fitting(given: Any, shape: tuple[int, ...], dtype: Any, variable: Variable) -> np.ndarray:
    array = np.asarray(given, dtype)
    if array.shape != shape:
        raise ResultError(explain(
            f"a user function made data of shape {array.shape} for {variable!r}, which has to be of shape {shape}",
            fix="return arrays of the shape that infer_outputs says, gradients of that of the inputs",
        ))
    return array


def _sample(function: Any, output: Variable, forms: Sequence[_Form], data: Sequence[Any]) -> tuple[int, ...]:
    """The shape of a sample; free dimensions as in an operand of the same shape, or one that fits: a guess."""
    if FREE not in output.shape:
        return tuple(output.shape)
    given = [tuple(d.shape[len(form.lead) :]) for form, d in zip(forms, data, strict=True)]
    same = [shape for v, shape in zip(function.node_inputs, given, strict=True) if v.shape == output.shape]
    found = same or [shape for shape in given if matches(output.shape, shape)]
    return found[0] if found else tuple(1 if n == FREE else n for n in output.shape)
