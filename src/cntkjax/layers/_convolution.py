"""Convolutions: over static axes, along the sequence, and transposed."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Count
from ..default_options import default_override_or, get_default_override
from ..graph.arguments import public
from ..graph.errors import explain
from ..initializer import glorot_uniform
from ..internal.sanitize import _as_tuple
from ..ops import convolution, convolution_transpose, reshape, sequence, splice
from ..ops.functions import BlockFunction, Function, identity
from ..variables import Parameter, Record
from ._arguments import (
    Activation,
    Axes,
    AxisFlags,
    Flag,
    Init,
    Layer,
    Operand,
    State,
    check_activation,
    check_positive,
    shape_of,
)
from .blocks import _INFERRED, _initializer_for


def _defaults(layer: Layer, **options: object) -> dict[str, Any]:
    """The options of a layer, with the defaults that are in force for it."""
    return {key: get_default_override(layer, **{key: value}) for key, value in options.items()}


def _check(layer: str, reduction_rank: int, transpose_weight: bool = False) -> None:
    """Refuse, as CNTK does, what the layers do not do. Errors: NotImplementedError."""
    if reduction_rank not in (0, 1):
        raise NotImplementedError(f"{layer}: reduction_rank must be 0 or 1, not {reduction_rank}")
    if transpose_weight:
        raise NotImplementedError(explain(
            f"{layer}: transpose_weight has no meaning here", fix="use ConvolutionTranspose"
        ))


def _window(
    x: Operand, axis: int, begin: int, end: int, step: int, stride: int, initial_state: State = None
) -> Function:
    """The steps from `begin` to before `end`, relative to each step, along a static axis of length 1."""
    if stride != 1:
        raise NotImplementedError(explain(
            f"Convolution: a stride of {stride} along the sequence", fix="use SequentialConvolution, which takes it"
        ))
    return splice(*(sequence.delay(x, initial_state, -t) for t in range(begin, end, step)), axis=axis)


def _pad_to_shape(filter_shape: Sequence[int], param: Axes | AxisFlags, what: str) -> tuple[Any, ...]:
    """One value for each axis of a filter. Errors: ValueError for another number of them."""
    values = _as_tuple(param)
    if any(isinstance(value, str) for value in values):
        raise TypeError(explain(f"{what} is the text {param!r}", fix="give numbers, or for pad True or False"))
    if len(values) == 1:
        values = values * len(filter_shape)
    if len(values) != len(filter_shape):
        raise ValueError(
            f"{what} parameter: give one value, or one for each of the {len(filter_shape)} axes of the filter "
            f"{tuple(filter_shape)}, not {param}"
        )
    return values


def _per_axis(layer: str, filter_shape: Sequence[int], **options: Axes | AxisFlags) -> dict[str, tuple[Any, ...]]:
    values = {what: _pad_to_shape(filter_shape, value, f"{layer}: {what}") for what, value in options.items()}
    for what in {"strides", "dilation"} & values.keys():
        check_positive(layer, what, values[what], options[what])
    return values


def _filters_of(layer: str, num_filters: Axes | None) -> tuple[int, ...]:
    """The leading axes of the kernels; none for a single filter without an axis of its own."""
    return () if num_filters is None else shape_of(layer, num_filters, "num_filters")


def _as_filter(dimensions: int, filter_shape: Axes, layer: str) -> tuple[int, ...]:
    sizes = shape_of(layer, filter_shape, "filter_shape")
    if len(sizes) == 1:
        return sizes * dimensions
    if len(sizes) != dimensions:
        example = tuple([3] * dimensions)
        raise ValueError(
            f"{layer}: filter_shape must be a scalar or a {dimensions}D tuple, e.g. 3 or {example}, not {filter_shape}"
        )
    return sizes


# Above 60 lines: signature and docstring take 39 of them.
@public
def Convolution(
    filter_shape: Axes,
    num_filters: Axes | None = None,
    sequential: bool = False,
    activation: Activation = default_override_or(identity),
    init: Init = default_override_or(glorot_uniform()),
    pad: AxisFlags = default_override_or(False),
    strides: Axes = 1,
    sharing: AxisFlags = True,
    bias: Flag = default_override_or(True),
    init_bias: Init = default_override_or(0),
    reduction_rank: int = 1,
    transpose_weight: bool = False,
    dilation: Axes = 1,
    groups: Count = 1,
    max_temp_mem_size_in_samples: int = 0,
    op_name: str = "Convolution",  # as in CNTK, the block is called 'Convolution' whatever this is
    name: str = "",
) -> Function:
    """``activation(convolution(W, x) + b)``; with `sequential`, the filter's first axis lies along the sequence.

    Shapes: x [channels, *in] -> [num_filters, *out]; without num_filters there is one filter and no axis for it, with
            reduction_rank 0 x has no channels. W [num_filters, channels, *filter_shape], b [num_filters, 1, ..].
            out = (in - filter) // strides + 1 along each axis, or ceil(in / strides) with `pad`.
    Errors: NotImplementedError for a reduction_rank above 1, transpose_weight, and strides along the sequence;
            ValueError for groups, and for options of other lengths than the filter. When it is applied, ShapeError if x
            has another number of axes or channels than W, or is smaller than the window.

    >>> import cntkjax as C
    >>> layer = Convolution((3, 3), 16, activation=C.relu, pad=True)(C.input_variable((3, 32, 32)))
    >>> layer.shape, layer.W.shape, layer.b.shape
    ((16, 32, 32), (16, 3, 3, 3), (16, 1, 1))
    """
    options = _defaults(Convolution, activation=activation, init=init, pad=pad, bias=bias, init_bias=init_bias)
    _check("Convolution", reduction_rank, transpose_weight)
    if groups > 1:
        raise ValueError(explain(
            f"Convolution: the layer has no groups > 1, but got {groups}",
            fix="use the operation cntk.convolution(kernel, x, groups=...)",
        ))
    window = shape_of("Convolution", filter_shape, "filter_shape")
    filters = _filters_of("Convolution", num_filters)
    per_axis = _per_axis("Convolution", window, strides=strides, sharing=sharing, pad=options["pad"], dilation=dilation)
    W, b = _filters(window, filters, options["init"], options["bias"], options["init_bias"], transposed=False)
    # Along the sequence, a window of steps is spliced for every step, and the filter applied to it without padding.
    padded = (False, *per_axis["pad"][1:]) if sequential else per_axis["pad"]
    before = (window[0] - 1) // 2

    @BlockFunction("Convolution", name)
    def convolve(x: Operand) -> Function:
        if sequential:
            x = _with_step_axis(x, len(window), reduction_rank)
            x = _window(x, -len(window), -before, window[0] - before, 1, per_axis["strides"][0], initial_state=0)
        elif reduction_rank == 0:
            x = reshape(x, (1,), 0, 0)
        r = convolution(
            W, x, strides=per_axis["strides"], sharing=list(per_axis["sharing"]), auto_padding=[False, *padded],
            dilation=per_axis["dilation"], groups=groups, max_temp_mem_size_in_samples=max_temp_mem_size_in_samples,
        )
        if sequential and not per_axis["pad"][0]:
            r = sequence.slice(r, before, before + 1 - window[0])
        r = _without_axes(r if b is None else r + b, not filters, sequential)
        return _activated("Convolution", r, options["activation"])

    return convolve


def _with_step_axis(x: Operand, window_rank: int, reduction_rank: int) -> Function:
    """x with an axis of length 1 for the steps behind that of the channels, which it gets too if it has none."""
    if reduction_rank == 0 and window_rank == 1:
        return reshape(x, (1, 1), 0, 0)
    return reshape(x if reduction_rank else reshape(x, (1,), 0, 0), (1,), 1, 1)


def _activated(layer: str, x: Any, activation: Any) -> Function:
    """The activation of x; None is none. Errors: TypeError if it is not a function."""
    if activation is None:
        return x
    check_activation(layer, activation)
    return activation(x)


def _filters(
    window: tuple[int, ...], filters: tuple[int, ...], init: Init, bias: bool, init_bias: Init, transposed: bool,
    steps: int = 0,
) -> tuple[Parameter, Parameter | None]:
    """W and b of convolutions; of the window's axes, the first `steps` are not in the output."""
    filters = filters or (1,)
    init = _initializer_for(init, Record(filter_rank=len(window), output_rank=-len(filters)))
    if isinstance(init, (np.ndarray, list, tuple)):
        init = np.asarray(init)
        init = init.reshape((1,) * (1 + len(filters) + len(window) - init.ndim) + init.shape)
    ahead = _INFERRED + filters if transposed else filters + _INFERRED
    W = Parameter(ahead + window, init=init, name="W")
    return W, Parameter(filters + (1,) * (len(window) - steps), init=init_bias, name="b") if bias else None


