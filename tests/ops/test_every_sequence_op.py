"""Operations that look beyond one sample: of sequences, images, recurrence, whole minibatches.

A case is an operation on sequences of different lengths, several of which share a row. The same holds for all: they
come out as they do alone, in half, single and double precision, in the shape that the graph says, and the gradient is
that of finite differences. (Operations on samples are in test_every_op.py.)
"""

from dataclasses import dataclass

import numpy as np
import pytest

import cntkjax as C
from cntkjax import sequence

LENGTHS = (3, 1, 4, 2)
BATCH, EVERYTHING = C.Axis.default_batch_axis(), C.Axis.all_axes()


@dataclass
class Case:
    """`op(*inputs)` on sequences of the given shapes; `data` may be "positive" or "flags" (0 and 1)."""

    name: str
    op: object
    shapes: list
    data: tuple = ()
    smooth: bool = True
    half: float = 4e-3  # relative tolerance of float16
    together: bool = False  # one value for the minibatch, the sum over its sequences

    def __str__(self):
        return self.name


def kernel(*shape):
    rng = np.random.default_rng(3)
    return lambda x: C.constant(rng.standard_normal(shape).astype(x.dtype))


def convolved(*shape, **options):
    def op(x):
        return C.convolution(kernel(*shape)(x), x, **options)

    return op


def recurrent(x):
    h, w = C.placeholder(2), kernel(2, 2)(x)
    state = C.tanh(x + C.times(sequence.past_value(h, 0.5), w))
    return state.replace_placeholders({h: state})


def stack(kind, num_layers=1, **options):
    def op(x):
        weights = C.parameter((C.InferredDimension,), dtype=x.dtype)
        f = C.optimized_rnnstack(x, weights, 2, num_layers, recurrent_op=kind, **options)
        weights.value = np.random.default_rng(4).uniform(-0.6, 0.6, weights.shape).astype(x.dtype)
        return f

    return op


def normalized(x):
    state = [C.constant(np.asarray(v, x.dtype)) for v in ([1.5, 0.5], [0.1, 0.2], [0.1, -0.1], [1.2, 0.8], 0)]
    return C.batch_normalization(x, *state[:4], True, running_count=state[4])


def one_label(x):
    labels = 2 * C.one_hot(C.argmax(x), 3) * sequence.is_first(x)
    return C.forward_backward(C.labels_to_graph(C.stop_gradient(labels)), x, 2)


