"""Operations of CNTK's compiled module: those of the Python API under its names, with arguments in its order.

They take positions only. Axes count from the fastest one: ``Axis(0)`` is the last of a shape. Flags and paddings of
axes stand in that order too, shapes do not. A name may stand behind any number of arguments.

>>> import cntkjax as C
>>> cntk_operation("reduce_sum")(C.constant([[1, 2, 3], [4, 5, 6]]), C.Axis(0), "total").eval()
array([[ 6.],
       [15.]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any

from ..graph.axis import Axis
from ..graph.function import Function as GraphFunction
from ..graph.variable import Variable

# The arguments of the operations of a row, by their names in the Python API; a number stands for the operand there.
# Behind them: * a list of operands, ! an axis or a list of them, > the same as a place between axes, ~ flags of axes or
# axes that are turned round, ? an operand that may be left out, " a text, . a number that may be left out.
# ``name=other``: it is called otherwise in the Python API.
_ROWS = """
1: abs acos asin asinh atan atanh ceil cos cosh exp floor log negate reciprocal round sigmoid sin sinh sqrt square
1: softplus softsign tan tanh element_not hardmax re_lu=relu stop_gradient alias ones_like zeros_like to_batch
1: straight_through=straight_through_impl labels_to_graph unpack_batch as_composite where=sequence.where
1: first=sequence.first last=sequence.last is_first=sequence.is_first is_last=sequence.is_last
1: sequence_softmax=sequence.softmax sequence_reduce_max=sequence.reduce_max sequence_reduce_sum=sequence.reduce_sum
1 2: plus minus element_times element_divide element_max element_min element_and element_or element_xor pow
1 2: log_add_exp equal not_equal less less_equal greater greater_equal reconcile_dynamic_axes to_sequence_like assign
1 2: binary_cross_entropy cosine_distance squared_error pre_lu=param_relu broadcast_as=sequence.broadcast_as
1 2 3: element_select clip weighted_binary_cross_entropy lambda_rank ndcg_at_1 per_dim_mean_variance_normalize
right left output_rank infer_input_rank_to_map: times
right left: times_transpose
1 alpha: elu leaky_re_lu=leaky_relu
1 alpha beta: hard_sigmoid
1 scale alpha: selu
1 dropout_rate seed: dropout
1 axis!: argmax argmin softmax log_softmax expand_dims flatten
1 axis! keepdims: reduce_sum reduce_max reduce_min reduce_mean reduce_prod reduce_log_sum=reduce_log_sum_exp
1 axis! keepdims: reduce_l1 reduce_l2 reduce_sum_square
1 axes!: squeeze
1 perm~: transpose
1 axis1! axis2!: transpose_axes=swapaxes
1 axis! begin_index end_index strides: slice
1 shape end_axis> begin_axis>: reshape
1 k axis!: top_k
1 num_classes sparse_output axis!: one_hot_op=one_hot
1 block_size: depth_to_space space_to_depth
1 dtype: cast
1 sparse_output: eye_like
inputs* axis!: splice
inputs*: combine mean sum
indices reference axis!: gather_op=gather
1 2 axis!: cross_entropy_with_softmax
1 2 topN axis!: classification_error
1 2 shift num_negative_samples: cosine_distance_with_negative_samples
1 2 subPen delPen insPen squashInputs tokensToIgnore: edit_distance_error
weights biases inputs labels noise_distribution num_samples allow_duplicates seed: nce_loss
1 2 blankTokenId delayConstraint: forward_backward
1 depth_radius bias alpha beta: local_response_normalization
1 scalar biases: image_scaler
1 epsilon. use_stats_across_channels do_variance_scaling: mean_variance_normalization
1 pooling_type pooling_window_shape strides auto_padding~ ceil_out_dim include_pad: pooling
1 2 unpooling_type unpooling_window_shape strides auto_padding~: unpooling
1 2 strides sharing~ auto_padding~ dilation reduction_rank groups max_temp_mem_size_in_samples sequential: convolution
1 2 strides sharing~ auto_padding~ output_shape dilation reduction_rank max_temp_mem_size_in_samples: \
convolution_transpose
1 scale bias running_mean running_inv_std running_count spatial normalization_time_constant blend_time_constant \
epsilon use_cudnn_engine disable_regularization: batch_normalization
1 weights hidden_size num_layers bidirectional recurrent_op": optimized_rnnstack
1 2 offset_x offset_y: crop=crop_manual
1 2 pooling_type roi_output_shape spatial_scale: roipooling
1 initial_state? time_step: past_value=sequence.past_value future_value=sequence.future_value
1 condition new_sequence_axis_typeinfo: gather=sequence.gather scatter=sequence.scatter
1 begin_index end_index: sequence_slice=sequence.slice
1 padding_value no_mask_output: unpack=sequence.unpack
1 sequence_lengths? sequence_axis_name_prefix": to_sequence
1 num_samples allow_duplicates seed: random_sample random_sample_inclusion_frequency
shape dtype low high seed: uniform_random=random.uniform
shape dtype mean scale seed: normal_random=random.normal
shape dtype mean seed: bernoulli_random=random.bernoulli
shape dtype loc scale seed: gumbel_random=random.gumbel
1 low high seed: uniform_random_like=random.uniform_like
1 mean scale seed: normal_random_like=random.normal_like
1 mean seed: bernoulli_random_like=random.bernoulli_like
1 loc scale seed: gumbel_random_like=random.gumbel_like
1 block_arguments_map block_op_name": as_block
"""


def _table() -> dict[str, tuple[str, list[str]]]:
    rows = [row.split(":") for row in _ROWS.replace("\\\n", "").strip().splitlines()]
    entries = [(entry.split("="), parameters.split()) for parameters, names in rows for entry in names.split()]
    return {name[0]: (name[-1], parameters) for name, parameters in entries}


OPERATIONS = _table()


def cntk_operation(name: str) -> Callable[..., Any]:
    """The operation of the compiled module of that name. Errors: KeyError if there is none."""
    made = partial(_call, *OPERATIONS[name])
    made.__doc__ = f"`{OPERATIONS[name][0]}` with the arguments {', '.join(OPERATIONS[name][1])}, and a name."
    return made


def _call(path: str, parameters: Sequence[str], *given: Any) -> Any:
    function = attrgetter(path)(import_module("cntkjax"))
    operands: list[Any] = []
    keywords: dict[str, Any] = {}
    left = list(given)
    for parameter in parameters:
        if not left or not _takes(parameter, left[0]):
            continue
        argument = left.pop(0)
        if parameter.isdecimal():
            operands.append(argument)
        elif parameter.endswith("*"):
            operands.extend(argument)
        else:
            keywords[parameter.rstrip('!>~?".')] = _as_python(parameter, argument)
    if len(left) > 1 or not all(isinstance(a, str) for a in left):
        raise TypeError(f"{path}: the arguments are {', '.join(parameters)} and a name; these do not fit: {left}")
    return function(*operands, **keywords, name=(left or [""])[0])


def _takes(parameter: str, argument: Any) -> bool:
    if parameter.endswith("?"):
        return isinstance(argument, (Variable, GraphFunction))
    if parameter.endswith("."):
        return not isinstance(argument, (bool, str))
    of_axes = parameter.endswith(("!", ">")) or parameter == "perm~"
    first = argument[0] if isinstance(argument, (list, tuple)) and argument else argument
    return isinstance(first, Axis) == of_axes and isinstance(argument, str) == parameter.endswith('"')


def _as_python(parameter: str, argument: Any) -> Any:
    if isinstance(argument, (list, tuple)) and parameter.endswith(("!", "~")):
        converted = [_as_python("!", item) for item in argument]
        return converted[::-1] if parameter.endswith("~") else converted
    if not isinstance(argument, Axis) or not argument.is_static_axis:
        return argument
    index = argument.static_axis_index()
    if parameter.endswith(">"):  # between axes there is one place more
        return Axis(-index) if index else Axis.end_static_axis()
    return Axis(-1 - index)
