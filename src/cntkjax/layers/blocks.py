"""Building blocks of recurrent layers: cells and stabilizers, each with parameters of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._user_code import warn
from ..default_options import default_override_or, get_default_override
from ..graph.arguments import public
from ..graph.errors import explain
from ..graph.function import Node
from ..graph.shape import INFERRED as InferredDimension
from ..graph.variable import Edge
from ..initializer import Initializer, glorot_uniform, initializer_with_rank
from ..ops import alias, combine, placeholder, plus, sigmoid, slice, softplus, tanh, times
from ..ops.functions import BlockFunction, Function, identity
from ..variables import Constant, Parameter, Record, Variable
from ._arguments import Activation, Flag, Init, Layer, Operand, check_activation, shape_of

_INFERRED = (InferredDimension,)


def _initializer_for(init: Any, rank_params: Record | None = None) -> Any:
    """The `init` of a parameter; an initializer gets the ranks that it leaves open.

    Errors: ValueError for None.
    """
    if init is None:
        raise ValueError(explain(
            "init parameter cannot be None",
            fix="leave it out for the default, or give a number, an array or an initializer such as glorot_uniform()",
        ))
    if isinstance(init, str):
        raise ValueError(explain(
            f"init is the text {init!r}", fix="give an initializer, such as cntk.glorot_uniform(), a number or an array"
        ))
    if isinstance(init, Initializer) and rank_params:
        return initializer_with_rank(init, **rank_params)
    return init


def _get_initial_state_or_default(initial_state: Any) -> Operand:
    """An initial state as an operand: numbers and arrays become constants, None is 0."""
    if initial_state is None:
        return Constant(0)
    if np.isscalar(initial_state):
        return Constant(initial_state, shape=(1,))
    return Constant(initial_state) if isinstance(initial_state, (np.ndarray, list)) else initial_state


def _inject_name(f: Any, name: str) -> Any:  # CNTK's helper takes whatever a layer may be
    """The function under a name, unless it is empty."""
    if not name:
        return f
    outputs = f.outputs if isinstance(f, Node) else (f,)
    return alias(f, name=name) if len(outputs) == 1 else combine(outputs, name=name)


@public
class UntestedBranchError(NotImplementedError):
    """An option that CNTK does not implement either."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: CNTK has no such option either")


@public
def ForwardDeclaration(name: str = "forward_declaration") -> Variable:
    """A placeholder for a function that is defined later: ``resolve_to(function)`` closes the loop.

    Shapes: those of the function that it is resolved to.
    Errors: ValueError from `resolve_to` if the function does not depend on the placeholder.

        >>> from cntkjax import sequence
        >>> x, total = sequence.input_variable(1), ForwardDeclaration("total")
        >>> running = x + sequence.past_value(total)
        >>> total.resolve_to(running)
        >>> running.eval({x: [[[1], [2], [3]]]})[0].ravel().tolist()
        [1.0, 3.0, 6.0]
    """
    declared = placeholder(name=name)
    declared.resolve_to = partial(_resolve, declared)  # type: ignore[attr-defined]
    return declared


def _resolve(declared: Variable, value: Operand) -> None:
    combine([value]).replace_placeholders({declared: value})


@public
def Stabilizer(
    steepness: float = 4, enable_self_stabilization: Flag = default_override_or(True), name: str = ""
) -> Function:
    """x times a learned positive scalar that starts at 1; the identity without `enable_self_stabilization`.

    Shapes: x [*shape] -> [*shape]; alpha [].
    Errors: ValueError for a steepness of 0.
    Source: Ghahremani and Droppo, "Self-stabilized deep neural network", ICASSP 2016; values as in CNTK 2.7.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> Stabilizer()(x).eval({x: [[1, 2]]}).round(4)
    array([[1., 2.]], dtype=float32)
    """
    if not get_default_override(Stabilizer, enable_self_stabilization=enable_self_stabilization):
        return identity
    alpha = Parameter((), init=np.log(np.expm1(steepness)) / steepness, name="alpha")

    @BlockFunction("Stabilizer", name)
    def stabilize(x: Edge) -> Function:
        return softplus(alpha, steepness=steepness) * x

    return stabilize


def _activation_of(layer: Callable[..., Function], activation: Activation) -> Layer:
    """The activation of a cell, or its default. Errors: TypeError if it is not a function."""
    function = get_default_override(layer, activation=activation)
    check_activation(layer.__name__, function)
    return function