def _without_axes(x: Function, no_filters: bool, steps: bool) -> Function:
    """Drop the axis of the filters if there is only one, and that of the window of steps."""
    begin, end = 0 if no_filters else 1, 2 if steps else 1
    return reshape(x, (), begin, end) if begin < end else x


@public
def SequentialConvolution(
    filter_shape: Axes,
    num_filters: Axes | None = None,
    activation: Activation = default_override_or(identity),
    init: Init = default_override_or(glorot_uniform()),
    pad: AxisFlags = default_override_or(False),
    strides: Axes = 1,
    sharing: AxisFlags = True,
    bias: Flag = default_override_or(True),
    init_bias: Init = default_override_or(0),
    reduction_rank: int = 1,
    transpose_weight: bool = False,
    dilation: Axes = 1,
    groups: Count = 1,
    max_temp_mem_size_in_samples: int = 0,
    op_name: str = "Convolution",
    name: str = "",
) -> Function:
    """Convolution along the sequence axis and further static axes, with strides along the sequence too.

    Shapes: x [channels, *in] with a sequence axis -> [num_filters, *out] with a new one; the first axis of the filter
            lies along the sequence. W [num_filters, channels, *filter_shape], b [num_filters, 1, ..] without that axis.
    Errors: as `Convolution`; AxisError for x without a sequence axis.

    >>> import cntkjax as C
    >>> x = C.sequence.input_variable(2)
    >>> layer = SequentialConvolution(3, 4, strides=2, pad=True)(x)
    >>> [value.shape for value in layer.eval({x: [[[0, 0]] * 6, [[0, 0]] * 3]})]    # sequences of 6 and 3 steps
    [(3, 4), (2, 4)]
    """
    options = _defaults(
        SequentialConvolution, activation=activation, init=init, pad=pad, bias=bias, init_bias=init_bias
    )
    _check("Convolution", reduction_rank, transpose_weight)
    window = shape_of("SequentialConvolution", filter_shape, "filter_shape")
    filters = _filters_of("SequentialConvolution", num_filters)
    per_axis = _per_axis(
        "SequentialConvolution", window, strides=strides, sharing=sharing, pad=options["pad"], dilation=dilation
    )
    W, b = _filters(window, filters, options["init"], options["bias"], options["init_bias"], False, steps=1)

    @BlockFunction("Convolution", name)
    def convolve(x: Operand) -> Function:
        if reduction_rank == 0:
            x = reshape(x, (1,), 0, 0)
        r = convolution(
            W, x, strides=per_axis["strides"], sharing=list(per_axis["sharing"]),
            auto_padding=[False, *per_axis["pad"]], sequential=True, dilation=per_axis["dilation"], groups=groups,
            max_temp_mem_size_in_samples=max_temp_mem_size_in_samples,
        )
        r = _without_axes(r if b is None else r + b, not filters, False)
        return _activated("Convolution", r, options["activation"])

    return convolve


