"""Convolution, pooling, batch normalization, and regions of interest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._typing import Count
from .._user_code import warn
from ..graph.arguments import public_operation
from ..graph.axis import Axis
from ..graph.shape import as_shape, is_unknown
from ..primitives import convolution as _convolution
from ..primitives import normalization as _normalization
from ..primitives import pooling as _pooling
from ..primitives.reshape import Reshape
from ..variables import Constant, Variable
from . import sequence
from ._blocks import as_one_block, node
from ._elementwise import stop_gradient
from ._operand import Operand, as_list, as_variable, as_variables
from ._sequence import to_sequence
from ._shape import swapaxes
from .functions import Function

__all__ = [
    "AVG_POOLING", "MAX_POOLING", "MAX_UNPOOLING", "PoolingType_Average", "PoolingType_Max", "batch_normalization",
    "convolution", "convolution_transpose", "pooling", "roipooling", "unpooling",
]

MAX_POOLING, AVG_POOLING = _pooling.MAX, _pooling.AVERAGE
MAX_UNPOOLING = _pooling.MAX
PoolingType_Max, PoolingType_Average = MAX_POOLING, AVG_POOLING

Numbers = int | Sequence[int]
Flags = bool | Sequence[bool]


def _stored(flags: Flags) -> list[bool]:
    """Per-axis flags in the order in which model files store them: last axis first."""
    return [bool(f) for f in as_list(flags)][::-1]


@public_operation
def convolution(
    convolution_map: Operand, operand: Operand, strides: Numbers = (1,), sharing: Flags = [True],  # noqa: B006
    auto_padding: Flags = [True], sequential: bool = False, dilation: Numbers = (1,),  # noqa: B006
    reduction_rank: int = 1, groups: Count = 1, max_temp_mem_size_in_samples: int = 0, name: str = "",
) -> Function:
    """Convolution: the inner product of each filter with each window of the operand, over all channels of its group.

    Per-axis options with fewer values than axes apply to the leading axes: to leave the channels of an image unpadded,
    pass ``auto_padding=[False, True, True]``, or let the kernel's number of channels be inferred. With ``auto_padding``
    the output size of an axis is its input size divided by the stride, rounded up. With `sequential` the sequence axis
    is convolved too, as the first axis of the window.

    Shapes: convolution_map [filters, channels / groups, *window], operand [channels, *spatial]
            -> [filters, *positions]; with reduction_rank=0 [filters, *window], [*spatial] -> [filters, *positions].
    Errors: ShapeError if the kernel does not fit the operand; ValueError for a reduction_rank other than 0 or 1.

    >>> import cntkjax as C, numpy as np
    >>> image, kernel = C.input_variable((1, 3, 3)), C.constant(np.ones((1, 1, 2, 2), np.float32))
    >>> convolution(kernel, image, auto_padding=[False]).eval({image: np.arange(9).reshape(1, 1, 3, 3)})
    array([[[[ 8., 12.],
             [20., 24.]]]], dtype=float32)
    """
    kernel, x = as_variables(convolution_map, operand)
    attributes = {
        "strides": as_shape(strides), "sharing": _stored(sharing), "autoPadding": _stored(auto_padding),
        "dilation": as_shape(dilation), "groups": int(groups),
        "maxTempMemSizeInSamples": int(max_temp_mem_size_in_samples),
    }
    _check_reduction_rank(reduction_rank)
    if sequential:
        return _sequential_convolution(kernel, x, attributes, reduction_rank, name)
    if reduction_rank == 1:
        return node(_convolution.Convolution, [kernel, x], attributes, name)
    rank = len(kernel.shape) - 1 if is_unknown(x.shape) else len(x.shape)
    attributes |= _with_channels(attributes, rank)

    def one_channel(v: Variable) -> Function:
        return node(_convolution.Convolution, [_axis_added(kernel, rank), _axis_added(v, rank)], attributes, name)

    return as_one_block("Convolution", one_channel, [x], name)


def _check_reduction_rank(reduction_rank: int) -> None:
    if reduction_rank not in (0, 1):
        raise ValueError(f"reduction_rank must be 0 (no channel axis) or 1 (channels first), got {reduction_rank}")


def _axis_added(x: Variable, rank: int) -> Variable:
    """x with an axis of size 1 inserted before its last `rank` axes."""
    place = Axis(-rank - 1)
    return node(Reshape, [x], {"newShape": (1,), "beginAxis": place, "endAxis": place}).output


def _with_channels(attributes: dict[str, Any], rank: int) -> dict[str, Any]:
    """Strides and padding extended to an added channel axis, if they have one value for each of `rank` axes."""
    strides, padding = attributes["strides"], attributes["autoPadding"]
    return {
        "strides": (1, *strides) if len(strides) == rank else strides,
        "autoPadding": [*padding, False] if len(padding) == rank else padding,
    }


def _sequential_convolution(
    kernel: Variable, x: Variable, attributes: dict[str, Any], reduction_rank: int, name: str
) -> Function:
    """Convolve along the sequence axis too: unpack the sequences, convolve, and pack the result at its new lengths."""
    options = {
        "strides": attributes["strides"], "sharing": attributes["sharing"][::-1],
        "auto_padding": attributes["autoPadding"][::-1], "dilation": attributes["dilation"],
        "reduction_rank": reduction_rank, "groups": attributes["groups"],
        "max_temp_mem_size_in_samples": attributes["maxTempMemSizeInSamples"], "name": name,
    }
    steps = sequence.unpack(x, 0, no_mask_output=True)
    if reduction_rank == 1:
        result = convolution(kernel, swapaxes(steps, 0, 1), **options)
    else:
        result = convolution(kernel, steps, **options)
        rank = len(x.shape)
        attributes = attributes | _with_channels(attributes, rank + 1)
        kernel, x = _axis_added(kernel, rank + 1), _axis_added(x, rank)
    lengths = node(
        _convolution.ConvolutionSequenceShape, [kernel, x], attributes | {"sequential": True}, f"{name}_sequence_shape"
    )
    return to_sequence(swapaxes(result, 0, 1), stop_gradient(lengths), "ConvOverSequenceAxisPrefix")


@public_operation
def convolution_transpose(
    convolution_map: Operand, operand: Operand, strides: Numbers = (1,), sharing: Flags = [True],  # noqa: B006
    auto_padding: Flags = [True], output_shape: Sequence[int] | None = None, dilation: Numbers = (1,),  # noqa: B006
    reduction_rank: int = 1, max_temp_mem_size_in_samples: int = 0, name: str = "",
) -> Function:
    """Transposed convolution: each element of the operand adds a filter, scaled by it, to its window of the output.

    Shapes: convolution_map [channels, filters, *window], operand [channels, *spatial] -> [filters, *output_spatial]:
            `output_shape` if it is set, otherwise the smallest shape whose convolution has the operand's shape.
    Errors: ShapeError if the kernel does not fit the operand, or if convolving a tensor of `output_shape` would not
            give the operand's shape.

    >>> import cntkjax as C, numpy as np
    >>> image, kernel = C.input_variable((1, 1, 2)), C.constant(np.ones((1, 1, 1, 3), np.float32))
    >>> convolution_transpose(kernel, image, strides=(1, 2), auto_padding=[False]).eval({image: [[[[1, 2]]]]})
    array([[[[1., 1., 3., 2., 2.]]]], dtype=float32)
    """
    kernel, x = as_variables(convolution_map, operand)
    attributes = {
        "strides": as_shape(strides), "sharing": _stored(sharing), "autoPadding": _stored(auto_padding),
        "dilation": as_shape(dilation), "maxTempMemSizeInSamples": int(max_temp_mem_size_in_samples), "transpose": True,
        "outputShape": (0,) if output_shape is None else as_shape(output_shape),
    }
    _check_reduction_rank(reduction_rank)
    if reduction_rank == 1:
        return node(_convolution.Convolution, [kernel, x], attributes, name)

    def one_channel(v: Variable) -> Function:
        operands = [_axis_added(kernel, len(kernel.shape)), _axis_added(v, len(v.shape))]
        return node(_convolution.Convolution, operands, attributes, name)

    return as_one_block("ConvolutionTranspose", one_channel, [x], name)


@public_operation
def pooling(
    operand: Operand, pooling_type: int, pooling_window_shape: Numbers, strides: Numbers = (1,),
    auto_padding: Flags = [False], ceil_out_dim: bool = False, include_pad: bool = False, name: str = "",  # noqa: B006
) -> Function:
    """The maximum (MAX_POOLING) or the mean (AVG_POOLING) of each window.

    `ceil_out_dim` rounds the number of positions up, so that a partial window at the end counts; `include_pad` includes
    the padding, as zeros, in means.

    Shapes: operand [channels, *spatial] -> [channels, *positions]; a window with fewer axes than the operand slides
            along the trailing ones.
    Errors: ShapeError if the window is larger than the operand.

    >>> import cntkjax as C, numpy as np
    >>> x = C.input_variable((1, 4))
    >>> pooling(x, C.MAX_POOLING, (2,), (2,)).eval({x: [[[1, 3, 2, 0]]]})
    array([[[3., 2.]]], dtype=float32)
    >>> pooling(x, C.AVG_POOLING, (3,), (2,), auto_padding=[True]).eval({x: [[[1, 3, 2, 4]]]})
    array([[[2., 3.]]], dtype=float32)
    """
    attributes = {
        "poolingType": int(pooling_type), "poolingWindowShape": as_shape(pooling_window_shape),
        "strides": as_shape(strides), "autoPadding": _stored(auto_padding), "ceilOutDim": bool(ceil_out_dim),
        "includePad": bool(include_pad),
    }
    return node(_pooling.Pooling, [as_variable(operand)], attributes, name)


@public_operation
def unpooling(
    operand: Operand, pooling_input: Operand, unpooling_type: int, unpooling_window_shape: Numbers,
    strides: Numbers = (1,), auto_padding: Flags = [False], name: str = "",  # noqa: B006
) -> Function:
    """Max unpooling: the operand's values at the positions of the window maxima of `pooling_input`; zeros elsewhere.

    Shapes: operand [channels, *positions], pooling_input [channels, *spatial] -> [channels, *spatial].
    Errors: ShapeError if pooling `pooling_input` with these options does not give the operand's shape.

    >>> import cntkjax as C
    >>> x = C.input_variable((1, 4))
    >>> y = pooling(x, C.MAX_POOLING, (2,), (2,))
    >>> unpooling(y, x, C.MAX_UNPOOLING, (2,), (2,)).eval({x: [[[1, 3, 2, 0]]]})
    array([[[0., 3., 2., 0.]]], dtype=float32)
    """
    attributes = {
        "poolingType": int(unpooling_type), "unpoolingWindowShape": as_shape(unpooling_window_shape),
        "strides": as_shape(strides), "autoPadding": _stored(auto_padding),
    }
    return node(_pooling.Unpooling, as_variables(operand, pooling_input), attributes, name)


@public_operation
def roipooling(
    operand: Operand, rois: Operand, pooling_type: int, roi_output_shape: Sequence[int], spatial_scale: float,
    name: str = "",
) -> Function:
    """Max-pool each region of interest into a grid of fixed size.

    Shapes: operand [channels, height, width], rois [n, 4] -> [n, channels, *roi_output_shape].
    Units: a region is (x1, y1, x2, y2), both corners included, in pixels of the original image; multiplied by
           `spatial_scale` they are pixels of the operand.
    Errors: ShapeError unless a region has four numbers; ValueError if `pooling_type` is not MAX_POOLING.

    >>> import cntkjax as C, numpy as np
    >>> image, rois = C.input_variable((1, 4, 4)), C.input_variable((1, 4))
    >>> f = roipooling(image, rois, C.MAX_POOLING, (2, 2), 1)
    >>> f.eval({image: np.arange(16).reshape(1, 1, 4, 4), rois: [[[0, 0, 3, 1]]]})
    array([[[[[1., 3.],
              [5., 7.]]]]], dtype=float32)
    """
    attributes = {
        "poolingType": int(pooling_type), "roiOutputShape": as_shape(roi_output_shape),
        "spatialScale": float(spatial_scale),
    }
    return node(_pooling.ROIPooling, as_variables(operand, rois), attributes, name)


@public_operation
def batch_normalization(
    operand: Operand, scale: Operand, bias: Operand, running_mean: Operand, running_inv_std: Operand, spatial: bool,
    normalization_time_constant: float = 5000, blend_time_constant: float = 0, epsilon: float = 0.00001,
    use_cudnn_engine: bool = False, disable_regularization: bool = False, name: str = "",
    running_count: Operand | None = None,
) -> Function:
    """Batch normalization: scale * (operand - mean) / sqrt(variance + epsilon) + bias.

    Training uses the statistics of the minibatch and updates the running statistics, which evaluation uses; they are
    parameters or constants. Despite its name, `running_inv_std` holds the running variance.

    Shapes: operand [channels, *spatial] -> [channels, *spatial]; scale, bias and running statistics have one element
            for each channel if `spatial`, otherwise one for each element of a sample; running_count [].
    Units: time constants are in samples; a negative `normalization_time_constant` gives all samples equal weight.
    Errors: ShapeError if an operand does not fit.
    Source: Ioffe and Szegedy (2015).

    >>> import cntkjax as C
    >>> x = C.input_variable(2)
    >>> f = batch_normalization(x, [1, 1], [0, 0], C.constant([0, 1]), C.constant([1, 4]), False, epsilon=0,
    ...                         running_count=C.constant(0))
    >>> f.eval({x: [[3, 3]]})
    array([[3., 1.]], dtype=float32)
    """
    attributes = {
        "spatial": bool(spatial), "normalizationTimeConstant": float(normalization_time_constant),
        "blendTimeConstant": float(blend_time_constant), "epsilon": float(epsilon),
        "useCuDNNEngine": bool(use_cudnn_engine), "disableRegularization": bool(disable_regularization),
    }
    operands = as_variables(operand, scale, bias, running_mean, running_inv_std)
    if running_count is None:
        warn(
            "batch_normalization without running_count: the running statistics start over with every function; pass "
            "running_count=cntk.constant(0, shape=())",
        )
        running_count = Constant(0.0, shape=(), dtype=operands[3].dtype)
    count = as_variable(running_count)
    return node(_normalization.BatchNormalization, [*operands, count], attributes, name)