class _Cell:
    """The parameters of a recurrent cell with `gates` stacked inner products, in CNTK's order."""

    def __init__(
        self, kind: str, gates: int, shape: int | Sequence[int], cell_shape: int | Sequence[int] | None, init: Init,
        init_bias: Init, stabilize: bool, peepholes: bool = False,
    ) -> None:
        out = shape_of(kind, shape)
        cell = out if cell_shape is None else shape_of(kind, cell_shape, "cell_shape")
        if len(out) != 1 or len(cell) != 1:
            raise ValueError(explain(
                f"{kind}: shape and cell_shape must be vectors (rank-1 tensors), not {out} and {cell}",
                fix=f"give one number, for example {kind}({int(np.prod(out))}), and reshape the output",
            ))
        self.size = cell[0]
        stacked = (gates * self.size,)
        recurrent = (2 * self.size,) if kind == "GRU" else stacked  # the third product of a GRU is with H1
        init = _initializer_for(init)
        self.b = Parameter(stacked, init=init_bias, name="b")
        self.W = Parameter(_INFERRED + stacked, init=init, name="W")
        self.H = Parameter(out + recurrent, init=init, name="H")
        if kind == "GRU":
            self.H1 = Parameter(out + cell, init=init, name="H1")
        if peepholes:
            self.Ci, self.Cf, self.Co = (Parameter(cell, init=init, name=name) for name in ("Ci", "Cf", "Co"))
        self.P = None if cell_shape is None else Parameter(cell + out, init=init, name="P")
        self.stabilize_dh, self.stabilize_dc, self.stabilize_c, self.stabilize_h = (
            Stabilizer(enable_self_stabilization=stabilize, name=f"{name}_stabilizer")
            for name in ("dh", "dc", "c", "P")
        )

    def part(self, stacked: Operand, i: int) -> Function:
        """The i-th of the stacked products."""
        return slice(stacked, -1, i * self.size, (i + 1) * self.size)

    def projected(self, h: Function) -> Function:
        """The output for a state of the cell's size."""
        return h if self.P is None else times(self.stabilize_h(h), self.P)


@public
def LSTM(
    shape: int | Sequence[int],
    cell_shape: int | Sequence[int] | None = None,
    activation: Activation = default_override_or(tanh),
    use_peepholes: Flag = default_override_or(False),
    init: Init = default_override_or(glorot_uniform()),
    init_bias: Init = default_override_or(0),
    enable_self_stabilization: Flag = default_override_or(False),
    name: str = "",
) -> Function:
    """A long short-term memory cell, for `Recurrence`, `Fold` and `RecurrenceFrom`.

    Shapes: (dh [*shape], dc [*cell_shape], x [n]) -> (h [*shape], c [*cell_shape]); b [4 d], W [n, 4 d], H [s, 4 d]
            with s = shape and d = cell_shape, P [d, s] if a cell_shape is given, Ci, Cf, Co [d] with peepholes. The
            parts are stacked as input gate, update, forget gate, output gate.
    Errors: ValueError unless shape and cell_shape are vectors; TypeError for an activation that is not a function.
    Source: Gers, Schraudolph and Schmidhuber, JMLR 3 (2002), the cell with forget gate and peepholes; CNTK 2.7's graph.

    >>> import cntkjax as C
    >>> states = C.layers.Recurrence(LSTM(3))(C.sequence.input_variable(5))
    >>> states.shape, [(p.name, p.shape) for p in states.parameters]
    ((3,), [('b', (12,)), ('W', (5, 12)), ('H', (3, 12))])
    """
    nonlinearity = _activation_of(LSTM, activation)
    peepholes = get_default_override(LSTM, use_peepholes=use_peepholes)
    init = get_default_override(LSTM, init=init)
    init_bias = get_default_override(LSTM, init_bias=init_bias)
    stabilize = get_default_override(LSTM, enable_self_stabilization=enable_self_stabilization)
    cell = _Cell("LSTM", 4, shape, cell_shape, init, init_bias, stabilize, peepholes)

    @BlockFunction("LSTM", name)
    def lstm(dh: Edge, dc: Edge, x: Edge) -> tuple[Function, Function]:
        dhs, dcs = cell.stabilize_dh(dh), cell.stabilize_dc(dc)
        products = plus(plus(cell.b, times(x, cell.W)), times(dhs, cell.H))
        input_gate, update, forget_gate, output_gate = (cell.part(products, i) for i in range(4))
        if peepholes:
            input_gate, forget_gate = input_gate + cell.Ci * dcs, forget_gate + cell.Cf * dcs
        new = sigmoid(input_gate) * nonlinearity(update)
        c = sigmoid(forget_gate) * dc + new
        if peepholes:
            output_gate = output_gate + cell.Co * cell.stabilize_c(c)
        return cell.projected(sigmoid(output_gate) * nonlinearity(c)), c

    return lstm


