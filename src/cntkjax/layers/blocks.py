"""Blocks of which recurrent layers are made: cells and stabilizers, with parameters of their own."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from ..default_options import default_override_or, get_default_override
from ..graph.function import Function as GraphFunction
from ..graph.shape import INFERRED as InferredDimension
from ..graph.variable import Variable as GraphVariable
from ..initializer import Initializer, glorot_uniform, initializer_with_rank
from ..internal.sanitize import _as_tuple
from ..ops import alias, combine, placeholder, plus, sigmoid, slice, softplus, tanh, times
from ..ops.functions import BlockFunction, Function, identity
from ..variables import Constant, Parameter, Record, Variable

_INFERRED = (InferredDimension,)

Activation = Any  # a function of a variable, or a default for one


def _initializer_for(init: Any, rank_params: Record | None = None) -> Any:
    """What a parameter takes as `init`, with the ranks of its axes where the initializer leaves them open.

    Errors: ValueError for None.
    """
    if init is None:
        raise ValueError("init parameter cannot be None")
    if isinstance(init, Initializer) and rank_params:
        return initializer_with_rank(init, **rank_params)
    return init


def _get_initial_state_or_default(initial_state: Any) -> Any:
    """An initial state as an operand: numbers and arrays become constants, None is 0."""
    if initial_state is None:
        return Constant(0)
    if np.isscalar(initial_state):
        return Constant(initial_state, shape=(1,))
    return Constant(initial_state) if isinstance(initial_state, (np.ndarray, list)) else initial_state


def _inject_name(f: Any, name: str) -> Any:
    """The function under a name, if one is given."""
    if not name:
        return f
    outputs = f.outputs if isinstance(f, GraphFunction) else (f,)
    return alias(f, name=name) if len(outputs) == 1 else combine(outputs, name=name)


def UntestedBranchError(name: str) -> None:
    """Say that an option is not implemented. Errors: NotImplementedError, always."""
    raise NotImplementedError(f"{name}: CNTK has no such option either")


def ForwardDeclaration(name: str = "forward_declaration") -> Variable:
    """A placeholder for what is defined later: its ``resolve_to(function)`` closes the loop.

    Errors of `resolve_to`: ValueError if the function does not depend on the placeholder.

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


def _resolve(declared: Variable, value: Any) -> None:
    combine([value]).replace_placeholders({declared: value})


def Stabilizer(
    steepness: float = 4, enable_self_stabilization: Any = default_override_or(True), name: str = ""
) -> Function:
    """x times a learned positive scalar, 1 at first.

    Shapes: x [*shape] -> [*shape]; alpha [].
    Source: Ghahremani and Droppo, "Self-stabilized deep neural network", ICASSP 2016; values as in CNTK 2.7.
    """
    if not get_default_override(Stabilizer, enable_self_stabilization=enable_self_stabilization):
        return identity
    alpha = Parameter((), init=np.log(np.expm1(steepness)) / steepness, name="alpha")

    @BlockFunction("Stabilizer", name)
    def stabilize(x: GraphVariable) -> Any:
        return softplus(alpha, steepness=steepness) * x

    return stabilize


class _Cell:
    """The parameters of a recurrent cell with `gates` stacked inner products, in CNTK's order."""

    def __init__(
        self, kind: str, gates: int, shape: Any, cell_shape: Any, init: Any, init_bias: Any, stabilize: bool,
        peepholes: bool = False,
    ) -> None:
        out = _as_tuple(shape)
        cell = out if cell_shape is None else _as_tuple(cell_shape)
        if len(out) != 1 or len(cell) != 1:
            raise ValueError(f"{kind}: shape and cell_shape must be vectors (rank-1 tensors)")
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
        self.of_dh, self.of_dc, self.of_c, self.of_h = (
            Stabilizer(enable_self_stabilization=stabilize, name=f"{name}_stabilizer")
            for name in ("dh", "dc", "c", "P")
        )

    def part(self, stacked: Any, i: int) -> Any:
        """The i-th of the stacked products."""
        return slice(stacked, -1, i * self.size, (i + 1) * self.size)

    def projected(self, h: Any) -> Any:
        """The output for a state of the cell's size."""
        return h if self.P is None else times(self.of_h(h), self.P)


