"""Feed-forward layers. Each owns its parameters and is one block in the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._typing import ArrayLike, Seed
from ..default_options import default_override_or, get_default_override, is_default_override
from ..graph.arguments import public
from ..graph.errors import explain
from ..graph.shape import UNKNOWN_SHAPE
from ..initializer import SentinelValueForAutoSelectRandomSeed, glorot_uniform
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
from ._arguments import Activation as ActivationOption
from ._arguments import Axes, AxisFlags, Flag, Init, Number, check_positive, shape_of
from ._convolution import (
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


@public
def Dense(
    shape: int | Sequence[int],
    activation: ActivationOption = default_override_or(identity),
    init: Init = default_override_or(glorot_uniform()),
    input_rank: int | None = None,
    map_rank: int | None = None,
    bias: Flag = default_override_or(True),
    init_bias: Init = default_override_or(0),
    name: str = "",
) -> Function:
    """``activation(x @ W + b)``.

    All axes of x are contracted, unless `input_rank` says how many, or `map_rank` how many leading axes stay as they
    are.

    Shapes: x [*map, *in] -> [*map, *shape]; W [*in, *shape], b [*shape].
    Errors: ValueError if both ranks are given; TypeError for an activation that is not a function. When it is applied,
            ShapeError if x does not have the size that W took from the first input.

    >>> import cntkjax as C
    >>> layer = Dense(2, init=1)
    >>> layer(C.input_variable(3)).parameters
    (Parameter('W', [], [3 x 2]), Parameter('b', [], [2]))
    """
    activation = get_default_override(Dense, activation=activation)
    init = get_default_override(Dense, init=init)
    bias = get_default_override(Dense, bias=bias)
    init_bias = get_default_override(Dense, init_bias=init_bias)
    shape = shape_of("Dense", shape)
    if input_rank is not None and map_rank is not None:
        raise ValueError(explain(
            "Dense: input_rank and map_rank cannot be specified at the same time",
            fix="give input_rank to say how many axes are contracted, or map_rank to say how many are kept",
        ))
    to_map = -1 if input_rank is not None else map_rank or 0
    W = Parameter(
        _INFERRED * (1 if input_rank is None else input_rank) + shape,
        init=_initializer_for(init, Record(output_rank=len(shape))), name="W",
    )
    b = Parameter(shape, init=init_bias, name="b") if bias else None

    @BlockFunction("Dense", name)
    def dense(x: Variable) -> Function:
        product = times(x, W, output_rank=len(shape), infer_input_rank_to_map=to_map)
        return _activated("Dense", product if b is None else product + b, activation)

    return dense


@public
def Embedding(
    shape: int | Sequence[int] | None = None,
    init: Init = default_override_or(glorot_uniform()),
    weights: ArrayLike | None = None,
    name: str = "",
) -> Function:
    """``x @ E``, for one-hot or sparse x; with `weights`, E is a constant.

    Shapes: x [n] -> [*shape]; E [n, *shape].
    Errors: ValueError unless either shape or weights are given.

    >>> import cntkjax as C
    >>> word = C.input_variable(4, is_sparse=True)
    >>> vector = Embedding(weights=[[0, 1], [2, 3], [4, 5], [6, 7]])(word)
    >>> vector.eval({word: C.Value.one_hot([[2], [0]], 4)})
    array([[4., 5.],
           [0., 1.]], dtype=float32)
    """
    if not is_default_override(init) and weights is not None:
        raise ValueError(explain(
            "Embedding: init and weights options are mutually exclusive",
            fix="give weights for a constant embedding, or shape and init for one that is learned",
        ))
    init = get_default_override(Embedding, init=init)
    if weights is None:
        if shape is None:
            raise ValueError(explain(
                "Embedding: output shape must be specified", fix="give the size of a vector: Embedding(300)"
            ))
        # As in CNTK, an embedding of size 0 can be made, if only to be looked at.
        size = (0,) if shape == 0 and shape is not False else shape_of("Embedding", shape)
        E: Parameter | Constant = Parameter(_INFERRED + size, init=init, name="E")
    else:
        if shape is not None:
            raise ValueError(explain(
                "Embedding: output shape must not be specified when weights are given",
                fix="leave out shape, which is that of the weights",
            ))
        E = Constant(np.asarray(weights, np.float32), name="E")

    @BlockFunction("Embedding", name)
    def embed(x: Variable) -> Function:
        return times(x, E)

    return embed


@public
def Activation(activation: ActivationOption = default_override_or(identity), name: str = "") -> Function:
    """An activation function as a layer.

    Shapes: x [*shape] -> [*shape].
    Errors: TypeError for an activation that is not a function, when the layer is applied.

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> Activation(C.relu)(x).eval({x: [[-1, 3]]})
    array([[0., 3.]], dtype=float32)
    """
    activation = get_default_override(Activation, activation=activation)

    @BlockFunction("Activation", name)
    def activate(x: Variable) -> Function:
        return _activated("Activation", x, activation)

    return activate


@public
def Dropout(
    dropout_rate: float | None = None, keep_prob: float | None = None,
    seed: Seed = SentinelValueForAutoSelectRandomSeed, name: str = "",
) -> Function:
    """In training sets elements to 0 with probability `dropout_rate`, and divides the others by ``1 - dropout_rate``.

    Shapes: x [*shape] -> [*shape].
    Errors: ValueError unless one of dropout_rate and keep_prob = 1 - dropout_rate is given, and the rate is in [0, 1).

    >>> import cntkjax as C
    >>> x = C.input_variable(3)
    >>> layer = Dropout(0.5)(x)
    >>> layer.eval({x: [[1, 2, 3]]})    # not in training
    array([[1., 2., 3.]], dtype=float32)
    """
    if (dropout_rate is None) == (keep_prob is None):
        raise ValueError(explain(
            "Dropout: dropout_rate and keep_prob cannot be specified at the same time" if keep_prob is not None
            else "Dropout: either dropout_rate or keep_prob must be specified",
            fix="give the probability that an element is dropped: Dropout(0.5)",
        ))
    rate = dropout_rate if dropout_rate is not None else 1 - (keep_prob or 0)
    if not 0 <= rate < 1:
        raise ValueError(explain(
            f"Dropout: dropout_rate must be in the interval [0,1), not {rate}",
            fix="give a probability, not a percentage: Dropout(0.2) drops every fifth element",
        ))

    @BlockFunction("Dropout", name)
    def drop(x: Variable) -> Function:
        return dropout(x, dropout_rate=rate, seed=seed)

    return drop


def _Pooling(
    op: int, filter_shape: Axes | None, sequential: bool = False, strides: Axes = 1, pad: AxisFlags = False,
    op_name: str | None = None, name: str = "",
) -> Function:
    """A pooling layer; without a `filter_shape` the window covers all axes but the first."""
    if sequential:
        raise NotImplementedError("Pooling: sequential pooling is not supported")
    layer = op_name or "Pooling"
    window = UNKNOWN_SHAPE if filter_shape is None else shape_of(layer, filter_shape, "filter_shape")
    steps, padded = _pad_to_shape(window, strides, f"{layer}: strides"), _pad_to_shape(window, pad, f"{layer}: pad")
    check_positive(layer, "strides", steps, strides)

    @BlockFunction(layer, name)
    def pool(x: Variable) -> Function:
        return pooling(x, op, window, strides=steps, auto_padding=list(padded))

    return pool


@public
def MaxPooling(
    filter_shape: Axes, strides: Axes = 1, pad: AxisFlags = default_override_or(False), name: str = ""
) -> Function:
    """The largest value in each window.

    Shapes: x [channels, *in] -> [channels, *out], with out = (in - filter) // strides + 1 along each axis, or
            ceil(in / strides) with `pad`.
    Errors: ValueError for strides or pad of another length than the filter; ShapeError if the window does not fit.

    >>> import cntkjax as C
    >>> MaxPooling((2, 2), strides=2)(C.input_variable((3, 8, 8))).shape
    (3, 4, 4)
    """
    pad = get_default_override(MaxPooling, pad=pad)
    return _Pooling(MAX_POOLING, filter_shape, strides=strides, pad=pad, op_name="MaxPooling", name=name)


@public
def AveragePooling(
    filter_shape: Axes, strides: Axes = 1, pad: AxisFlags = default_override_or(False), name: str = ""
) -> Function:
    """The mean of each window.

    Shapes, Errors: as `MaxPooling`. Padding does not count in the mean.

    >>> import cntkjax as C
    >>> AveragePooling((3, 3), strides=2, pad=True)(C.input_variable((3, 9, 9))).shape
    (3, 5, 5)
    """
    pad = get_default_override(AveragePooling, pad=pad)
    return _Pooling(AVG_POOLING, filter_shape, strides=strides, pad=pad, op_name="AveragePooling", name=name)


@public
def GlobalMaxPooling(name: str = "") -> Function:
    """The largest value of each channel.

    Shapes: x [channels, *in] -> [channels, 1, ..].
    Errors: ShapeError for an input without channels.

    >>> import cntkjax as C
    >>> GlobalMaxPooling()(C.input_variable((3, 8, 8))).shape
    (3, 1, 1)
    """
    return _Pooling(MAX_POOLING, None, op_name="GlobalMaxPooling", name=name)


@public
def GlobalAveragePooling(name: str = "") -> Function:
    """The mean of each channel.

    Shapes, Errors: as `GlobalMaxPooling`.

    >>> import cntkjax as C
    >>> x = C.input_variable((1, 2, 2))
    >>> GlobalAveragePooling()(x).eval({x: [[[[1, 2], [3, 6]]]]}).ravel()
    array([3.], dtype=float32)
    """
    return _Pooling(AVG_POOLING, None, op_name="GlobalAveragePooling", name=name)


@public
def MaxUnpooling(filter_shape: Axes, strides: Axes = 1, pad: AxisFlags = False, name: str = "") -> Function:
    """Invert `MaxPooling`: values go where the maxima of the windows were, zeros elsewhere.

    Shapes: (x [channels, *out], y [channels, *in]) -> [channels, *in], with y the input of the pooling.
    Errors: as `MaxPooling`.

    >>> import cntkjax as C
    >>> y = C.input_variable((1, 1, 4))
    >>> restored = MaxUnpooling((1, 2), strides=2)(MaxPooling((1, 2), strides=2)(y), y)
    >>> restored.eval({y: [[[[1, 5, 4, 2]]]]}).ravel()
    array([0., 5., 4., 0.], dtype=float32)
    """
    window = shape_of("MaxUnpooling", filter_shape, "filter_shape")
    steps = _pad_to_shape(window, strides, "MaxUnpooling: strides")
    check_positive("MaxUnpooling", "strides", steps, strides)
    padded = _pad_to_shape(window, pad, "MaxUnpooling: pad")

    @BlockFunction("MaxUnpooling", name)
    def unpool(x: Variable, y: Variable) -> Function:
        return unpooling(x, y, MAX_UNPOOLING, window, strides=steps, auto_padding=list(padded))

    return unpool


@public
def BatchNormalization(
    map_rank: int | default_override_or | None = default_override_or(None),
    init_scale: Init = 1,
    normalization_time_constant: Number = default_override_or(5000),
    blend_time_constant: float = 0,
    epsilon: Number = default_override_or(0.00001),
    use_cntk_engine: Flag = default_override_or(False),
    disable_regularization: Flag = default_override_or(False),
    name: str = "",
) -> Function:
    """Normalize by mean and variance of the minibatch in training, by their running values otherwise.

    Shapes: x [*shape] -> [*shape]; scale, bias and the running values are [*shape], or with map_rank 1 [channels].
    Units:  normalization_time_constant is in samples.
    Errors: NotImplementedError for a map_rank that is neither 1 nor None; when it is applied, ShapeError for an input
            of another size than the first one.
    Source: Ioffe and Szegedy, ICML 2015 (arXiv:1502.03167); details as in CNTK 2.7.

    >>> import cntkjax as C
    >>> layer = BatchNormalization(map_rank=1)(C.input_variable((3, 8, 8)))
    >>> [(p.name, p.shape) for p in layer.parameters]
    [('scale', (3,)), ('bias', (3,))]
    """
    map_rank = get_default_override(BatchNormalization, map_rank=map_rank)
    time_constant = get_default_override(BatchNormalization, normalization_time_constant=normalization_time_constant)
    offset = get_default_override(BatchNormalization, epsilon=epsilon)
    use_cntk_engine = get_default_override(BatchNormalization, use_cntk_engine=use_cntk_engine)
    unregularized = get_default_override(BatchNormalization, disable_regularization=disable_regularization)
    if map_rank not in (None, 1):
        raise UntestedBranchError("BatchNormalization map_rank can only be 1 or None for now")
    scale = Parameter(_INFERRED, init=init_scale, name="scale")
    bias = Parameter(_INFERRED, init=0, name="bias")
    mean = Constant(0, shape=_INFERRED, name="aggregate_mean")
    variance = Constant(0, shape=_INFERRED, name="aggregate_variance")
    count = Constant(0, shape=(), name="aggregate_count")

    @BlockFunction("BatchNormalization", name)
    def normalize(x: Variable) -> Function:
        return batch_normalization(
            x, scale, bias, mean, variance, map_rank == 1, time_constant, blend_time_constant, offset,
            use_cudnn_engine=not use_cntk_engine, disable_regularization=unregularized, running_count=count,
        )

    return normalize


@public
def LayerNormalization(
    initial_scale: Init = 1, initial_bias: Init = 0, epsilon: Number = default_override_or(0.00001), name: str = ""
) -> Function:
    """Normalize each sample to mean 0 and standard deviation 1, then scale and shift.

    Shapes: x [*shape] -> [*shape]; scale, bias [*shape].
    Errors: ShapeError for an input with a free dimension, or of another size than the first one, when it is applied.
    Source: Ba, Kiros and Hinton, arXiv:1607.06450; as in CNTK 2.7, epsilon is added to the standard deviation.

    >>> import cntkjax as C
    >>> x = C.input_variable(3)
    >>> LayerNormalization()(x).eval({x: [[1, 2, 3]]}).round(3)
    array([[-1.225,  0.   ,  1.225]], dtype=float32)
    """
    offset = Constant(get_default_override(LayerNormalization, epsilon=epsilon))
    scale = Parameter(_INFERRED, init=initial_scale, name="scale")
    bias = Parameter(_INFERRED, init=initial_bias, name="bias")

    @BlockFunction("LayerNormalization", name)
    def normalize(x: Variable) -> Function:
        centered = x - reduce_mean(x)
        deviation = sqrt(reduce_mean(centered * centered))
        return element_divide(centered, deviation + offset) * scale + bias

    return normalize


@public
def Label(name: str) -> Function:
    """The operand itself, under a name by which it can be found in the graph.

    Shapes: x [*shape] -> [*shape].

    >>> import cntkjax as C
    >>> model = C.layers.Sequential([Dense(3), Label("hidden"), Dense(2)])(C.input_variable(4))
    >>> model.hidden.shape
    (3,)
    """

    def label(x: Variable) -> Function:
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
