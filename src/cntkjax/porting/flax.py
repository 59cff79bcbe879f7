"""The rows for flax nnx. Data are channels first, as in CNTK."""

from __future__ import annotations

from typing import Any

import numpy as np

from .source import Target, Weights, arguments
from .tree import Layer

_FUNCTIONS = {
    "exp", "log", "sqrt", "floor", "abs", "reciprocal", "tanh", "sin", "cos", "tan", "arcsin", "arccos", "arctan",
    "sinh", "cosh", "arcsinh", "arccosh", "arctanh",
}
_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "less": "<", "greater": ">", "less_equal": "<=",
    "greater_equal": ">=", "equal": "==", "not_equal": "!=", "power": "**", "matmul": "@",
}


# ---- calls
def _reshape(x: str, lead: int, shape: tuple[int, ...]) -> str:
    if lead == 2:
        return f"reshape_samples({x}, {shape})"
    return f"{x}.reshape({', '.join(map(str, [-1] * lead + list(shape)))})"


def _max_pool(x: str, sizes: list[int], strides: list[int], padding: Any, **_: Any) -> str:
    return f"pool_max({x}, {arguments(sizes, strides, padding)})"


def _avg_pool(
    x: str, sizes: list[int], strides: list[int], padding: Any, symmetric: Any, include_padding: bool
) -> str:
    return f"pool_mean({x}, {arguments(sizes, strides, padding, include_padding)})"


_CALLS: dict[str, Any] = {
    **{name: f"jnp.{name}({{}})" for name in _FUNCTIONS},
    **{name: f"jnp.{name}({{}}, {{}})" for name in ("logaddexp", "minimum", "maximum")},
    **{name: f"({{}} {sign} {{}})" for name, sign in _INFIX.items()},
    **{name: f"jnp.{name}({{}}, {{axis}}, keepdims={{keepdims}})"
       for name in ("sum", "mean", "max", "min", "prod", "argmax", "argmin")},
    **{name: f"nnx.{name}({{}})" for name in ("relu", "sigmoid", "elu")},
    "logsumexp": "nnx.logsumexp({}, {axis}, keepdims={keepdims})",
    "softmax": "nnx.softmax({}, {axis})",
    "log_softmax": "nnx.log_softmax({}, {axis})",
    "where": "jnp.where({}, {}, {})",
    "negative": "(-{})",
    "cast": "{}.astype(jnp.{dtype})",
    "scalar": "{value!r}",
    "array": "{}[...]",
    "item": "{}[{index}]",
    "slice": "{}[{slices}]",
    "reshape": _reshape,
    "expand_dims": "jnp.expand_dims({}, {axes})",
    "transpose": "{}.transpose{order}",
    "concatenate": lambda *parts, axis: f"jnp.concatenate([{', '.join(parts)}], {axis})",
    "flatten": "{0}.reshape(-1, *{0}.shape[2:])",
    "unflatten": "{0}.reshape(*{1}.shape[:2], *{0}.shape[1:])",
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
    method="def __call__({}):",
    module="{}(rngs)",
    calls=_CALLS,
    layers={"Linear": _linear, "Conv": _conv, "BatchNorm": _batch_norm, "Dropout": _dropout, "Array": _array},
    helpers={
        "ChannelsFirst": '''
class ChannelsFirst(nnx.Module):
    """A layer of [batch, ..., channels] for data [batch, channels, ...]."""

    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x):
        return jnp.moveaxis(self.layer(jnp.moveaxis(x, 1, -1)), -1, 1)
''',
        "reshape_samples": '''
def reshape_samples(x, shape):
    """x [batch, time, ...] with samples of another shape."""
    return x.reshape(*x.shape[:2], *shape)
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
    model = Model(nnx.Rngs(0))
    for name, value in weights.items():
        reduce(getattr, name.split("."), model).set_value(jnp.asarray(value))
    model.eval()
    return model
''',
    run="""
import jax


def run(*inputs):
    return [np.asarray(output) for output in jax.tree.leaves(load()(*inputs))]
""",
    requirements="flax>=0.12 safetensors>=0.4",
)
