"""The operations, in CNTK's names and signatures."""

from ..graph.axis import Axis
from ..graph.public import operators as _operators
from . import functions, sequence
from ._activations import (
    depth_to_space,
    element_and,
    element_max,
    element_min,
    element_not,
    element_or,
    element_xor,
    elu,
    hard_sigmoid,
    image_scaler,
    leaky_relu,
    local_response_normalization,
    mean,
    mean_variance_normalization,
    param_relu,
    per_dim_mean_variance_normalize,
    selu,
    softsign,
    space_to_depth,
    sum,
)
from ._ctc import forward_backward, labels_to_graph
from ._elementwise import (
    abs,
    acos,
    asin,
    asinh,
    associative_multi_arg,
    atan,
    atanh,
    ceil,
    clip,
    cos,
    cosh,
    element_divide,
    element_select,
    element_times,
    equal,
    exp,
    floor,
    greater,
    greater_equal,
    less,
    less_equal,
    log,
    log_add_exp,
    minus,
    negate,
    not_equal,
    plus,
    pow,
    reciprocal,
    relu,
    round,
    sigmoid,
    sin,
    sinh,
    softplus,
    sqrt,
    square,
    stop_gradient,
    straight_through_impl,
    tan,
    tanh,
)
from ._gradient import gradient
from ._image import (
    AVG_POOLING,
    MAX_POOLING,
    MAX_UNPOOLING,
    PoolingType_Average,
    PoolingType_Max,
    batch_normalization,
    convolution,
    convolution_transpose,
    pooling,
    roipooling,
    unpooling,
)
from ._indexing import index as _index
from ._naming import name_errors as _name_errors
from ._native import custom_proxy_op, native_user_function, register_native_user_function
from ._product import (
    TIMES_NO_INFERRED_INPUT_RANK,
    TIMES_REDUCE_SEQUENCE_AXIS_WITHOUT_INFERRED_INPUT_RANK,
    times,
    times_transpose,
)
from ._random import SentinelValueForAutoSelectRandomSeed, dropout, random_sample, random_sample_inclusion_frequency
from ._reduce import (
    argmax,
    argmin,
    hardmax,
    log_softmax,
    reduce_l1,
    reduce_l2,
    reduce_log_sum_exp,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    reduce_sum_square,
    softmax,
)
from ._rnnstack import optimized_rnnstack
from ._sequence import reconcile_dynamic_axes, to_sequence, to_sequence_like
from ._shape import (
    CONSTANT_PAD,
    REFLECT_PAD,
    SYMMETRIC_PAD,
    assign,
    cast,
    crop_automatic,
    crop_automatic_with_ancestors,
    crop_manual,
    expand_dims,
    eye_like,
    flatten,
    gather,
    one_hot,
    ones_like,
    pad,
    reshape,
    slice,
    splice,
    squeeze,
    swapaxes,
    to_batch,
    top_k,
    transpose,
    unpack_batch,
    zeros_like,
)
from ._structure import alias, as_block, as_composite, combine
from ._user_functions import user_function
from ._variables import constant, input, input_variable, output_variable, parameter, placeholder
from .functions import BlockFunction, CloneMethod, Function, ModelFormat, load_model

_name_errors(globals(), f"{__name__}._", leave=("._variables", "._native"))
_operators.update(
    abs=abs, element_divide=element_divide, element_times=element_times, index=_index, minus=minus, negate=negate,
    plus=plus, pow=pow, reciprocal=reciprocal, slice=slice, splice=splice, square=square, times=times,
)
