"""Evaluation of functions: values, gradients, and the state passed from forward to backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakSet

import numpy as np

from ..core import Value, like_input
from ..device import Device, DeviceDescriptor, use_default_device
from ..engine.data.feeds import to_ragged, with_start_flags
from ..engine.data.ragged import Ragged, SparseRows
from ..engine.debug.checked import check
from ..engine.debug.timing import timing_table
from ..engine.lower.carry import Memory, memory_of
from ..engine.run.direct import answer
from ..engine.run.minibatch import Feed
from ..engine.run.program_cache import plan_of
from ..engine.run.python_callbacks import CallbackResults
from ..engine.run.random_streams import RandomState, draw_random_state
from ..engine.run.result import Result
from ..engine.run.staged_execution import evaluate, gradients
from ..graph import edit
from ..graph.build import infer_from_data
from ..graph.errors import explain
from ..graph.function import Node
from ..graph.shape import INFERRED, Shape
from ..graph.variable import Edge, producer
from ..variables import Variable
from ._operand import as_variable

Item: TypeAlias = Edge | Node
Outputs: TypeAlias = Item | Iterable[Item]


def argument_named(name: str, arguments: Iterable[Edge]) -> Edge:
    """The argument of this name; ValueError unless exactly one has it."""
    arguments = list(arguments)
    matches = [v for v in arguments if v.name == name]
    if len(matches) != 1:
        names = ", ".join(repr(v.name) for v in arguments if v.name) or "none"
        raise ValueError(explain(
            f"{len(matches) or 'no'} argument{'s are' if matches else ' is'} called {name!r}; the names are: {names}",
            fix="use the variable itself as the key of its data",
        ))
    return matches[0]


class Computing(Node):
    """The methods of `Function` that run compiled programs."""

    def _feeds(self, arguments: object, outputs: Iterable[Any], others: Sequence[Any] = ()) -> dict[Any, Any]:
        """The data of all arguments that the outputs depend on, and of others, converted to sequences or arrays.

        Errors: ValueError for missing data or unknown names.
        """
        outputs = list(outputs)
        plan = plan_of(outputs)
        needed = plan.arguments
        arguments = with_start_flags(arguments)
        if isinstance(arguments, Mapping):
            feeds: dict[Any, Any] = {
                argument_named(k, self.arguments) if isinstance(k, str) else as_variable(k): d
                for k, d in arguments.items()
            }
        elif arguments is None:
            feeds = {}
        else:
            if len(self.arguments) != 1:
                raise ValueError(explain(
                    f"{self!r} has {len(self.arguments)} arguments, so it is unclear which one the data are for",
                    fix="pass the data of each argument: {argument: array, ...}",
                ))
            feeds = {self.arguments[0]: arguments}
        if missing := [v for v in needed if v not in feeds]:
            names = ", ".join(f"{v.name or v.uid}: ..." for v in needed)
            raise ValueError(explain(
                f"function expects {len(needed)} arguments: no data for {', '.join(map(repr, missing))} of {self!r}",
                fix=f"pass the data of each argument, by variable or name: {{{names}}}",
            ))
        ragged = {v: to_ragged(v, feeds[v]) for v in dict.fromkeys([*needed, *others]) if v in feeds}
        if waiting := [leaf for leaf in plan.leaves if leaf.has_inferred]:
            shapes = {v: _sample_shape(data) for v, data in ragged.items() if INFERRED in v.shape}
            infer_from_data([f for v in outputs if (f := producer(v)) is not None], shapes, waiting)
        return ragged

    def _leaves(self, wrt: Outputs) -> list[Variable]:
        """The variables to differentiate with respect to; ValueError unless they are leaves of the graph."""
        variables, inputs = [as_variable(v) for v in _as_list(wrt)], set(self.inputs)
        for v in variables:
            if v not in inputs:
                raise ValueError(explain(
                    f"there is no gradient with respect to {v!r}: it is no input, parameter or constant of {self!r}",
                    fix="for an intermediate value, clone the function with an input variable in its place",
                ))
        return variables

    def eval(
        self, arguments: object = None, outputs: Outputs | None = None, device: Device = None, as_numpy: bool = True
    ) -> Any:
        """Evaluate the outputs, by default all of them, or those in `outputs`.

        `arguments`: {argument: data}, with variables or names as keys; just the data if there is only one argument.

        Shapes: an array [batch, *shape]; a list of arrays [time, *shape] for an output with a sequence axis; a dict
                {output: value} for several outputs.
        Errors: ValueError for missing data; ShapeError if the data do not fit the argument.
        """
        if outputs is None and as_numpy and not self.__dict__.get("_lent"):
            is_single = type(arguments) in (np.ndarray, list) and len(self.arguments) == 1
            fed = {self.arguments[0]: arguments} if is_single else arguments
            values = answer(self.outputs, fed, self._memory)
            if values is not None:
                return values[0] if len(values) == 1 else dict(zip(self.outputs, values, strict=True))
        requested = self._requested(outputs)
        feeds = self._feeds(arguments, requested)
        check(plan_of(requested), feeds, False, self._memory)
        return _single(self._as_values(evaluate(requested, feeds, memory=self._memory), as_numpy, outputs))

    def print_node_timing(self) -> None:
        """Print the average forward and backward time of each operation; see ``debugging.set_node_timing``."""
        print(timing_table([self]))

    @property
    def _memory(self) -> Memory:
        """The recurrent state carried over to sequences that continue in the next minibatch, and random numbers."""
        return memory_of(self)

    def _as_values(
        self, results: Sequence[Result], as_numpy: bool, keys: Outputs | None = None, erase: bool = True
    ) -> dict[Any, Any]:
        """Results in the form returned to users, keyed by the variables and functions that were requested.

        With `erase`, the Values returned by the previous evaluation are erased.
        """
        lent: WeakSet[Value] = self.__dict__.setdefault("_lent", WeakSet())
        if erase:
            for value in lent:
                value.erase()
            lent.clear()
        items = [r.variable for r in results] if keys is None else _as_list(keys)
        if as_numpy:
            return {item: r.numpy() for item, r in zip(items, results, strict=True)}
        values = {item: Value.from_result(r) for item, r in zip(items, results, strict=True)}
        lent.update(values.values())
        return values

    def _requested(self, outputs: Outputs | None) -> list[Variable]:
        if outputs is None and self.outputs:
            return list(self.outputs)  # type: ignore[arg-type]
        requested = [as_variable(v) for v in _as_list(outputs or [])]
        inside = {v for node in edit.nodes([self.root_function], into_blocks=True) for v in node.node_outputs}
        for v in requested:
            if producer(v) is not None and v not in inside and v not in self.outputs:
                raise ValueError(explain(
                    f"the requested output {v!r} is not part of the graph of {self!r}",
                    fix="request outputs of this graph; for a clone, those of the clone",
                ))
        if not requested:
            raise ValueError(f"nothing to compute: no outputs of {self!r} are requested; omit `outputs` to compute all")
        return requested

    def forward(
        self, arguments: object, outputs: Outputs | None = None, keep_for_backward: Outputs | None = None,
        device: Device = None, as_numpy: bool = True,
    ) -> tuple[Any, dict[Any, Any]]:
        """Evaluate outputs; with `keep_for_backward` in training mode, and with a state for `backward`.

        Returns: (state, {output: value}); the state is None without `keep_for_backward`.
        Errors: see `eval`.
        """
        requested = self._requested(outputs)
        roots = [as_variable(v) for v in _as_list(keep_for_backward or [])]
        feeds = self._feeds(arguments, [*requested, *roots])
        if not roots:
            return None, self._as_values(evaluate(requested, feeds, memory=self._memory), as_numpy, outputs)
        random = draw_random_state(plan_of([*requested, *roots]), self._memory.streams, True)
        before = self._memory.copy()
        callback_results: CallbackResults = defaultdict(list)
        results = evaluate(requested, feeds, True, self._memory, assign=False, callback_results=callback_results)
        state = BackPropState(self, feeds, random, before, callback_results)
        return state, self._as_values(results, as_numpy, outputs)

    def backward(
        self, state: BackPropState, root_gradients: object, variables: Outputs, as_numpy: bool = True
    ) -> dict[Variable, Any]:
        """Backpropagate gradients from the outputs to variables.

        Shapes: `root_gradients` {output: array of the shape of its value}, or an array if there is only one output;
                each gradient has the shape of its variable. Gradients of parameters are summed over the samples.
        Errors: ValueError without a state, and for a variable that is not a leaf of the graph.
        """
        if state is None:
            raise ValueError("backward needs the state that forward returns with keep_for_backward={outputs}")
        if not isinstance(root_gradients, Mapping):
            root_gradients = {self.output: root_gradients}  # type: ignore[attr-defined]
        roots: dict[Any, Any] = {}
        for root, gradient in root_gradients.items():
            variable = as_variable(root)
            roots[variable] = to_ragged(like_input(variable), gradient)
        wrt = self._leaves(variables)
        results, _ = gradients([], roots, wrt, state.feeds, state.random, state.memory.copy(), state.callback_results)
        return self._as_values(results, as_numpy, erase=False)

    def grad(
        self, at: object, wrt: Outputs | None = None, outputs: Outputs | None = None, device: Device = None,
        as_numpy: bool = True, grad_root: Item | None = None,
    ) -> Any:
        """Gradient of the sum of the elements of the output (or of `grad_root`) at the given arguments.

        Shapes: each gradient has the shape of its variable; those of parameters are summed over the samples. Several
                variables give a dict; with `outputs` the result is a pair (gradients, values of the outputs).
        Errors: ValueError if `wrt` is omitted and no argument needs a gradient.
        """
        if wrt is None:
            wrt = [v for v in self.arguments if v.needs_gradient]
            if not wrt:
                raise ValueError(
                    f"grad: no argument of {self} has needs_gradient == True, and wrt is omitted: "
                    "pass wrt=f.parameters, or declare input_variable(..., needs_gradient=True)"
                )
        root = self.output if grad_root is None else as_variable(grad_root)  # type: ignore[attr-defined]
        targets = self._leaves(wrt)
        requested = self._requested(outputs) if outputs else []
        feeds = self._feeds(at, [*requested, root], targets)
        derivatives, results = gradients(requested, {root: None}, targets, feeds, memory=self._memory)
        gradient = _single(self._as_values(derivatives, as_numpy))
        return (gradient, _single(self._as_values(results, as_numpy, outputs, erase=False))) if outputs else gradient


class BackPropState:
    """What `Function.backward` needs from `Function.forward`: arguments, random state, the recurrent state carried over
    from the previous minibatch, and the results of user functions."""

    def __init__(
        self, function: Computing, feeds: dict[Any, Any], random: RandomState, memory: Memory,
        callback_results: CallbackResults,
    ) -> None:
        self.callback_results = callback_results
        self._function, self.feeds, self.random, self.memory = function, feeds, random, memory
        self._device = use_default_device()

    def function(self) -> Computing:
        """The function that was evaluated."""
        return self._function

    def device(self) -> DeviceDescriptor:
        """The device on which it was evaluated."""
        return self._device

    def saved_forward_prop_values(self) -> dict[Variable, Any]:
        """Values that are kept for the backward pass: none, as it computes them again. CNTK's are out of reach."""
        return {}


def _sample_shape(feed: Feed) -> Shape:
    if not isinstance(feed, Ragged):
        return feed.shape
    return (feed.data.width,) if isinstance(feed.data, SparseRows) else feed.data.shape[1:]


def _as_list(items: Outputs) -> list[Any]:
    if isinstance(items, (Edge, Node)):
        return [items]
    return list(items)


def _single(values: dict[Variable, Any]) -> Any:
    return next(iter(values.values())) if len(values) == 1 else values


__all__ = ["BackPropState", "Computing"]
