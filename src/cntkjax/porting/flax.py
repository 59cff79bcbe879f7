"""The rows for flax nnx. Data are channels first, as in CNTK."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import shared
from .source import Target, Weights, arguments, method
from .tree import Layer

_FUNCTIONS = {
    "exp", "log", "sqrt", "floor", "abs", "reciprocal", "tanh", "sin", "cos", "tan", "arcsin", "arccos", "arctan",
    "sinh", "cosh", "arcsinh", "arccosh", "arctanh",
}


# ---- calls
def _max_pool(x: str, sizes: list[int], strides: list[int], padding: Any, **_: Any) -> str:
    return f"pool_max({x}, {arguments(sizes, strides, padding)})"


def _avg_pool(
    x: str, sizes: list[int], strides: list[int], padding: Any, include_padding: bool, **_: Any
) -> str:
    return f"pool_mean({x}, {arguments(sizes, strides, padding, include_padding)})"


def _rnn(x: str, *states: str, name: str) -> str:
    carry = states[0] if len(states) == 1 else f"({', '.join(reversed(states))})"  # flax has (c, h)
    return f"self.{name}({x}{f', initial_carry={carry}' if states else ''})"


_CALLS: dict[str, Any] = {
    **{name: f"jnp.{name}({{}})" for name in _FUNCTIONS},
    **{name: f"jnp.{name}({{}}, {{}})" for name in ("logaddexp", "minimum", "maximum")},
    **shared.calls("jnp", "jnp.{dtype}", "jnp.inf"),
    **{name: f"jnp.{name}({{}}, {{axis}}, keepdims={{keepdims}})"
       for name in ("sum", "mean", "max", "min", "prod", "argmax", "argmin")},
    **{name: f"nnx.{name}({{}})" for name in ("relu", "sigmoid", "elu")},
    "logsumexp": "nnx.logsumexp({}, {axis}, keepdims={keepdims})",
    "softmax": "nnx.softmax({}, {axis})",
    "log_softmax": "nnx.log_softmax({}, {axis})",
    "cast": "{}.astype(jnp.{dtype})",
    "array": "{}[...]",
    "expand_dims": "jnp.expand_dims({}, {axes})",
    "transpose": "{}.transpose{order}",
    "concatenate": lambda *parts, axis: f"jnp.concatenate([{', '.join(parts)}], {axis})",
    "flatten": "{0}.reshape(-1, *{0}.shape[2:])",
    "unflatten": "{0}.reshape(*{1}.shape[:2], *{0}.shape[1:])",
    "safe_sqrt": "jnp.sqrt(jnp.maximum({}, 0.0))",  # CNTK's root of a negative number is 0
    "safe_log": "jnp.log(jnp.maximum({}, 1.1001e-37))",  # CNTK's least logarithm is -85.1
    "one_hot": "jax.nn.one_hot({}.astype(int), {classes}, axis={axis}, dtype=jnp.{dtype})",
    "top_k": "jax.lax.top_k({}, {count})",
    "take": "jnp.take({}, jnp.array({cells}), {axis})",
    "pad": lambda x, widths, lead, value: (
        f"jnp.pad({x}, {tuple([(0, 0)] * lead + widths)}, constant_values={value})"),
    "rnn": _rnn,
    "embedding": "embedded(self.{name}, {})",
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
}


# ---- layers
def _renamed(layer: Layer, kernel: np.ndarray) -> Weights:
    return {k: v for k, v in layer.weights.items() if k != "weight"} | {"kernel": kernel}


def _linear(layer: Layer) -> tuple[str, Weights]:
    o = layer.options
    bias = "" if o["bias"] else "use_bias=False, "
    return f"nnx.Linear({o['inputs']}, {o['outputs']}, {bias}rngs=rngs)", _renamed(layer, layer.weights["weight"])


def _embedding(layer: Layer) -> tuple[str, Weights]:
    o = layer.options
    return f"nnx.Embed({o['inputs']}, {o['outputs']}, rngs=rngs)", {"embedding": layer.weights["weight"]}


def _recurrent(layer: Layer) -> tuple[str, Weights]:
    o, w = layer.options, layer.weights
    cell, biased = {
        "LSTM": ("OptimizedLSTMCell", "dense_h"), "GRU": ("GRUCell", "dense_i"),
        "RNN": ("SimpleCell", "dense_i"),
    }[layer.kind]
    text = arguments(o["inputs"], o["outputs"])
    if w["input"].dtype == np.float64:
        text += ", param_dtype=jnp.float64"
    if layer.kind == "RNN" and o["activation"] != "tanh":
        text += f", activation_fn=nnx.{o['activation']}"
    if layer.kind == "GRU" and np.any(np.split(w["hidden_bias"], 3)[2]):
        raise layer.refuse("flax has no GRU with a bias in the product that the reset gate scales: it cannot be ported")
    weights = {"dense_i.kernel": w["input"].T, "dense_h.kernel": w["hidden"].T,
               f"{biased}.bias": w["input_bias"] + w["hidden_bias"]}
    return f"nnx.RNN(nnx.{cell}({text}, rngs=rngs), rngs=rngs)", {f"cell.{k}": v for k, v in weights.items()}


def _conv(layer: Layer) -> tuple[str, Weights]:
    o = layer.options
    options: dict[str, Any] = {"padding": o["padding"]}
    if any(s != 1 for s in o["strides"]):
        options["strides"] = o["strides"]
    if any(d != 1 for d in o["dilation"]):
        options["kernel_dilation"] = o["dilation"]
    if o["groups"] != 1:
        options["feature_group_count"] = o["groups"]
    if not o["bias"]:
        options["use_bias"] = False
    text = f"nnx.Conv({arguments(o['inputs'], o['outputs'], o['sizes'], **options)}, rngs=rngs)"
    weights = _renamed(layer, np.moveaxis(layer.weights["weight"], (0, 1), (-1, -2)))
    return f"ChannelsFirst({text})", {f"layer.{name}": value for name, value in weights.items()}


def _conv_transpose(layer: Layer) -> tuple[str, Weights]:
    """flax neither turns the window around nor counts its padding from the output."""
    o = layer.options
    extents = [(size - 1) * d + 1 for size, d in zip(o["sizes"], o["dilation"], strict=True)]
    padding = [(e - 1 - before, e - 1 - after) for e, (before, after) in zip(extents, o["padding"], strict=True)]
    options: dict[str, Any] = {"strides": o["strides"], "padding": padding}
    if any(d != 1 for d in o["dilation"]):
        options["kernel_dilation"] = o["dilation"]
    if not o["bias"]:
        options["use_bias"] = False
    text = f"nnx.ConvTranspose({arguments(o['inputs'], o['outputs'], o['sizes'], **options)}, rngs=rngs)"
    weight = layer.weights["weight"]
    kernel = np.flip(weight, tuple(range(2, weight.ndim)))
    weights = _renamed(layer, np.moveaxis(kernel, (0, 1), (-2, -1)))
    return f"ChannelsFirst({text})", {f"layer.{name}": value for name, value in weights.items()}


def _batch_norm(layer: Layer) -> tuple[str, Weights]:
    names = {"scale": "scale", "bias": "bias", "mean": "mean", "var": "variance"}
    text = arguments(layer.options["features"], axis=1, epsilon=layer.options["epsilon"])
    return f"nnx.BatchNorm({text}, rngs=rngs)", {name: layer.weights[ours] for name, ours in names.items()}


def _dropout(layer: Layer) -> tuple[str, Weights]:
    return f"nnx.Dropout({layer.options['rate']}, rngs=rngs)", {}


def _array(layer: Layer) -> tuple[str, Weights]:
    kind = "Param" if layer.options["trainable"] else "Variable"
    return f"nnx.{kind}(jnp.zeros({layer.options['shape']}))", layer.weights


FLAX = Target(
    header="""
