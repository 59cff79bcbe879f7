"""Operands that do not fit raise an error when the graph is built, of a type that CNTK raises too.

It names the operation that was called, and its operands with their shapes.
A new operation has its call that does not fit in its row of test_every_op.py.
"""

import inspect

import numpy as np
import pytest

import cntkjax as C
from cntkjax import losses, metrics, ops, random
from cntkjax.ops import sequence
from tests.ops.test_every_op import CASES

PUBLIC = {"": ops, "sequence.": sequence, "random.": random, "losses.": losses, "metrics.": metrics}
TAKE_ANYTHING = {  # they accept anything, or create no node
    "alias", "as_block", "as_composite", "associative_multi_arg", "cast", "combine", "crop_automatic",
    "crop_automatic_with_ancestors", "gradient", "user_function", "losses.lattice_sequence_with_softmax",
    "losses.softmax", "losses.times", "sequence.broadcast_as", "sequence.input",
}


def x(*shape, **options):
    return C.input_variable(shape, name="x", **options)


def s(*shape, axis="steps", **options):
    return C.sequence.input_variable(shape, sequence_axis=C.Axis(axis), name="s", **options)


def p(*shape):
    return C.parameter(shape, name="p")


UNARY = (
    "abs acos asin asinh atan atanh ceil cos cosh element_not elu exp floor hardmax labels_to_graph leaky_relu log "
    "log_softmax negate ones_like reciprocal relu round selu sigmoid sin sinh softmax softplus softsign sqrt square "
    "stop_gradient straight_through_impl tan tanh zeros_like"
)
BINARY = (
    "element_and element_divide element_max element_min element_or element_times element_xor equal greater "
    "greater_equal less less_equal log_add_exp mean minus not_equal param_relu plus pow sum losses.squared_error "
    "losses.binary_cross_entropy losses.cosine_distance losses.cross_entropy_with_softmax losses.fmeasure "
    "metrics.classification_error"
)
REDUCTIONS = (
    "argmax argmin reduce_l1 reduce_l2 reduce_log_sum_exp reduce_max reduce_mean reduce_min reduce_prod reduce_sum "
    "reduce_sum_square"
)
OF_SEQUENCES = "first future_value is_first is_last last past_value reduce_max reduce_sum softmax where"

