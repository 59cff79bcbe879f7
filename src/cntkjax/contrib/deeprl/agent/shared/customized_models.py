"""Networks that a configuration file names by their path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..... import layers, ops
from .models import Network, network


def conv_dqn(
    shape_of_inputs: Sequence[int],
    number_of_outputs: int,
    loss_function: Callable[[Any, Any], Any] | None = None,
    use_placeholder_for_input: bool = False,
) -> Network:
    """Three convolutions and a hidden layer, for the frames of `AtariPreprocessing`; levels are scaled to [-1, 1].

    >>> conv_dqn((4, 84, 84), 6)["f"].shape
    (6,)
    """
    with layers.default_options(activation=ops.relu, pad=False):
        f = layers.Sequential([
            lambda x: (x - 127.5) / 127.5,
            layers.Convolution2D((8, 8), 32, strides=4),
            layers.Convolution2D((4, 4), 64, strides=2),
            layers.Convolution2D((3, 3), 64, strides=2),
            layers.Dense(512),
            layers.Dense(number_of_outputs, activation=None),
        ])
    return network(shape_of_inputs, number_of_outputs, f, loss_function, use_placeholder_for_input)
