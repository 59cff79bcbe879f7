"""The rows for PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import shared
from .source import Target, Weights, arguments, is_number, method
from .tree import Layer

_FUNCTIONS = {
    "exp", "log", "sqrt", "floor", "abs", "reciprocal", "sigmoid", "tanh", "relu", "sin", "cos", "tan", "arcsin",
    "arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh",
}

_MEMBERS = """
add_module apply bfloat16 buffers children compile cpu cuda double eval extra_repr float forward half ipu modules mtia
parameters state_dict to train training type xpu zero_grad
"""


# ---- calls
def _function(name: str) -> Any:
    """A function that takes tensors only."""
    return lambda *x: f"torch.{name}({', '.join(f'torch.tensor({v})' if is_number(v) else v for v in x)})"


def _expand_dims(x: str, axes: tuple[int, ...]) -> str:
    return x + "".join(f".unsqueeze({axis})" for axis in axes)


def _max_pool(x: str, sizes: list[int], strides: list[int], padding: Any, symmetric: Any, **_: Any) -> str:
    if symmetric is None or any(2 * p > size for p, size in zip(symmetric, sizes, strict=True)):
        x, symmetric = f"F.pad({x}, {_pads(padding)}, value=-torch.inf)", [0] * len(sizes)
    return f"F.max_pool{len(sizes)}d({x}, {arguments(sizes, strides, symmetric)})"


def _avg_pool(
    x: str, sizes: list[int], strides: list[int], padding: Any, symmetric: Any, include_padding: bool, **_: Any
) -> str:
    if symmetric is not None and all(2 * p <= size for p, size in zip(symmetric, sizes, strict=True)):
        options = arguments(sizes, strides, symmetric, count_include_pad=include_padding)
        return f"F.avg_pool{len(sizes)}d({x}, {options})"
    pool = f"F.avg_pool{len(sizes)}d(F.pad(%s, {_pads(padding)}), {arguments(sizes, strides)})"
    return pool % x if include_padding else f"({pool % x} / {pool % f'torch.ones_like({x})'})"


def _pads(padding: list[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(p for pair in reversed(padding) for p in pair)


def _reduction(name: str) -> Any:
    return lambda x, axis, keepdims: f"torch.{name}({x}, {arguments(list(axis), keepdim=keepdims)})"


def _prod(x: str, axis: tuple[int, ...], keepdims: bool) -> str:
    for i in sorted(axis, reverse=True):
        x = f"{x}.prod({i}, keepdim={keepdims})"
    return x


def _rnn(x: str, *states: str, name: str) -> str:
    parts = [f"{state}[None]" for state in states]
    initial = "" if not parts else f", {parts[0]}" if len(parts) == 1 else f", ({', '.join(parts)})"
    return f"self.{name}({x}{initial})[0]"


_CALLS: dict[str, Any] = {
    **{name: _function(name) for name in (*_FUNCTIONS, "logaddexp", "minimum", "maximum")},
    **shared.calls("torch", "torch.{dtype}", "torch.inf"),
    **{ours: _reduction(name) for ours, name in (
        ("sum", "sum"), ("mean", "mean"), ("max", "amax"), ("min", "amin"), ("logsumexp", "logsumexp"))},
    "prod": _prod,
    "elu": "F.elu({})",
    "argmax": "torch.argmax({}, {axis}, keepdim={keepdims})",
    "argmin": "torch.argmin({}, {axis}, keepdim={keepdims})",
    "softmax": "torch.softmax({}, {axis})",
    "log_softmax": "torch.log_softmax({}, {axis})",
    "cast": "{}.to(torch.{dtype})",
    "array": "{}",
    "expand_dims": _expand_dims,
    "transpose": "{}.permute{order}",
    "concatenate": lambda *parts, axis: f"torch.cat([{', '.join(parts)}], {axis})",
    "flatten": "{}.flatten(0, 1)",
    "unflatten": "{0}.unflatten(0, {1}.shape[:2])",
    **shared.filling("torch", "torch.{dtype}", ", device={like}.device"),
    "safe_sqrt": "torch.sqrt({}.clamp(min=0.0))",  # CNTK's root of a negative number is 0
    "safe_log": "torch.log({}.clamp(min=1.1001e-37))",  # CNTK's least logarithm is -85.1
    "to_index": "{}.long()",
    "one_hot": "F.one_hot({}.long(), {classes}).movedim(-1, {axis}).to(torch.{dtype})",
    "top_k": "torch.topk({}, {count})",
    "take": "{0}.index_select({axis}, torch.tensor({cells}, device={0}.device))",
    "pad": lambda x, widths, lead, value: f"F.pad({x}, {_pads(widths)}, value={value})",
    "rnn": _rnn,
    "embedding": "embedded(self.{name}, {})",
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
}


# ---- layers
def _linear(layer: Layer) -> tuple[str, Weights]:
    o = layer.options
    bias = {} if o["bias"] else {"bias": False}
    return f"nn.Linear({arguments(o['inputs'], o['outputs'], **bias)})", _transposed(layer)


def _transposed(layer: Layer) -> Weights:
    return layer.weights | {"weight": layer.weights["weight"].T}


def _embedding(layer: Layer) -> tuple[str, Weights]:
    return f"nn.Embedding({layer.options['inputs']}, {layer.options['outputs']})", layer.weights


def _recurrent(layer: Layer) -> tuple[str, Weights]:
    o, w = layer.options, layer.weights
    options = {"nonlinearity": "relu"} if layer.kind == "RNN" and o["activation"] == "relu" else {}
    names = {"weight_ih_l0": "input", "weight_hh_l0": "hidden", "bias_ih_l0": "input_bias", "bias_hh_l0": "hidden_bias"}
    text = arguments(o["inputs"], o["outputs"], batch_first=True, **options)
    return f"nn.{layer.kind}({text})", {theirs: w[ours] for theirs, ours in names.items()}


def _conv(layer: Layer) -> tuple[str, Weights]:
    o = layer.options
    rank = len(o["sizes"])
    options: dict[str, Any] = {}
    if any(s != 1 for s in o["strides"]):
        options["stride"] = o["strides"]
    if o["symmetric"] and any(o["symmetric"]):
        options["padding"] = o["symmetric"]
    if any(d != 1 for d in o["dilation"]):
        options["dilation"] = o["dilation"]
    if o["groups"] != 1:
        options["groups"] = o["groups"]
    if not o["bias"]:
        options["bias"] = False
    text = f"nn.Conv{rank}d({arguments(o['inputs'], o['outputs'], o['sizes'], **options)})"
    if o["symmetric"] is not None:
        return text, layer.weights
    pad = f"nn.ConstantPad{rank}d({_pads(o['padding'])}, 0.0)"
    return f"nn.Sequential({pad}, {text})", {f"1.{k}": v for k, v in layer.weights.items()}


def _conv_transpose(layer: Layer) -> tuple[str, Weights]:
    """Cells at the end that PyTorch would compute in addition are cut off; missing ones are its `output_padding`."""
    o = layer.options
    rank, windows = len(o["sizes"]), list(zip(o["padding"], o["strides"], strict=True))
    missing = [before - after for (before, after), _ in windows]
    options = {"stride": o["strides"], "padding": [before for (before, _), _ in windows], "dilation": o["dilation"],
               "output_padding": [max(m, 0) for m in missing], "bias": o["bias"]}
    defaults = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    kept = {k: v for k, v in options.items() if (v != [defaults[k]] * rank if k in defaults else not v)}
    text = f"nn.ConvTranspose{rank}d({arguments(o['inputs'], o['outputs'], o['sizes'], **kept)})"
    if min(missing) >= 0:
        return text, layer.weights
    cut = tuple(c for m in reversed(missing) for c in (0, min(m, 0)))
    return f"nn.Sequential({text}, nn.ConstantPad{rank}d({cut}, 0.0))", {f"0.{k}": v for k, v in layer.weights.items()}


def _batch_norm(layer: Layer) -> tuple[str, Weights]:
    w, rank = layer.weights, max(layer.options["rank"] - 1, 1)
    names = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "variance"}
    weights = {name: w[ours] for name, ours in names.items()} | {"num_batches_tracked": np.array(0, np.int64)}
    return f"nn.BatchNorm{rank}d({arguments(layer.options['features'], eps=layer.options['epsilon'])})", weights


def _dropout(layer: Layer) -> tuple[str, Weights]:
    return f"nn.Dropout({layer.options['rate']})", {}


def _array(layer: Layer) -> tuple[str, Weights]:
    trainable = "" if layer.options["trainable"] else ", requires_grad=False"
    return f"nn.Parameter(torch.zeros({layer.options['shape']}){trainable})", layer.weights


_HELPERS = {
    "embedded": '''
def embedded(embedding, x):
    """The vectors of indices [batch, ...], or sums of vectors by the weights [batch, ..., n], such as one-hot ones."""
    return x @ embedding.weight if x.is_floating_point() else embedding(x)
''',
    "recurrence": '''
def recurrence(step, states, *sequences):
    """What step(states, *samples) -> (states, outputs) computes for each time of sequences [batch, time, ...]."""
    outputs = []
    for samples in zip(*(x.unbind(1) for x in sequences)):
        states, output = step(states, *samples)
        outputs.append(output)
    if isinstance(outputs[0], tuple):
        return tuple(torch.stack(parts, 1) for parts in zip(*outputs))
    return torch.stack(outputs, 1)
''',
    **shared.helpers("torch", ", device=x.device"),
}

TORCH = Target(
    header="""
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
""",
    base="nn.Module",
    initializer="def __init__(self):\n    super().__init__()",
    no_members=(),
    method=method("forward"),
    reserved=_MEMBERS,
    module="{}()",
    calls=_CALLS,
    layers={"Linear": _linear, "Conv": _conv, "ConvTranspose": _conv_transpose, "BatchNorm": _batch_norm,
            "Dropout": _dropout, "Array": _array, "Embedding": _embedding,
            **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent)},
    helpers=_HELPERS,
    load='''
def load(path=Path(__file__).with_name("weights.safetensors")):
    """Return the model with the weights of the original, for inference; call ``.train()`` to go on training it."""
    weights = load_file(path)
    model = Model()
    if all(w.dtype != torch.float32 for w in weights.values()):
        model.double()
    model.load_state_dict(weights)
    return model.eval()
''',
    run="""
import torch


def run(*inputs):
    with torch.no_grad():
        outputs = load()(*map(torch.from_numpy, inputs))
    return [outputs.numpy()] if isinstance(outputs, torch.Tensor) else [v.numpy() for v in outputs]
""",
    requirements='"torch>=2.0" "safetensors>=0.4"',
)