CASES = [
    Case("past_value", lambda x: sequence.past_value(x, 0.5), [(2,)]),
    Case("past_value of two steps", lambda x: sequence.past_value(x, time_step=2), [(2,)]),
    Case("future_value", lambda x: sequence.future_value(x, -1), [(2,)]),
    Case("delay ahead", lambda x: sequence.delay(x, 0, -1), [(2,)]),
    Case("no delay", lambda x: C.alias(sequence.delay(x, 0, 0)), [(2,)]),
    Case("first", sequence.first, [(2,)]),
    Case("last", sequence.last, [(2,)]),
    Case("is_first", sequence.is_first, [(2,)], smooth=False),
    Case("is_last", sequence.is_last, [(2,)], smooth=False),
    Case("slice of steps", lambda x: sequence.slice(x, 0, -1), [(2,)]),
    Case("gather of steps", sequence.gather, [(2,), ()], ("", "flags")),
    Case("scatter", lambda x, c: sequence.scatter(sequence.gather(x, c), c), [(2,), ()], ("", "flags")),
    Case("broadcast_as", lambda x: sequence.broadcast_as(sequence.last(x), x), [(2,)]),
    Case("sum of steps", sequence.reduce_sum, [(2, 3)]),
    Case("max of steps", sequence.reduce_max, [(2, 3)]),
    Case("softmax of steps", sequence.softmax, [(2,)]),
    Case("unpack and back", lambda x: C.to_sequence_like(sequence.unpack(x, 0, True), x), [(2, 3)]),
    Case("mean over steps", lambda x: C.reduce_mean(x, C.Axis.default_dynamic_axis()), [(2, 3)]),
    Case("reconcile_dynamic_axes", lambda x, y: x + C.reconcile_dynamic_axes(y, x), [(2,), (2,)]),
    Case("product over steps", lambda x, y: C.times(x, y, infer_input_rank_to_map=-2), [(2, 3), (3, 2)]),
    Case("a loop", recurrent, [(2,)]),
    Case("a loop, backwards", C.layers.Recurrence(C.element_times, go_backwards=True, initial_state=1), [(2,)]),
    Case("LSTM stack", stack("lstm"), [(3,)]),
    Case("GRU stack, both ways", stack("gru", bidirectional=True), [(3,)]),
    Case("two layers of ReLU", stack("rnnReLU", num_layers=2), [(3,)], smooth=False),
    Case("tanh stack", stack("rnnTanh"), [(3,)]),
    Case("convolution", convolved(4, 2, 3, 3, auto_padding=[False, True, True]), [(2, 4, 5)]),
    Case("convolution with strides", convolved(4, 2, 2, 3, strides=(2, 1), auto_padding=[False]), [(2, 4, 5)]),
    Case("dilated convolution", convolved(4, 2, 2, 2, dilation=(1, 2, 2), auto_padding=[False]), [(2, 4, 5)]),
    Case("grouped convolution", convolved(4, 2, 3, 3, groups=2, auto_padding=[False, True, True]), [(4, 4, 5)]),
    Case("convolution of three axes", convolved(3, 2, 2, 2, 2, auto_padding=[False]), [(2, 3, 3, 3)]),
    Case("convolution along steps", convolved(3, 2, 2, 1, sequential=True), [(2, 3)]),
    Case("transposed convolution",
         lambda x: C.convolution_transpose(kernel(2, 3, 2, 2)(x), x, (2, 2), auto_padding=[False]), [(2, 3, 3)]),
    Case("max pooling", lambda x: C.pooling(x, C.MAX_POOLING, (3, 3), (2, 2), [True]), [(2, 4, 5)]),
    Case("max pooling, rounded up", lambda x: C.pooling(x, C.MAX_POOLING, (2, 2), (2, 2), ceil_out_dim=True),
         [(2, 3, 5)]),
    Case("average pooling", lambda x: C.pooling(x, C.AVG_POOLING, (3, 3), (2, 2), [True], include_pad=True),
         [(2, 4, 5)]),
    Case("unpooling", lambda x, y: C.unpooling(x, y, C.MAX_UNPOOLING, (2, 2), (2, 2)), [(2, 2, 2), (2, 4, 4)],
         smooth=False),
    Case("batch normalization", normalized, [(2, 3, 3)], smooth=False),
    Case("straight_through", C.straight_through_impl, [(3,)], smooth=False),
    Case("stop_gradient", lambda x: x * C.stop_gradient(x), [(3,)], smooth=False),
    Case("times_transpose", C.times_transpose, [(3,), (3,)]),
    Case("times", lambda x: C.times(x, kernel(3, 4)(x)), [(2, 3)]),
    Case("cast", lambda x: C.cast(C.cast(x, np.float32), x.dtype), [(3,)], smooth=False),
    Case("alias", C.alias, [(3,)]),
    Case("crop_automatic", lambda x: C.crop_automatic(x, C.pooling(x, C.MAX_POOLING, (2, 2))), [(1, 4, 4)]),
    Case("roipooling", lambda x: C.roipooling(x, C.constant(np.array([[0, 0, 2, 2], [1, 1, 3, 3]], x.dtype)),
         C.MAX_POOLING, (2, 2), 1.0), [(1, 4, 4)]),
    Case("weighted cross entropy", C.weighted_binary_cross_entropy, [(3,), (3,), (1,)],
         ("positive", "positive", "positive"), smooth=False, half=2e-2),
    Case("CTC", one_label, [(3,)], smooth=False, half=2e-2),
    Case("edit distance", C.edit_distance_error, [(3,), (3,)], smooth=False, half=2e-2),
    Case("errors among the best two", lambda x, y: C.classification_error(x, y, topN=2), [(4,), (4,)], smooth=False,
         together=True),
    Case("sum over everything", lambda x: C.reduce_sum(x, EVERYTHING), [(3,)], together=True, half=2e-2),
]


