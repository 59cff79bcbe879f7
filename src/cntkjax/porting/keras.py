"""The rows for Keras 3. Data are channels first, as in CNTK; a model takes several arguments as a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.errors import explain
from . import shared
from .source import Target, Weights, arguments
from .tree import Layer, Signature

_FUNCTIONS = {
    "exp", "log", "sqrt", "floor", "abs", "reciprocal", "sigmoid", "tanh", "relu", "elu", "sin", "cos", "tan", "arcsin",
    "arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh",
}
_FIRST = {"data_format": "channels_first"}
_MEMBERS = """
activity_regularizer autocast build built call compile compiled dtype evaluate export fit input layers loss losses
metrics name optimizer output path predict quantize save summary supports_masking trainable variables weights
"""
_Padding = Sequence[tuple[int, int]]


# ---- calls
def _padded(x: str, padding: _Padding, value: str) -> str:
    """x [batch, channels, ...] with cells added, or left out where their number is negative."""
    if any(min(pair) < 0 for pair in padding):
        kept = (f"{max(-before, 0) or ''}:{min(after, 0) or ''}" for before, after in padding)
        x = f"{x}[:, :, {', '.join(kept)}]"
    widths = [(max(before, 0), max(after, 0)) for before, after in padding]
    if not any(map(any, widths)):
        return x
    return f"ops.pad({x}, {((0, 0), (0, 0), *widths)}, constant_values={value})"


def _is_none(padding: _Padding) -> bool:
    return not any(map(any, padding))


def _pool(name: str, x: str, sizes: list[int], strides: list[int], **options: str) -> str:
    return f"ops.{name}({x}, {arguments(sizes, strides, **options, **_FIRST)})"


def _max_pool(x: str, sizes: list[int], strides: list[int], padding: _Padding, spread: bool, **_: Any) -> str:
    if spread and not _is_none(padding):
        return _pool("max_pool", x, sizes, strides, padding="same")
    return _pool("max_pool", _padded(x, padding, 'float("-inf")'), sizes, strides)


def _avg_pool(
    x: str, sizes: list[int], strides: list[int], padding: _Padding, spread: bool, include_padding: bool, **_: Any
) -> str:
    if _is_none(padding):
        return _pool("average_pool", x, sizes, strides)
    if spread and not include_padding:
        return _pool("average_pool", x, sizes, strides, padding="same")
    values, counts = (_pool("average_pool", _padded(v, padding, "0.0"), sizes, strides)
                      for v in (x, f"ops.ones_like({x})"))
    return values if include_padding else f"({values} / {counts})"


def _reshape(x: str, lead: int, shape: tuple[int, ...]) -> str:
    if lead == 2 or -1 in shape:
        return f"reshape_samples({x}, {shape}{'' if lead == 2 else f', {lead}'})"
    return f"ops.reshape({x}, {(*[-1] * lead, *shape)})"


def _rnn(x: str, *states: str, name: str) -> str:
    initial = states[0] if len(states) == 1 else f"[{', '.join(states)}]"
    return f"self.{name}({x}{f', initial_state={initial}' if states else ''})"


_CALLS: dict[str, Any] = {
    **shared.calls("ops", '"{dtype}"', 'float("inf")'),
    **{name: f"ops.{name}({{}})" for name in _FUNCTIONS},
    **{name: f"ops.{name}({{}}, {{}})" for name in ("logaddexp", "minimum", "maximum")},
    **{name: f"ops.{name}({{}}, {{axis}}, keepdims={{keepdims}})"
       for name in ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "logsumexp")},
    **{name: f"ops.{name}({{}}, {{axis}})" for name in ("softmax", "log_softmax")},
    "cast": 'ops.cast({}, "{dtype}")',
    "array": "{}",
    "reshape": _reshape,
    "expand_dims": "ops.expand_dims({}, {axes})",
    "transpose": "ops.transpose({}, {order})",
    "concatenate": lambda *parts, axis: f"ops.concatenate([{', '.join(parts)}], {axis})",
    "flatten": "ops.reshape({0}, (-1, *{0}.shape[2:]))",
    "unflatten": "ops.reshape({0}, (*{1}.shape[:2], *{0}.shape[1:]))",
    "safe_sqrt": "ops.sqrt(ops.maximum({}, 0.0))",  # CNTK's root of a negative number is 0
    "safe_log": "ops.log(ops.maximum({}, 1.1001e-37))",  # CNTK's least logarithm is -85.1
    "to_index": 'ops.cast({}, "int32")',
    "one_hot": 'ops.one_hot(ops.cast({}, "int32"), {classes}, axis={axis}, dtype="{dtype}")',
    "gather": "ops.take({}, {}, {lead})",
    "top_k": "ops.top_k({}, {count})",
    "take": "ops.take({}, {cells}, {axis})",
    "pad": lambda x, widths, lead, value: f"ops.pad({x}, {[(0, 0)] * lead + widths}, constant_values={value})",
    "rnn": _rnn,
    "embedding": "self.{name}({})",
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
}


# ---- layers
def _bias(layer: Layer) -> dict[str, bool]:
    return {} if layer.options["bias"] else {"use_bias": False}


def _with_kernel(layer: Layer, kernel: np.ndarray) -> Weights:
    return {"kernel": kernel} | {k: v for k, v in layer.weights.items() if k == "bias"}


def _dense(layer: Layer) -> tuple[str, Weights]:
    text = f"layers.Dense({arguments(layer.options['outputs'], **_bias(layer))})"
    return text, _with_kernel(layer, layer.weights["weight"])


def _embedding(layer: Layer) -> tuple[str, Weights]:
    o = layer.options
    return f"Embedding({o['inputs']}, {o['outputs']})", {"embeddings": layer.weights["weight"]}


def _recurrent(layer: Layer) -> tuple[str, Weights]:
    """The gates of Keras' LSTM are in the order of PyTorch's; those of its GRU are z, r, h."""
    o, w = layer.options, dict(layer.weights)
    options: dict[str, Any] = {}
    if layer.kind == "GRU":
        w = {k: np.concatenate([np.split(v, 3)[i] for i in (1, 0, 2)]) for k, v in w.items()}
        bias = np.stack([w["input_bias"], w["hidden_bias"]])
    else:
        bias = w["input_bias"] + w["hidden_bias"]
    if layer.kind == "ResetFirstGRU":
        options["reset_after"] = False
    if layer.kind == "RNN" and o["activation"] != "tanh":
        options["activation"] = o["activation"]
    name = {"RNN": "SimpleRNN", "ResetFirstGRU": "GRU"}.get(layer.kind, layer.kind)
    text = f"layers.{name}({arguments(o['outputs'], return_sequences=True, **options)})"
    return text, {"cell.kernel": w["input"].T, "cell.recurrent_kernel": w["hidden"].T, "cell.bias": bias}


def _conv(layer: Layer) -> tuple[str, Weights]:
    o = layer.options
    rank, padding = len(o["sizes"]), o["padding"]
    options: dict[str, Any] = {}
    if any(s != 1 for s in o["strides"]):
        options["strides"] = o["strides"]
    if o["spread"] and not _is_none(padding):
        options["padding"], padding = "same", [(0, 0)] * rank
    if any(d != 1 for d in o["dilation"]):
        if "strides" in options:
            raise layer.refuse("a convolution with strides and dilation, which Keras has not, cannot be ported")
        options["dilation_rate"] = o["dilation"]
    if o["groups"] != 1:
        options["groups"] = o["groups"]
    text = f"layers.Conv{rank}D({arguments(o['outputs'], o['sizes'], **options, **_bias(layer), **_FIRST)})"
    weights = _with_kernel(layer, np.moveaxis(layer.weights["weight"], (0, 1), (-1, -2)))
    before = [*_cropped([(max(-b, 0), max(-a, 0)) for b, a in padding]),
              *_bordered("ZeroPadding", [(max(b, 0), max(a, 0)) for b, a in padding])]
    return _sequential([*before, text], len(before), weights)


def _conv_transpose(layer: Layer) -> tuple[str, Weights]:
    """All places of the window, then without cells at the ends; missing ones are the `output_padding`."""
    o = layer.options
    rank = len(o["sizes"])
    extents = [(size - 1) * d + 1 for size, d in zip(o["sizes"], o["dilation"], strict=True)]
    missing = [max(-after, 0) for _, after in o["padding"]]
    if any(m >= s for m, s in zip(missing, o["strides"], strict=True)) or min(b for b, _ in o["padding"]) < 0:
        raise layer.refuse("a transposed convolution with cells that no window reaches cannot be ported to Keras")
    options: dict[str, Any] = {"strides": o["strides"]}
    if any(missing) or any(e < s for e, s in zip(extents, o["strides"], strict=True)):
        options["output_padding"] = missing
    if any(d != 1 for d in o["dilation"]):
        options["dilation_rate"] = o["dilation"]
    text = f"layers.Conv{rank}DTranspose({arguments(o['outputs'], o['sizes'], **options, **_bias(layer), **_FIRST)})"
    weights = _with_kernel(layer, np.moveaxis(layer.weights["weight"], (0, 1), (-1, -2)))
    return _sequential([text, *_cropped([(b, max(a, 0)) for b, a in o["padding"]])], 0, weights)


def _cropped(cells: _Padding) -> list[str]:
    """The layers that leave out cells at both ends of each axis; Keras has none for one axis with channels first."""
    if len(cells) == 1 and any(cells[0]):
        turn = "layers.Permute((2, 1))"
        return [turn, f"layers.Cropping1D({cells[0]})", turn]
    return _bordered("Cropping", cells)


def _bordered(name: str, cells: _Padding) -> list[str]:
    if _is_none(cells):
        return []
    pairs = cells[0] if len(cells) == 1 else tuple(cells)
    return [f"layers.{name}{len(cells)}D({arguments(pairs, **_FIRST)})"]


def _sequential(parts: list[str], place: int, weights: Weights) -> tuple[str, Weights]:
    """Layers in a row, of which the one at this place has the weights."""
    if len(parts) == 1:
        return parts[0], weights
    return f"keras.Sequential([{', '.join(parts)}])", {f"{place}.{k}": v for k, v in weights.items()}


def _batch_norm(layer: Layer) -> tuple[str, Weights]:
    names = {"gamma": "scale", "beta": "bias", "moving_mean": "mean", "moving_variance": "variance"}
    text = f"layers.BatchNormalization({arguments(axis=1, epsilon=layer.options['epsilon'])})"
    return text, {name: layer.weights[ours] for name, ours in names.items()}


def _dropout(layer: Layer) -> tuple[str, Weights]:
    return f"layers.Dropout({layer.options['rate']})", {}


def _array(layer: Layer) -> tuple[str, Weights]:
    options = {} if layer.options["trainable"] else {"trainable": False}
    return f"self.add_weight({arguments(shape=layer.options['shape'], initializer='zeros', **options)})", layer.weights


# ---- models
def _method(names: list[str], is_model: bool) -> list[str]:
    """`fit` gives a model one argument, a list of several, and the mode for the layers in it."""
    if not is_model:
        return [f"def call({', '.join(['self', *names])}):"]
    if len(names) == 1 and names != ["training"]:
        return [f"def call(self, {names[0]}, training=None):"]
    return ["def call(self, inputs, training=None):", f"    {', '.join(names)} = inputs"]


def _inputs(signatures: list[Signature]) -> str:
    """Symbolic arguments. Loops over sequences need numbers for the dimensions that are free.

    Errors: ValueError without any.
    """
    if not signatures:
        raise ValueError(explain("a Keras model takes inputs, and this one has none", fix="give another target"))
    has_sequences = any(dimensions[:2] == (None, None) for dimensions, _ in signatures)
    texts = []
    for dimensions, dtype in signatures:
        shape: dict[str, Any] = {"batch_shape": dimensions}
        if has_sequences:
            shape = {"batch_shape": tuple(9 if d is None else d for d in dimensions)}
        elif dimensions[:1] == (None,):
            shape = {"shape": dimensions[1:]}
        texts.append(f"keras.Input({arguments(**shape, **({} if dtype == 'float32' else {'dtype': dtype}))})")
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


KERAS = Target(
    header="""