MISMATCHES = [
    *((name, lambda f: f("numbers")) for name in UNARY.split()),
    *((name, lambda f: f(x(2, 3), x(2, 4))) for name in BINARY.split()),
    *((name, lambda f: f(x(2), x(2, dtype=np.float64))) for name in BINARY.split()),
    *((name, lambda f: f(s(2, axis="one"), s(2, axis="two"))) for name in BINARY.split() if "fmeasure" not in name),
    *((name, lambda f: f(x(2, 3), axis=2)) for name in REDUCTIONS.split()),
    *((name, lambda f: f(x(2, 3), axis="0")) for name in REDUCTIONS.split()),
    *((name, lambda f: f(p(2, 3), axis=C.Axis.default_batch_axis())) for name in REDUCTIONS.split()),
    *((f"sequence.{name}", lambda f: f(x(2))) for name in OF_SEQUENCES.split()),
    ("assign", lambda f: f(p(2), C.constant(1, (3,)))),
    ("assign", lambda f: f(x(2), x(2))),
    ("batch_normalization", lambda f: f(x(3, 4), p(2), p(2), p(2), p(2), True, running_count=C.constant(0))),
    ("clip", lambda f: f(x(2), C.constant(0, (3,)), 1)),
    ("convolution", lambda f: f(p(4, 3, 3, 3), x(2, 5, 5))),
    ("convolution", lambda f: f(p(4, 2, 3, 3), x(2, 5))),
    ("convolution", lambda f: f(p(4, 2, 3, 3), x(2, 5, 5), strides=(0, 0))),
    ("convolution", lambda f: f(p(4, 1, 3, 3), x(2, 5, 5), groups=3)),
    ("convolution_transpose", lambda f: f(p(3, 4, 3, 3), x(2, 5, 5))),
    ("crop_manual", lambda f: f(x(1, 4, 4), x(1, 5, 5), 0, 0)),
    ("crop_manual", lambda f: f(x(1, 4, 4), x(1, 2, 2), 3, 3)),
    ("depth_to_space", lambda f: f(x(6, 2, 2), 2)),
    ("dropout", lambda f: f(x(2), 1.5)),
    ("dropout", lambda f: f(x(2), -0.1)),
    ("element_select", lambda f: f(x(2), x(3), x(4))),
    ("expand_dims", lambda f: f(x(2, 3), 5)),
    ("eye_like", lambda f: f(x(2, 3, 4))),
    ("flatten", lambda f: f(x(2, 3), 5)),
    ("forward_backward", lambda f: f(s(3), s(4), 0)),
    ("forward_backward", lambda f: f(s(3), s(3), 3)),
    ("gather", lambda f: f(x(2, 3), [1], axis=4)),
    ("hard_sigmoid", lambda f: f("numbers", 1, 1)),
    ("image_scaler", lambda f: f(x(3, 4, 4), 1, [1, 2])),
    ("input_variable", lambda f: f((2, 0))),
    ("local_response_normalization", lambda f: f(x(3, 4, 4), -1, 1.0, 1.0, 1.0)),
    ("mean_variance_normalization", lambda f: f(x(3, 4), -1.0)),
    ("one_hot", lambda f: f(x(2), 0)),
    ("one_hot", lambda f: f(x(2), 3, axis=5)),
    ("optimized_rnnstack", lambda f: f(s(3), p(7), 4, 1)),
    ("optimized_rnnstack", lambda f: f(s(3), p(-1), 4, 1, recurrent_op="lstmm")),
    ("optimized_rnnstack", lambda f: f(x(3), p(-1), 4, 1)),
    ("pad", lambda f: f(x(2, 3), [(1, 1)])),
    ("pad", lambda f: f(x(2, 3), [(1, 1), (-1, 0)])),
    ("pad", lambda f: f(x(2, 3), [(1, 1), (0, 0)], mode=7)),
    ("pad", lambda f: f(x(2, 3), [(2, 2), (0, 0)], mode=C.ops.REFLECT_PAD)),
    ("per_dim_mean_variance_normalize", lambda f: f(x(3), [1, 2], [1, 1])),
    ("pooling", lambda f: f(x(1, 4, 4), 5, (2, 2))),
    ("pooling", lambda f: f(x(1, 4, 4), C.MAX_POOLING, (5, 5))),
    ("pooling", lambda f: f(x(4), C.MAX_POOLING, (2, 2, 2))),
    ("random_sample", lambda f: f(np.ones(3), 0, True)),
    ("random_sample", lambda f: f(np.ones(3), 4, False)),
    ("random_sample_inclusion_frequency", lambda f: f(np.ones(3), 4, False)),
    ("reconcile_dynamic_axes", lambda f: f(x(2), p(2))),
    ("reshape", lambda f: f(x(2, 3), (4,))),
    ("reshape", lambda f: f(x(2, 3), (-1, -1))),
    ("reshape", lambda f: f(x(2, 3), (2,), 5)),
    ("roipooling", lambda f: f(x(1, 4, 4), x(2, 5), C.MAX_POOLING, (2, 2), 1.0)),
    ("slice", lambda f: f(x(2, 3), 1, 3, 4)),
    ("slice", lambda f: f(x(2, 3), 2, 0, 1)),
    ("slice", lambda f: f(x(2, 3), 0, 0, 1, 0)),
    ("softmax", lambda f: f(x(2), axis=3)),
    ("softplus", lambda f: f(x(2), steepness=0)),
    ("log_softmax", lambda f: f(x(2), axis=3)),
    ("space_to_depth", lambda f: f(x(1, 3, 3), 2)),
    ("splice", lambda f: f(x(2, 3), x(4, 5))),
    ("splice", lambda f: f(x(2), x(2), axis=3)),
    ("splice", lambda f: f()),
    ("squeeze", lambda f: f(x(2, 3), 0)),
    ("swapaxes", lambda f: f(x(2, 3), 0, 2)),
    ("times", lambda f: f(x(2), p(3, 4))),
    ("times", lambda f: f(x(2), p(2, 4), output_rank=5)),
    ("times", lambda f: f(x(2), p(2, 4), output_rank=0)),
    ("times_transpose", lambda f: f(x(2), p(4, 3))),
    ("times_transpose", lambda f: f(x(2, 3), p(4, 2, 3))),
    ("to_batch", lambda f: f(x(2))),
    ("to_sequence", lambda f: f(s(2))),
    ("to_sequence", lambda f: f(x())),
    ("to_sequence", lambda f: f(x(3), x(2))),
    ("to_sequence", lambda f: f(x(3), s())),
    ("to_sequence", lambda f: f(x(3), p())),
    ("to_sequence_like", lambda f: f(x(2, 3), x(2))),
    ("top_k", lambda f: f(x(3), 4)),
    ("top_k", lambda f: f(x(3), 0)),
    ("top_k", lambda f: f(x(3), 1, axis=3)),
    ("transpose", lambda f: f(x(2, 3), (0, 0))),
    ("unpack_batch", lambda f: f(s(2))),
    ("unpooling", lambda f: f(x(1, 2, 2), x(1, 9, 9), C.MAX_UNPOOLING, (2, 2), (2, 2))),
    ("sequence.delay", lambda f: f(s(2), time_step=1.5)),
    ("sequence.gather", lambda f: f(x(2), x(1))),
    ("sequence.gather", lambda f: f(s(2), s(3))),
    ("sequence.input_variable", lambda f: f((-7,))),
    ("sequence.past_value", lambda f: f(s(2), time_step=-1)),
    ("sequence.past_value", lambda f: f(s(2), x(3))),
    ("sequence.scatter", lambda f: f(s(2), x(1))),
    ("sequence.slice", lambda f: f(x(2), 0, 1)),
    ("sequence.unpack", lambda f: f(x(2), 0)),
    ("random.bernoulli", lambda f: f(2, mean=2)),
    ("random.bernoulli_like", lambda f: f(x(2), mean=-1)),
    ("random.gumbel", lambda f: f(2, scale=-1)),
    ("random.gumbel_like", lambda f: f(x(2), scale=-1)),
    ("random.normal", lambda f: f(2, scale=-1)),
    ("random.normal_like", lambda f: f(x(2), scale=-1)),
    ("random.uniform", lambda f: f(2, low=3, high=1)),
    ("random.uniform_like", lambda f: f(x(2), low=3, high=1)),
    ("losses.cosine_distance_with_negative_samples", lambda f: f(x(2), x(3), 1, 1)),
    ("losses.cosine_distance_with_negative_samples", lambda f: f(x(2), x(2), 1, -1)),
    ("losses.cross_entropy_with_softmax", lambda f: f(x(2), x(2), axis=3)),
    ("losses.hierarchical_softmax_layer", lambda f: f(x(3), x(1), 0)),
    ("losses.lambda_rank", lambda f: f(x(1), x(2), x(1))),
    ("losses.nce_loss", lambda f: f(p(5, 2), p(5, 1), x(2), x(5), np.ones(4))),
    ("losses.nce_loss", lambda f: f(p(5, 2), p(5, 1), x(2), x(4), np.ones(5))),
    ("losses.weighted_binary_cross_entropy", lambda f: f(x(2), x(3), x(2))),
    ("metrics.classification_error", lambda f: f(x(3), x(3), topN=0)),
    ("metrics.classification_error", lambda f: f(x(2), x(2), axis=3)),
    ("metrics.edit_distance_error", lambda f: f(s(3), s(4))),
    ("metrics.edit_distance_error", lambda f: f(s(3), s(3), subPen=-1)),
    ("metrics.ndcg_at_1", lambda f: f(x(1), x(2), x(1))),
    *((case.name, case.mismatch) for case in CASES if case.mismatch is not None),
]


