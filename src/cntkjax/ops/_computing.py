"""What functions compute: values, gradients, and the states between forward and backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakSet

from ..core import Value, like_input
from ..device import Device, DeviceDescriptor, use_default_device
from ..engine.data.feeds import to_ragged, with_start_flags
from ..engine.debug.checked import check
from ..engine.debug.timing import timing_table
from ..engine.lower.carry import Memory
from ..engine.run.program_cache import plan_of
from ..engine.run.python_callbacks import CallbackResults
from ..engine.run.random_streams import RandomState, draw_random_state
from ..engine.run.result import Result
from ..engine.run.staged_execution import evaluate, gradients
from ..graph import edit
from ..graph.errors import explain
from ..graph.function import Function as GraphFunction
from ..graph.variable import Variable as GraphVariable
from ..graph.variable import producer
from ..variables import Variable
from ._operand import as_variable

Item: TypeAlias = GraphVariable | GraphFunction
Outputs: TypeAlias = Item | Iterable[Item]


class Computing(GraphFunction):
    """The part of `Function` that runs programs."""

    def _feeds(self, arguments: object, outputs: Iterable[Any]) -> dict[Any, Any]:
        needed = plan_of(list(outputs)).arguments
        arguments = with_start_flags(arguments)
        if isinstance(arguments, Mapping):
            fed: dict[Any, Any] = {
                self._argument_named(k) if isinstance(k, str) else as_variable(k): d for k, d in arguments.items()
            }
        elif arguments is None:
            fed = {}
        else:
            own = self.arguments
            if len(own) != 1:
                raise ValueError(f"{self!r} has {len(own)} arguments: say whose data it is, {{argument: array, ...}}")
            fed = {own[0]: arguments}
        missing = [v for v in needed if v not in fed]
        if missing:
            raise ValueError(
                f"function expects {len(needed)} arguments: no data for {', '.join(map(repr, missing))} of {self!r}"
            )
        return {v: to_ragged(v, fed[v]) for v in needed}

    def _argument_named(self, name: str) -> Variable:
        found = [v for v in self.arguments if v.name == name]
        if len(found) != 1:
            there = ", ".join(repr(v.name) for v in self.arguments if v.name) or "none"
            raise ValueError(f"{len(found)} arguments of {self!r} are called {name!r}; the names are: {there}")
        return found[0]  # type: ignore[return-value]

    def _leaves(self, wrt: Outputs) -> list[Variable]:
        """Variables to which gradients are wanted: inputs of the graph."""
        wanted, inputs = [as_variable(v) for v in _listed(wrt)], set(self.inputs)
        for v in wanted:
            if v not in inputs:
                raise ValueError(explain(
                    f"a gradient is wanted with respect to {v!r}, which is no input, parameter or constant of {self!r}",
                    fix="for that of an inner value clone the function with an input in its place",
                ))
        return wanted

    def eval(
        self, arguments: object = None, outputs: Outputs | None = None, device: Device = None, as_numpy: bool = True
    ) -> Any:
        """Compute the outputs.

        Shapes: an array [batch, *shape]; a list of arrays [time, *shape] for outputs with a sequence axis; several
                outputs as a dict. `arguments`: {argument: data}, or data alone if there is one argument, or a list.
        Errors: ValueError for missing data; ShapeError if data don't fit the argument.
        """
        wanted = self._wanted(outputs)
        feeds = self._feeds(arguments, wanted)
        check(plan_of(wanted), feeds, False, self._memory)
        return _single(self._given_out(evaluate(wanted, feeds, memory=self._memory), as_numpy, outputs))

    def print_node_timing(self) -> None:
        """Print how long each operation took on average, forward and backward; see ``debugging.set_node_timing``."""
        print(timing_table([self]))

    @property
    def _memory(self) -> Memory:
        """What sequences that are cut between calls left behind."""
        return self.__dict__.setdefault("_carried", Memory())

    def _given_out(
        self, made: Sequence[Result], as_numpy: bool, asked: Outputs | None = None, again: bool = True
    ) -> dict[Any, Any]:
        """Results as users get them, under the variables and functions that they `asked` for.

        If this is computed `again`, Values that were given out before it are gone.
        """
        lent: WeakSet[Value] = self.__dict__.setdefault("_lent", WeakSet())
        if again:
            for value in lent:
                value.erase()
            lent.clear()
        keys = [r.variable for r in made] if asked is None else _listed(asked)
        if as_numpy:
            return {key: r.numpy() for key, r in zip(keys, made, strict=True)}
        given = {key: Value.from_result(r) for key, r in zip(keys, made, strict=True)}
        lent.update(given.values())
        return given

    def _wanted(self, outputs: Outputs | None) -> list[Variable]:
        if outputs is None and self.outputs:
            return list(self.outputs)  # type: ignore[arg-type]
        wanted = [as_variable(v) for v in _listed(outputs or [])]
        inside = {v for node in edit.nodes([self.root_function], into_blocks=True) for v in node.node_outputs}
        for v in wanted:
            if producer(v) is not None and v not in inside and v not in self.outputs:
                raise ValueError(f"the requested output {v!r} is not part of the graph of {self!r}")
        if not wanted:
            raise ValueError(f"nothing to compute: no outputs of {self!r} are asked for")
        return wanted

    def forward(
        self, arguments: object, outputs: Outputs | None = None, keep_for_backward: Outputs | None = None,
        device: Device = None, as_numpy: bool = True,
    ) -> tuple[Any, dict[Any, Any]]:
        """Compute outputs; with `keep_for_backward` also a state for `backward`, and in training mode.

        Returns: (state or None, {output: value}).
        """
        wanted = self._wanted(outputs)
        kept = [as_variable(v) for v in _listed(keep_for_backward or [])]
        feeds = self._feeds(arguments, [*wanted, *kept])
        if not kept:
            return None, self._given_out(evaluate(wanted, feeds, memory=self._memory), as_numpy, outputs)
        random = draw_random_state(plan_of([*wanted, *kept]), advance=False)
        before = self._memory.copy()
        callback_results: CallbackResults = defaultdict(list)
        made = evaluate(wanted, feeds, True, self._memory, assign=False, callback_results=callback_results)
        state = BackPropState(self, feeds, tuple(kept), random, before, callback_results)
        return state, self._given_out(made, as_numpy, outputs)

    def backward(
        self, state: BackPropState, root_gradients: object, variables: Outputs, as_numpy: bool = True
    ) -> dict[Variable, Any]:
        """Gradients of variables from those that arrive at the outputs.

        Shapes: `root_gradients` {output: array like its value}, or one array; gradients of parameters are summed over
                samples.
        """
        if state is None:
            raise ValueError("backward needs the state of a forward with keep_for_backward")
        if not isinstance(root_gradients, Mapping):
            root_gradients = {self.output: root_gradients}  # type: ignore[attr-defined]
        roots: dict[Any, Any] = {}
        for root, gradient in root_gradients.items():
            variable = as_variable(root)
            roots[variable] = to_ragged(like_input(variable), gradient)
        wrt = self._leaves(variables)
        found, _ = gradients([], roots, wrt, state.feeds, state.random, state.memory.copy(), state.callback_results)
        return self._given_out(found, as_numpy, again=False)

    def grad(
        self, at: object, wrt: Outputs | None = None, outputs: Outputs | None = None, device: Device = None,
        as_numpy: bool = True, grad_root: Item | None = None,
    ) -> Any:
        """Gradient of the output (or of `grad_root`), summed over all its elements, at the given arguments.

        Shapes: like the variables; parameters' gradients are summed over samples. Several variables give a dict; with
                `outputs`, a pair (gradients, values of the outputs).
        Errors: ValueError if `wrt` is not given and no argument needs a gradient.
        """
        if wrt is None:
            wrt = [v for v in self.arguments if v.needs_gradient]
            if not wrt:
                raise ValueError(f"grad: no argument of {self} has needs_gradient == True, and wrt is not given")
        root = self.output if grad_root is None else as_variable(grad_root)  # type: ignore[attr-defined]
        targets = self._leaves(wrt)
        wanted = self._wanted(outputs) if outputs else []
        feeds = self._feeds(at, [*wanted, root])
        found, made = gradients(wanted, {root: None}, targets, feeds, memory=self._memory)
        result = _single(self._given_out(found, as_numpy))
        return (result, _single(self._given_out(made, as_numpy, outputs, again=False))) if outputs else result


class BackPropState:
    """What `Function.backward` needs from `Function.forward`: the arguments, the random numbers that were drawn, what
    the minibatch before had left behind, and what functions of the user have returned."""

    def __init__(
        self, function: Computing, feeds: dict[Any, Any], kept: tuple[Any, ...], random: RandomState, memory: Memory,
        callback_results: CallbackResults,
    ) -> None:
        self.callback_results = callback_results
        self._function, self.feeds, self.kept, self.random, self.memory = function, feeds, kept, random, memory
        self._device = use_default_device()

    def function(self) -> Computing:
        """The function that was computed."""
        return self._function

    def device(self) -> DeviceDescriptor:
        """Where it was computed."""
        return self._device


def _listed(items: Outputs) -> list[Any]:
    if isinstance(items, (GraphVariable, GraphFunction)):
        return [items]
    return list(items)


def _single(values: dict[Variable, Any]) -> Any:
    return next(iter(values.values())) if len(values) == 1 else values


__all__ = ["BackPropState", "Computing"]