from pathlib import Path

import keras
from keras import layers, ops
from safetensors.numpy import load_file
""",
    base="keras.Model",
    initializer="def __init__(self):\n    super().__init__()",
    no_members=(),
    method=_method,
    module="{}()",
    calls=_CALLS,
    layers={"Linear": _dense, "Conv": _conv, "ConvTranspose": _conv_transpose, "BatchNorm": _batch_norm,
            "Dropout": _dropout, "Array": _array, "Embedding": _embedding,
            **dict.fromkeys(("LSTM", "GRU", "ResetFirstGRU", "RNN"), _recurrent)},
    helpers={
        "Embedding": '''
class Embedding(layers.Embedding):
    """The vectors of indices [batch, ...], or sums of vectors by the weights [batch, ..., n], such as one-hot ones."""

    def call(self, x):
        return ops.matmul(x, self.embeddings) if keras.backend.is_float_dtype(x.dtype) else super().call(x)
''',
        "recurrence": shared.scan("ops", "ops.scan", "keras.tree.map_structure"),
        **shared.helpers("ops"),
    },
    load='''
def load(path=Path(__file__).with_name("weights.safetensors")):
    """Return the model with the weights of the original; call ``.compile()`` and ``.fit()`` to go on training it."""
    weights = load_file(path)
    if any(value.dtype == "float64" for value in weights.values()):
        keras.config.set_dtype_policy("float64")
    model = Model()
    model(INPUTS)  # creates the weights
    for name, value in weights.items():
        part = model
        for key in name.split("."):
            part = part.layers[int(key)] if key.isdigit() else getattr(part, key)
        part.assign(value)
    return model
''',
    run="""
import keras


def run(*inputs):
    outputs = load().predict_on_batch(inputs[0] if len(inputs) == 1 else list(inputs))
    return [np.asarray(output) for output in keras.tree.flatten(outputs)]
""",
    requirements='"keras>=3.15" jax "safetensors>=0.4"',
    reserved=_MEMBERS,
    inputs=_inputs,
)
