"""Recurrences: layers along the sequence axis."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Annotated, Any

from .._typing import Bounds, Fix
from ..axis import Axis
from ..default_options import default_override_or, get_default_override
from ..graph.arguments import public
from ..graph.errors import VariableShapeError, explain
from ..graph.function import Node
from ..graph.shape import INFERRED as InferredDimension
from ..graph.variable import Edge
from ..initializer import glorot_uniform
from ..ops import (
    alias,
    combine,
    placeholder,
    reconcile_dynamic_axes,
    sequence,
    sigmoid,
    slice,
    softplus,
    splice,
    tanh,
    times,
)
from ..ops._calling import function_of
from ..ops.functions import BlockFunction, Function, identity
from ..variables import Constant, Parameter, Record, Variable
from ._arguments import Flag, InitialState, Layer
from .blocks import (
    GRU,
    LSTM,
    ForwardDeclaration,
    RNNStep,
    RNNUnit,
    Stabilizer,
    UntestedBranchError,
    _get_initial_state_or_default,
    _inject_name,
)

# (state, ..., x) -> (new state, ...)
Step = Annotated[Callable[..., Any], Fix("pass a layer or a function of state and input, such as LSTM(300)")]
_STATES = ("h", "c", "a")  # names of the arguments that are initial states


def _sanitize_function(f: Layer) -> Any:
    """A Python function as a Function."""
    return Function(f) if callable(f) and not isinstance(f, Node) else f


def _santize_step_function(f: Step) -> Any:  # CNTK's spelling, under which scripts import it
    """A Python function as a Function that creates no parameters: each call would create new ones.

    Errors: TypeError if it does, or if it cannot be called.
    """
    if not callable(f):
        raise TypeError(explain(
            f"Recurrence: the step function is {f!r}", fix="pass a function of (states..., x), such as LSTM(300)"
        ))
    try:
        step = _sanitize_function(f)
    except VariableShapeError as error:  # f makes a layer and took the state for its shape
        raise _parameter_in_step() from error
    if step is not f and step.arguments:
        begin = _number(step.arguments[0])
        if any(_number(p) > begin for p in step.parameters):
            raise _parameter_in_step()
    return step


def _parameter_in_step() -> TypeError:
    return TypeError(explain(
        "Parameter cannot be created inside Recurrence Python step function.",
        fix="create the layer before the function, and call it inside; Recurrence(LSTM(300)) takes a layer, not LSTM",
    ))


def _number(variable: Edge) -> int:
    """Variables are numbered in the order in which they are created."""
    return int(variable.uid[len(variable.uid.rstrip("0123456789")) :])


@public
def Delay(T: int = 1, initial_state: InitialState = default_override_or(0), name: str = "") -> Function:
    """The value of T steps ago, or of -T steps ahead; `initial_state` where the sequence does not reach so far.

    Shapes: x [*shape] with a sequence axis -> [*shape].
    Errors: TypeError for a T that is not a whole number; when it is applied, AxisError for x without a sequence axis.

    >>> import cntkjax as C
    >>> x = C.sequence.input_variable(1)
    >>> Delay(1, initial_state=7)(x).eval({x: [[[1], [2], [3]]]})[0].ravel()
    array([7., 1., 2.], dtype=float32)
    """
    start = _get_initial_state_or_default(get_default_override(Delay, initial_state=initial_state))
    if not isinstance(T, Integral):
        raise TypeError(explain(
            f"Delay: the number of steps T must be an integer, not {T!r}", fix="Delay(1) is the step before"
        ))

    @BlockFunction("Delay", name)
    def delay(x: Variable) -> Function:
        return sequence.delay(x, start, T)

    return delay


@public
def PastValueWindow(
    window_size: Annotated[int, Bounds(1, 2**16)], axis: int | Axis,
    go_backwards: Flag = default_override_or(False), name: str = "",
) -> Function:
    """The last `window_size` steps of each sequence (with `go_backwards`: the first), and which of them exist.

    Shapes: x [*shape] with a sequence axis -> (value, valid), both without it: the steps lie along the new static
            axis `axis`, latest first, in value [.., window_size, ..] and valid [.., window_size, ..], which is 1 or 0;
            `Axis.new_leading_axis()` is the axis in front of all of x.
    Errors: when it is applied, AxisError for x without a sequence axis, or an axis that does not exist.

    >>> import cntkjax as C
    >>> x = C.sequence.input_variable(1)
    >>> window = PastValueWindow(3, axis=-2)(x)
    >>> [values.ravel().tolist() for values in window.eval({x: [[[1], [2]]]}).values()]
    [[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]]
    """
    go_backwards = get_default_override(PastValueWindow, go_backwards=go_backwards)
    end = sequence.first if go_backwards else sequence.last
    steps = [-t if go_backwards else t for t in range(window_size)]

    @BlockFunction("PastValueWindow", name)
    def past_value_window(x: Variable) -> tuple[Function, Function]:
        ones = sequence.broadcast_as(1, x)
        values = [end(Delay(t)(x)) for t in steps]
        flags = [end(Delay(t)(ones)) for t in steps]
        return splice(*values, axis=axis, name="value"), splice(*flags, axis=axis, name="valid")

    return past_value_window


@public
def RecurrenceFrom(
    step_function: Step, go_backwards: Flag = default_override_or(False), return_full_state: bool = False,
    name: str = "",
) -> Function:
    """A recurrence whose initial states are arguments: a function (initial states..., x) -> states at all steps.

    `step_function` (states..., x) -> new states; the first is the output, all of them with `return_full_state`.

    Shapes: initial states [*state] without a sequence axis, x with one -> [*state] along the sequence of x.
    Errors: TypeError if the step returns another number of states than it takes; ValueError for more than ten. When it
            is applied, AxisError for x without a sequence axis, or initial states that do not broadcast to the states.

    >>> import cntkjax as C
    >>> start, x = C.input_variable(1), C.sequence.input_variable(1)
    >>> total = RecurrenceFrom(C.plus)(start, x)
    >>> total.eval({start: [[10]], x: [[[1], [2], [3]]]})[0].ravel()
    array([11., 13., 16.], dtype=float32)
    """
    backwards = get_default_override(RecurrenceFrom, go_backwards=go_backwards)
    return _from_states("recurrence_from", _santize_step_function(step_function), backwards, return_full_state, name)


def _from_states(kind: str, step: Any, go_backwards: bool, return_full_state: bool, name: str) -> Function:
    """A recurrence whose initial states are arguments; messages call it `kind`."""
    number = len(step.signature) - 1
    if number > 10:
        raise ValueError(explain(
            "RecurrenceFrom() currently supports recurrence with up to 10 state variables",
            fix="join states of the same kind with cntk.splice, and slice them in the step function",
        ))
    delay = sequence.future_value if go_backwards else sequence.past_value

    def from_states(*arguments: Variable) -> Function:
        *initial, x = arguments
        states = [ForwardDeclaration("state_fwd") for _ in initial]
        new = step(*(delay(state, start) for state, start in zip(states, initial, strict=True)), x)
        if len(new.outputs) != number:
            raise TypeError(explain(
                f"Recurrence: number of state variables inconsistent between create_placeholder() and recurrent block: "
                f"the step function takes {number} and returns {len(new.outputs)}",
                fix="a step function takes (states..., x) and returns as many new states: LSTM(10), not Dense(10)",
            ))
        new.replace_placeholders(dict(zip(states, new.outputs, strict=True)))
        return _inject_name(new if return_full_state else combine([new.outputs[0]]), name)

    names = [_STATES[i] if i < len(_STATES) else f"state{i}" for i in range(number)]
    return function_of(from_states, kind, [*names, "x"])


@public
def Recurrence(
    step_function: Step,
    go_backwards: Flag = default_override_or(False),
    initial_state: InitialState = default_override_or(0),
    return_full_state: bool = False,
    name: str = "",
) -> Function:
    """A recurrent layer: applies a step along each sequence, from its beginning or (`go_backwards`) from its end.

    `step_function` (states..., x) -> new states, such as `LSTM`, `GRU` or `RNNStep`; the first state is the output, all
    of them with `return_full_state`. `initial_state` is one for all states, or a tuple: numbers, arrays, parameters;
    for initial states that come with the data use `RecurrenceFrom`.

    Shapes: x [n] with a sequence axis -> [*state] along the same axis.
    Errors: TypeError if the numbers of states do not match, or an initial state depends on inputs. When it is applied,
            AxisError for x without a sequence axis, ShapeError for another size than that of the first x.

    >>> import cntkjax as C
    >>> x = C.sequence.input_variable(1)
    >>> Recurrence(C.plus)(x).eval({x: [[[1], [2], [3]]]})
    [array([[1.],
           [3.],
           [6.]], dtype=float32)]
    """
    backwards = get_default_override(Recurrence, go_backwards=go_backwards)
    initial_state = get_default_override(Recurrence, initial_state=initial_state)
    step = _santize_step_function(step_function)
    from_states = _from_states("recurrence", step, backwards, return_full_state, name)
    number = len(step.signature) - 1
    declared = initial_state if isinstance(initial_state, tuple) else (initial_state,)
    if len(declared) == 1 and isinstance(declared[0], tuple):  # ((h, c),) is (h, c), as in CNTK
        declared = declared[0]
    states = [_get_initial_state_or_default(state) for state in declared] * (number if len(declared) == 1 else 1)
    if len(states) != number:
        raise TypeError(explain(
            f"Recurrence {name!r}: initial_state has {len(states)} states, and the step function takes {number}: "
            f"({', '.join(v.name for v in step.signature[:-1])})",
            fix="give one value for all states, or a tuple with one for each",
        ))

    def recurrence(x: Variable) -> Function:
        return from_states(*states, x)

    return Function(recurrence)


@public
def Fold(
    folder_function: Step,
    go_backwards: Flag = default_override_or(False),
    initial_state: InitialState = default_override_or(0),
    return_full_state: bool = False,
    name: str = "",
) -> Function:
    """The final state of a `Recurrence`: its output at the last step, or with `go_backwards` at the first.

    Shapes: x [n] with a sequence axis -> [*state] without it.
    Errors: as `Recurrence`.

    >>> import cntkjax as C
    >>> x = C.sequence.input_variable(1)
    >>> Fold(C.plus)(x).eval({x: [[[1], [2], [3]]]})
    array([[6.]], dtype=float32)
    """
    go_backwards = get_default_override(Fold, go_backwards=go_backwards)
    initial_state = get_default_override(Fold, initial_state=initial_state)
    recurrence = Recurrence(folder_function, go_backwards, initial_state, return_full_state)
    final = sequence.first if go_backwards else sequence.last

    def fold(x: Variable) -> Function:
        return _inject_name(combine([final(state) for state in recurrence(x).outputs]), name)

    return Function(fold)


@public
def UnfoldFrom(
    generator_function: Step, until_predicate: Layer | None = None, length_increase: float = 1, name: str = ""
) -> Function:
    """A generator: a function (initial_state, dynamic_axes_like) -> a sequence, each step computed from the last state.

    `generator_function` takes the previous state and returns the output, which is also the new state, or a pair
    (output, new state). The sequences are `length_increase` times as long as those of `dynamic_axes_like`, or end with
    the first output for which `until_predicate` is true.

    Shapes: initial_state [*state] with the batch axis -> [*output] with the axes of `dynamic_axes_like`, or a new
            sequence axis if the lengths change.
    Errors: TypeError for a generator that cannot be called; when it is applied, AxisError if `dynamic_axes_like` has no
            sequence axis.

    >>> import cntkjax as C
    >>> start, like = C.input_variable(1), C.sequence.input_variable(1)
    >>> double = UnfoldFrom(lambda state: 2 * state)
    >>> double(start, like).eval({start: [[1]], like: [[[0], [0], [0]]]})
    [array([[2.],
           [4.],
           [8.]], dtype=float32)]
    """
    if not callable(generator_function):
        raise TypeError(explain(
            f"UnfoldFrom: the generator is {generator_function!r}", fix="pass a function of the previous state"
        ))
    generator = _sanitize_function(generator_function)

    def unfold_from(initial_state: Variable, dynamic_axes_like: Variable) -> Function:
        like: Variable | Function = dynamic_axes_like
        if length_increase != 1:
            like = sequence.where(sequence.broadcast_as(length_increase, like))
        state = ForwardDeclaration("unfold_state_fwd")
        before = sequence.past_value(reconcile_dynamic_axes(state, like), initial_state, name="unfold_prev_state")
        generated = generator(before)
        output = combine([generated.outputs[0]], name="" if name else "unfold_output")
        generated.replace_placeholders({state: generated.outputs[-1]})
        if until_predicate is not None:
            stop = _sanitize_function(until_predicate)(output)
            valid_frames = Recurrence(
                lambda h, x: (1 - sequence.past_value(x)) * h, initial_state=1, name="valid_frames"
            )
            valid = valid_frames(stop)
            output = sequence.gather(output, valid, name="valid_output")
        return _inject_name(output, name)

    return Function(unfold_from)


__all__ = [
    "GRU", "LSTM", "BlockFunction", "Constant", "Delay", "Fold", "ForwardDeclaration", "Function", "InferredDimension",
    "Parameter", "PastValueWindow", "RNNStep", "RNNUnit", "Record", "Recurrence", "RecurrenceFrom", "Stabilizer",
    "UnfoldFrom", "UntestedBranchError", "alias", "combine", "glorot_uniform", "identity", "placeholder",
    "reconcile_dynamic_axes", "sequence", "sigmoid", "slice", "softplus", "splice", "tanh", "times",
]
