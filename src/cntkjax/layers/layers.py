"""Feed-forward layers: each owns its parameters, and is a block in the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..default_options import default_override_or, get_default_override, is_default_override
from ..graph.shape import UNKNOWN_SHAPE
from ..initializer import SentinelValueForAutoSelectRandomSeed, glorot_uniform
from ..internal.sanitize import _as_tuple
from ..ops import (
    AVG_POOLING,
    MAX_POOLING,
    MAX_UNPOOLING,
    PoolingType_Average,
    PoolingType_Max,
    alias,
    batch_normalization,
    convolution,
    convolution_transpose,
    dropout,
    element_divide,
    pooling,
    reduce_mean,
    reshape,
    sequence,
    splice,
    sqrt,
    times,
    unpooling,
)
from ..ops.functions import BlockFunction, Function, identity
from ..variables import Constant, Parameter, Record, Variable
from ._convolution import (
    Axes,
    Convolution,
    Convolution1D,
    Convolution2D,
    Convolution3D,
    ConvolutionTranspose,
    ConvolutionTranspose1D,
    ConvolutionTranspose2D,
    ConvolutionTranspose3D,
    SequentialConvolution,
    _activated,
    _pad_to_shape,
    _window,
)
from .blocks import _INFERRED, UntestedBranchError, _initializer_for


def Dense(
    shape: Any,
    activation: Any = default_override_or(identity),
    init: Any = default_override_or(glorot_uniform()),
    input_rank: int | None = None,
    map_rank: int | None = None,
    bias: Any = default_override_or(True),
    init_bias: Any = default_override_or(0),
    name: str = "",
) -> Function:
    """``activation(x @ W + b)``.

    All axes of x are contracted, unless `input_rank` says how many, or `map_rank` how many leading ones are left alone.

    Shapes: x [*map, *in] -> [*map, *shape]; W [*in, *shape], b [*shape].
    Errors: ValueError if both ranks are given.

    >>> import cntkjax as C
    >>> layer = Dense(2, init=1)
    >>> layer(C.input_variable(3)).parameters
    (Parameter('W', [], [3 x 2]), Parameter('b', [], [2]))
    """
    activation = get_default_override(Dense, activation=activation)
    init = get_default_override(Dense, init=init)
    bias = get_default_override(Dense, bias=bias)
    init_bias = get_default_override(Dense, init_bias=init_bias)
    shape = _as_tuple(shape)
    if input_rank is not None and map_rank is not None:
        raise ValueError("Dense: input_rank and map_rank cannot be specified at the same time.")
    to_map = -1 if input_rank is not None else map_rank or 0
    W = Parameter(
        _INFERRED * (1 if input_rank is None else input_rank) + shape,
        init=_initializer_for(init, Record(output_rank=len(shape))), name="W",
    )
    b = Parameter(shape, init=init_bias, name="b") if bias else None

    @BlockFunction("Dense", name)
    def dense(x: Variable) -> Any:
        r = times(x, W, output_rank=len(shape), infer_input_rank_to_map=to_map)
        return _activated(r if b is None else r + b, activation)

    return dense


def Embedding(
    shape: Any = None, init: Any = default_override_or(glorot_uniform()), weights: Any = None, name: str = ""
) -> Function:
    """``x @ E``, for one-hot or sparse x; with `weights`, E is a constant.

    Shapes: x [n] -> [*shape]; E [n, *shape].
    Errors: ValueError unless either shape or weights are given.
    """
    if not is_default_override(init) and weights is not None:
        raise ValueError("Embedding: init and weights options are mutually exclusive")
    init = get_default_override(Embedding, init=init)
    if weights is None:
        if shape is None:
            raise ValueError("Embedding: output shape must be specified")
        E: Any = Parameter(_INFERRED + _as_tuple(shape), init=init, name="E")
    else:
        if shape is not None:
            raise ValueError("Embedding: output shape must not be specified when weights are given")
        E = Constant(np.asarray(weights, np.float32), name="E")

    @BlockFunction("Embedding", name)
    def embed(x: Variable) -> Any:
        return times(x, E)

    return embed


def Activation(activation: Any = default_override_or(identity), name: str = "") -> Function:
    """An activation function as a layer.

    Shapes: x [*shape] -> [*shape].
    """
    activation = get_default_override(Activation, activation=activation)

    @BlockFunction("Activation", name)
    def activate(x: Variable) -> Any:
        return _activated(x, activation)

    return activate


def Dropout(
    dropout_rate: float | None = None, keep_prob: float | None = None, seed: int = SentinelValueForAutoSelectRandomSeed,
    name: str = "",
) -> Function:
    """In training sets elements to 0 with probability `dropout_rate`, and divides the others by ``1 - dropout_rate``.

    Shapes: x [*shape] -> [*shape].
    Errors: ValueError unless one of dropout_rate and keep_prob = 1 - dropout_rate is given, and the rate is in [0, 1).
    """
    if dropout_rate is None and keep_prob is None:
        raise ValueError("Dropout: either dropout_rate or keep_prob must be specified.")
    if dropout_rate is not None and keep_prob is not None:
        raise ValueError("Dropout: dropout_rate and keep_prob cannot be specified at the same time.")
    rate: Any = dropout_rate if keep_prob is None else 1 - keep_prob
    if not 0 <= rate < 1:
        raise ValueError(f"dropout_rate must be in the interval [0,1), not {rate}")

    @BlockFunction("Dropout", name)
    def drop(x: Variable) -> Any:
        return dropout(x, dropout_rate=rate, seed=seed)

    return drop


def _Pooling(
    op: int, filter_shape: Axes, sequential: bool = False, strides: Axes = 1, pad: Any = False,
    op_name: str | None = None, name: str = "",
) -> Function:
    """A pooling layer; `filter_shape` None takes all axes but the first."""
    if sequential:
        raise NotImplementedError("Pooling: sequential pooling is not supported")
    window = UNKNOWN_SHAPE if filter_shape is None else _as_tuple(filter_shape)
    strides, pad = _pad_to_shape(window, strides, "strides"), _pad_to_shape(window, pad, "pad")

    @BlockFunction(op_name or "Pooling", name)
    def pool(x: Variable) -> Any:
        return pooling(x, op, window, strides=strides, auto_padding=list(pad))

    return pool


def MaxPooling(
    filter_shape: Axes, strides: Axes = 1, pad: Any = default_override_or(False), name: str = ""
) -> Function:
    """The largest value in each window.

    Shapes: x [channels, *in] -> [channels, *out].
    Errors: ValueError for strides or pad of another length than the filter.
    """
    pad = get_default_override(MaxPooling, pad=pad)
    return _Pooling(MAX_POOLING, filter_shape, strides=strides, pad=pad, op_name="MaxPooling", name=name)


def AveragePooling(
    filter_shape: Axes, strides: Axes = 1, pad: Any = default_override_or(False), name: str = ""
) -> Function:
    """The mean of each window; see `MaxPooling`."""
    pad = get_default_override(AveragePooling, pad=pad)
    return _Pooling(AVG_POOLING, filter_shape, strides=strides, pad=pad, op_name="AveragePooling", name=name)


def GlobalMaxPooling(name: str = "") -> Function:
    """The largest value of each channel. Shapes: x [channels, *in] -> [channels, 1, ..]."""
    return _Pooling(MAX_POOLING, None, op_name="GlobalMaxPooling", name=name)


def GlobalAveragePooling(name: str = "") -> Function:
    """The mean of each channel. Shapes: x [channels, *in] -> [channels, 1, ..]."""
    return _Pooling(AVG_POOLING, None, op_name="GlobalAveragePooling", name=name)


def MaxUnpooling(filter_shape: Axes, strides: Axes = 1, pad: Any = False, name: str = "") -> Function:
    """Puts values where the maxima were that `MaxPooling` found, zeros elsewhere.

    Shapes: (x [channels, *out], y [channels, *in]) -> [channels, *in], y what was pooled.
    Errors: as `MaxPooling`.
    """
    window = _as_tuple(filter_shape)
    strides, pad = _pad_to_shape(window, strides, "strides"), _pad_to_shape(window, pad, "pad")

    @BlockFunction("MaxUnpooling", name)
    def unpool(x: Variable, y: Variable) -> Any:
        return unpooling(x, y, MAX_UNPOOLING, window, strides=strides, auto_padding=list(pad))

    return unpool


def BatchNormalization(
    map_rank: Any = default_override_or(None),
    init_scale: float = 1,
    normalization_time_constant: Any = default_override_or(5000),
    blend_time_constant: float = 0,
    epsilon: Any = default_override_or(0.00001),
    use_cntk_engine: Any = default_override_or(False),
    disable_regularization: Any = default_override_or(False),
    name: str = "",
) -> Function:
    """Normalizes by mean and variance of the minibatch in training, by their running values otherwise.

    Shapes: x [*shape] -> [*shape]; scale, bias and the running values are [*shape], or with map_rank 1 [channels].
    Units:  normalization_time_constant is in samples.
    Errors: NotImplementedError for a map_rank that is neither 1 nor None.
    Source: Ioffe and Szegedy, ICML 2015 (arXiv:1502.03167); details as in CNTK 2.7.
    """
    map_rank = get_default_override(BatchNormalization, map_rank=map_rank)
    time_constant = get_default_override(BatchNormalization, normalization_time_constant=normalization_time_constant)
    epsilon = get_default_override(BatchNormalization, epsilon=epsilon)
    use_cntk_engine = get_default_override(BatchNormalization, use_cntk_engine=use_cntk_engine)
    unregularized = get_default_override(BatchNormalization, disable_regularization=disable_regularization)
    if map_rank not in (None, 1):
        UntestedBranchError("BatchNormalization map_rank can only be 1 or None for now")
    scale = Parameter(_INFERRED, init=init_scale, name="scale")
    bias = Parameter(_INFERRED, init=0, name="bias")
    mean = Constant(0, shape=_INFERRED, name="aggregate_mean")
    variance = Constant(0, shape=_INFERRED, name="aggregate_variance")
    count = Constant(0, shape=(), name="aggregate_count")

    @BlockFunction("BatchNormalization", name)
    def normalize(x: Variable) -> Any:
        return batch_normalization(
            x, scale, bias, mean, variance, map_rank == 1, time_constant, blend_time_constant, epsilon,
            use_cudnn_engine=not use_cntk_engine, disable_regularization=unregularized, running_count=count,
        )

    return normalize


def LayerNormalization(
    initial_scale: float = 1, initial_bias: float = 0, epsilon: Any = default_override_or(0.00001), name: str = ""
) -> Function:
    """Normalizes each sample to mean 0 and standard deviation 1, then scales and shifts.

    Shapes: x [*shape] -> [*shape]; scale, bias [*shape].
    Source: Ba, Kiros and Hinton, arXiv:1607.06450; as in CNTK 2.7, epsilon is added to the standard deviation.
    """
    epsilon = Constant(get_default_override(LayerNormalization, epsilon=epsilon))
    scale = Parameter(_INFERRED, init=initial_scale, name="scale")
    bias = Parameter(_INFERRED, init=initial_bias, name="bias")

    @BlockFunction("LayerNormalization", name)
    def normalize(x: Variable) -> Any:
        centered = x - reduce_mean(x)
        deviation = sqrt(reduce_mean(centered * centered))
        return element_divide(centered, deviation + epsilon) * scale + bias

    return normalize


def Label(name: str) -> Function:
    """The operand itself, under a name by which it is found in the graph."""

    def label(x: Variable) -> Any:
        return alias(x, name=name)

    return Function(label)


__all__ = [
    "Activation", "AveragePooling", "BatchNormalization", "BlockFunction", "Constant", "Convolution",
    "Convolution1D", "Convolution2D", "Convolution3D", "ConvolutionTranspose", "ConvolutionTranspose1D",
    "ConvolutionTranspose2D", "ConvolutionTranspose3D", "Dense", "Dropout", "Embedding", "Function",
    "GlobalAveragePooling", "GlobalMaxPooling", "Label", "LayerNormalization", "MaxPooling", "MaxUnpooling",
    "Parameter", "PoolingType_Average", "PoolingType_Max", "Record", "SentinelValueForAutoSelectRandomSeed",
    "SequentialConvolution", "UntestedBranchError", "_window", "alias", "batch_normalization", "convolution",
    "convolution_transpose", "default_override_or", "dropout", "get_default_override", "glorot_uniform", "identity",
    "is_default_override", "pooling", "reduce_mean", "reshape", "sequence", "splice", "sqrt", "times", "unpooling",
]
