"""LSTM, GRU and RNN: cells of layers, with the first axis as a sequence axis.

Tensors are [time, samples, ...]. A cell that CNTK has as a layer is a block with the name of the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from .... import layers, ops
from ....default_options import default_options
from ....graph.variable import infer_shape
from ....variables import Constant, Parameter
from ..cell_forms import ACTIVATIONS, CELLS
from .table import OnnxNode, reads
from .values import Operand, Outputs

State: TypeAlias = Operand | int | float  # an initial state: of each sample, or the same number for all

_FORMS = {form.op: form for form in CELLS.values()}
_ACTIVATIONS: dict[str, Callable[[Operand], layers.Function]] = {name: getattr(ops, name) for name in ACTIVATIONS}


@dataclass
class Weights:
    """The weights of one direction: W [gates * d, n], R [gates * d, d], b [2 * gates * d], peepholes [3 * d]."""

    W: np.ndarray
    R: np.ndarray
    b: np.ndarray
    peepholes: np.ndarray | None
    names: tuple[str, str, str]


@reads(*_FORMS)
def _recurrent(node: OnnxNode) -> Outputs:
    x, size, direction = node.operand(0), node.integer("hidden_size", 0), node.string("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise node.error(f"the direction {direction!r} is not known")
    if node.attribute("clip") is not None or node.integer("input_forget", 0):
        raise node.error("clipped states and coupled gates cannot be read")
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    weights = _weights(node, len(backwards), size, x.shape[-1])
    first = bool(node.integer("layout", 0))  # samples first
    if first:
        x = ops.transpose(x, (1, 0, 2))
    if len(x.shape) != 3:
        raise node.error(f"an operand of shape {x.shape} is no [time, samples, size]")
    _check_lengths(node, x)
    names = _activations(node, len(backwards))
    steps = ops.to_sequence(ops.to_batch(ops.transpose(x, (1, 0, 2))))
    all_states, last_h, last_c = [], [], []
    for i, (w, back) in enumerate(zip(weights, backwards, strict=True)):
        states = [_initial(node, k, i, size, first) for k in ([5, 6] if node.op == "LSTM" else [5])]
        cell = _cell(node, w, names[i], size)
        outs = _repeated(cell, states, steps, back)
        all_states.append(_unpacked(outs[0]))
        ends = [(ops.sequence.first if back else ops.sequence.last)(o) for o in outs]
        last_h.append(ops.unpack_batch(ends[0]))
        last_c.append(ops.unpack_batch(ends[-1]))
    return _outputs(node, x, all_states, last_h, last_c, first)


def _repeated(cell: layers.Function, states: list[State], steps: Operand, back: bool) -> Sequence[Operand]:
    """The states of a cell at all steps; `states` are the initial ones."""
    delay = ops.sequence.future_value if back else ops.sequence.past_value
    placeholders = [ops.placeholder() for _ in states]
    cell_function = cell(*(delay(p, initial_state=s) for p, s in zip(placeholders, states, strict=True)), steps)
    return cell_function.replace_placeholders(dict(zip(placeholders, cell_function.outputs, strict=True))).outputs


def _outputs(
    node: OnnxNode, x: Operand, all_states: Sequence[Operand], last_h: Sequence[Operand], last_c: Sequence[Operand],
    first: bool,
) -> list[Operand]:
    """Y [time, directions, samples, size] and the last states [directions, samples, size]; or samples first."""
    samples_known = x.shape[1]

    def with_known_size(v: Operand, axis: int) -> Operand:
        return ops.reshape(v, (samples_known,), axis, axis + 1) if samples_known >= 0 else v

    def stacked(parts: Sequence[Operand], axis: int, samples: int) -> Operand:
        parts = [ops.expand_dims(with_known_size(p, samples), axis - len(p.shape) - 1) for p in parts]
        return ops.splice(*parts, axis=axis) if len(parts) > 1 else parts[0]

    outputs = [stacked(all_states, 1, 1), stacked(last_h, 0, 0), stacked(last_c, 0, 0)]
    if first:
        outputs = [ops.transpose(outputs[0], (2, 0, 1, 3)), *(ops.transpose(m, (1, 0, 2)) for m in outputs[1:])]
    return outputs[: max(len(node.proto.output), 1)]


def _unpacked(sequence: Operand) -> Operand:
    """[time, samples, size] of a sequence."""
    return ops.transpose(ops.unpack_batch(ops.sequence.unpack(sequence, 0, True)), (1, 0, 2))


def _weights(node: OnnxNode, directions: int, size: int, inputs: int) -> list[Weights]:
    gates = len(_FORMS[node.op].gates)
    W, R = node.array(1, "W"), node.array(2, "R")
    if not 1 <= size <= 2**16 or W.shape != (directions, gates * size, inputs) or R.shape != (
        directions, gates * size, size
    ):
        raise node.error(f"weights of shapes {W.shape} and {R.shape} for inputs of {inputs} and a state of {size}")
    b = node.array(3, "B") if node.has(3) else np.zeros((directions, 2 * gates * size), W.dtype)
    p = node.array(7, "P") if node.op == "LSTM" and node.has(7) else None
    if b.shape != (directions, 2 * gates * size) or (p is not None and p.shape != (directions, 3 * size)):
        raise node.error("the biases or peepholes are of another shape than the weights")
    name = [node.proto.input[i] if node.has(i) else "" for i in (1, 2, 3)]
    return [
        Weights(W[i], R[i], b[i], None if p is None else p[i],
                tuple(n + (f"_{i}" if directions > 1 and n else "") for n in name))  # type: ignore[arg-type]
        for i in range(directions)
    ]


def _activations(node: OnnxNode, directions: int) -> list[list[str]]:
    defaults = _FORMS[node.op].activations("Tanh")
    names = [a.decode() if isinstance(a, bytes) else a for a in node.attribute("activations", [])]
    names = names or defaults * directions
    per = len(defaults)
    if len(names) != per * directions or any(a.lower() not in _ACTIVATIONS for a in names):
        raise node.error(f"the activations {names} cannot be read")
    return [[a.lower() for a in names[i * per : (i + 1) * per]] for i in range(directions)]


def _check_lengths(node: OnnxNode, x: Operand) -> None:
    if not node.has(4):
        return
    lengths = node.known_array(4)
    if lengths is None or x.shape[0] < 0 or not (lengths.astype(object) == x.shape[0]).all():
        raise node.error("sequences of different lengths in one batch cannot be read")


def _initial(node: OnnxNode, operand: int, direction: int, size: int, first: bool) -> State:
    """The initial state of a direction: a common one if all samples have the same, otherwise one for each sample."""
    if not node.has(operand):
        return 0
    uniform = node.tensor(operand).uniform
    if uniform is not None:
        return float(uniform)
    value = node.known_array(operand)
    if value is not None:
        if value.ndim != 3 or value.shape[-1] != size:
            raise node.error(f"an initial state of shape {value.shape}")
        states = value[:, direction] if first else value[direction]
        if (states == states[:1]).all():
            return Constant(states[0], dtype=states.dtype.type) if states.any() else 0
    state = node.operand(operand)
    if len(state.shape) != 3:
        raise node.error(f"an initial state of shape {state.shape}")
    axis = 1 if first else 0
    if state.shape[axis] != 1:
        state = ops.slice(state, axis, direction, direction + 1)
    return ops.to_batch(ops.squeeze(state, [axis]))


def _cell(node: OnnxNode, w: Weights, names: list[str], size: int) -> layers.Function:
    """A layer of CNTK with these weights, or a function of the same signature if CNTK has no such layer."""
    dtype = w.W.dtype.type
    d, form = size, _FORMS[node.op]
    gates = len(form.gates)
    Wb, Rb = w.b[: gates * d], w.b[gates * d :]
    activation, gate = names[-1], names[0]
    is_plain = len(set(names[1:])) <= 1 and (len(names) == 1 or gate == "sigmoid")
    if node.op == "GRU" and node.integer("linear_before_reset", 0):
        return _gru_after(w, names, d)
    if not is_plain:
        raise node.error(f"the activations {names} cannot be read")

    def reordered(value: np.ndarray) -> np.ndarray:
        parts = dict(zip(form.onnx_gates, np.split(value, gates, axis=0), strict=True))
        return np.concatenate([parts[g] for g in form.gates], axis=0)

    with default_options(dtype=dtype):
        options = {"use_peepholes": w.peepholes is not None} if node.op == "LSTM" else {}
        cell = form.layer(d, activation=_ACTIVATIONS[activation], enable_self_stabilization=False, **options)
    W, R, b = map(reordered, (w.W, w.R, Wb + Rb))
    values = {"W": W.T, "H": R.T, "b": b}
    if len(form.recurrent) == 2:
        values |= {"H": R.T[:, : 2 * d], "H1": R.T[:, 2 * d :]}
    if w.peepholes is not None:
        values |= dict(zip(("Ci", "Co", "Cf"), np.split(w.peepholes, 3), strict=True))
    for p in cell.parameters:
        if p.name == "W":
            infer_shape(p, values["W"].shape)
        assert isinstance(p, Parameter)
        p.value = np.ascontiguousarray(values[p.name])
    return cell


def _gru_after(w: Weights, names: list[str], d: int) -> layers.Function:
    """A GRU whose reset gate is applied after the product with the state and its bias, as in PyTorch and cuDNN."""
    dtype = w.W.dtype.type
    W, R = (Parameter(init=np.ascontiguousarray(v.T), dtype=dtype, name=n) for v, n in
            ((w.W, w.names[0]), (w.R, w.names[1])))
    b, c = (Parameter(init=v, dtype=dtype, name=w.names[2]) for v in (w.b[: 3 * d], w.b[3 * d :]))
    gate, rest = (_ACTIVATIONS[n] for n in names)

    def step(h: Operand, x: Operand) -> Operand:
        of_x, of_h = ops.plus(ops.times(x, W), b), ops.plus(ops.times(h, R), c)
        zx, rx, nx, zh, rh, nh = (ops.slice(v, -1, k * d, (k + 1) * d) for v in (of_x, of_h) for k in range(3))
        z, r = gate(ops.plus(zx, zh)), gate(ops.plus(rx, rh))
        n = rest(ops.plus(nx, ops.element_times(r, nh)))
        return n + z * (h - n)

    return layers.Function(step)


__all__ = ["Weights"]