def sequences(case, dtype, which=range(len(LENGTHS))):
    rng = np.random.default_rng(7)
    kinds = (*case.data, *("",) * len(case.shapes))
    operands = []
    for kind, shape in zip(kinds, case.shapes, strict=False):
        size = sum(LENGTHS) * int(np.prod(shape))
        values = rng.permutation(np.linspace(-1.5, 1.53, size))  # no two close to each other, none close to 0
        values = {"positive": np.abs(values) / 2 + 0.05, "flags": np.sign(values) / 2 + 0.5}.get(kind, values)
        values = values.reshape(sum(LENGTHS), *shape)
        if kind == "flags":
            values[np.cumsum((0, *LENGTHS[:-1]))] = 1  # no sequence without a step
        parts = np.split(values.astype(dtype), np.cumsum(LENGTHS)[:-1])
        operands.append([parts[i] for i in which])
    return operands


def inputs(case, dtype):
    return [C.sequence.input_variable(s, dtype, needs_gradient=True, name=f"x{i}") for i, s in enumerate(case.shapes)]


def evaluated(case, dtype, which=range(len(LENGTHS))):
    variables = inputs(case, dtype)
    f = case.op(*variables)
    feeds = dict(zip(variables, sequences(case, dtype, which), strict=True))
    return f, f.eval({v: feeds[v] for v in f.arguments})


@pytest.mark.parametrize("case", CASES, ids=str)
class TestEverySequence:
    def test_comes_out_as_it_does_alone(self, case):
        f, values = evaluated(case, np.float64)
        alone = [evaluated(case, np.float64, [i])[1] for i in (0, 2)]
        if not f.dynamic_axes:
            if case.together:
                rest = evaluated(case, np.float64, [1, 3])[1]
                np.testing.assert_allclose(values, sum(alone) + rest, rtol=1e-6)
            return
        for i, value in zip((0, 2), alone, strict=True):
            assert value[0].shape[len(value[0].shape) - len(f.shape) :] == f.shape
            np.testing.assert_allclose(values[i], value[0], rtol=1e-6, atol=1e-9)

    def test_in_half_single_and_double_precision(self, case):
        _, exact = evaluated(case, np.float64)
        for dtype, tolerance in ((np.float32, 1e-5), (np.float16, case.half)):
            f, values = evaluated(case, dtype)
            assert f.dtype == dtype
            pairs = zip(values, exact, strict=True) if isinstance(values, list) else [(values, exact)]
            for value, wanted in pairs:
                assert value.dtype == dtype
                np.testing.assert_allclose(value.astype(np.float64), wanted, rtol=tolerance, atol=2 * tolerance)

    def test_gradient_is_that_of_finite_differences(self, case):
        if not case.smooth:
            pytest.skip("not smooth, or a gradient of its own")
        variables, data = inputs(case, np.float64), sequences(case, np.float64)
        f = case.op(*variables)
        weights = C.constant(np.random.default_rng(5).standard_normal(f.shape))
        total = C.reduce_sum(f * weights, EVERYTHING)

        def feeds(place=None, step=0.0):
            copies = [[s.copy() for s in sequences] for sequences in data]
            if place is not None:
                copies[place[0]][place[1]][place[2]] += step
            return {v: g for v, g in zip(variables, copies, strict=True) if v in total.arguments}

        free = [v for v in variables if v in total.arguments and "flags" not in case.data[variables.index(v) :][:1]]
        gradients = total.grad(feeds(), wrt=free)
        gradients = gradients if isinstance(gradients, dict) else {free[0]: gradients}
        for i, v in enumerate(variables):
            for k in (0, 2) if v in free else ():
                for at in list(np.ndindex(data[i][k].shape))[::3]:
                    up, down = (total.eval(feeds((i, k, at), step)) for step in (1e-5, -1e-5))
                    np.testing.assert_allclose(gradients[v][k][at], (up - down) / 2e-5, rtol=1e-5, atol=1e-7)