from functools import reduce
from pathlib import Path

import jax
import jax.numpy as jnp
from flax import nnx
from safetensors.numpy import load_file
""",
    base="nnx.Module",
    initializer="def __init__(self, rngs):",
    no_members=("pass",),
    method=method("__call__"),
    reserved="eval iter_children iter_modules perturb set_attributes sow train",
    module="{}(rngs)",
    calls=_CALLS,
    layers={"Linear": _linear, "Conv": _conv, "ConvTranspose": _conv_transpose, "BatchNorm": _batch_norm,
            "Dropout": _dropout, "Array": _array, "Embedding": _embedding,
            **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent)},
    helpers={
        "embedded": '''
def embedded(embedding, x):
    """The vectors of indices [batch, ...], or sums of vectors by the weights [batch, ..., n], such as one-hot ones."""
    return x @ embedding.embedding[...] if jnp.issubdtype(x.dtype, jnp.floating) else embedding(x)
''',
        "recurrence": shared.scan("jnp", "jax.lax.scan", "jax.tree.map"),
        **shared.helpers("jnp"),
        "ChannelsFirst": '''
class ChannelsFirst(nnx.Module):
    """A layer of [batch, ..., channels] for data [batch, channels, ...]."""

    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x):
        return jnp.moveaxis(self.layer(jnp.moveaxis(x, 1, -1)), -1, 1)
''',
        "pool_max": '''
def pool_max(x, sizes, strides, padding):
    """The largest values of windows of x [batch, channels, ...]."""
    padding = ((0, 0), (0, 0), *padding)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, *sizes), (1, 1, *strides), padding)
''',
        "pool_mean": '''
def pool_mean(x, sizes, strides, padding, include_padding):
    """The means of windows of x [batch, channels, ...]."""
    def total(x):
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 1, *sizes), (1, 1, *strides), ((0, 0), (0, 0), *padding))

    count = jnp.prod(jnp.array(sizes)) if include_padding else total(jnp.ones_like(x))
    return total(x) / count
''',
    },
    load='''
def load(path=Path(__file__).with_name("weights.safetensors")):
    """Return the model with the weights of the original, for inference; call ``.train()`` to go on training it."""
    weights = load_file(path)
    if any(value.dtype == "float64" for value in weights.values()):
        jax.config.update("jax_enable_x64", True)
    model = nnx.eval_shape(lambda: Model(nnx.Rngs(0)))  # without drawing numbers that would be replaced
    for name, value in weights.items():
        reduce(getattr, name.split("."), model).set_value(jnp.asarray(value))
    nnx.reseed(model, default=0)
    model.eval()
    return model
''',
    run="""
import jax
from flax import nnx


def run(*inputs):
    outputs = nnx.jit(lambda model, *inputs: model(*inputs))(load(), *inputs)
    return [np.asarray(output) for output in jax.tree.leaves(outputs)]
""",
    requirements='"flax>=0.12" "safetensors>=0.4"',
)
