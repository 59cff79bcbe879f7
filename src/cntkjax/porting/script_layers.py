"""Blocks of a graph as layers of the public API: calls that may have made a block, to be compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ..graph.function import Node, nodes_inside
from .script import LAYERS, Code, call, rows, shape_text, text_of

_ACTIVATIONS = {
    "Tanh": "tanh", "ReLU": "relu", "StableSigmoid": "sigmoid", "Softmax": "softmax", "LogSoftmax": "log_softmax",
    "ELU": "elu", "SELU": "selu", "LeakyReLU": "leaky_relu", "Softplus": "softplus", "HardSigmoid": "hard_sigmoid",
    "Softsign": "softsign", "Hardmax": "hardmax",
}
_POOLINGS = {
    "MaxPooling": "MaxPooling", "AveragePooling": "AveragePooling", "GlobalMaxPooling": "GlobalMaxPooling",
    "GlobalAveragePooling": "GlobalAveragePooling",
}
_CELLS = ("LSTM", "GRU", "RNNStep")


def _inner(block: Node, *names: str) -> Node | None:
    """The first operation of one of these names inside of a block."""
    return next((n for n in nodes_inside(block) if n.op_name in names and not n.is_block), None)


def _root(block: Node) -> Node:
    """The operation whose output is that of a block."""
    assert block.block_composite is not None
    return block.block_composite.root_function


def _activation(block: Node) -> Code | None:
    root = _root(block)
    while root.op_name not in _ACTIVATIONS and root.is_block:
        root = _root(root)
    return Code(f"C.{_ACTIVATIONS[root.op_name]}") if root.op_name in _ACTIVATIONS else None


def _one(values: Any) -> Any:
    """A number or tuple: one number if all are equal."""
    values = tuple(values)
    return values[0] if len(set(values)) == 1 else values


def layer(path: str, x: list[str], *positional: str, **options: Any) -> str:
    """The text of a layer that is applied to operands."""
    return f"{call(f'layers.{path}', *positional, **options)}({', '.join(x)})"


@rows(LAYERS, "Dense", "Embedding")
def _dense(block: Node, x: list[str]) -> Iterator[str]:
    times = _inner(block, "Times")
    if times is None:
        return
    weight = times.node_inputs[1]
    rank = int(times.node_attributes["outputRank"])
    shape = shape_text(weight.shape[len(weight.shape) - rank:])
    if block.op_name == "Embedding":
        yield layer("Embedding", x, shape, name=block.name)
        return
    mapped = int(times.node_attributes["inferInputRankToMap"])
    ranks: dict[str, Any] = {"map_rank": mapped} if mapped > 0 else {}
    mapping: dict[str, Any]
    for bias, mapping in product((None, False), (ranks, {"input_rank": len(weight.shape) - rank})):
        yield layer("Dense", x, shape, activation=_activation(block), bias=bias, **mapping, name=block.name)


@rows(LAYERS, "Convolution", "ConvolutionTranspose")
def _convolution(block: Node, x: list[str]) -> Iterator[str]:
    convolution = _inner(block, "Convolution")
    if convolution is None:
        return
    a, kernel = convolution.node_attributes, convolution.node_inputs[0]
    rank = len(kernel.shape) - 2
    pad = [bool(v) for v in a["autoPadding"]][::-1][-rank:]
    options: dict[str, Any] = {
        "activation": _activation(block), "pad": _one(pad) or None, "strides": _steps(a["strides"], rank),
        "dilation": _steps(a["dilation"], rank),
    }
    if a["transpose"]:
        shape = tuple(int(v) for v in a["outputShape"][-rank:])
        options["output_shape"] = shape if any(shape) else None
    else:
        options["groups"] = int(a["groups"]) if a["groups"] > 1 else None
    filters = kernel.shape[1 if a["transpose"] else 0]
    if _inner(block, "ConvolutionSequenceShape") is not None:
        options["sequential"] = True
    for bias in (None, False):
        yield layer(block.op_name, x, text_of(kernel.shape[2:]), str(filters), **options, bias=bias, name=block.name)


def _steps(values: Any, rank: int) -> Any:
    """Strides for the axes of a window; None if all are 1."""
    steps = _one([int(v) for v in values][-rank:])
    return None if steps == 1 else steps


@rows(LAYERS, *_POOLINGS)
def _pooling(block: Node, x: list[str]) -> Iterator[str]:
    pooling = _inner(block, "Pooling")
    if pooling is None:
        return
    if block.op_name.startswith("Global"):
        yield layer(block.op_name, x, name=block.name)
        return
    a = pooling.node_attributes
    window = tuple(int(v) for v in a["poolingWindowShape"])
    pad = [bool(v) for v in a["autoPadding"]][::-1][-len(window):]
    strides = _steps(a["strides"], len(window))
    yield layer(block.op_name, x, text_of(window), strides=strides, pad=_one(pad) or None, name=block.name)


@rows(LAYERS, "LayerNormalization", "Stabilizer")
def _plain(block: Node, x: list[str]) -> Iterator[str]:
    yield layer(block.op_name, x, name=block.name)


@rows(LAYERS, "Dropout")
def _dropout(block: Node, x: list[str]) -> Iterator[str]:
    dropout = _inner(block, "Dropout")
    if dropout is not None:
        yield layer("Dropout", x, repr(float(dropout.node_attributes["dropoutRate"])), name=block.name)


@rows(LAYERS, "BatchNormalization")
def _batch_normalization(block: Node, x: list[str]) -> Iterator[str]:
    normalization = _inner(block, "BatchNormalization")
    if normalization is None:
        return
    a = normalization.node_attributes
    time, blend, epsilon = (float(a[k]) for k in ("normalizationTimeConstant", "blendTimeConstant", "epsilon"))
    options = {
        "map_rank": 1 if a["spatial"] else None, "normalization_time_constant": None if time == 5000 else time,
        "blend_time_constant": blend or None, "epsilon": None if epsilon == 1e-5 else epsilon,
        "disable_regularization": bool(a["disableRegularization"]) or None,
    }
    for engine in (None, True):
        yield layer("BatchNormalization", x, **options, use_cntk_engine=engine, name=block.name)


@rows(LAYERS, "LSTM", "GRU", "RNNStep")
def _cell(block: Node, x: list[str]) -> Iterator[str]:
    """The last operand is the input, those before are the states."""
    shape = shape_text(block.node_outputs[0].shape)
    size = block.node_outputs[-1].shape
    options: dict[str, Any] = {"cell_shape": None}
    if block.op_name == "LSTM" and size != block.node_outputs[0].shape:
        options["cell_shape"] = shape_text(size)
    activations = [None, *(Code(f"C.{name}") for name in ("relu", "tanh", "sigmoid"))]
    for activation, stabilized in product(activations, (None, True)):
        for peepholes in (None, True) if block.op_name == "LSTM" else (None,):
            yield layer(block.op_name, x, shape, activation=activation, use_peepholes=peepholes,
                        enable_self_stabilization=stabilized, name=block.name, **options)


__all__: list[str] = []
