"""Operations on samples against NumPy: one row of the table, and its value, shape, gradient and file are checked."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy.special import logsumexp

import cntkjax as C

LENGTHS = (3, 1, 4)  # of the sequences that an operation is applied to


@dataclass
class Case:
    """An operation `op(*variables)`, and `reference(*samples)` for one sample; `differentiable` where it is smooth.

    A new operation also has a `mismatch(op)`, a call whose operands do not fit (see test_operand_errors.py); its `name`
    is then that of the public function.
    """

    name: str
    op: Callable
    reference: Callable
    shapes: list = field(default_factory=lambda: [(2, 3)])
    low: float = -2.0
    differentiable: bool = True
    integers: bool = False  # instead of real numbers
    mismatch: Callable | None = None


def softmax(x, axis=None):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def top(x, k):
    return -np.sort(-x, -1)[..., :k]


def within(x):
    """Squares summed over neighbouring channels."""
    padded = np.pad(x * x, ((1, 1), (0, 0), (0, 0)))
    return padded[:-2] + padded[1:-1] + padded[2:]


CASES = [
    # reductions
    Case("sum", C.reduce_sum, np.sum),
    Case("sum_axis", lambda x: C.reduce_sum(x, 0), lambda x: x.sum(0, keepdims=True)),
    Case("sum_last_dropped", lambda x: C.reduce_sum(x, -1, keepdims=False), lambda x: x.sum(-1), [(2, 3, 4)]),
    Case("sum_two_axes", lambda x: C.reduce_sum(x, (2, 0)), lambda x: x.sum((0, 2), keepdims=True), [(2, 3, 4)]),
    Case("sum_two_dropped", lambda x: C.reduce_sum(x, (0, 1), keepdims=False), lambda x: x.sum((0, 1)), [(2, 3, 4)]),
    Case("mean", lambda x: C.reduce_mean(x, 1), lambda x: x.mean(1, keepdims=True)),
    Case("max", lambda x: C.reduce_max(x, 1), lambda x: x.max(1, keepdims=True)),
    Case("min", C.reduce_min, np.min),
    Case("prod", lambda x: C.reduce_prod(x, 1), lambda x: x.prod(1, keepdims=True)),
    Case("log_sum_exp", lambda x: C.reduce_log_sum_exp(x, 0), lambda x: logsumexp(x, 0, keepdims=True)),
    Case("l1", lambda x: C.reduce_l1(x, 0), lambda x: np.abs(x).sum(0, keepdims=True)),
    Case("l2", lambda x: C.reduce_l2(x, 1, keepdims=False), lambda x: np.sqrt((x * x).sum(1))),
    Case("sum_square", C.reduce_sum_square, lambda x: (x * x).sum()),
    Case("argmax", C.argmax, np.argmax, differentiable=False),
    Case("argmax_axis", lambda x: C.argmax(x, 0), lambda x: x.argmax(0)[None], differentiable=False),
    Case("argmax_long", lambda x: C.argmax(x, 0), lambda x: x.argmax(0)[None], [(300, 2)], differentiable=False),
    Case("argmin_axis", lambda x: C.argmin(x, -1), lambda x: x.argmin(-1)[:, None], differentiable=False),
    Case("softmax", C.softmax, softmax),
    Case("softmax_axis", lambda x: C.softmax(x, 0), lambda x: softmax(x, 0)),
    Case("softmax_vector", lambda x: C.softmax(x, -1), softmax, [(4,)]),
    Case("log_softmax", C.log_softmax, lambda x: np.log(softmax(x, -1))),
    Case("hardmax", C.hardmax, lambda x: (x == x.max()) * 1.0, differentiable=False),
    # shapes
    Case("reshape", lambda x: C.reshape(x, (4, -1)), lambda x: x.reshape(4, 6), [(2, 3, 4)]),
    Case("reshape_part", lambda x: C.reshape(x, (-1,), 0, 2), lambda x: x.reshape(6, 4), [(2, 3, 4)]),
    Case("reshape_last", lambda x: C.reshape(x, (2, 2), -1), lambda x: x.reshape(2, 3, 2, 2), [(2, 3, 4)]),
    Case("expand_dims", lambda x: C.expand_dims(x, 0), lambda x: x[:, None]),
    Case("expand_dims_end", lambda x: C.expand_dims(x, -1), lambda x: x[..., None]),
    Case("squeeze", C.squeeze, np.squeeze, [(1, 3, 1)]),
    Case("squeeze_axis", lambda x: C.squeeze(x, -1), lambda x: x[..., 0], [(1, 3, 1)]),
    Case("flatten", lambda x: C.flatten(x, 1), lambda x: x.reshape(2, 12), [(2, 3, 4)]),
    Case("swapaxes", lambda x: C.swapaxes(x, 0, -1), lambda x: x.swapaxes(0, -1), [(2, 3, 4)]),
    Case("swapaxes_column", lambda x: C.swapaxes(x, -1, -2), lambda x: x[:, None], [(3,)]),
    Case("swapaxes_with_the_end", lambda x: C.swapaxes(x, 0, C.Axis.end_static_axis()), lambda x: x[:, None], [(2, 3)]),
    Case("swapaxes_before_the_first", lambda x: C.swapaxes(x, -1, -4), lambda x: x.T[:, None, :, None], [(2, 3)]),
    Case("transpose", lambda x: C.transpose(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1), [(2, 3, 4)]),
    Case("slice", lambda x: C.slice(x, 1, 1, 0), lambda x: x[:, 1:]),
    Case("slice_two", lambda x: C.slice(x, (0, 2), (1, 0), (0, 4), (1, 2)), lambda x: x[1:, :, 0:4:2], [(2, 3, 4)]),
    Case("slice_back", lambda x: C.slice(x, 0, 1, 4, -2), lambda x: x[1:4][::-2], [(5,)]),
    Case("index", lambda x: x[-1, 1:3], lambda x: x[-1:, 1:3], [(2, 4)]),
    Case("splice", C.splice, lambda x, y: np.concatenate([x, y], -1), [(2, 3), (2, 4)]),
    Case("splice_first", lambda x, y: C.splice(x, y, axis=0), lambda x, y: np.concatenate([x, y]), [(2, 3), (1, 3)]),
    Case("stack", lambda x, y: C.splice(x, y, axis=-3), lambda x, y: np.stack([x, y]), [(2, 3), (2, 3)]),
    Case("splice_constant", lambda x: C.splice(x, [1, 2]), lambda x: np.append(x, [1, 2]), [(3,)]),
    Case("pad", lambda x: C.pad(x, [(0, 1), (2, 0)], constant_value=3),
         lambda x: np.pad(x, [(0, 1), (2, 0)], constant_values=3)),
    Case("pad_mirrored", lambda x: C.pad(x, [(1, 0), (1, 2)], C.REFLECT_PAD),
         lambda x: np.pad(x, [(1, 0), (1, 2)], "reflect")),
    Case("pad_symmetric", lambda x: C.pad(x, [(1, 0), (1, 2)], C.SYMMETRIC_PAD),
         lambda x: np.pad(x, [(1, 0), (1, 2)], "symmetric")),
    Case("gather", lambda i: C.gather(np.arange(6, dtype=i.dtype).reshape(3, 2), i),
         lambda i: np.arange(6).reshape(3, 2)[i.astype(int)], [(2,)], 0, False, True),
    Case("gather_axis", lambda x: C.gather(x, [2, 0], axis=1), lambda x: x[:, [2, 0]]),
    Case("gather_first_axis", lambda x: C.gather(x, C.reduce_sum(0 * x) + 1, axis=-2), lambda x: x[1][:, None]),
    Case("top_k", lambda x: C.top_k(x, 2)[0], lambda x: top(x, 2)),
    Case("top_k_axis", lambda x: C.top_k(x, 1, axis=0)[0], lambda x: top(x.T, 1).T),
    Case("crop", lambda x, y: C.crop_manual(x, y, 2, 1), lambda x, y: x[:, 1:3, 2:5], [(2, 4, 5), (1, 2, 3)]),
    Case("one_hot", lambda x: C.one_hot(x, 4), lambda x: np.eye(4)[x.astype(int)], [(3,)], 0, False, True),
    Case("one_hot_axis", lambda x: C.one_hot(x, 4, axis=0), lambda x: np.eye(4)[x.astype(int)].T,
         [(3,)], 0, False, True),
    Case("one_hot_sparse", lambda x: C.one_hot(x, 4, True, 0), lambda x: np.eye(4)[x.astype(int)].T,
         [(3,)], 0, False, True),
    Case("zeros_like", C.zeros_like, np.zeros_like, differentiable=False),
    Case("ones_like", C.ones_like, np.ones_like, differentiable=False),
    Case("depth_to_space", lambda x: C.depth_to_space(x, 2),
         lambda x: x.reshape(2, 2, 2, 1, 3).transpose(2, 3, 0, 4, 1).reshape(2, 2, 6), [(8, 1, 3)]),
    Case("space_to_depth", lambda x: C.space_to_depth(x, 2),
         lambda x: x.reshape(2, 1, 2, 3, 2).transpose(2, 4, 0, 1, 3).reshape(8, 1, 3), [(2, 2, 6)]),
    # activations and similar
    Case("elu", lambda x: C.elu(x, 2), lambda x: np.where(x < 0, 2 * np.expm1(x), x)),
    Case("selu", C.selu, lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(x), x)),
    Case("leaky_relu", C.leaky_relu, lambda x: np.where(x < 0, 0.01 * x, x)),
    Case("param_relu", C.param_relu, lambda a, x: np.where(x < 0, a * x, x), [(2, 3), (2, 3)]),
    Case("softplus", lambda x: C.softplus(x, 3), lambda x: np.log1p(np.exp(3 * x)) / 3),
    Case("softsign", C.softsign, lambda x: x / (1 + np.abs(x))),
    Case("hard_sigmoid", lambda x: C.hard_sigmoid(x, 0.3, 0.4), lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
    Case("element_max", C.element_max, lambda *x: np.maximum.reduce(x), [(2, 3)] * 3),
    Case("element_min", C.element_min, lambda *x: np.minimum.reduce(x), [(2, 3)] * 3),
    Case("element_and", C.element_and, lambda x, y: (x > 0) & (y > 0), [(2, 3)] * 2, differentiable=False),
    Case("element_or", C.element_or, lambda x, y: (x > 0) | (y > 0), [(2, 3)] * 2, differentiable=False),
    Case("element_xor", C.element_xor, lambda x, y: (x > 0) ^ (y > 0), [(2, 3)] * 2, differentiable=False),
    Case("element_not", C.element_not, lambda x: (x <= 0) * 1.0, differentiable=False),
    Case("sum_of", C.sum, lambda x, y, z: x + y + z, [(2, 3), (3,), (2, 1)]),
    Case("mean_of", C.mean, lambda x, y: (x + y) / 2, [(2, 3)] * 2),
    Case("clip", lambda x: C.clip(x, -1, 0.5), lambda x: np.clip(x, -1, 0.5)),
    Case("pow", C.pow, np.power, [(2, 3)] * 2, low=0.5),
    Case("log", C.log, np.log, low=0.1),
    Case("sqrt", C.sqrt, np.sqrt, low=0.1),
    Case("per_dim", lambda x: C.per_dim_mean_variance_normalize(x, [1, 2, 3], [2, 1, 2]),
         lambda x: (x - [1, 2, 3]) * [2, 1, 2]),
    Case("normalized", lambda x: C.mean_variance_normalization(x, 0.1),
         lambda x: (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 0.1)),
    Case("normalized_together", lambda x: C.mean_variance_normalization(x, 0.1, True, False), lambda x: x - x.mean()),
    Case("lrn", lambda x: C.local_response_normalization(x, 1, 1.0, 0.3, 0.75),
         lambda x: x / (1 + 0.1 * within(x)) ** 0.75, [(3, 2, 2)]),
    Case("image_scaler", lambda x: C.image_scaler(x, 2, [1, 2, 3]), lambda x: 2 * x + np.reshape([1, 2, 3], (3, 1, 1)),
         [(3, 2, 2)]),
    # losses of samples
    Case("squared_error", C.squared_error, lambda x, y: ((x - y) ** 2).sum(), [(2, 3)] * 2),
    Case("cross_entropy", C.cross_entropy_with_softmax, lambda x, y: [logsumexp(x) - x @ y], [(4,)] * 2),
    Case("cross_entropy_axis", lambda x, y: C.cross_entropy_with_softmax(x, y, 0),
         lambda x, y: logsumexp(x, 0, keepdims=True) - (x * y).sum(0, keepdims=True), [(2, 3)] * 2),
    Case("binary_cross_entropy", C.binary_cross_entropy,
         lambda x, y: -y * np.log(x + 1e-6) - (1 - y) * np.log(1 - x + 1e-6), [(3,)] * 2, low=0.1),
    Case("cosine", C.cosine_distance, lambda x, y: x @ y / np.sqrt(x @ x * (y @ y)), [(4,)] * 2),
    Case("fmeasure", C.losses.fmeasure, lambda x, y: 1 - 2 * (x @ y) / (x.sum() + y.sum()), [(4,)] * 2, low=0.1),
    Case("error", C.classification_error, lambda x, y: [1 - y[x.argmax()]], [(4,)] * 2, differentiable=False),
]


def samples(case, count, dtype, seed=1):
    """One array [count, *shape] for each operand; no two elements are near each other, nor near 0."""
    rng = np.random.default_rng(seed)
    operands = []
    for i, shape in enumerate(case.shapes):
        size = count * int(np.prod(shape))
        if case.integers:
            values = rng.integers(case.low, 3, size)
        else:
            high = 0.9 if case.low > 0 else -case.low + 0.03
            values = rng.permutation(np.linspace(case.low, high, size)) + 0.001 * i
        operands.append(values.reshape(count, *shape).astype(dtype))
    return operands


def references(case, data):
    return [np.asarray(case.reference(*sample)) for sample in zip(*data, strict=True)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
class TestEveryOp:
    def test_sequences_match_numpy_and_survive_a_file(self, case, tmp_path):
        data = samples(case, sum(LENGTHS), np.float32)
        variables = [C.sequence.input_variable(shape, name=f"x{i}") for i, shape in enumerate(case.shapes)]
        function = case.op(*variables)
        ends = np.cumsum(LENGTHS)[:-1]
        feeds = {v: np.split(d, ends) for v, d in zip(variables, data, strict=True)}
        values = C.combine([function]).eval(feeds)
        expected = np.split(np.stack(references(case, data)), ends)
        for value, reference in zip(values, expected, strict=True):
            assert value.shape[1:] == function.shape
            np.testing.assert_allclose(value, reference, rtol=1e-4, atol=1e-5)
        path = str(tmp_path / "model")
        C.combine([function]).save(path)
        loaded = C.load_model(path)
        again = loaded.eval({v: feeds[variables[int(v.name[1:])]] for v in loaded.arguments})
        for value, reference in zip(again, values, strict=True):
            np.testing.assert_array_equal(value, reference)

    def test_gradient_matches_finite_differences(self, case):
        if not case.differentiable:
            pytest.skip("has no gradient")
        data = samples(case, 2, np.float64)
        variables = [C.input_variable(shape, np.float64, needs_gradient=True) for shape in case.shapes]
        function = case.op(*variables)
        weights = np.random.default_rng(2).standard_normal((2, *function.shape))
        feeds = dict(zip(variables, data, strict=True))
        gradients = C.reduce_sum(function * C.to_batch(C.constant(weights))).grad(feeds, wrt=variables)
        gradients = gradients if isinstance(gradients, dict) else {variables[0]: gradients}

        def total(*data):
            return float((np.stack(references(case, data)) * weights).sum())

        for i, variable in enumerate(variables):
            expected = np.zeros_like(data[i])
            for index in np.ndindex(expected.shape):
                step = np.zeros_like(expected)
                step[index] = 1e-5
                up, down = ([*data[:i], data[i] + s, *data[i + 1 :]] for s in (step, -step))
                expected[index] = (total(*up) - total(*down)) / 2e-5
            np.testing.assert_allclose(gradients[variable], expected, rtol=1e-4, atol=1e-6)
