"""The operations, in CNTK's names and signatures."""

from ..graph.axis import Axis
from . import functions, sequence
from ._elementwise import (
    abs, acos, asin, asinh, associative_multi_arg, atan, atanh, ceil, clip, cos, cosh, element_divide, element_select,
    element_times, equal, exp, floor, greater, greater_equal, less, less_equal, log, log_add_exp, minus, negate, not_equal,
    plus, pow, reciprocal, relu, round, sigmoid, sin, sinh, sqrt, square, stop_gradient, straight_through_impl, tan, tanh,
)
from ._product import TIMES_NO_INFERRED_INPUT_RANK, TIMES_REDUCE_SEQUENCE_AXIS_WITHOUT_INFERRED_INPUT_RANK, times, times_transpose
from ._structure import alias, as_block, as_composite, combine
from ._variables import constant, input, input_variable, output_variable, parameter, placeholder
from .functions import BlockFunction, CloneMethod, Function, ModelFormat, load_model