@public
def RNNStep(
    shape: int | Sequence[int],
    cell_shape: int | Sequence[int] | None = None,
    activation: Activation = default_override_or(sigmoid),
    init: Init = default_override_or(glorot_uniform()),
    init_bias: Init = default_override_or(0),
    enable_self_stabilization: Flag = default_override_or(False),
    name: str = "",
) -> Function:
    """A plain recurrent cell, for `Recurrence`, `Fold` and `RecurrenceFrom`: ``h = activation(x @ W + dh @ H + b)``.

    Shapes: (dh [*shape], x [n]) -> h [*shape]; b [d], W [n, d], H [s, d] with s = shape and d = cell_shape, P [d, s] if
            a cell_shape is given.
    Errors: ValueError unless shape and cell_shape are vectors; TypeError for an activation that is not a function.

    >>> import cntkjax as C
    >>> states = C.layers.Recurrence(RNNStep(3, activation=C.tanh))(C.sequence.input_variable(5))
    >>> states.shape, [(p.name, p.shape) for p in states.parameters]
    ((3,), [('W', (5, 3)), ('H', (3, 3)), ('b', (3,))])
    """
    nonlinearity = _activation_of(RNNStep, activation)
    init = get_default_override(RNNStep, init=init)
    init_bias = get_default_override(RNNStep, init_bias=init_bias)
    stabilize = get_default_override(RNNStep, enable_self_stabilization=enable_self_stabilization)
    cell = _Cell("RNNStep", 1, shape, cell_shape, init, init_bias, stabilize)

    @BlockFunction("RNNStep", name)
    def rnn_step(dh: Edge, x: Edge) -> Function:
        return cell.projected(nonlinearity(times(x, cell.W) + times(cell.stabilize_dh(dh), cell.H) + cell.b))

    return rnn_step


@public
def RNNUnit(
    shape: int | Sequence[int],
    cell_shape: int | Sequence[int] | None = None,
    activation: Activation = default_override_or(sigmoid),
    init: Init = default_override_or(glorot_uniform()),
    init_bias: Init = default_override_or(0),
    enable_self_stabilization: Flag = default_override_or(False),
    name: str = "",
) -> Function:
    """The old name of `RNNStep`, with a DeprecationWarning.

    Shapes, Errors: as `RNNStep`.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     sorted(p.name for p in RNNUnit(3).parameters)
    ['H', 'W', 'b']
    """
    warn("RNNUnit is deprecated: use RNNStep", DeprecationWarning)
    options = {
        key: get_default_override(RNNUnit, **{key: value})
        for key, value in {
            "activation": activation, "init": init, "init_bias": init_bias,
            "enable_self_stabilization": enable_self_stabilization,
        }.items()
    }
    return RNNStep(shape, cell_shape, name=name, **options)


@public
def GRU(
    shape: int | Sequence[int],
    cell_shape: int | Sequence[int] | None = None,
    activation: Activation = default_override_or(tanh),
    init: Init = default_override_or(glorot_uniform()),
    init_bias: Init = default_override_or(0),
    enable_self_stabilization: Flag = default_override_or(False),
    name: str = "",
) -> Function:
    """A gated recurrent unit, for `Recurrence`, `Fold` and `RecurrenceFrom`.

    The reset gate scales the state before its product with H1.

    Shapes: (dh [*shape], x [n]) -> h [*shape]; b [3 d], W [n, 3 d], H [s, 2 d], H1 [s, d] with s = shape and
            d = cell_shape, P [d, s] if a cell_shape is given. The parts are stacked as update gate, reset gate,
            candidate.
    Errors: ValueError unless shape and cell_shape are vectors; TypeError for an activation that is not a function.
    Source: Cho et al., EMNLP 2014 (arXiv:1406.1078); graph as in CNTK 2.7.

    >>> import cntkjax as C
    >>> states = C.layers.Recurrence(GRU(3))(C.sequence.input_variable(5))
    >>> states.shape, [(p.name, p.shape) for p in states.parameters]
    ((3,), [('b', (9,)), ('W', (5, 9)), ('H', (3, 6)), ('H1', (3, 3))])
    """
    nonlinearity = _activation_of(GRU, activation)
    init = get_default_override(GRU, init=init)
    init_bias = get_default_override(GRU, init_bias=init_bias)
    stabilize = get_default_override(GRU, enable_self_stabilization=enable_self_stabilization)
    cell = _Cell("GRU", 3, shape, cell_shape, init, init_bias, stabilize)

    @BlockFunction("GRU", name)
    def gru(dh: Edge, x: Edge) -> Function:
        dhs = cell.stabilize_dh(dh)
        x_products, h_products = plus(cell.b, times(x, cell.W)), times(dhs, cell.H)
        z = cell.part(x_products, 0) + cell.part(h_products, 0)
        r = cell.part(x_products, 1) + cell.part(h_products, 1)
        candidate = cell.part(x_products, 2)
        z, r = sigmoid(z), sigmoid(r)
        candidate = nonlinearity(candidate + times(dhs * r, cell.H1))
        return cell.projected((1 - z) * candidate + z * dhs)

    return gru


__all__ = [
    "BlockFunction", "Constant", "ForwardDeclaration", "Function", "GRU", "InferredDimension", "LSTM", "Parameter",
    "RNNStep", "RNNUnit", "Stabilizer", "UntestedBranchError", "alias", "combine", "default_override_or",
    "get_default_override", "glorot_uniform", "identity", "np", "placeholder", "sigmoid", "slice", "softplus", "tanh",
    "times",
]
