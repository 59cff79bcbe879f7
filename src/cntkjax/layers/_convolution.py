"""Convolutions: over static axes, along the sequence, and transposed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..default_options import default_override_or, get_default_override
from ..initializer import glorot_uniform
from ..internal.sanitize import _as_tuple
from ..ops import convolution, convolution_transpose, reshape, sequence, splice
from ..ops.functions import BlockFunction, Function, identity
from ..variables import Parameter, Record
from .blocks import _INFERRED, _initializer_for

Axes = Any  # one value for all axes of a filter, or a tuple with one for each


def _defaults(layer: Callable[..., Any], **options: Any) -> dict[str, Any]:
    """The options of a layer, with the defaults that are in force for it."""
    return {key: get_default_override(layer, **{key: value}) for key, value in options.items()}


def _check(layer: str, reduction_rank: int, transpose_weight: bool = False) -> None:
    """Refuse, as CNTK does, what the layers do not do. Errors: NotImplementedError."""
    if reduction_rank not in (0, 1):
        raise NotImplementedError(f"{layer}: reduction_rank must be 0 or 1, not {reduction_rank}")
    if transpose_weight:
        raise NotImplementedError(f"{layer}: transpose_weight has no meaning here; use ConvolutionTranspose")


def _window(
    x: Any, axis: int, begin: int, end: int, step: int, stride: int, initial_state: Any = None
) -> Any:
    """The steps from `begin` to before `end`, relative to each step, along a static axis of length 1."""
    if stride != 1:
        raise NotImplementedError(f"a stride of {stride} along the sequence: use SequentialConvolution, which has it")
    return splice(*(sequence.delay(x, initial_state, -t) for t in range(begin, end, step)), axis=axis)


def _pad_to_shape(filter_shape: Sequence[int], param: Any, what: str) -> tuple[Any, ...]:
    """One value for each axis of a filter. Errors: ValueError for another number of them."""
    given = _as_tuple(param)
    if len(given) == 1:
        given = given * len(filter_shape)
    if len(given) != len(filter_shape):
        raise ValueError(
            f"{what} parameter: give one value, or one for each of the {len(filter_shape)} axes of the filter "
            f"{tuple(filter_shape)}, not {param}"
        )
    return given


def _per_axis(filter_shape: Sequence[int], **options: Any) -> dict[str, tuple[Any, ...]]:
    return {what: _pad_to_shape(filter_shape, value, what) for what, value in options.items()}


def _as_filter(dimensions: int, filter_shape: Any, what: str) -> tuple[int, ...]:
    if np.isscalar(filter_shape):
        return (filter_shape,) * dimensions  # type: ignore[return-value]
    if len(filter_shape) != dimensions:
        example = tuple([3] * dimensions)
        raise ValueError(f"{what}: filter_shape must be a scalar or a {dimensions}D tuple, e.g. 3 or {example}")
    return tuple(filter_shape)


def Convolution(
    filter_shape: Axes,
    num_filters: Any = None,
    sequential: bool = False,
    activation: Any = default_override_or(identity),
    init: Any = default_override_or(glorot_uniform()),
    pad: Any = default_override_or(False),
    strides: Axes = 1,
    sharing: Any = True,
    bias: Any = default_override_or(True),
    init_bias: Any = default_override_or(0),
    reduction_rank: int = 1,
    transpose_weight: bool = False,
    dilation: Axes = 1,
    groups: int = 1,
    max_temp_mem_size_in_samples: int = 0,
    op_name: str = "Convolution",
    name: str = "",
) -> Function:
    """``activation(filters convolved with x + b)``; with `sequential`, the filter's first axis lies along the sequence.

    CNTK takes `op_name` and calls the block 'Convolution' whatever it is; so does this.

    Shapes: x [channels, *in] -> [num_filters, *out]; without num_filters there is one filter and no axis for it, with
            reduction_rank 0 x has no channels. W [num_filters, channels, *filter_shape], b [num_filters, 1, ..].
    Errors: NotImplementedError for a reduction_rank above 1, transpose_weight, and strides along the sequence;
            ValueError for groups, and for options of other lengths than the filter.
    """
    options = _defaults(Convolution, activation=activation, init=init, pad=pad, bias=bias, init_bias=init_bias)
    _check("Convolution", reduction_rank, transpose_weight)
    if groups > 1:
        raise ValueError(f"Convolution: the layer has no groups > 1, but got {groups}: cntk.convolution has them")
    window = _as_tuple(filter_shape)
    per_axis = _per_axis(window, strides=strides, sharing=sharing, pad=options["pad"], dilation=dilation)
    filters = () if num_filters is None else _as_tuple(num_filters)
    W, b = _filters(window, filters, options["init"], options["bias"], options["init_bias"], transposed=False)
    # Along the sequence, a window of steps is spliced for every step, and the filter applied to it without padding.
    padded = (False, *per_axis["pad"][1:]) if sequential else per_axis["pad"]
    before = (window[0] - 1) // 2

    @BlockFunction("Convolution", name)
    def convolve(x):
        if reduction_rank == 0:
            x = reshape(x, (1, 1) if sequential and len(window) == 1 else (1,), 0, 0)
        if sequential:
            if reduction_rank or len(window) > 1:
                x = reshape(x, (1,), 1, 1)
            x = _window(x, -len(window), -before, window[0] - before, 1, per_axis["strides"][0], initial_state=0)
        r = convolution(
            W, x, strides=per_axis["strides"], sharing=list(per_axis["sharing"]), auto_padding=[False, *padded],
            dilation=per_axis["dilation"], groups=groups, max_temp_mem_size_in_samples=max_temp_mem_size_in_samples,
        )
        if sequential and not per_axis["pad"][0]:
            r = sequence.slice(r, before, before + 1 - window[0])
        r = _without_axes(r if b is None else r + b, not filters, sequential)
        return _activated(r, options["activation"])

    return convolve


def _activated(r: Any, activation: Callable[..., Any] | None) -> Any:
    if activation is not None and not callable(activation):
        raise TypeError(f"activation: a function is needed, such as cntk.relu, not {activation!r}")
    return r if activation is None else activation(r)


def _filters(
    window: tuple[int, ...], filters: tuple[int, ...], init: Any, bias: Any, init_bias: Any, transposed: bool,
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


def _without_axes(r: Any, no_filters: bool, steps: bool) -> Any:
    """Without the axis of the filters where there is only one, and without that of the window of steps."""
    begin, end = 0 if no_filters else 1, 2 if steps else 1
    return reshape(r, (), begin, end) if begin < end else r


def SequentialConvolution(
    filter_shape: Axes,
    num_filters: Any = None,
    activation: Any = default_override_or(identity),
    init: Any = default_override_or(glorot_uniform()),
    pad: Any = default_override_or(False),
    strides: Axes = 1,
    sharing: Any = True,
    bias: Any = default_override_or(True),
    init_bias: Any = default_override_or(0),
    reduction_rank: int = 1,
    transpose_weight: bool = False,
    dilation: Axes = 1,
    groups: int = 1,
    max_temp_mem_size_in_samples: int = 0,
    op_name: str = "Convolution",
    name: str = "",
) -> Function:
    """Convolution along the sequence axis and further static axes, with strides along the sequence too.

    Shapes: x [channels, *in] with a sequence axis -> [num_filters, *out] with a new one; the first axis of the filter
            lies along the sequence. W [num_filters, channels, *filter_shape], b [num_filters, 1, ..] without that axis.
    Errors: as `Convolution`.
    """
    options = _defaults(
        SequentialConvolution, activation=activation, init=init, pad=pad, bias=bias, init_bias=init_bias
    )
    _check("Convolution", reduction_rank, transpose_weight)
    window = _as_tuple(filter_shape)
    per_axis = _per_axis(window, strides=strides, sharing=sharing, pad=options["pad"], dilation=dilation)
    filters = () if num_filters is None else _as_tuple(num_filters)
    W, b = _filters(window, filters, options["init"], options["bias"], options["init_bias"], False, steps=1)

    @BlockFunction("Convolution", name)
    def convolve(x):
        if reduction_rank == 0:
            x = reshape(x, (1,), 0, 0)
        r = convolution(
            W, x, strides=per_axis["strides"], sharing=list(per_axis["sharing"]),
            auto_padding=[False, *per_axis["pad"]], sequential=True, dilation=per_axis["dilation"], groups=groups,
            max_temp_mem_size_in_samples=max_temp_mem_size_in_samples,
        )
        r = _without_axes(r if b is None else r + b, not filters, False)
        return _activated(r, options["activation"])

    return convolve


def ConvolutionTranspose(
    filter_shape: Axes,
    num_filters: Any,
    activation: Any = default_override_or(identity),
    init: Any = default_override_or(glorot_uniform()),
    pad: Any = default_override_or(False),
    strides: Axes = 1,
    sharing: Any = True,
    bias: Any = default_override_or(True),
    init_bias: Any = default_override_or(0),
    output_shape: Any = None,
    reduction_rank: int = 1,
    dilation: Axes = 1,
    max_temp_mem_size_in_samples: int = 0,
    name: str = "",
) -> Function:
    """The transpose of a convolution, for upsampling.

    Shapes: x [channels, *in] -> [num_filters, *out], with out from the strides or given as `output_shape`;
            W [channels, num_filters, *filter_shape], b [num_filters, 1, ..].
    Errors: as `Convolution`.
    """
    options = _defaults(ConvolutionTranspose, activation=activation, init=init, pad=pad, bias=bias, init_bias=init_bias)
    _check("ConvolutionTranspose", reduction_rank)
    window, filters = _as_tuple(filter_shape), _as_tuple(num_filters)
    per_axis = _per_axis(window, strides=strides, sharing=sharing, pad=options["pad"], dilation=dilation)
    W, b = _filters(window, filters, options["init"], options["bias"], options["init_bias"], transposed=True)
    whole_shape = None if output_shape is None else filters + _pad_to_shape(window, output_shape, "output_shape")

    @BlockFunction("ConvolutionTranspose", name)
    def convolve(x):
        if reduction_rank == 0:
            x = reshape(x, (1,), 0, 0)
        r = convolution_transpose(
            W, x, strides=per_axis["strides"], sharing=list(per_axis["sharing"]),
            auto_padding=[False, *per_axis["pad"]],
            output_shape=whole_shape, dilation=per_axis["dilation"],
            max_temp_mem_size_in_samples=max_temp_mem_size_in_samples,
        )
        return _activated(r if b is None else r + b, options["activation"])

    return convolve


def _of_dimensions(layer: Callable[..., Function], dimensions: int, *left_out: str) -> Callable[..., Function]:
    """A convolution with filters of that many axes: the same layer without some of its options."""
    signature = inspect.signature(layer)
    signature = signature.replace(parameters=[p for p in signature.parameters.values() if p.name not in left_out])
    own_name = f"{layer.__name__}{dimensions}D"

    def of_dimensions(*args: Any, **kwargs: Any) -> Function:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{own_name}() {error}; its options are {', '.join(signature.parameters)}") from None
        given.apply_defaults()
        options = _defaults(of_dimensions, **given.arguments)
        options["filter_shape"] = _as_filter(dimensions, options["filter_shape"], own_name)
        return layer(**options)

    of_dimensions.__name__ = of_dimensions.__qualname__ = own_name
    of_dimensions.__doc__ = f"""`{layer.__name__}` with filters of {dimensions} {"axis" if dimensions == 1 else "axes"}.

    Errors: ValueError for a filter_shape that is neither a number nor a tuple of {dimensions}.
    """
    of_dimensions.__signature__ = signature  # type: ignore[attr-defined]
    return of_dimensions


_LOW_LEVEL = ("sharing", "max_temp_mem_size_in_samples")
_OF_STEPS = ("sequential", "transpose_weight", "op_name")

Convolution1D = _of_dimensions(Convolution, 1, *_LOW_LEVEL, *_OF_STEPS, "groups")
Convolution2D = _of_dimensions(Convolution, 2, *_LOW_LEVEL, *_OF_STEPS)
Convolution3D = _of_dimensions(Convolution, 3, *_LOW_LEVEL, *_OF_STEPS)
ConvolutionTranspose1D = _of_dimensions(ConvolutionTranspose, 1, *_LOW_LEVEL)
ConvolutionTranspose2D = _of_dimensions(ConvolutionTranspose, 2, *_LOW_LEVEL)
ConvolutionTranspose3D = _of_dimensions(ConvolutionTranspose, 3, *_LOW_LEVEL)
