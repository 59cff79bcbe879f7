"""``Crosstalk`` for graphs: parameters, results of functions, convolutions, embeddings and bidirectional LSTMs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ... import ops
from ...graph.variable import producer
from ...ops.functions import Function
from ...variables import Parameter, Variable
from . import Conv2DArgs, Conv2DAttr, Crosstalk, EmbedAttr, RnnArgs, RnnAttr

DictParameterType = "DictParameter"  # the type of a dict of parameters, for ``watch``


def find_func_param(
    func: Function, name: str | None = None, shape: tuple[int, ...] | None = None, allow_not_found: bool = False
) -> Parameter | None:
    """The parameter of a function with a name or shape; its only parameter whatever that is called.

    Errors: ValueError if there is none, unless ``allow_not_found``; then None.

    >>> import cntkjax as C
    >>> find_func_param(C.layers.Dense(2)(C.input_variable(3)), "W").shape
    (3, 2)
    """
    parameters = _parameters(func)
    if len(parameters) == 1:
        return parameters[0]
    for p in parameters:
        if (name and p.name == name) or (shape and p.shape == tuple(shape)):
            return p
    if allow_not_found:
        return None
    listed = ", ".join(f"{p.name} {p.shape}" for p in parameters)
    raise ValueError(f"param ({name} {shape}) not found; the function has: {listed}")


def _parameters(f: Function) -> list[Parameter]:
    return [p for p in f.parameters if isinstance(p, Parameter)]


class CNTKCrosstalk(Crosstalk):
    """Crosstalk for graphs.

    Parameters, convolutions (``Conv2DAttr``), embeddings (``EmbedAttr``), bidirectional LSTMs (``RnnAttr``) and dicts
    of parameters (``DictParameterType``) can be read and set. Functions and their outputs are evaluated with the data
    of ``set_data``.

    Errors: as for ``Crosstalk``; NotImplementedError for other recurrences.

    >>> import cntkjax as C
    >>> crosstalk = CNTKCrosstalk()
    >>> crosstalk.watch(C.parameter(2, init=1), 'p')
    >>> crosstalk.assign('p', crosstalk.fetch('p') + 1)
    >>> crosstalk.fetch('p')
    array([2., 2.], dtype=float32)
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_funcs(Parameter, _parameter_setter, _parameter_getter)
        self.register_funcs(DictParameterType, _dict_parameter_setter, _dict_parameter_getter)
        self.register_funcs(Conv2DAttr, _conv2d_setter, _conv2d_getter)
        self.register_funcs(EmbedAttr, _embed_setter, _embed_getter)
        self.register_funcs(RnnAttr, _rnn_setter, _rnn_getter)

    def is_param(self, name: str) -> bool:
        """Whether a variable is a parameter: neither a function nor its output or input."""
        return self.vars[name].type not in (Function, Variable)

    def set_data(self, data: object) -> None:
        """Set the data with which functions and their outputs are evaluated, as for ``Function.eval``."""
        self.register_funcs(Function, getter=lambda f, attr: f.eval(data))
        self.register_funcs(Variable, getter=lambda v, attr: ops.combine([v]).eval(data))


def _parameter_getter(p: Parameter, attr: object = None) -> np.ndarray:
    return p.value


def _parameter_setter(p: Parameter, raw_value: np.ndarray, attr: object = None) -> None:
    if p.shape != np.shape(raw_value):
        raise ValueError(f"different shape, expected {p.shape} actual {np.shape(raw_value)} for {p!r}")
    p.value = np.asarray(raw_value, p.dtype)


def _dict_parameter_getter(pd: Mapping[str, Parameter], attr: object = None) -> dict[str, np.ndarray]:
    return {key: p.value for key, p in pd.items()}


def _dict_parameter_setter(
    pd: Mapping[str, Parameter], raw_value: Mapping[str, np.ndarray], attr: object = None
) -> None:
    if raw_value.keys() != pd.keys():
        raise ValueError(f"mismatch of keys: {sorted(pd)} and {sorted(raw_value)}")
    for key, p in pd.items():
        _parameter_setter(p, raw_value[key])


def _convolution(f: Function, attr: Conv2DAttr) -> tuple[Parameter, Parameter | None]:
    """Weights [filters, channels, *filter_shape] and bias."""
    rank = len(attr.filter_shape) + 2
    parameters = _parameters(f)
    for p in parameters:
        if len(p.shape) == rank and p.shape[0] == attr.num_filters and p.shape[2:] == tuple(attr.filter_shape):
            return p, next((b for b in parameters if b is not p and np.prod(b.shape) == attr.num_filters), None)
    expected = (attr.num_filters, 1, *attr.filter_shape)
    raise ValueError(f"param (None {expected}) not found; the function has: {[p.shape for p in parameters]}")


def _conv2d_getter(f: Function, attr: Conv2DAttr) -> Conv2DArgs:
    W, b = _convolution(f, attr)
    weights = W.value
    return Conv2DArgs(
        weights[:, 0] if weights.shape[1] == 1 else weights, None if b is None else b.value.reshape(-1)
    )