@public
def ConvolutionTranspose(
    filter_shape: Axes,
    num_filters: Axes,
    activation: Activation = default_override_or(identity),
    init: Init = default_override_or(glorot_uniform()),
    pad: AxisFlags = default_override_or(False),
    strides: Axes = 1,
    sharing: AxisFlags = True,
    bias: Flag = default_override_or(True),
    init_bias: Init = default_override_or(0),
    output_shape: Axes | None = None,
    reduction_rank: int = 1,
    dilation: Axes = 1,
    max_temp_mem_size_in_samples: int = 0,
    name: str = "",
) -> Function:
    """The transpose of a convolution, for upsampling.

    Shapes: x [channels, *in] -> [num_filters, *out]; W [channels, num_filters, *filter_shape], b [num_filters, 1, ..].
            out is `output_shape`, by default (in - 1) * strides + filter along each axis, or (in - 1) * strides + 1
            with `pad`.
    Errors: as `Convolution`.

    >>> import cntkjax as C
    >>> ConvolutionTranspose((3, 3), 8, strides=2, pad=True)(C.input_variable((16, 7, 7))).shape
    (8, 13, 13)
    """
    options = _defaults(ConvolutionTranspose, activation=activation, init=init, pad=pad, bias=bias, init_bias=init_bias)
    _check("ConvolutionTranspose", reduction_rank)
    window = shape_of("ConvolutionTranspose", filter_shape, "filter_shape")
    filters = shape_of("ConvolutionTranspose", num_filters, "num_filters")
    per_axis = _per_axis(
        "ConvolutionTranspose", window, strides=strides, sharing=sharing, pad=options["pad"], dilation=dilation
    )
    W, b = _filters(window, filters, options["init"], options["bias"], options["init_bias"], transposed=True)
    full_shape = None if output_shape is None else filters + _pad_to_shape(
        window, output_shape, "ConvolutionTranspose: output_shape"
    )

    @BlockFunction("ConvolutionTranspose", name)
    def convolve(x: Operand) -> Function:
        if reduction_rank == 0:
            x = reshape(x, (1,), 0, 0)
        r = convolution_transpose(
            W, x, strides=per_axis["strides"], sharing=list(per_axis["sharing"]),
            auto_padding=[False, *per_axis["pad"]],
            output_shape=full_shape, dilation=per_axis["dilation"],
            max_temp_mem_size_in_samples=max_temp_mem_size_in_samples,
        )
        return _activated("ConvolutionTranspose", r if b is None else r + b, options["activation"])

    return convolve


