"""Convolutions with binary weights and activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import ops
from ..._typing import ShapeLike
from ...graph.variable import Edge
from ...initializer import glorot_uniform
from ...misc import convert
from ...ops.functions import Function
from ...variables import Constant, Parameter
from .custom_convolution_ops import CustomMultibit, CustomMultibitKernel, CustomPySign, CustomSign, Value


def binarize_convolution(
    model: Function, train_function: Callable[[Function], Any],
    filter_function: Callable[[Any], bool] | None = None,
) -> Function:
    """The model with binary convolutions, trained by `train_function`.

    >>> import cntkjax as C
    >>> model = C.layers.Convolution2D((3, 3), 2)(C.input_variable((1, 5, 5)))
    >>> binarize_convolution(model, lambda binary: None).root_function.op_name
    'Plus'
    """
    binary = convert_to_binary_convolution(model, filter_function)
    train_function(binary)
    return convert_to_native_binary_convolution(binary)


def convert_to_binary_convolution(
    model: Function, filter_function: Callable[[Any], bool] | None = None
) -> Function:
    """A copy of the model with blocks `BinaryConvolution` in place of convolution layers; biases and activations stay.

    `filter_function`: whether the block of a convolution is converted, by default all are. The initial kernels are
    those of the model, which does not change.

    >>> import cntkjax as C
    >>> model = C.layers.Convolution2D((3, 3), 2, bias=False)(C.input_variable((1, 5, 5)))
    >>> binary = convert_to_binary_convolution(model)
    >>> binary.root_function.op_name, [(p.name, p.shape) for p in binary.parameters]
    ('BinaryConvolution', [('filter', (2, 1, 3, 3))])
    """

    def binary(block: Function) -> Function:
        operands = {ops.placeholder(name=inner.name): (inner, outer) for inner, outer in block.block_arguments_mapping}
        inside = ops.as_composite(block.block_root).clone("share", {inner: p for p, (inner, _) in operands.items()})
        converted = convert(inside, lambda f: f.op_name == "Convolution", _binary)
        return converted.replace_placeholders({p: outer for p, (_, outer) in operands.items()})

    def is_selected(block: Function) -> bool:
        is_layer = block.is_block and block.op_name == "Convolution" and len(block.block_arguments_mapping) == 1
        return is_layer and (filter_function is None or filter_function(block))  # those of ONNX files pad as they like

    return convert(model, is_selected, binary)


def convert_to_native_binary_convolution(model: Function) -> Function:
    """The model itself: CNTK needs a library for fast binary convolutions, here they are ordinary operations."""
    return model


def binary_convolution(
    filter_shape: Sequence[int], num_filters: int = 1, channels: int = 1, init: Any = glorot_uniform(),
    pad: bool | Sequence[bool] = False, strides: ShapeLike = 1, name: str = "BinaryConvolution",
) -> Callable[[Any], Function]:
    """A layer: a convolution of signs, times a scale for all kernels and a scale for each sample.

    Shapes: [channels, *in] -> [num_filters, *out]; the kernel `filter` is [num_filters, channels, *filter_shape].

    >>> import cntkjax as C
    >>> layer = binary_convolution((2, 2), num_filters=3, channels=1)
    >>> layer(C.input_variable((1, 4, 4))).shape
    (3, 3, 3)
    """
    kernel = ops.parameter((num_filters, channels, *filter_shape), init=init, name="filter")
    pads = [False, *([pad] * len(filter_shape) if isinstance(pad, bool) else pad)]
    return lambda x: _convolution(kernel, x, name, auto_padding=pads, strides=strides)


def _binary(convolution: Function) -> Function:
    """A block that replaces one convolution."""
    W, x = convolution.inputs
    assert isinstance(W, Parameter | Constant)
    attributes = convolution.node_attributes
    kernel = ops.parameter(W.shape, W.value, W.dtype, name="filter")
    return _convolution(
        kernel, x, "BinaryConvolution", auto_padding=attributes["autoPadding"][::-1], strides=attributes["strides"],
        dilation=attributes["dilation"], groups=attributes["groups"],
    )


def _convolution(kernel: Value, x: Edge | Function, op_name: str, **options: Any) -> Function:
    argument = ops.placeholder(x.shape, x.dynamic_axes)
    convolution = ops.convolution(CustomMultibit(kernel, 1), CustomMultibit(argument, 1), **options)
    return ops.as_block(convolution, [(argument, x)], op_name)


__all__ = [
    "CustomMultibit", "CustomMultibitKernel", "CustomPySign", "CustomSign", "binarize_convolution",
    "binary_convolution", "convert_to_binary_convolution", "convert_to_native_binary_convolution",
]
