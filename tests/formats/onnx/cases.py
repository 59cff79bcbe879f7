"""Test cases of ONNX export and import: one row for each operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cntkjax as C
from cntkjax.graph.build import apply
from cntkjax.primitives.base import BY_NAME

R = np.random.default_rng(7)


@dataclass
class Case:
    """`make` takes variables like `inputs`: arrays [batch, *shape], or (steps, *shape) with `sequence`."""

    name: str
    make: Callable[..., Any]
    inputs: list[np.ndarray]
    sequence: bool = False
    opsets: tuple[int, ...] = (9, 13, 21)
    reads_back: bool = True
    tolerance: float = 2e-6
    runs: bool = True  # ONNX Runtime has it

    def __str__(self) -> str:
        return self.name


def n(*shape: int) -> np.ndarray:
    return R.normal(size=shape).astype(np.float32)


def u(*shape: int) -> np.ndarray:
    return R.uniform(0.1, 0.9, size=shape).astype(np.float32)


def p(*shape: int) -> Any:
    return C.parameter(shape, init=n(*shape))


def k(*shape: int) -> Any:
    return C.constant(n(*shape))


def ones(count: int) -> Any:
    return C.constant(np.ones(count, np.float32))


B, T = 3, 5
_UNARY = ["negate", "tanh", "relu", "exp", "floor", "ceil", "abs", "sin", "cos", "sigmoid", "sinh", "cosh", "asinh",
          "atan", "tan", "softplus", "softsign", "elu", "selu", "leaky_relu", "alias", "stop_gradient", "zeros_like",
          "ones_like", "square", "round", "element_not"]
_POSITIVE = ["log", "sqrt", "reciprocal", "asin", "acos", "atanh"]
_BINARY = ["plus", "minus", "element_times", "element_divide", "element_max", "element_min", "less", "greater",
           "less_equal", "greater_equal", "equal", "not_equal", "element_and", "element_or", "element_xor",
           "log_add_exp", "sum", "mean"]
_REDUCE = ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_log_sum_exp", "reduce_l1",
           "reduce_l2", "reduce_sum_square", "argmax", "argmin"]
_CELLS = {"lstm": C.layers.LSTM, "gru": C.layers.GRU, "rnn": C.layers.RNNStep}


def lstm(**options: Any) -> Any:
    return C.layers.LSTM(2, init_bias=C.normal(0.5), **options)


CASES = [
    *(Case(op, getattr(C, op), [n(B, 3, 4)]) for op in _UNARY),
    *(Case(op, getattr(C, op), [u(B, 3, 4)]) for op in _POSITIVE),
    *(Case(op, getattr(C, op), [n(B, 3, 4), n(B, 4)]) for op in _BINARY),
    *(Case(f"{op} by a constant", lambda x, op=op: getattr(C, op)(x, n(3, 1)), [n(B, 4)]) for op in _BINARY),
    *(Case(f"{op} {axis}", lambda x, op=op, axis=axis: getattr(C, op)(x, axis), [u(B, 3, 4)])
      for op in _REDUCE for axis in (0, -1)),
    *(Case(f"{op} all", lambda x, op=op: getattr(C, op)(x), [u(B, 3, 4)]) for op in _REDUCE),
    Case("reduce two axes", lambda x: C.reduce_sum(x, [0, 2], keepdims=False), [n(B, 2, 3, 4)]),
    Case("reduce the batch", lambda x: C.reduce_mean(x, C.Axis.default_batch_axis()), [n(B, 3)], opsets=(13, 21)),
    Case("reduce everything", lambda x: C.reduce_sum(x, C.Axis.all_axes()), [n(B, 3)], opsets=(13, 21)),
    Case("pow", lambda x: C.pow(x, 2.5), [u(B, 3)]),
    Case("clip", lambda x: C.clip(x, -0.5, 0.5), [n(B, 3)]),
    Case("clip by tensors", lambda x: C.clip(x, n(3) - 4, u(3)), [n(B, 3)]),
    Case("element_select", lambda x, y: C.element_select(C.greater(x, 0), x, y), [n(B, 2, 3), n(B, 3)]),
    Case("param_relu", lambda x: C.param_relu(p(4), x), [n(B, 3, 4)]),
    Case("param_relu of an input", lambda x, a: C.param_relu(a, x), [n(B, 3, 4), n(B, 4)]),
    Case("hard_sigmoid", lambda x: C.hard_sigmoid(x, 0.3, 0.6), [n(B, 4)]),
    Case("steep softplus", lambda x: C.softplus(x, steepness=3), [n(B, 4)]),
    *(Case(f"{op} of CNTK 1", lambda *x, op=op: apply(BY_NAME[op], list(x)),
           [u(B, 4) for _ in range(count)], opsets=(13, 21))
      for op, count in (("Sigmoid", 1), ("Pass", 1), ("LogSoftmax", 1), ("SumAll", 1), ("SquaredError", 2),
                        ("CrossEntropyWithSoftmax", 2))),
    Case("straight through", lambda x: apply(BY_NAME["StraightThrough"], [x]), [n(B, 4)]),
    Case("cast", lambda x: C.cast(C.cast(x, np.float64), np.float32), [n(B, 4)]),
    Case("softmax", lambda x: C.softmax(x), [n(B, 3, 4)]),
    *(Case(f"{op} {axis}", lambda x, op=op, axis=axis: getattr(C, op)(x, axis=axis), [n(B, 3, 4)])
      for op in ("softmax", "log_softmax") for axis in (0, 1)),
    Case("hardmax", lambda x: C.hardmax(x), [n(B, 4)]),
    Case("top_k", lambda x: C.top_k(x, 2), [n(B, 5)]),
    Case("cosine_distance", lambda x, y: C.cosine_distance(x, y), [n(B, 5), n(B, 5)]),
    Case("gather", lambda i: C.gather(p(6, 2), i), [np.array([[0, 2], [5, 1], [3, 3]], np.float32)]),
    Case("gather along an axis", lambda i: C.gather(k(2, 6, 3), i, axis=1), [np.array([[0], [5], [3]], np.float32)]),
    # shapes
    Case("reshape", lambda x: C.reshape(x, (4, 3)), [n(B, 2, 6)]),
    Case("reshape some axes", lambda x: C.reshape(x, (-1,), 1, 3), [n(B, 2, 3, 4)]),
    Case("flatten", lambda x: C.flatten(x, 1), [n(B, 2, 3, 4)]),
    Case("expand_dims", lambda x: C.expand_dims(x, -2), [n(B, 2, 3)]),
    Case("squeeze", lambda x: C.squeeze(x, [1]), [n(B, 2, 1, 3)]),
    Case("transpose", lambda x: C.transpose(x, (2, 0, 1)), [n(B, 2, 3, 4)]),
    Case("swapaxes", lambda x: C.swapaxes(x, 0, 2), [n(B, 2, 3, 4)]),
    Case("swapaxes_column", lambda x: C.swapaxes(x, -1, -2), [n(B, 3)]),
    Case("slice", lambda x: C.slice(x, [0, 1], [1, -3], [3, 0]), [n(B, 4, 5)]),
    Case("slice with strides", lambda x: C.slice(x, 1, 0, 5, 2), [n(B, 4, 5)]),
    Case("slice backwards", lambda x: C.slice(x, 1, 1, 4, -1), [n(B, 4, 5)]),
    Case("splice", lambda x, y: C.splice(x, y, axis=0), [n(B, 2, 3), n(B, 1, 3)]),
    Case("splice that broadcasts", lambda x, y: C.splice(x, y, n(2, 1), axis=1), [n(B, 2, 3), n(B, 2, 1)]),
    Case("pad", lambda x: C.pad(x, [(0, 1), (2, 0)], constant_value=1.5), [n(B, 3, 4)]),
    Case("pad by reflection", lambda x: C.pad(x, [(1, 1), (2, 0)], C.ops.REFLECT_PAD), [n(B, 3, 4)]),
    Case("pad by symmetry", lambda x: C.pad(x, [(1, 1), (2, 0)], C.ops.SYMMETRIC_PAD), [n(B, 3, 4)]),
    Case("one_hot", lambda x: C.one_hot(x, 6, axis=0), [np.array([[1, 5], [0, 2], [3, 3]], np.float32)]),
    Case("norms of numbers", lambda x: C.splice(C.reduce_l1(x), C.reduce_l2(x), C.reduce_sum_square(x)), [n(B)]),
    Case("argmax of a number", lambda x: C.argmax(x) + x, [n(B)]),
    Case("top_k of a number", lambda x: C.top_k(x, 1), [n(B)]),
    Case("one_hot of a number", lambda x: x * C.one_hot(C.reduce_sum(p(2, 1)) * 0 + 2, 3), [n(B, 3)]),
    Case("crop_manual", lambda x: C.crop_manual(x, n(1, 2, 3), 1, 2), [n(B, 1, 5, 6)]),
    # products
    Case("times", lambda x: C.times(x, p(4, 2)), [n(B, 3, 4)]),
    Case("times over two axes", lambda x: C.times(x, p(3, 4, 2, 5), output_rank=2), [n(B, 2, 3, 4)]),
    Case("times of two inputs", lambda x, y: C.times(x, y), [n(B, 2, 3), n(B, 3, 4)]),
    Case("times_transpose", lambda x, y: C.times_transpose(x, y), [n(B, 3, 4), n(B, 5, 4)]),
    Case("dense", lambda x: C.layers.Dense((2, 3), activation=C.tanh, init_bias=0.1)(x), [n(B, 3, 4)]),
    Case("cross entropy", lambda x, y: C.cross_entropy_with_softmax(x, y), [n(B, 4), u(B, 4)]),
    Case("classification error", lambda x, y: C.classification_error(x, y), [n(B, 4), u(B, 4)]),
    Case("weighted binary cross entropy", lambda x, y: C.weighted_binary_cross_entropy(x, y, u(4)), [u(B, 4), u(B, 4)],
         opsets=(13, 21)),
    Case("top-2 error", lambda x, y: C.classification_error(x, y, topN=2), [n(B, 5), u(B, 5)], opsets=(13, 21)),
    Case("squared error", lambda x, y: C.squared_error(x, y), [n(B, 4), u(B, 4)]),
    Case("binary cross entropy", lambda x, y: C.binary_cross_entropy(x, y), [u(B, 4), u(B, 4)]),
    # images
    Case("convolution", lambda x: C.layers.Convolution((3, 2), 4, pad=True, strides=2, init_bias=0.3)(x),
         [n(B, 2, 7, 8)]),
    Case("convolution without padding", lambda x: C.layers.Convolution((3, 3), 4, pad=False)(x), [n(B, 2, 7, 8)]),
    Case("convolution of one axis", lambda x: C.layers.Convolution1D(3, 4, pad=True)(x), [n(B, 2, 7)]),
    Case("convolution of three axes", lambda x: C.layers.Convolution3D(2, 3)(x), [n(B, 2, 4, 5, 3)]),
    Case("convolution in groups", lambda x: C.convolution(p(4, 1, 3, 3), x, auto_padding=[False, True, True],
                                                            groups=2), [n(B, 2, 5, 6)]),
    Case("convolution with dilation", lambda x: C.convolution(p(4, 2, 3, 3), x, auto_padding=[False, True, True],
                                                                dilation=(1, 2, 2)), [n(B, 2, 7, 8)]),
    Case("convolution without channels", lambda x: C.layers.Convolution2D(3, 2, reduction_rank=0)(x), [n(B, 5, 6)]),
    Case("convolution along channels", lambda x: C.convolution(p(2, 2, 3, 3), x, auto_padding=[False]),
         [n(B, 4, 5, 6)]),
    Case("convolution transposed", lambda x: C.layers.ConvolutionTranspose((3, 4), 2, strides=2, pad=True)(x),
         [n(B, 3, 4, 5)]),
    Case("convolution transposed to a shape",
         lambda x: C.convolution_transpose(p(3, 2, 3, 3), x, strides=2, auto_padding=[False, True, True],
                                           output_shape=(2, 8, 10)), [n(B, 3, 4, 5)]),
    Case("max pooling", lambda x: C.pooling(x, C.MAX_POOLING, (2, 3), (2, 2), auto_padding=[True]), [n(B, 2, 7, 8)]),
    Case("mean pooling", lambda x: C.pooling(x, C.AVG_POOLING, (3, 3), (2, 2), auto_padding=[True]), [n(B, 2, 7, 8)]),
    Case("mean pooling with the padding",
         lambda x: C.pooling(x, C.AVG_POOLING, (3, 3), (2, 2), auto_padding=[True], include_pad=True), [n(B, 2, 7, 8)]),
    Case("pooling rounded up", lambda x: C.pooling(x, C.MAX_POOLING, (3, 3), (2, 2), ceil_out_dim=True),
         [n(B, 2, 6, 8)]),
    Case("global pooling", lambda x: C.layers.GlobalAveragePooling()(x) + C.layers.GlobalMaxPooling()(x),
         [n(B, 2, 6, 8)]),
    Case("unpooling", lambda x: C.unpooling(C.pooling(x, C.MAX_POOLING, (2, 2), (2, 2)), x, C.MAX_UNPOOLING, (2, 2),
                                            (2, 2)), [n(B, 2, 6, 8)]),
    Case("batch normalization", lambda x: C.batch_normalization(
        x, p(2), p(2), C.constant(n(2)), C.constant(u(2)), True, running_count=C.constant(0)), [n(B, 2, 3, 4)]),
    Case("batch normalization of elements", lambda x: C.batch_normalization(
        x, p(6), p(6), C.constant(n(6)), C.constant(u(6)), False, running_count=C.constant(0)), [n(B, 2, 3)]),
    Case("layer normalization", lambda x: C.layers.LayerNormalization(initial_scale=2)(x), [n(B, 6)], tolerance=5e-5),
    Case("mean variance normalization", lambda x: C.mean_variance_normalization(x), [n(B, 2, 3, 4)], tolerance=5e-5),
    Case("mean variance normalization of all",
         lambda x: C.mean_variance_normalization(x, 0.1, True), [n(B, 2, 3, 4)]),
    Case("centered", lambda x: C.mean_variance_normalization(x, do_variance_scaling=False), [n(B, 2, 3, 4)]),
    Case("local response normalization", lambda x: C.local_response_normalization(x, 1, 1.0, 0.1, 0.75),
         [n(B, 4, 3, 3)]),
    Case("image_scaler", lambda x: C.image_scaler(x, 2.0, [1, 2, 3]), [n(B, 3, 2, 2)]),
    Case("depth_to_space", lambda x: C.depth_to_space(x, 2), [n(B, 8, 2, 3)]),
    Case("space_to_depth", lambda x: C.space_to_depth(x, 2), [n(B, 2, 4, 6)]),
    Case("dropout", lambda x: C.dropout(x, 0.4), [n(B, 4)]),
    # sequences
    Case("past_value", lambda x: C.sequence.past_value(x, 0.5, 2), [n(T, 3)], True),
    Case("future_value", lambda x: C.sequence.future_value(x, n(3)), [n(T, 3)], True),
    Case("first", C.sequence.first, [n(T, 3)], True),
    Case("last", C.sequence.last, [n(T, 3)], True),
    Case("is_first", C.sequence.is_first, [n(T, 3)], True),
    Case("is_last", C.sequence.is_last, [n(T, 3)], True),
    *(Case(f"sequence slice {a} {b}", lambda x, a=a, b=b: C.sequence.slice(x, a, b), [n(T, 3)], True)
      for a, b in ((1, 3), (-3, -1), (0, -1), (2, 0), (-2, 0), (1, -1))),
    Case("sequence reduce_sum", C.sequence.reduce_sum, [n(T, 3)], True),
    Case("sequence reduce_max", C.sequence.reduce_max, [n(T, 3)], True),
    Case("reduction along the sequence", lambda x: C.reduce_mean(x, C.Axis.default_dynamic_axis()), [n(T, 3)], True),
    Case("sequence softmax", C.sequence.softmax, [n(T, 1)], True),
    Case("broadcast_as", lambda x: C.sequence.broadcast_as(C.sequence.last(x), x) + x, [n(T, 3)], True),
    Case("unpack", lambda x: C.sequence.unpack(x, 0, True), [n(T, 3)], True),
    Case("to_sequence", lambda x: C.to_sequence(x), [n(B, 4, 3)]),
    Case("sequence gather", lambda x: C.sequence.gather(x, _first_two(C.slice(x, 0, 0, 1))), [n(T, 3)], True,
         reads_back=False),
    Case("sequence scatter", lambda x: C.sequence.scatter(C.sequence.slice(x, 0, 2), _first_two(x)), [n(T, 1)], True,
         reads_back=False),
    Case("convolution along time", lambda x: C.layers.Convolution((3, 3), 2, sequential=True, pad=True,
                                                                   reduction_rank=1)(x), [n(T, 2, 4)], True,
         reads_back=False),
    # recurrences
    *(Case(f"{name} {'backwards' if back else 'forwards'}", lambda x, cell=cell, back=back: C.layers.Recurrence(
        cell(2, init_bias=C.normal(0.5)), go_backwards=back)(x), [n(T, 3)], True)
      for name, cell in _CELLS.items() for back in (False, True)),
    Case("lstm with peepholes", lambda x: C.layers.Recurrence(lstm(use_peepholes=True))(x), [n(T, 3)], True),
    Case("lstm with relu", lambda x: C.layers.Recurrence(lstm(activation=C.relu))(x), [n(T, 3)], True),
    Case("lstm from a state", lambda x: C.layers.Recurrence(lstm(), initial_state=0.3)(x), [n(T, 3)], True),
    Case("lstm with stabilizers", lambda x: C.layers.Recurrence(lstm(enable_self_stabilization=True))(x), [n(T, 3)],
         True),
    Case("lstm with a projection", lambda x: C.layers.Recurrence(C.layers.LSTM(2, cell_shape=4))(x), [n(T, 3)], True),
    Case("lstm states", lambda x: C.combine(C.layers.Recurrence(lstm(), return_full_state=True)(x).outputs), [n(T, 3)],
         True),
    Case("fold", lambda x: C.layers.Fold(lstm())(x), [n(T, 3)], True),
    Case("two layers", lambda x: C.layers.Sequential([C.layers.Recurrence(lstm()), C.layers.Recurrence(
        C.layers.GRU(3)), C.layers.Dense(2)])(x), [n(T, 3)], True),
    Case("from the steps of a sequence", lambda x, y: C.splice(
        C.layers.RecurrenceFrom(C.layers.RNNStep(3, init=0.3))(y, x),
        C.layers.RecurrenceFrom(C.plus, go_backwards=True)(y, x),
    ), [n(T, 3), n(T, 3)], True),
    Case("another recurrence", lambda x: C.layers.Recurrence(lambda h, v: C.tanh(h * 0.5 + v))(x), [n(T, 3)], True),
    Case("a recurrence over two steps", lambda x: _over_two_steps(x), [n(T, 3)], True),
    *(Case(f"optimized {op} {layers} {both}", lambda x, op=op, layers=layers, both=both: C.optimized_rnnstack(
        x, C.parameter((C.InferredDimension, 2), init=C.normal(0.5)), 2, layers, bidirectional=both, recurrent_op=op),
        [n(T, 3)], True) for op in ("lstm", "gru", "rnnTanh", "rnnReLU") for layers, both in ((1, False), (2, True))),
    Case("cosine distance to a parameter", lambda x: C.cosine_distance(x, p(3)), [n(B, 3)]),
    Case("local response normalization of fewer channels than its window", lambda x: C.local_response_normalization(
        x, 2, 1.0, 0.5, 0.75), [n(B, 4, 3, 3)]),
    Case("a window larger than its operand", lambda x: C.layers.Convolution((3, 2), 2, pad=True)(x), [n(B, 2, 1, 4)]),
    Case("an image of each step", lambda x: C.layers.MaxPooling((2, 2))(C.layers.Convolution((2, 2), 2)(x)),
         [n(T, 2, 4, 5)], True),
    Case("products of each step", C.times, [n(T, 2, 3), n(T, 3, 2)], True),
    Case("a generator of as many steps", lambda x: C.layers.UnfoldFrom(lambda s: C.tanh(s * 0.5))(
        C.sequence.last(x), C.zeros_like(x)), [n(T, 2)], True),
    Case("weights of each sequence in a loop", lambda x: _with_own_weights(x), [n(T, 2)], True),
    Case("hardmax and softmax of no sample", lambda x: x + C.hardmax(k(2, 3)) + C.softmax(k(2, 3)), [n(B, 2, 3)]),
]


def _first_two(x: Any) -> Any:
    return C.sequence.past_value(C.zeros_like(x), 1, 2)


def _with_own_weights(x: Any) -> Any:
    weights = C.sequence.broadcast_as(C.reshape(C.times(C.sequence.last(x), p(2, 4)), (2, 2)), x)
    h = C.placeholder()
    states = C.tanh(C.times(C.sequence.past_value(h), weights) + x)
    return states.replace_placeholders({h: states.output})


def _over_two_steps(x: Any) -> Any:
    h = C.placeholder(shape=(3,))
    states = C.tanh(C.sequence.past_value(h, 0.1, 2) * 0.7 + C.sequence.past_value(h, 0.2) + x)
    return states.replace_placeholders({h: states.output})