_EXAMPLES = {
    "Convolution1D": ("Convolution1D(3, 4, pad=True)(C.input_variable((2, 10)))", (4, 10)),
    "Convolution2D": ("Convolution2D(5, 16, strides=2)(C.input_variable((3, 32, 32)))", (16, 14, 14)),
    "Convolution3D": ("Convolution3D(3, 8)(C.input_variable((1, 8, 16, 16)))", (8, 6, 14, 14)),
    "ConvolutionTranspose1D": ("ConvolutionTranspose1D(4, 2, strides=2)(C.input_variable((8, 5)))", (2, 12)),
    "ConvolutionTranspose2D": ("ConvolutionTranspose2D(2, 3, strides=2)(C.input_variable((8, 7, 7)))", (3, 14, 14)),
    "ConvolutionTranspose3D": ("ConvolutionTranspose3D(2, 3)(C.input_variable((8, 2, 4, 4)))", (3, 3, 5, 5)),
}


def _of_dimensions(layer: Layer, dimensions: int, *omitted: str) -> Layer:
    """A convolution with filters of that many axes: the same layer without the options `omitted`."""
    signature = inspect.signature(layer)
    signature = signature.replace(parameters=[p for p in signature.parameters.values() if p.name not in omitted])
    name = f"{layer.__name__}{dimensions}D"

    def of_dimensions(*args: Any, **kwargs: Any) -> Function:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}() {error}; its options are {', '.join(signature.parameters)}") from None
        bound.apply_defaults()
        options = _defaults(of_dimensions, **bound.arguments)
        options["filter_shape"] = _as_filter(dimensions, options["filter_shape"], name)
        return layer(**options)

    of_dimensions.__name__ = of_dimensions.__qualname__ = name
    example, shape = _EXAMPLES[name]
    of_dimensions.__doc__ = f"""`{layer.__name__}` with filters of {dimensions} {"axis" if dimensions == 1 else "axes"}.

    Shapes: filter_shape is a number, for all axes, or a tuple of {dimensions}; the rest as `{layer.__name__}`.
    Errors: ValueError for another number of axes; those of `{layer.__name__}`.

    >>> import cntkjax as C
    >>> {example}.shape
    {shape}
    """
    of_dimensions.__signature__ = signature  # type: ignore[attr-defined]
    return public(of_dimensions)


_LOW_LEVEL = ("sharing", "max_temp_mem_size_in_samples")
_SEQUENCE_ONLY = ("sequential", "transpose_weight", "op_name")

Convolution1D = _of_dimensions(Convolution, 1, *_LOW_LEVEL, *_SEQUENCE_ONLY, "groups")
Convolution2D = _of_dimensions(Convolution, 2, *_LOW_LEVEL, *_SEQUENCE_ONLY)
Convolution3D = _of_dimensions(Convolution, 3, *_LOW_LEVEL, *_SEQUENCE_ONLY)
ConvolutionTranspose1D = _of_dimensions(ConvolutionTranspose, 1, *_LOW_LEVEL)
ConvolutionTranspose2D = _of_dimensions(ConvolutionTranspose, 2, *_LOW_LEVEL)
ConvolutionTranspose3D = _of_dimensions(ConvolutionTranspose, 3, *_LOW_LEVEL)