def _conv2d_setter(f: Function, raw_value: Conv2DArgs, attr: Conv2DAttr) -> None:
    for p, value in zip(_convolution(f, attr), raw_value, strict=True):
        if p is not None:
            _parameter_setter(p, np.reshape(value, p.shape))


def _embedding(p: Parameter | Function) -> Parameter:
    if isinstance(p, Parameter):
        return p
    return find_func_param(p, "E")  # type: ignore[return-value]  # raises if there is none


def _words(attr: EmbedAttr) -> list[Any]:
    return [attr.dict[row] for row in range(attr.input_dim)]


def _embed_getter(p: Parameter | Function, attr: EmbedAttr) -> dict[str, np.ndarray]:
    return dict(zip(_words(attr), _embedding(p).value, strict=True))


def _embed_setter(p: Parameter | Function, raw_value: Mapping[str, np.ndarray], attr: EmbedAttr) -> None:
    words = _words(attr)
    missing = set(words) ^ set(raw_value)
    if missing:
        raise ValueError(f"words that are in one of the embedding and the new values only: {sorted(missing)[:5]}")
    _parameter_setter(_embedding(p), np.array([raw_value[word] for word in words]))


def _get_birnn_param(f: Function) -> list[Parameter]:
    """W, H and b of the first operand of a splice, then those of the second one."""
    if f.root_function.op_name != "Splice":
        raise NotImplementedError(
            f"{f!r} is no bidirectional recurrence; watch splice(Recurrence(...)(x), Recurrence(..., "
            "go_backwards=True)(x)), or optimized_rnnstack"
        )
    directions = [g for g in map(producer, f.root_function.inputs) if isinstance(g, Function)]
    if len(directions) != 2:
        raise NotImplementedError(f"{f!r} has {len(directions)} directions; watch one with two")
    return [p for g in directions for name in "WHb" if (p := find_func_param(g, name))]


def _get_cudnn_rnn_splitter(f: Function, attr: RnnAttr) -> list[int] | None:
    """Where the weights of an ``optimized_rnnstack`` end: W, H of both directions, then two biases of each."""
    if f.root_function.op_name != "OptimizedRNNStack":
        return None
    if not attr.bidirectional or attr.op_type != "lstm":
        raise NotImplementedError(f"only bidirectional LSTMs can be watched, not {attr}; watch its parameter")
    rows = 4 * attr.hidden_dim
    sizes = [rows * attr.input_dim, rows * attr.hidden_dim] * 2 + [rows] * 4
    (size,) = {int(np.prod(p.shape)) for p in _parameters(f)}
    if size != sum(sizes):
        raise ValueError(f"the weights have {size} numbers, but one layer of {attr} has {sum(sizes)}")
    return np.cumsum([0, *sizes]).tolist()


def _adjust_lstm_gate_order(W: np.ndarray) -> np.ndarray:
    """Swap the second and third gate: cuDNN's order (input, forget, cell, output) and CNTK's. Shapes: [..., 4 * h]."""
    i, f, c, o = np.split(W, 4, axis=-1)
    return np.concatenate([i, c, f, o], axis=-1)


def _rnn_getter(f: Function, attr: RnnAttr) -> RnnArgs:
    splitter = _get_cudnn_rnn_splitter(f, attr)
    if splitter is None:
        return RnnArgs(*(p.value for p in _get_birnn_param(f)))
    (p,) = _parameters(f)
    flat = p.value.reshape(-1)
    parts = [flat[slice(*bounds)] for bounds in pairwise(splitter)]
    matrices = [_adjust_lstm_gate_order(part.reshape(4 * attr.hidden_dim, -1).T) for part in parts[:4]]
    forward, backward = (_adjust_lstm_gate_order(a + b) for a, b in (parts[4:6], parts[6:]))
    return RnnArgs(*(*matrices[:2], forward, *matrices[2:], backward))


def _rnn_setter(f: Function, raw_value: RnnArgs, attr: RnnAttr) -> None:
    if _get_cudnn_rnn_splitter(f, attr) is None:
        for p, value in zip(_get_birnn_param(f), raw_value, strict=True):
            _parameter_setter(p, value)
        return
    (p,) = _parameters(f)
    biases = [_adjust_lstm_gate_order(np.asarray(b)) for b in (raw_value.fw_b, raw_value.bw_b)]
    parts = _rows(raw_value.fw_W, raw_value.fw_H, raw_value.bw_W, raw_value.bw_H)
    for bias in biases:
        parts += [bias, np.zeros_like(bias)]
    _parameter_setter(p, np.concatenate(parts).reshape(p.shape))


def _rows(*matrices: Iterable[Sequence[float]]) -> list[np.ndarray]:
    """The weights of each gate's units end to end, in cuDNN's order."""
    return [_adjust_lstm_gate_order(np.asarray(W)).T.reshape(-1) for W in matrices]


instance = CNTKCrosstalk()
