"""Convolutions of single bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import ops
from ...initializer import glorot_uniform
from ...misc import convert
from ...ops.functions import Function
from .custom_convolution_ops import CustomMultibit, CustomMultibitKernel, CustomPySign, CustomSign


def binarize_convolution(
    model: Function, train_function: Callable[[Function], Any],
    filter_function: Callable[[Any], bool] | None = None,
) -> Function:
    """The model with binary convolutions, after `train_function` has trained it.

    >>> import cntkjax as C
    >>> model = C.layers.Convolution2D((3, 3), 2)(C.input_variable((1, 5, 5)))
    >>> binarize_convolution(model, lambda binary: None).root_function.op_name
    'Plus'
    """
    made = convert_to_binary_convolution(model, filter_function)
    train_function(made)
    return convert_to_native_binary_convolution(made)


def convert_to_binary_convolution(
    model: Function, filter_function: Callable[[Any], bool] | None = None
) -> Function:
    """The model with its layers of convolutions as blocks `BinaryConvolution`; their biases and activations stay.

    `filter_function`: whether the block of a convolution is converted, by default each. The kernels begin as those of
    the model, which stays as it is.

    >>> import cntkjax as C
    >>> model = C.layers.Convolution2D((3, 3), 2, bias=False)(C.input_variable((1, 5, 5)))
    >>> binary = convert_to_binary_convolution(model)
    >>> binary.root_function.op_name, [(p.name, p.shape) for p in binary.parameters]
    ('BinaryConvolution', [('filter', (2, 1, 3, 3))])
    """

    def binary(block: Any) -> Function:
        operands = {ops.placeholder(name=inner.name): (inner, outer) for inner, outer in block.block_arguments_mapping}
        opened = ops.as_composite(block.block_root).clone("share", {inner: p for p, (inner, _) in operands.items()})
        made = convert(opened, lambda f: f.op_name == "Convolution", _binary)
        return made.replace_placeholders({p: outer for p, (_, outer) in operands.items()})

    def is_wanted(block: Any) -> bool:
        return block.is_block and block.op_name == "Convolution" and (filter_function is None or filter_function(block))

    return convert(model, is_wanted, binary)


def convert_to_native_binary_convolution(model: Function) -> Function:
    """The model itself: CNTK needed a library for fast binary convolutions, here they are ordinary operations."""
    return model


def binary_convolution(
    filter_shape: Sequence[int], num_filters: int = 1, channels: int = 1, init: Any = glorot_uniform(),
    pad: Any = False, strides: Any = 1, name: str = "BinaryConvolution",
) -> Callable[[Any], Function]:
    """Layer: a convolution of one bit for each value, times one number for all kernels and one for each sample.

    Shapes: [channels, *in] -> [num_filters, *out]; the kernel `filter` is [num_filters, channels, *filter_shape].

    >>> import cntkjax as C
    >>> layer = binary_convolution((2, 2), num_filters=3, channels=1)
    >>> layer(C.input_variable((1, 4, 4))).shape
    (3, 3, 3)
    """
    kernel = ops.parameter((num_filters, channels, *filter_shape), init=init, name="filter")
    pads = [False, *([pad] * len(filter_shape) if isinstance(pad, bool) else pad)]
    return lambda x: _convolution(kernel, x, name, auto_padding=pads, strides=strides)


def _binary(convolution: Any) -> Function:
    """A block in the place of one operation."""
    W, x = convolution.inputs
    attributes = convolution.node_attributes
    kernel = ops.parameter(W.shape, W.value, W.dtype, name="filter")
    return _convolution(
        kernel, x, "BinaryConvolution", auto_padding=attributes["autoPadding"][::-1], strides=attributes["strides"],
        dilation=attributes["dilation"], groups=attributes["groups"],
    )  # fmt: skip


def _convolution(kernel: Any, x: Any, op_name: str, **options: Any) -> Function:
    inside = ops.placeholder(x.shape, x.dynamic_axes)
    made = ops.convolution(CustomMultibit(kernel, 1), CustomMultibit(inside, 1), **options)
    return ops.as_block(made, [(inside, x)], op_name)


__all__ = [
    "CustomMultibit", "CustomMultibitKernel", "CustomPySign", "CustomSign", "binarize_convolution",
    "binary_convolution", "convert_to_binary_convolution", "convert_to_native_binary_convolution",
]
