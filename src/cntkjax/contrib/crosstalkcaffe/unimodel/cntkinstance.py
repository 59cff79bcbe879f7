"""Layers of converted networks, with their weights given. Networks that MMdnn writes for CNTK import this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import ops
from ....layers.blocks import BlockFunction
from ....ops.functions import Function
from ....variables import Parameter


class BlockApiSetup:
    """Makers of layers.

    Example:
        >>> import cntkjax as C
        >>> layer = BlockApiSetup.linear(2, 3, np.ones((3, 2), np.float32), None, "fc")
        >>> layer(C.input_variable(3)).eval([[1, 2, 3]])
        array([[6., 6.]], dtype=float32)
    """

    @staticmethod
    def convolution(
        output: int,
        kernel: Sequence[int],
        stride: Any,
        pad: Any,
        kernel_init: Any,
        bias_init: Any,
        group: int,
        dilation: Any,
        name: str,
    ) -> Function:
        """A convolution with filters `kernel_init` [output, channels / group, *kernel] and a bias [output] or None."""
        steps = len(kernel)
        filters = Parameter(shape=np.shape(kernel_init), init=kernel_init, name=f"{name}.sc")
        bias = _bias(bias_init, output, name, (1,) * steps)

        @BlockFunction("convolution", name)
        def convolution(x: Any) -> Any:
            padding = [False, *np.broadcast_to(pad, steps).tolist()]
            made = ops.convolution(filters, x, strides=stride, auto_padding=padding, dilation=dilation, groups=group)
            return made + bias

        return convolution

    @staticmethod
    def linear(output_shape: int, input_shape: int, scale_init: Any, bias_init: Any, name: str) -> Function:
        """x @ W + b with W = `scale_init` [input_shape, output_shape]; b is 0 without `bias_init`."""
        scale = Parameter((input_shape, output_shape), init=scale_init, name=f"{name}.sc")
        bias = _bias(bias_init, output_shape, name, ())

        @BlockFunction("linear", name)
        def linear(x: Any) -> Any:
            return ops.times(x, scale) + bias

        return linear

    @staticmethod
    def lrn(k: float, n: int, alpha: float, beta: float, name: str) -> Function:
        """Local response normalization over n - 1 channels on both sides, as in CNTK."""

        @BlockFunction("lrn", name)
        def lrn(x: Any) -> Any:
            return ops.local_response_normalization(x, n - 1, k, alpha, beta)

        return lrn


def _bias(given: Any, size: int, name: str, behind: tuple[int, ...]) -> Parameter:
    values = np.zeros(size, np.float32) if given is None else np.asarray(given, np.float32)
    return Parameter(init=values.reshape(size, *behind), name=f"{name}.b")
