"""Operations of CNTK's compiled module: those of the Python API under its names, with arguments in its order.

Arguments are positional. Axes count from the fastest one: ``Axis(0)`` is the last of a shape. Flags and paddings of
axes are in that order too, shapes are not. A name may follow any number of arguments.

>>> import cntkjax as C
>>> cntk_operation("reduce_sum")(C.constant([[1, 2, 3], [4, 5, 6]]), C.Axis(0), "total").eval()
array([[ 6.],
       [15.]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .. import losses, metrics, ops, random
from ..graph.axis import Axis
from ..graph.function import Node
from ..graph.variable import Edge


# ---- kinds of parameters
@dataclass(frozen=True)
class NativeParameter:
    """A number, shape or flag, passed on under the name that the Python API has for it."""

    name: str
    by_position = False

    def accepts(self, argument: object) -> bool:
        """Whether an argument can be meant for this parameter; if not, the parameter was left out."""
        return not _is_axis(argument) and not isinstance(argument, str)

    def convert(self, argument: Any) -> Any:
        """The argument as the Python API takes it."""
        return argument


class Operand(NativeParameter):
    """An operand, passed on by position."""

    by_position = True


class Operands(Operand):
    """A list of operands."""


class OptionalOperand(NativeParameter):
    """An operand that may be left out."""

    def accepts(self, argument: object) -> bool:
        return isinstance(argument, (Edge, Node))


class OptionalNumber(NativeParameter):
    """A number that may be left out before a flag."""

    def accepts(self, argument: object) -> bool:
        return not isinstance(argument, (bool, str))


class TextParameter(NativeParameter):
    """A text."""

    def accepts(self, argument: object) -> bool:
        return isinstance(argument, str)


class AxisOrAxes(NativeParameter):
    """An axis, or a list of them."""

    def accepts(self, argument: object) -> bool:
        return _is_axis(argument)

    def convert(self, argument: Any) -> Any:
        return [_from_last(a) for a in argument] if isinstance(argument, (list, tuple)) else _from_last(argument)


class Position(AxisOrAxes):
    """A position between axes, of which there is one more than axes."""

    def convert(self, argument: Any) -> Any:
        if not argument.is_static_axis:
            return argument
        return Axis(-argument.static_axis_index()) if argument.static_axis_index() else Axis.end_static_axis()


class Permutation(AxisOrAxes):
    """The axes in a new order."""

    def convert(self, argument: Any) -> Any:
        return super().convert(argument)[::-1]


class PerAxis(NativeParameter):
    """A flag or number for each axis."""

    def convert(self, argument: Any) -> Any:
        return list(argument)[::-1] if isinstance(argument, (list, tuple)) else argument


def _is_axis(argument: object) -> bool:
    return isinstance(argument[0] if isinstance(argument, (list, tuple)) and argument else argument, Axis)


def _from_last(axis: Axis) -> Axis:
    return Axis(-1 - axis.static_axis_index()) if axis.is_static_axis else axis


def _parameters(names: str) -> list[NativeParameter]:
    """Plain parameters of these names."""
    return [NativeParameter(name) for name in names.split()]


x, y, z = Operand("x"), Operand("y"), Operand("z")
operands = Operands("inputs")
axis = AxisOrAxes("axis")
auto_padding, sharing = PerAxis("auto_padding"), PerAxis("sharing")

# The parameters, and the operations that have them.
_SIGNATURES: list[tuple[list[NativeParameter], str]] = [
    (
        [x],
        "abs acos asin asinh atan atanh ceil cos cosh exp floor log negate reciprocal round sigmoid sin sinh "
        "sqrt square softplus softsign tan tanh element_not hardmax re_lu stop_gradient alias ones_like "
        "zeros_like to_batch straight_through labels_to_graph unpack_batch as_composite where first last "
        "is_first is_last sequence_softmax sequence_reduce_max sequence_reduce_sum",
    ),
    (
        [x, y],
        "plus minus element_times element_divide element_max element_min element_and element_or element_xor "
        "pow log_add_exp equal not_equal less less_equal greater greater_equal reconcile_dynamic_axes "
        "to_sequence_like assign binary_cross_entropy cosine_distance squared_error pre_lu broadcast_as",
    ),
    (
        [x, y, z],
        "element_select clip weighted_binary_cross_entropy lambda_rank ndcg_at_1 "
        "per_dim_mean_variance_normalize",
    ),
    (_parameters("right left output_rank infer_input_rank_to_map"), "times"),
    (_parameters("right left"), "times_transpose"),
    ([x, NativeParameter("alpha")], "elu leaky_re_lu"),
    ([x, *_parameters("alpha beta")], "hard_sigmoid"),
    ([x, *_parameters("scale alpha")], "selu"),
    ([x, *_parameters("dropout_rate seed")], "dropout"),
    ([x, axis], "argmax argmin softmax log_softmax expand_dims flatten"),
    (
        [x, axis, NativeParameter("keepdims")],
        "reduce_sum reduce_max reduce_min reduce_mean reduce_prod reduce_log_sum reduce_l1 reduce_l2 "
        "reduce_sum_square",
    ),
    ([x, AxisOrAxes("axes")], "squeeze"),
    ([x, Permutation("perm")], "transpose"),
    ([x, AxisOrAxes("axis1"), AxisOrAxes("axis2")], "transpose_axes"),
    ([x, axis, *_parameters("begin_index end_index strides")], "slice"),
    ([x, NativeParameter("shape"), Position("end_axis"), Position("begin_axis")], "reshape"),
    ([x, NativeParameter("k"), axis], "top_k"),
    ([x, *_parameters("num_classes sparse_output"), axis], "one_hot_op"),
    ([x, NativeParameter("block_size")], "depth_to_space space_to_depth"),
    ([x, NativeParameter("dtype")], "cast"),
    ([x, NativeParameter("sparse_output")], "eye_like"),
    ([operands, axis], "splice"),
    ([operands], "combine mean sum"),
    ([*_parameters("indices reference"), axis], "gather_op"),
    ([x, y, axis], "cross_entropy_with_softmax"),
    ([x, y, NativeParameter("topN"), axis], "classification_error"),
    ([x, y, *_parameters("shift num_negative_samples")], "cosine_distance_with_negative_samples"),
    ([x, y, *_parameters("subPen delPen insPen squashInputs tokensToIgnore")], "edit_distance_error"),
    (_parameters("weights biases inputs labels noise_distribution num_samples allow_duplicates seed"), "nce_loss"),
    ([x, y, *_parameters("blankTokenId delayConstraint")], "forward_backward"),
    ([x, *_parameters("depth_radius bias alpha beta")], "local_response_normalization"),
    ([x, *_parameters("scalar biases")], "image_scaler"),
    (
        [x, OptionalNumber("epsilon"), *_parameters("use_stats_across_channels do_variance_scaling")],
        "mean_variance_normalization",
    ),
    (
        [
            x, *_parameters("pooling_type pooling_window_shape strides"), auto_padding,
            *_parameters("ceil_out_dim include_pad"),
        ],
        "pooling",
    ),
    ([x, y, *_parameters("unpooling_type unpooling_window_shape strides"), auto_padding], "unpooling"),
    (
        [
            x, y, NativeParameter("strides"), sharing, auto_padding,
            *_parameters("dilation reduction_rank groups max_temp_mem_size_in_samples sequential"),
        ],
        "convolution",
    ),
    (
        [
            x, y, NativeParameter("strides"), sharing, auto_padding,
            *_parameters("output_shape dilation reduction_rank max_temp_mem_size_in_samples"),
        ],
        "convolution_transpose",
    ),
    (
        [
            x, *_parameters("scale bias running_mean running_inv_std running_count spatial"),
            *_parameters("normalization_time_constant blend_time_constant epsilon use_cudnn_engine"),
            NativeParameter("disable_regularization"),
        ],
        "batch_normalization",
    ),
    (
        [x, *_parameters("weights hidden_size num_layers bidirectional"), TextParameter("recurrent_op")],
        "optimized_rnnstack",
    ),
    ([x, y, *_parameters("offset_x offset_y")], "crop"),
    ([x, y, *_parameters("pooling_type roi_output_shape spatial_scale")], "roipooling"),
    ([x, OptionalOperand("initial_state"), NativeParameter("time_step")], "past_value future_value"),
    ([x, *_parameters("condition new_sequence_axis_typeinfo")], "gather scatter"),
    ([x, *_parameters("begin_index end_index")], "sequence_slice"),
    ([x, *_parameters("padding_value no_mask_output")], "unpack"),
    ([x, OptionalOperand("sequence_lengths"), TextParameter("sequence_axis_name_prefix")], "to_sequence"),
    ([x, *_parameters("num_samples allow_duplicates seed")], "random_sample random_sample_inclusion_frequency"),
    (_parameters("shape dtype low high seed"), "uniform_random"),
    (_parameters("shape dtype mean scale seed"), "normal_random"),
    (_parameters("shape dtype mean seed"), "bernoulli_random"),
    (_parameters("shape dtype loc scale seed"), "gumbel_random"),
    ([x, *_parameters("low high seed")], "uniform_random_like"),
    ([x, *_parameters("mean scale seed")], "normal_random_like"),
    ([x, *_parameters("mean seed")], "bernoulli_random_like"),
    ([x, *_parameters("loc scale seed")], "gumbel_random_like"),
    ([x, NativeParameter("block_arguments_map"), TextParameter("block_op_name")], "as_block"),
]

# Operations that the Python API calls by another name.
_PYTHON_NAMES = {
    "re_lu": "relu", "straight_through": "straight_through_impl", "where": "sequence.where",
    "first": "sequence.first", "last": "sequence.last", "is_first": "sequence.is_first",
    "is_last": "sequence.is_last", "sequence_softmax": "sequence.softmax",
    "sequence_reduce_max": "sequence.reduce_max", "sequence_reduce_sum": "sequence.reduce_sum",
    "pre_lu": "param_relu", "broadcast_as": "sequence.broadcast_as", "leaky_re_lu": "leaky_relu",
    "reduce_log_sum": "reduce_log_sum_exp", "transpose_axes": "swapaxes", "one_hot_op": "one_hot",
    "gather_op": "gather", "crop": "crop_manual", "past_value": "sequence.past_value",
    "future_value": "sequence.future_value", "gather": "sequence.gather", "scatter": "sequence.scatter",
    "sequence_slice": "sequence.slice", "unpack": "sequence.unpack", "uniform_random": "random.uniform",
    "normal_random": "random.normal", "bernoulli_random": "random.bernoulli", "gumbel_random": "random.gumbel",
    "uniform_random_like": "random.uniform_like", "normal_random_like": "random.normal_like",
    "bernoulli_random_like": "random.bernoulli_like", "gumbel_random_like": "random.gumbel_like",
}


@dataclass(frozen=True)
class NativeOperation:
    """An operation of the compiled module: its name in the Python API, and its parameters in the module's order."""

    path: str
    parameters: Sequence[NativeParameter]

    @property
    def function(self) -> Callable[..., Any]:
        """The operation of the Python API."""
        module, _, name = self.path.rpartition(".")
        homes = {"": (ops, losses, metrics), "sequence": (ops.sequence,), "random": (random,)}[module]
        return next(getattr(home, name) for home in homes if hasattr(home, name))

    def __str__(self) -> str:
        return ", ".join(p.name for p in self.parameters)


OPERATIONS = {
    name: NativeOperation(_PYTHON_NAMES.get(name, name), parameters)
    for parameters, names in _SIGNATURES for name in names.split()
}


def cntk_operation(name: str) -> Callable[..., Any]:
    """The operation of the compiled module of that name. Errors: KeyError if there is none."""
    operation = OPERATIONS[name]
    function = partial(_call, operation)
    function.__doc__ = f"`{operation.path}` with the arguments {operation}, and a name."
    return function


def _call(operation: NativeOperation, *arguments: Any) -> Any:
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    remaining = list(arguments)
    for parameter in operation.parameters:
        if not remaining or not parameter.accepts(remaining[0]):
            continue
        argument = remaining.pop(0)
        if isinstance(parameter, Operands):
            positional.extend(argument)
        elif parameter.by_position:
            positional.append(argument)
        else:
            keywords[parameter.name] = parameter.convert(argument)
    if len(remaining) > 1 or not all(isinstance(a, str) for a in remaining):
        raise TypeError(
            f"{operation.path}: the arguments are {operation} and a name; these do not fit: {remaining}; "
            "they are positional, and axes are Axis objects"
        )
    return operation.function(*positional, **keywords, name=(remaining or [""])[0])
