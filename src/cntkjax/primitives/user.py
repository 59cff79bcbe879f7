"""Functions that users write in Python, called from inside compiled programs."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..engine.plan import resolve
from ..engine.python_code import Resized, callback, once
from ..engine.values import Axes, Context, Value
from ..graph.errors import ResultError, explain
from ..graph.function import Function
from ..graph.shape import FREE, matches
from ..graph.variable import Variable
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

    def __init__(self, function: Any) -> None:
        self.function = function
        self.states: dict[int, Any] = {}  # what forward keeps for backward, by the number of the call
        self.samples: dict[int, tuple[int, ...]] = {}  # shapes made last, by the number of an output with free axes

    def outputs(self, inputs: Sequence[Variable], attrs: Attrs) -> Any:
        return self.function.output_specs()

    def traits(self, node: Function) -> Any:
        return self

    def sizes_made(self) -> Hashable:
        return tuple(self.samples.items())

    def copy(self, node: Function, inputs: Sequence[Variable]) -> Function:
        return self.function.copied(inputs)

    def lower_packed(self, ctx: Context, attrs: Attrs, *values: Value) -> list[Value]:
        """A callback forward and one backward; a number that the first returns tells the second whose state to take."""
        function = self.function
        data = [ctx.array(v) for v in values]
        forms = [_Form(ctx, v.axes) for v in values]
        made = [_Form(ctx, v.dynamic_axes) for v in function.node_outputs]
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
                state, results = once(self, lambda: function.run_forward(given, backward_follows))
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

    def _check_sizes(self, forms: Sequence[_Form], shapes: Sequence[Any], results: Sequence[Any]) -> None:
        """Note which sizes free axes have. Errors: Resized if the program has them otherwise."""
        before = self.sizes_made()
        outputs = self.function.node_outputs
        for i, (form, shape, made, v) in enumerate(zip(forms, shapes, results, outputs, strict=True)):
            sample = form.sample(made, len(v.shape)) if FREE in v.shape else None
            if sample is not None and matches(v.shape, sample) and sample != shape.shape[len(form.lead) :]:
                self.samples[i] = sample
        if self.sizes_made() != before:
            raise Resized


def _needs_gradient(variable: Variable) -> bool:
    """Whether a gradient flows on from there; inside a block, where arguments never say so, that of what they are."""
    seen: set[Variable] = set()
    waiting = [resolve(variable)]
    while waiting:
        v = waiting.pop()
        if v.needs_gradient:
            return True
        if v not in seen and v._owner is not None:
            waiting += map(resolve, v._owner.node_inputs)
        seen.add(v)
    return False


class _Form:
    """How data with some dynamic axes lie in arrays, and in the hands of users.

    Users get an array [*shape], or [samples, *shape] with the batch axis, or a list of sequences [steps, *shape];
    inside a loop sequences of the one step that is computed.
    """

    def __init__(self, ctx: Context, axes: Axes) -> None:
        sequence = ctx.sequence_axis(axes)
        self.where: tuple[Any, ...] = ()
        self.lead: tuple[int, ...] = ()
        if not axes:
            self.kind = "static"
            return
        assert ctx.batch is not None
        if sequence is None:
            self.kind, self.where, self.lead = "batch", (ctx.batch.count,), (ctx.batch.size,)
            return
        layout = ctx.layout(axes)
        if ctx.step is not None and sequence == ctx.step.axis:
            self.kind, self.where, self.lead = "step", (ctx.step.mask,), (layout.rows,)
        else:
            self.kind, self.lead = "sequences", (layout.time, layout.rows)
            self.where = layout.row, layout.start, layout.length, ctx.batch.count

    def _places(self, where: Any) -> list[Any]:
        """Where in the array each sequence stands."""
        if self.kind == "step":
            return [np.s_[r : r + 1] for r in np.flatnonzero(where[0])]
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

        Errors: ResultError if that is no data, or of other shapes than the variable has.
        """
        try:
            return self._packed(given, where, like, variable, fill)
        except ResultError:
            raise
        except (TypeError, ValueError) as error:  # what NumPy makes no array of numbers of
            needs = "a list of arrays" if self.kind in ("sequences", "step") else "an array"
            raise ResultError(explain(
                f"a user function made {given!r} for {variable!r}, which needs {needs}",
                fix=f"return {needs}; with several outputs or inputs, put them into the dict that is given",
            )) from error

    def _packed(self, given: Any, where: Any, like: Any, variable: Variable, fill: bool) -> np.ndarray:
        sample = like.shape[len(self.lead) :]
        if self.kind == "static":
            return _fitting(given, sample, like.dtype, variable)
        data = np.zeros(like.shape, like.dtype)
        if self.kind == "batch":
            count = int(where[0])
            data[:count] = _fitting(_batch(given, len(sample)), (count, *sample), like.dtype, variable)
            data[count:] = data[:1] if fill else 0
            return data
        places, given = self._places(where), _sequences(given, len(sample))
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
