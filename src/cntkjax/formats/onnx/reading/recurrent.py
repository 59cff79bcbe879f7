"""LSTM, GRU and RNN: cells of the layers over the first axis as a sequence.

Tensors are [time, samples, ...]. Where the cell is one of CNTK's layers, it is a block of that name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .... import layers, ops
from ....default_options import default_options
from ....graph.variable import infer_shape
from ....variables import Constant, Parameter
from .table import Node, reads

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "tanh": ops.tanh, "sigmoid": ops.sigmoid, "relu": ops.relu, "softsign": ops.softsign, "softplus": ops.softplus,
}  # fmt: skip
_DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


@dataclass
class Weights:
    """Of one direction: W [gates * d, n], R [gates * d, d], b [2 * gates * d], peepholes [3 * d]."""

    W: np.ndarray
    R: np.ndarray
    b: np.ndarray
    peepholes: np.ndarray | None
    names: tuple[str, str, str]


@reads("LSTM", "GRU", "RNN")
def _recurrent(node: Node) -> Any:
    x, size, way = node.x(0), node.whole("hidden_size", 0), node.text("direction", "forward")
    if way not in ("forward", "reverse", "bidirectional"):
        raise node.fail(f"the direction {way!r} is not known")
    if node.attribute("clip") is not None or node.whole("input_forget", 0):
        raise node.fail("clipped states and coupled gates cannot be read")
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[way]
    weights = _weights(node, len(backwards), size, x.shape[-1])
    first = bool(node.whole("layout", 0))  # samples first
    if first:
        x = ops.transpose(x, (1, 0, 2))
    if len(x.shape) != 3:
        raise node.fail(f"an operand of shape {x.shape} is no [time, samples, size]")
    _check_lengths(node, x)
    names = _activations(node, len(backwards))
    steps = ops.to_sequence(ops.to_batch(ops.transpose(x, (1, 0, 2))))
    whole, last_h, last_c = [], [], []
    for i, (w, back) in enumerate(zip(weights, backwards, strict=True)):
        states = [_initial(node, k, i, size, first) for k in ([5, 6] if node.op == "LSTM" else [5])]
        cell = _cell(node, w, names[i], size)
        outs = _repeated(cell, states, steps, back)
        whole.append(_unpacked(outs[0]))
        ends = [(ops.sequence.first if back else ops.sequence.last)(o) for o in outs]
        last_h.append(ops.unpack_batch(ends[0]))
        last_c.append(ops.unpack_batch(ends[-1]))
    return _outputs(node, x, whole, last_h, last_c, first)


def _repeated(cell: Any, states: list[Any], steps: Any, back: bool) -> Any:
    """The states of a cell at all steps, from initial ones."""
    delay = ops.sequence.future_value if back else ops.sequence.past_value
    stand_ins = [ops.placeholder() for _ in states]
    made = cell(*(delay(p, initial_state=s) for p, s in zip(stand_ins, states, strict=True)), steps)
    return made.replace_placeholders(dict(zip(stand_ins, made.outputs, strict=True))).outputs


def _outputs(node: Node, x: Any, whole: list[Any], last_h: list[Any], last_c: list[Any], first: bool) -> list[Any]:
    """Y [time, directions, samples, size] and the last states [directions, samples, size]; or samples first."""
    known = x.shape[1]

    def fixed(v: Any, axis: int) -> Any:
        return ops.reshape(v, (known,), axis, axis + 1) if known >= 0 else v

    def stacked(parts: list[Any], axis: int, samples: int) -> Any:
        parts = [ops.expand_dims(fixed(p, samples), axis - len(p.shape) - 1) for p in parts]
        return ops.splice(*parts, axis=axis) if len(parts) > 1 else parts[0]

    def used(i: int) -> bool:
        return i < len(node.proto.output) and bool(node.proto.output[i])

    made = [stacked(whole, 1, 1), stacked(last_h, 0, 0), stacked(last_c, 0, 0)]
    if first:
        made = [ops.transpose(made[0], (2, 0, 1, 3)), *(ops.transpose(m, (1, 0, 2)) for m in made[1:])]
    return [m for i, m in enumerate(made[: max(len(node.proto.output), 1)]) if used(i) or True]


def _unpacked(sequence: Any) -> Any:
    """[time, samples, size] of a sequence."""
    return ops.transpose(ops.unpack_batch(ops.sequence.unpack(sequence, 0, True)), (1, 0, 2))


def _weights(node: Node, directions: int, size: int, inputs: int) -> list[Weights]:
    gates = _GATES[node.op]
    W, R = node.array(1, "W"), node.array(2, "R")
    if not 1 <= size <= 2**16 or W.shape != (directions, gates * size, inputs) or R.shape != (
        directions, gates * size, size
    ):
        raise node.fail(f"weights of shapes {W.shape} and {R.shape} for inputs of {inputs} and a state of {size}")
    b = node.array(3, "B") if node.has(3) else np.zeros((directions, 2 * gates * size), W.dtype)
    p = node.array(7, "P") if node.op == "LSTM" and node.has(7) else None
    if b.shape != (directions, 2 * gates * size) or (p is not None and p.shape != (directions, 3 * size)):
        raise node.fail("the biases or peepholes are of another shape than the weights")
    name = [node.proto.input[i] if node.has(i) else "" for i in (1, 2, 3)]
    return [
        Weights(W[i], R[i], b[i], None if p is None else p[i],
                tuple(n + (f"_{i}" if directions > 1 and n else "") for n in name))  # type: ignore[arg-type]
        for i in range(directions)
    ]


def _activations(node: Node, directions: int) -> list[list[str]]:
    per = len(_DEFAULTS[node.op])
    given = [a.decode() if isinstance(a, bytes) else a for a in node.attribute("activations", [])]
    given = given or _DEFAULTS[node.op] * directions
    if len(given) != per * directions or any(a.lower() not in _ACTIVATIONS for a in given):
        raise node.fail(f"the activations {given} cannot be read")
    return [[a.lower() for a in given[i * per : (i + 1) * per]] for i in range(directions)]


def _check_lengths(node: Node, x: Any) -> None:
    if not node.has(4):
        return
    lengths = node.known(4)
    if lengths is None or x.shape[0] < 0 or not (lengths.astype(object) == x.shape[0]).all():
        raise node.fail("sequences of different lengths in one batch cannot be read")


def _initial(node: Node, operand: int, direction: int, size: int, first: bool) -> Any:
    """The initial state of a direction: one for all samples if they have the same, or else one for each."""
    if not node.has(operand):
        return 0
    uniform = node.tensor(operand).uniform
    if uniform is not None:
        return float(uniform)
    value = node.known(operand)
    if value is not None:
        if value.ndim != 3 or value.shape[-1] != size:
            raise node.fail(f"an initial state of shape {value.shape}")
        mine = value[:, direction] if first else value[direction]
        if (mine == mine[:1]).all():
            return Constant(mine[0], dtype=mine.dtype.type) if mine.any() else 0
    state = node.x(operand)
    if len(state.shape) != 3:
        raise node.fail(f"an initial state of shape {state.shape}")
    axis = 1 if first else 0
    if state.shape[axis] != 1:
        state = ops.slice(state, axis, direction, direction + 1)
    return ops.to_batch(ops.squeeze(state, [axis]))


def _cell(node: Node, w: Weights, names: list[str], size: int) -> Any:
    """A layer of CNTK with these weights, or a function of the same kind where the layers have none."""
    dtype = w.W.dtype.type
    d, gates = size, _GATES[node.op]
    Wb, Rb = w.b[: gates * d], w.b[gates * d :]
    rest, gate = names[-1], names[0]
    plain = len(set(names[1:])) <= 1 and (len(names) == 1 or gate == "sigmoid")
    if node.op == "GRU" and node.whole("linear_before_reset", 0):
        return _gru_after(w, names, d)
    if not plain:
        raise node.fail(f"the activations {names} cannot be read")

    def turned(value: np.ndarray, order: str, theirs: str) -> np.ndarray:
        parts = dict(zip(theirs, np.split(value, len(theirs), axis=0), strict=True))
        return np.concatenate([parts[g] for g in order], axis=0)

    with default_options(dtype=dtype):
        kind: Any = {"LSTM": layers.LSTM, "GRU": layers.GRU, "RNN": layers.RNNStep}[node.op]
        options = {"use_peepholes": w.peepholes is not None} if node.op == "LSTM" else {}
        cell = kind(d, activation=_ACTIVATIONS[rest], enable_self_stabilization=False, **options)
    order = ("igfo", "iofg") if node.op == "LSTM" else ("zrh", "zrh") if node.op == "GRU" else ("h", "h")
    W, R, b = (turned(v, *order) for v in (w.W, w.R, Wb + Rb))
    values = {"W": W.T, "H": R.T, "b": b}
    if node.op == "GRU":
        values |= {"H": R.T[:, : 2 * d], "H1": R.T[:, 2 * d :]}
    if w.peepholes is not None:
        values |= dict(zip(("Ci", "Co", "Cf"), np.split(w.peepholes, 3), strict=True))
    for p in cell.parameters:
        if p.name == "W":
            infer_shape(p, values["W"].shape)
        p.value = np.ascontiguousarray(values[p.name])
    return cell


def _gru_after(w: Weights, names: list[str], d: int) -> Any:
    """A GRU whose reset gate scales the product of the state, with its bias: PyTorch's and cuDNN's."""
    dtype = w.W.dtype.type
    W, R = (Parameter(init=np.ascontiguousarray(v.T), dtype=dtype, name=n) for v, n in
            ((w.W, w.names[0]), (w.R, w.names[1])))
    b, c = (Parameter(init=v, dtype=dtype, name=w.names[2]) for v in (w.b[: 3 * d], w.b[3 * d :]))
    gate, rest = (_ACTIVATIONS[n] for n in names)

    def step(h: Any, x: Any) -> Any:
        of_x, of_h = ops.plus(ops.times(x, W), b), ops.plus(ops.times(h, R), c)
        zx, rx, nx, zh, rh, nh = (ops.slice(v, -1, k * d, (k + 1) * d) for v in (of_x, of_h) for k in range(3))
        z, r = gate(ops.plus(zx, zh)), gate(ops.plus(rx, rh))
        n = rest(ops.plus(nx, ops.element_times(r, nh)))
        return n + z * (h - n)

    return layers.Function(step)


__all__ = ["Weights"]