def LSTM(
    shape: Any,
    cell_shape: Any = None,
    activation: Activation = default_override_or(tanh),
    use_peepholes: Any = default_override_or(False),
    init: Any = default_override_or(glorot_uniform()),
    init_bias: Any = default_override_or(0),
    enable_self_stabilization: Any = default_override_or(False),
    name: str = "",
) -> Function:
    """A long short-term memory cell, for `Recurrence` and its kin.

    Shapes: (dh [*shape], dc [*cell_shape], x [n]) -> (h [*shape], c [*cell_shape]); b [4 d], W [n, 4 d], H [s, 4 d]
            with s = shape and d = cell_shape, P [d, s] if a cell_shape is given, Ci, Cf, Co [d] with peepholes. The
            parts are stacked as input gate, update, forget gate, output gate.
    Errors: ValueError unless shape and cell_shape are vectors.
    Source: Gers, Schraudolph and Schmidhuber, JMLR 3 (2002), the cell with forget gate and peepholes; CNTK 2.7's graph.

    >>> [p.name for p in LSTM(3).parameters]
    ['b', 'W', 'H']
    """
    activation = get_default_override(LSTM, activation=activation)
    peepholes = get_default_override(LSTM, use_peepholes=use_peepholes)
    init = get_default_override(LSTM, init=init)
    init_bias = get_default_override(LSTM, init_bias=init_bias)
    stabilize = get_default_override(LSTM, enable_self_stabilization=enable_self_stabilization)
    cell = _Cell("LSTM", 4, shape, cell_shape, init, init_bias, stabilize, peepholes)

    @BlockFunction("LSTM", name)
    def lstm(dh: GraphVariable, dc: GraphVariable, x: GraphVariable) -> Any:
        dhs, dcs = cell.of_dh(dh), cell.of_dc(dc)
        products = plus(plus(cell.b, times(x, cell.W)), times(dhs, cell.H))
        input_, update, forget, output = (cell.part(products, i) for i in range(4))
        if peepholes:
            input_, forget = input_ + cell.Ci * dcs, forget + cell.Cf * dcs
        new = sigmoid(input_) * activation(update)
        c = sigmoid(forget) * dc + new
        if peepholes:
            output = output + cell.Co * cell.of_c(c)
        return cell.projected(sigmoid(output) * activation(c)), c

    return lstm


def RNNStep(
    shape: Any,
    cell_shape: Any = None,
    activation: Activation = default_override_or(sigmoid),
    init: Any = default_override_or(glorot_uniform()),
    init_bias: Any = default_override_or(0),
    enable_self_stabilization: Any = default_override_or(False),
    name: str = "",
) -> Function:
    """A plain recurrent cell, for `Recurrence` and its kin: ``h = activation(x @ W + dh @ H + b)``.

    Shapes: (dh [*shape], x [n]) -> h [*shape]; b [d], W [n, d], H [s, d] with s = shape and d = cell_shape, P [d, s] if
            a cell_shape is given.
    Errors: ValueError unless shape and cell_shape are vectors.
    """
    activation = get_default_override(RNNStep, activation=activation)
    init = get_default_override(RNNStep, init=init)
    init_bias = get_default_override(RNNStep, init_bias=init_bias)
    stabilize = get_default_override(RNNStep, enable_self_stabilization=enable_self_stabilization)
    cell = _Cell("RNNStep", 1, shape, cell_shape, init, init_bias, stabilize)

    @BlockFunction("RNNStep", name)
    def rnn_step(dh: GraphVariable, x: GraphVariable) -> Any:
        return cell.projected(activation(times(x, cell.W) + times(cell.of_dh(dh), cell.H) + cell.b))

    return rnn_step


def RNNUnit(
    shape: Any,
    cell_shape: Any = None,
    activation: Activation = default_override_or(sigmoid),
    init: Any = default_override_or(glorot_uniform()),
    init_bias: Any = default_override_or(0),
    enable_self_stabilization: Any = default_override_or(False),
    name: str = "",
) -> Function:
    """The old name of `RNNStep`."""
    warnings.warn("RNNUnit is deprecated: use RNNStep", DeprecationWarning, stacklevel=2)
    options = {
        key: get_default_override(RNNUnit, **{key: value})
        for key, value in {
            "activation": activation, "init": init, "init_bias": init_bias,
            "enable_self_stabilization": enable_self_stabilization,
        }.items()
    }
    return RNNStep(shape, cell_shape, name=name, **options)


def GRU(
    shape: Any,
    cell_shape: Any = None,
    activation: Activation = default_override_or(tanh),
    init: Any = default_override_or(glorot_uniform()),
    init_bias: Any = default_override_or(0),
    enable_self_stabilization: Any = default_override_or(False),
    name: str = "",
) -> Function:
    """A gated recurrent unit, for `Recurrence` and its kin; the reset gate acts on the state before that meets H1.

    Shapes: (dh [*shape], x [n]) -> h [*shape]; b [3 d], W [n, 3 d], H [s, 2 d], H1 [s, d] with s = shape and
            d = cell_shape, P [d, s] if a cell_shape is given. The parts stand as update gate, reset gate, candidate.
    Errors: ValueError unless shape and cell_shape are vectors.
    Source: Cho et al., EMNLP 2014 (arXiv:1406.1078); graph as in CNTK 2.7.
    """
    activation = get_default_override(GRU, activation=activation)
    init = get_default_override(GRU, init=init)
    init_bias = get_default_override(GRU, init_bias=init_bias)
    stabilize = get_default_override(GRU, enable_self_stabilization=enable_self_stabilization)
    cell = _Cell("GRU", 3, shape, cell_shape, init, init_bias, stabilize)

    @BlockFunction("GRU", name)
    def gru(dh: GraphVariable, x: GraphVariable) -> Any:
        dhs = cell.of_dh(dh)
        of_x, of_h = plus(cell.b, times(x, cell.W)), times(dhs, cell.H)
        z = cell.part(of_x, 0) + cell.part(of_h, 0)
        r = cell.part(of_x, 1) + cell.part(of_h, 1)
        candidate = cell.part(of_x, 2)
        z, r = sigmoid(z), sigmoid(r)
        candidate = activation(candidate + times(dhs * r, cell.H1))
        return cell.projected((1 - z) * candidate + z * dhs)

    return gru