def public(name):
    module, _, function = name.rpartition(".")
    return getattr(PUBLIC[f"{module}." if module else ""], function)


@pytest.mark.parametrize("name, call", MISMATCHES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(MISMATCHES)])
def test_the_error_names_operation_and_operands(name, call):
    variables = []

    def recording(*operands, **options):
        variables.extend(v for v in operands if isinstance(v, C.Variable) and not v.is_constant)
        return public(name)(*operands, **options)

    with pytest.raises((ValueError, TypeError, RuntimeError)) as raised:
        call(recording)
    message = str(raised.value)
    assert name.rpartition(".")[2].removesuffix("_like") in message.partition("\n")[0]
    if not name.startswith("random."):  # here the values are wrong, not the operand
        assert all(repr(v) in message for v in variables)


def test_every_public_operation_has_a_mismatch():
    operations = {
        prefix + name for prefix, module in PUBLIC.items() for name, f in vars(module).items()
        if inspect.isfunction(f) and (hasattr(f, "names_errors") or f.__module__ == "cntkjax.random._random")
    }
    assert operations - TAKE_ANYTHING - {name for name, _ in MISMATCHES} == set()


def test_the_message_reads_from_the_call_to_the_cause():
    with pytest.raises(ValueError) as raised:
        C.element_and(x(2, 3), x(2, 4))
    first, *operands, fix = str(raised.value).split("\n")
    assert first == "element_and: ElementTimes: the shapes of the operands do not broadcast"
    assert "Input('x', [#], [2 x 3])" in operands[0] and "test_operand_errors.py" in operands[0]
    assert fix.startswith("Fix: ")


def test_a_generator_is_meant_for_the_sum_of_python():
    x = C.input_variable(2)
    for operand in (v for v in [x, x]), iter([1, 2]), map(len, ["a"]):
        with pytest.raises(ValueError, match=r"sum: a .* is not an operand(.*\n)*.*write builtins.sum"):
            C.ops.sum(operand)
    assert C.ops.sum([x, x]).shape == (2,)


def test_a_permutation_is_named_as_it_was_given():
    with pytest.raises(ValueError, match=r"\(1, 0\) is a permutation of 2 axes.*1 static axes(.*\n)*.*\(0,\)"):
        C.transpose(C.input_variable(3), (1, 0))
    assert C.transpose(C.input_variable((2, 3, 4)), (1, 0)).shape == (2, 4, 3)  # the last axes, as in CNTK


@pytest.mark.parametrize("make", [lambda v: C.Parameter(v), lambda v: C.Constant(1, shape=v), lambda v: C.parameter(v)])
def test_a_variable_is_no_shape(make):
    for shape in C.placeholder(), C.input_variable(3), C.input_variable(3) + 1:
        with pytest.raises(TypeError, match="the shape is a variable, .*not a number"):
            make(shape)


@pytest.mark.parametrize("operands", [[x(2), x(2)], (x(2), 1.0)])
def test_a_list_of_operands_is_told_to_be_several(operands):
    """As splice took it before CNTK 2.0."""
    with pytest.raises((TypeError, ValueError), match="splice: a (list|tuple) of variables or functions is not"):
        C.splice(operands)
