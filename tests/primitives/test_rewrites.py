"""Rewrite rules: what is computed as one node has the values and gradients of the composition."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import sequence as S
from cntkjax.engine.plan import rewrite
from cntkjax.graph.build import note_edit
from cntkjax.primitives import sequence as sequence_primitives
from tests.engine.plan.test_rewrite import data, names

A, B = np.float32([[1, -2, 3, 0], [np.inf, 5, 1e30, 7]]), np.float32([[4, 8, 0, 0], [0, -2, 1e30, 1e-3]])


def divided(**kinds):
    a, b = (C.input_variable(4, needs_gradient=True, name=name, **kinds) for name in "ab")
    return a, b, C.element_divide(a, b)


def test_a_quotient_by_0_is_0_and_so_are_its_gradients():
    a, b, quotient = divided()
    gradients, values = quotient.grad({a: A, b: B}, [a, b], [quotient])
    np.testing.assert_allclose(values, [[0.25, -0.25, 0, 0], [np.nan, -2.5, 1, 7000]], rtol=1e-6)
    np.testing.assert_allclose(gradients[a], [[0.25, 0.125, 0, 0], [0, -0.5, 1e-30, 1000]], rtol=1e-6)
    np.testing.assert_allclose(gradients[b][:, :3], [[-0.0625, 0.03125, 0], [np.nan, -1.25, -1e-30]], rtol=1e-6)


@pytest.mark.parametrize("make", [
    lambda a, b: C.element_divide(a, b), lambda a, b: C.reciprocal(b) * a, lambda a, b: C.reciprocal(a) * (1 / b),
    lambda a, b: C.element_divide(a, C.reduce_sum(b)), lambda a, b: C.element_divide(C.sequence.last(a), b),
    lambda a, b: C.layers.Recurrence(lambda h, x: C.tanh(h / x))(b) / a,
])
def test_values_and_gradients_equal_those_of_the_product(make, monkeypatch):
    rng = np.random.default_rng(0)
    a, b = (C.sequence.input_variable(3, np.float64, needs_gradient=True, name=name) for name in "ab")
    data = {v: [rng.uniform(0.5, 2, (n, 3)) for n in (2, 4, 1)] for v in (a, b)}
    results = []
    for rules in (rewrite.NODE_RULES, {}):
        monkeypatch.setattr(rewrite, "NODE_RULES", rules)
        graph = make(a, b)
        gradients, values = graph.grad(data, [a, b], [graph])
        results.append([*values, *gradients[a], *gradients[b]])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


OPERATIONS = {
    "softmax": (S.softmax, "Sequence::Softmax"),
    "first": (S.first, "Sequence::First"),
    "last": (S.last, "Sequence::Last"),
    "reduce_sum": (S.reduce_sum, "ReduceElements"),
    "reduce_max": (S.reduce_max, "ReduceElements"),
}


def computed(op, dtype, shape=(2,)):
    """The nodes, values and gradients of an operation, weighted unequally."""
    x = S.input_variable(shape, dtype, needs_gradient=True)
    result = op(x)
    total = C.reduce_sum(result * C.sin(result + 1), C.Axis.all_axes())
    gradients, values = total.grad({x: data(dtype, shape)}, [x], [result])
    return names(result), [*values, *gradients]


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", OPERATIONS)
def test_values_and_gradients_equal_those_of_the_composition(name, dtype, monkeypatch):
    op, node = OPERATIONS[name]
    nodes, values = computed(op, dtype)
    assert node in nodes and not {"GatherPacked", "UnpackSequenceOp"} & set(nodes)
    monkeypatch.setattr(rewrite, "BLOCK_RULES", {})
    nodes, expected = computed(op, dtype)
    assert len(nodes) > 1
    tolerance = 5e-3 if dtype is np.float16 else 1e-5
    for a, b in zip(values, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(np.float64), b, rtol=tolerance, atol=tolerance)


def test_wide_samples_have_the_same_values(monkeypatch):
    values = computed(S.softmax, np.float32, (3000,))[1]
    monkeypatch.setattr(rewrite, "BLOCK_RULES", {})
    for a, b in zip(values, computed(S.softmax, np.float32, (3000,))[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("op, node", [(C.softmax, "Softmax"), (C.log_softmax, "LogSoftmax")])
def test_softmax_along_a_static_axis_equals_the_composition(op, node, dtype, axis, monkeypatch):
    samples = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(dtype) * 3
    samples[0, 1] = 2  # largest elements may be several

    def evaluated():
        x = C.input_variable((3, 4), dtype, needs_gradient=True)
        weighted = C.sin(op(x, axis=axis) * np.arange(12, dtype=dtype).reshape(3, 4))
        return names(weighted), [weighted.eval({x: samples}), weighted.grad({x: samples})]

    nodes, values = evaluated()
    assert node in nodes and "ReduceElements" not in nodes
    monkeypatch.setattr(rewrite, "BLOCK_RULES", {})
    nodes, expected = evaluated()
    assert nodes.count("ReduceElements") == 2
    tolerance = 2e-2 if dtype is np.float16 else 1e-5
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("channels", [2, 6])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_normalization_over_channels_equals_the_composition(channels, dtype, monkeypatch):
    image = np.random.default_rng(0).standard_normal((2, channels, 3, 4)).astype(dtype)

    def evaluated():
        x = C.input_variable(image.shape[1:], dtype, needs_gradient=True)
        normalized = C.local_response_normalization(x, 2, 1.5, 0.5, 0.75)
        return names(normalized), [normalized.eval({x: image}), C.sin(normalized).grad({x: image})]

    nodes, values = evaluated()
    assert nodes == ["LocalResponseNormalization"]
    monkeypatch.setattr(rewrite, "BLOCK_RULES", {})
    for a, b in zip(values, evaluated()[1], strict=True):
        assert a.dtype == b.dtype
        roundings = 4 * np.finfo(dtype).eps
        np.testing.assert_allclose(a.astype(np.float64), b, rtol=roundings, atol=roundings)


@pytest.mark.parametrize("also_read", [False, True], ids=["pooled only", "read elsewhere"])
@pytest.mark.parametrize("window, options", [
    ((3, 3), {"strides": (2, 2)}), ((3, 3), {"strides": (1, 2), "auto_padding": [True, False]}),
    ((2, 2), {"strides": (3, 3), "ceil_out_dim": True}),
], ids=["strides", "padding", "windows of padding alone"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_maxima_of_relu_equal_the_composition(dtype, window, options, also_read, monkeypatch):
    images = np.random.default_rng(0).integers(-3, 3, (2, 2, 6, 7)).astype(dtype)  # equal values, and zeros

    def evaluated():
        x = C.input_variable(images.shape[1:], dtype, needs_gradient=True)
        positive = C.relu(x)
        total = C.reduce_sum(C.sin(C.pooling(positive, C.MAX_POOLING, window, **options)), C.Axis.all_static_axes())
        total = total + C.reduce_sum(positive * positive, C.Axis.all_static_axes()) if also_read else total
        return names(total), [total.eval({x: images}), total.grad({x: images})]

    nodes, values = evaluated()
    assert "RectifiedPooling" in nodes and ("ReLU" in nodes) == also_read
    monkeypatch.setattr(rewrite, "NODE_RULES", {})
    nodes, expected = evaluated()
    assert {"ReLU", "Pooling"} <= set(nodes)
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_means_of_relu_are_not_those_of_its_operand():
    x = C.input_variable((1, 2, 2))
    mean = C.pooling(C.relu(x), C.AVG_POOLING, (2, 2))
    assert mean.eval({x: np.array([[[[-8, 4], [0, -4]]]], np.float32)}).item() == 1


def test_the_second_to_last_step_is_not_the_last():
    x = S.input_variable(1)
    values = S.slice(x, -2, -1).eval({x: [np.arange(3, dtype=np.float32)[:, None]]})
    np.testing.assert_array_equal(values, [[1]])


def sliced(begin, end, feed, dtype):
    """The nodes, values and gradients of a slice, weighted unequally."""
    x = S.input_variable(2, dtype, needs_gradient=True)
    result = S.slice(x, begin, end)
    total = C.reduce_sum(result * C.sin(result + 1), C.Axis.all_axes())
    gradients, values = total.grad({x: feed}, [x], [result])
    return names(result), [*values, *gradients]


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize("lengths", [(4, 7, 5), (5, 5, 5)])
@pytest.mark.parametrize("begin, end", [(1, 0), (0, 2), (0, -1), (2, 4), (1, -1), (3, 6), (0, 9), (6, 0)])
def test_slices_from_a_fixed_step_on_equal_the_composition(begin, end, lengths, monkeypatch):
    feed = [np.random.default_rng(n).standard_normal((n, 2)) for n in lengths]
    nodes, values = sliced(begin, end, feed, np.float64)
    assert nodes[-1] == "Sequence::GridSlice"
    monkeypatch.setattr(rewrite, "NODE_RULES", {})
    nodes, expected = sliced(begin, end, feed, np.float64)
    assert nodes[-1] == "GatherPacked"
    for a, b, sequence in zip(values, expected, [*feed, *feed], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
        assert len(a) in (len(sequence), len(sequence[begin : end or None]))


@pytest.mark.parametrize("begin, end", [(-2, 0), (-3, -1)])
def test_slices_that_begin_near_the_end_are_gathered(begin, end):
    feed = [np.random.default_rng(n).standard_normal((n, 2)).astype(np.float32) for n in (4, 7)]
    nodes, values = sliced(begin, end, feed, np.float32)
    assert nodes[-1] == "GatherPacked"
    for a, b in zip(values, feed, strict=False):
        np.testing.assert_array_equal(a, b[begin : end or None])


def test_slices_of_sparse_sequences_stay_sparse_and_combine_with_others_of_their_length():
    x, y = S.input_variable(9, is_sparse=True), S.input_variable(2)
    both = C.times(S.slice(x, 1, 0), np.eye(9, 2, dtype=np.float32)) + S.slice(y, 0, -1)
    ones = [[0, 1, 1], [1, 0]]
    steps = [np.arange(2 * len(s), dtype=np.float32).reshape(-1, 2) for s in ones]
    values = both.eval({x: C.Value.one_hot(ones, 9), y: steps})
    np.testing.assert_array_equal(values[0], np.eye(2)[[1, 1]] + [[0, 1], [2, 3]])
    np.testing.assert_array_equal(values[1], np.eye(2)[[0]] + [[0, 1]])


@pytest.mark.usefixtures("grid")
def test_gathering_and_scattering_by_permutation_equals_adding_up(monkeypatch):
    flags = [np.array(f, np.float32) for f in ([0, 1, 1], [1], [0, 1, 0, 1], [1, 0])]

    def computed():
        x, c = S.input_variable(2, needs_gradient=True), S.input_variable(())
        steps = S.gather(x, c) * 2
        scattered = S.scatter(steps, c)
        feed = {x: data(np.float32), c: flags}
        total = C.reduce_sum(scattered * C.sin(scattered + x), C.Axis.all_axes())
        return [*steps.eval(feed), *scattered.eval(feed), *total.grad(feed, wrt=[x])]

    permuted = computed()
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")  # what was compiled before is not traced
    monkeypatch.setattr(sequence_primitives, "_is_one_to_one", lambda index: False)
    note_edit()
    for a, b in zip(permuted, computed(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
