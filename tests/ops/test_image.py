"""Convolution, pooling and batch normalization against loops in NumPy, and against numbers recorded from CNTK 2.7."""

import itertools
import re

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

import cntkjax as C
from benchmarks.tracing import trace_for
from cntkjax.graph.errors import ShapeError
from cntkjax.primitives._window import place

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.standard_normal(shape)


def windows(x, sizes, strides, auto, fill, dilation=1, ceil=False):
    """All windows of [n, *axes]: [n, *positions, *sizes], and how many of their cells lie inside: [*positions]."""
    axes = [place(n, k, s, dilation, a, ceil) for n, k, s, a in zip(x.shape[1:], sizes, strides, auto, strict=True)]
    cells = np.full((len(x), *(w.count for w in axes), *sizes), fill)
    inside = np.zeros([w.count for w in axes])
    for position in itertools.product(*(range(w.count) for w in axes)):
        for cell in itertools.product(*map(range, sizes)):
            at = [p * w.stride - w.before + c * dilation for p, c, w in zip(position, cell, axes, strict=True)]
            if all(0 <= i < n for i, n in zip(at, x.shape[1:], strict=True)):
                cells[(slice(None), *position, *cell)] = x[(slice(None), *at)]
                inside[position] += 1
    return cells, inside


def convolved(x, kernel, strides, auto, dilation=1):
    """[n, C, *spatial], [O, c, *window] -> [n, O, *positions]; one group for every c channels."""
    groups, spatial = x.shape[1] // kernel.shape[1], x.ndim - 2
    parts = []
    for group in range(groups):
        channels = [
            windows(x[:, c], kernel.shape[2:], strides, auto, 0.0, dilation)[0]
            for c in range(group * kernel.shape[1], (group + 1) * kernel.shape[1])
        ]
        mine = np.split(kernel, groups)[group]
        letters = "xyz"[:spatial], "uvw"[:spatial]
        parts.append(np.einsum(f"cn{''.join(letters)},oc{letters[1]}->no{letters[0]}", np.stack(channels), mine))
    return np.concatenate(parts, 1)


def variable(value, sequence=False):
    make = C.sequence.input_variable if sequence else C.input_variable
    return make(value.shape[1:], dtype=np.float64, needs_gradient=True)


def check_gradient(f, feeds, wrt, eps=1e-5):
    """The gradient of a weighted sum of f, against central differences along a random direction."""
    weights = normal(*np.shape(f.eval(feeds)))
    target = C.input_variable(f.shape, dtype=np.float64)
    loss = C.reduce_sum(f * target)
    feeds = {**feeds, target: weights}
    gradients = loss.grad(feeds, wrt=list(wrt))
    gradients = gradients if isinstance(gradients, dict) else {wrt[0]: gradients}
    for v in wrt:
        before = v.value if v.is_parameter else feeds[v]
        direction = normal(*before.shape)
        totals = []
        for sign in (1, -1):
            moved = before + sign * eps * direction
            if v.is_parameter:
                v.value = moved
                totals.append(np.sum(loss.eval(feeds)))
                v.value = before
            else:
                totals.append(np.sum(loss.eval({**feeds, v: moved})))
        difference = (totals[0] - totals[1]) / (2 * eps)
        np.testing.assert_allclose(np.sum(gradients[v] * direction), difference, rtol=1e-6, atol=1e-7)


# shape of a sample, kernel, strides, padded axes, dilation
CONVOLUTIONS = [
    ((3, 6, 5), (4, 3, 3, 3), (1, 1), (True, True), 1),
    ((3, 7, 6), (4, 3, 2, 3), (2, 1), (True, False), 1),
    ((3, 7, 6), (20, 3, 3, 3), (2, 2), (True, True), 1),  # many filters on an odd number of channels
    ((4, 7, 6), (5, 4, 1, 1), (2, 2), (True, True), 1),  # a product
    ((2, 7, 8), (3, 2, 1, 1), (3, 3), (True, True), 1),  # of which the first cells are left out
    ((2, 9, 9), (3, 2, 3, 2), (1, 2), (True, False), 2),
    ((4, 6, 5), (6, 2, 3, 3), (1, 1), (True, True), 1),  # two groups
    ((4, 5, 5), (4, 1, 3, 3), (2, 1), (True, True), 1),  # each channel separately
    ((3, 6, 5), (6, 1, 2, 3), (1, 2), (True, False), 2),  # with two filters
    ((3, 9), (5, 3, 4), (2,), (True,), 1),
    ((2, 4, 5, 4), (3, 2, 2, 3, 3), (1, 2, 1), (True, True, False), 1),
]


class TestConvolution:
    @pytest.mark.parametrize(("shape", "kernel", "strides", "auto", "dilation"), CONVOLUTIONS)
    def test_sums_over_windows(self, shape, kernel, strides, auto, dilation):
        data, w = normal(2, *shape), normal(*kernel)
        x, W = variable(data), C.parameter(init=w)
        f = C.convolution(
            W, x, strides=(1, *strides), auto_padding=[False, *auto], dilation=(1, *[dilation] * len(strides)),
            groups=shape[0] // kernel[1],
        )
        expected = convolved(data, w, strides, auto, dilation)
        assert f.shape == expected.shape[1:]
        np.testing.assert_allclose(f.eval({x: data}), expected, rtol=1e-10, atol=1e-10)
        check_gradient(f, {x: data}, [x, W])

    def test_steps_of_sequences_are_samples(self):
        data = [normal(3, 2, 6), normal(1, 2, 6), normal(4, 2, 6)]
        w = normal(3, 2, 3)
        x = C.sequence.input_variable((2, 6), dtype=np.float64)
        values = C.convolution(C.parameter(init=w), x, auto_padding=[False, True]).eval({x: data})
        for actual, steps in zip(values, data, strict=True):
            np.testing.assert_allclose(actual, convolved(steps, w, (1,), (True,)), rtol=1e-10)

    def test_sequences_are_convolved_along_their_steps(self):
        """Recorded from CNTK 2.7; the shorter sequences are not affected by the longest."""
        x = C.sequence.input_variable((1,))
        kernel = C.parameter(init=np.array([[[1, 10, 100]]], np.float32))
        steps = [np.arange(1, n + 1, dtype=np.float32).reshape(n, 1) for n in (6, 5, 3)]
        for strides, auto, expected in [
            (1, True, [[210, 321, 432, 543, 654, 65], [210, 321, 432, 543, 54], [210, 321, 32]]),
            (1, False, [[321, 432, 543, 654], [321, 432, 543], [321]]),
            (2, True, [[210, 432, 654], [210, 432, 54], [210, 32]]),
            (2, False, [[321, 543], [321, 543], [321]]),
        ]:
            f = C.convolution(kernel, x, sequential=True, strides=strides, auto_padding=[False, auto])
            for actual, reference in zip(f.eval({x: steps}), expected, strict=True):
                np.testing.assert_allclose(actual.ravel(), reference)

    def test_without_channels(self):
        data, w = normal(2, 5, 6), normal(3, 2, 3)
        x, W = variable(data), C.parameter(init=w)
        f = C.convolution(W, x, reduction_rank=0, strides=(1, 2), auto_padding=[True, False])
        expected = convolved(data[:, None], w[:, None], (1, 2), (True, False))
        np.testing.assert_allclose(f.eval({x: data}), expected, rtol=1e-10)
        assert f.root_function.op_name == "Convolution" and f.root_function.is_block
        check_gradient(f, {x: data}, [x, W])

    def test_windows_may_move_along_channels(self):
        data, w = normal(2, 4, 5), normal(2, 3, 2)
        x, W = variable(data), C.parameter(init=w)
        f = C.convolution(W, x, auto_padding=[True, False])
        cells, _ = windows(data, (3, 2), (1, 1), (True, False), 0.0)
        expected = np.einsum("ncxuv,ouv->nocx", cells, w).reshape(2, 8, 4)
        assert f.shape == (8, 4)
        np.testing.assert_allclose(f.eval({x: data}), expected, rtol=1e-10)
        check_gradient(f, {x: data}, [x, W])

    def test_channels_of_kernels_are_inferred_and_then_not_padded(self):
        x, W = C.input_variable((3, 8, 9)), C.parameter((4, C.InferredDimension, 3, 3), init=C.glorot_uniform())
        f = C.convolution(W, x, strides=(2, 2), auto_padding=[True, False])
        assert (W.shape, f.shape) == ((4, 3, 3, 3), (4, 4, 4))
        assert f.root_function.node_attributes["strides"] == (3, 2, 2)  # as CNTK writes them
        grouped = C.parameter((6, C.InferredDimension, 3, 3), init=C.glorot_uniform())
        C.convolution(grouped, x, groups=3, auto_padding=[False, True, True])
        assert grouped.shape == (6, 1, 3, 3)

    def test_free_dimensions_take_the_size_of_the_data(self):
        x, w = C.input_variable((1, C.FreeDimension, C.FreeDimension)), normal(2, 1, 3, 3).astype(np.float32)
        f = C.convolution(C.constant(w), x, auto_padding=[False, True, True])
        assert f.shape == (2, C.FreeDimension, C.FreeDimension)
        for shape in [(2, 1, 4, 5), (1, 1, 6, 3)]:
            data = normal(*shape).astype(np.float32)
            expected = convolved(data, w, (1, 1), (True, True))
            np.testing.assert_allclose(f.eval({x: data}), expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize(
        ("kernel", "options", "match"),
        [
            ((4, 3, 3), {}, "the kernel has 3 channels, but the operand 2"),
            ((4, 2, 9), {}, "larger than the operand"),
            ((3, 3), {"auto_padding": [False], "strides": (1, 1, 1)}, "3 values for 2 axes"),
            ((4,), {}, "the kernel needs 2 axes"),
            ((4, 2, 1), {"groups": 3}, "3 groups do not divide 4 filters on 2 channels"),
        ],
    )
    def test_mismatches_are_reported_when_the_graph_is_built(self, kernel, options, match):
        x = C.input_variable((2, 8))
        with pytest.raises(ShapeError, match=match):
            C.convolution(C.parameter(kernel), x, **{"auto_padding": [False]} | options)


class TestTransposedConvolution:
    @pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
    @pytest.mark.parametrize("auto", [(False, False), (True, True)])
    def test_is_the_transpose_of_a_convolution(self, strides, auto):
        w = normal(3, 4, 3, 2)
        small = normal(2, 3, 4, 3)
        x, W = variable(small), C.parameter(init=w)
        f = C.convolution_transpose(W, x, strides=strides, auto_padding=[False, *auto])
        big = normal(2, *f.shape)
        convolution = convolved(big, w, strides, auto)
        assert convolution.shape == small.shape
        np.testing.assert_allclose(np.sum(f.eval({x: small}) * big), np.sum(small * convolution), rtol=1e-10)
        check_gradient(f, {x: small}, [x, W])

    def test_output_shape_is_checked_and_kept(self):
        x, W = C.input_variable((3, 8, 9)), C.parameter((3, 4, 3, 3), init=1.0)
        options = {"strides": (1, 2, 2), "auto_padding": [False, True, True]}
        assert C.convolution_transpose(W, x, output_shape=(4, 16, 17), **options).shape == (4, 16, 17)
        with pytest.raises(ShapeError, match=re.escape("convolving output_shape (4, 20, 18) gives (3, 10, 9)")):
            C.convolution_transpose(W, x, output_shape=(4, 20, 18), **options)

    def test_without_channels(self):
        """Recorded from CNTK 2.7."""
        x = C.input_variable((1, 3))
        kernel = C.parameter(init=np.array([[1, 10], [100, 1000]], np.float32))
        f = C.convolution_transpose(kernel, x, strides=2, auto_padding=[False], reduction_rank=0)
        expected = [[1, 10, 2, 20, 3, 30], [100, 1000, 200, 2000, 300, 3000]]
        np.testing.assert_allclose(f.eval({x: [[[1, 2, 3]]]})[0, 0], expected)


POOLINGS = [
    ((2, 7, 6), (3, 3), (2, 2), [False], False),
    ((2, 7, 6), (3, 3), (2, 2), [True], False),
    ((2, 7, 6), (2, 3), (2, 1), [True, False], False),
    ((2, 7, 6), (1, 1), (2, 3), [True], False),
    ((2, 8, 7), (3, 2), (2, 3), [False], True),
    ((2, 7, 6), (7, 6), (1, 1), [False], False),
    ((3, 7, 6), (2, 3, 2), (1, 2, 2), [False], False),
    ((3, 9), (2,), (2,), [False], False),
    ((2, 4, 5, 6), (2, 2, 3), (2, 1, 2), [True], False),
]


class TestPooling:
    @pytest.mark.parametrize(("shape", "window", "strides", "auto", "ceil"), POOLINGS)
    @pytest.mark.parametrize("kind", ["max", "average", "average with padding"])
    def test_maxima_and_means_of_windows(self, shape, window, strides, auto, ceil, kind):
        data = normal(2, *shape)
        x = variable(data)
        kinds = {"max": C.MAX_POOLING, "average": C.AVG_POOLING, "average with padding": C.AVG_POOLING}
        f = C.pooling(x, kinds[kind], window, strides, auto, ceil, include_pad=kind == "average with padding")
        unpooled = len(shape) - len(window)
        each = [*[False] * unpooled, *(auto if len(auto) == len(window) else auto * len(window))]
        ones, fill = (1,) * unpooled, -np.inf if kind == "max" else 0.0
        contents, inside = windows(data, ones + window, ones + strides, each, fill, ceil=ceil)
        axes = tuple(range(len(shape) + 1, contents.ndim))
        cells = inside if kind == "average" else np.prod(window)
        expected = contents.max(axes) if kind == "max" else contents.sum(axes) / cells
        assert f.shape == expected.shape[1:]
        np.testing.assert_allclose(f.eval({x: data}), expected, rtol=1e-10)
        check_gradient(f, {x: data}, [x])

    def test_the_first_of_equal_maxima_takes_the_gradient(self):
        """Recorded from CNTK 2.7."""
        x = C.input_variable((1, 2, 2), needs_gradient=True)
        f = C.pooling(x, C.MAX_POOLING, (2, 2))
        np.testing.assert_array_equal(f.grad({x: [[[[0, 1], [1, 0]]]]}), [[[[0, 1], [0, 0]]]])
        x = C.input_variable((1, 5), needs_gradient=True)
        f = C.pooling(x, C.MAX_POOLING, (3,))
        np.testing.assert_array_equal(f.grad({x: [[[1, 1, 1, 0, 1]]]}), [[[1, 1, 1, 0, 0]]])

    def test_an_unknown_window_covers_all_spatial_axes(self):
        x = C.input_variable((3, 4, 5))
        f = C.pooling(x, C.AVG_POOLING, (-2,))
        assert (f.shape, f.root_function.node_attributes["poolingWindowShape"]) == ((3, 1, 1), (4, 5))
        y = C.input_variable((2, C.FreeDimension, 3))
        means = C.pooling(y, C.AVG_POOLING, (-2,)).eval({y: np.arange(24).reshape(1, 2, 4, 3)})
        np.testing.assert_allclose(means.ravel(), [5.5, 17.5])

    def test_a_window_that_does_not_fit_is_reported_when_the_graph_is_built(self):
        with pytest.raises(ShapeError, match="the window has 9 cells along axis 1, and the operand 8"):
            C.pooling(C.input_variable((3, 8)), C.MAX_POOLING, (9,))


class TestUnpooling:
    def test_values_go_where_the_maxima_were(self):
        """Recorded from CNTK 2.7: of equal maxima the first, of overlapping windows the last."""
        x = C.input_variable((1, 2, 4))
        f = C.unpooling(C.pooling(x, 0, (2, 2), (2, 2)) * 10, x, C.MAX_UNPOOLING, (2, 2), (2, 2))
        actual = f.eval({x: [[[[1, 5, 2, 2], [3, 4, 2, 0]]]]})
        np.testing.assert_array_equal(actual, [[[[0, 50, 20, 0], [0, 0, 0, 0]]]])
        x, y = C.input_variable((1, 5)), C.input_variable((1, 3))
        f = C.unpooling(y, x, C.MAX_UNPOOLING, (3,), (1,))
        for values, last in (([1, 20, 300], 300), ([300, 20, 1], 1)):
            np.testing.assert_array_equal(f.eval({x: [[[1, 2, 9, 4, 5]]], y: [[values]]}), [[[0, 0, last, 0, 0]]])

    def test_the_gradient_reads_the_values_back(self):
        pooled_data, values = normal(2, 2, 5, 5), normal(2, 2, 3, 3)
        x, y = variable(pooled_data), variable(values)
        check_gradient(C.unpooling(y, x, C.MAX_UNPOOLING, (2, 2), (2, 2), [True]), {x: pooled_data, y: values}, [y])

    def test_options_that_differ_from_the_pooling_are_rejected(self):
        x, y = C.input_variable((1, 5)), C.input_variable((1, 3))
        with pytest.raises(ShapeError, match=re.escape("gives (1, 2)")):
            C.unpooling(y, x, C.MAX_UNPOOLING, (2,), (2,))


class TestRegionsOfInterest:
    def test_cells_overlap_if_the_region_is_not_a_multiple_of_them(self):
        """Recorded from CNTK 2.7, scale 0.5: corners are rounded, and both belong to the region."""
        x, rois = C.input_variable((1, 6, 7)), C.input_variable((2, 4))
        f = C.roipooling(x, rois, C.MAX_POOLING, (3, 2), 0.5)
        actual = f.eval({x: np.arange(42).reshape(1, 1, 6, 7), rois: [[[0, 0, 12, 10], [2, 3, 7, 7]]]})
        np.testing.assert_array_equal(actual[0, :, 0], [[[10, 13], [24, 27], [38, 41]], [[16, 18], [23, 25], [30, 32]]])

    def test_gradients_go_to_the_maxima(self):
        data = normal(2, 2, 6, 7)
        x, rois = variable(data), C.input_variable((1, 4), dtype=np.float64)
        f = C.roipooling(x, rois, C.MAX_POOLING, (2, 2), 1.0)
        check_gradient(f, {x: data, rois: np.array([[[1, 0, 5, 4]], [[0, 2, 6, 5]]], float)}, [x])

    def test_wrong_regions_are_refused(self):
        with pytest.raises(ShapeError, match="regions have to be"):
            C.roipooling(C.input_variable((1, 4, 4)), C.input_variable((2, 3)), C.MAX_POOLING, (2, 2), 1.0)


def normalization(x, shape, spatial, count=7.0, **options):
    scale, bias = (C.parameter(init=np.abs(normal(*shape)) + 0.5) for _ in range(2))
    running = [C.constant(v, shape, np.float64) for v in (3.0, 2.0)] + [C.constant(count, (), np.float64)]
    f = C.batch_normalization(x, scale, bias, *running[:2], spatial, running_count=running[2], **options)
    return f, scale, bias, running


class TestBatchNormalization:
    @pytest.mark.parametrize(
        ("shape", "parameters", "spatial", "axes"),
        [
            ((3, 4, 5), (3,), True, (0, 2, 3)), ((3, 4), (3, 1), True, (0, 2)),
            ((3, 4), (3, 4), False, 0), ((6,), (6,), False, 0),
        ],
    )
    def test_statistics_of_the_minibatch_in_training_and_running_ones_otherwise(self, shape, parameters, spatial, axes):
        data = normal(6, *shape)
        x = variable(data)
        f, scale, bias, running = normalization(x, parameters, spatial, normalization_time_constant=10, epsilon=0.1)
        wide = (-1,) + (1,) * (len(shape) - 1) if spatial else shape
        s, b = scale.value.reshape(wide), bias.value.reshape(wide)
        np.testing.assert_allclose(f.eval({x: data}), s * (data - 3) / np.sqrt(2.1) + b, rtol=1e-10)

        mean, variance = data.mean(axes), data.var(axes)
        value = next(iter(f.forward({x: data}, [f.output], {f.output})[1].values()))
        expected = s * (data - mean.reshape(wide)) / np.sqrt(variance.reshape(wide) + 0.1) + b
        np.testing.assert_allclose(value, expected, rtol=1e-10)
        factor = 1 - np.exp(-6 / 10)
        values = data.size // mean.size
        np.testing.assert_allclose(running[0].value.ravel(), (3 + factor * (mean - 3)).ravel(), rtol=1e-6)
        unbiased = variance * values / (values - 1)
        np.testing.assert_allclose(running[1].value.ravel(), (2 + factor * (unbiased - 2)).ravel(), rtol=1e-6)
        assert running[2].value == 13

    @pytest.mark.parametrize(
        ("constant", "count", "factor"),
        [(0, 7, 1), (-1, 7, 5 / 12), (10, 7, 1 - np.exp(-0.5)), (10, 0, 1), (np.inf, 7, 0)],
    )
    def test_the_weight_of_a_minibatch_in_running_statistics(self, constant, count, factor):
        """Measured on CNTK 2.7."""
        data = normal(5, 2, 3)
        x = variable(data)
        f, *_, running = normalization(x, (2,), True, count, normalization_time_constant=constant)
        f.grad({x: data})
        np.testing.assert_allclose(running[0].value, 3 + factor * (data.mean((0, 2)) - 3), rtol=1e-6)
        assert running[2].value == count + 5

    @pytest.mark.parametrize(("shape", "spatial"), [((2, 3), True), ((2, 3), False), ((4,), True)])
    def test_gradient(self, shape, spatial):
        """Training sums the squares of the output; differences are of the formula in NumPy."""
        data, parameters = normal(5, *shape), shape[:1] if spatial else shape
        x = variable(data)
        f, scale, bias, _ = normalization(x, parameters, spatial, epsilon=0.1)
        weights, w = normal(5, *shape), C.input_variable(shape, dtype=np.float64)
        gradients = C.reduce_sum(f * w).grad({x: data, w: weights}, wrt=[x, scale, bias])
        wide = (-1,) + (1,) * (len(shape) - 1) if spatial else shape
        axes = (0, *range(2, data.ndim)) if spatial else 0

        def loss(d, s, b):
            mean, variance = d.mean(axes).reshape(wide), d.var(axes).reshape(wide)
            return np.sum(weights * (s.reshape(wide) * (d - mean) / np.sqrt(variance + 0.1) + b.reshape(wide)))

        at = [data, scale.value, bias.value]
        for i, v in enumerate((x, scale, bias)):
            direction = normal(*at[i].shape)
            moves = [[a + sign * 1e-5 * direction if j == i else a for j, a in enumerate(at)] for sign in (1, -1)]
            ends = [loss(*moved) for moved in moves]
            np.testing.assert_allclose(np.sum(gradients[v] * direction), (ends[0] - ends[1]) / 2e-5, rtol=1e-6)

    @pytest.mark.parametrize("spatial", [True, False])
    def test_padding_is_invisible(self, spatial):
        """Sequences of different lengths, or a number of samples that is rounded up: padding does not count."""
        data = [normal(n, 2, 3) for n in (4, 1, 6, 2, 2)]
        samples = np.concatenate(data)
        results = []
        for make, feed in ((C.sequence.input_variable, data), (C.input_variable, samples)):
            x = make((2, 3), dtype=np.float64, needs_gradient=True)
            shape = (2,) if spatial else (2, 3)
            running = [C.constant(v, shape, np.float64) for v in (3.0, 2.0)] + [C.constant(7.0, (), np.float64)]
            scale, bias = (C.parameter(shape, init=v, dtype=np.float64) for v in (1.5, 0.5))
            f = C.batch_normalization(x, scale, bias, *running[:2], spatial, 10, running_count=running[2])
            gradients = C.reduce_sum(f * f * f).grad({x: feed}, wrt=[x, scale])
            flat = np.concatenate(list(gradients[x])).ravel()
            results.append((flat, gradients[scale].ravel(), running[0].value, running[1].value))
            assert running[2].value == 7 + len(samples)
        for padded, plain in zip(*results, strict=True):
            np.testing.assert_allclose(padded, plain, rtol=1e-6, atol=1e-9)

    def test_two_nodes_may_share_their_statistics(self):
        data = normal(4, 3)
        x = variable(data)
        f, scale, bias, running = normalization(x, (3,), False, normalization_time_constant=-1)
        g = C.batch_normalization(x, scale, bias, *running[:2], False, -1, running_count=running[2])
        (f + g).grad({x: data})
        assert running[2].value == 15
        np.testing.assert_allclose(running[0].value, (7 * 3 + 8 * data.mean(0)) / 15, rtol=1e-6)

    def test_shapes_of_parameters_are_inferred(self):
        x = C.input_variable((3, 4, 5))
        for spatial, elements in ((True, 3), (False, 60)):
            scale, bias = (C.parameter((C.InferredDimension,), init=0) for _ in range(2))
            mean, variance = (C.constant(0, (C.InferredDimension,)) for _ in range(2))
            C.batch_normalization(x, scale, bias, mean, variance, spatial, running_count=C.constant(0, ()))
            assert {v.shape for v in (scale, bias, mean, variance)} == {(elements,)}

    def test_mismatches_are_reported_when_the_graph_is_built(self):
        x, p = C.input_variable((3, 4)), C.constant(0, (4,))
        with pytest.raises(ShapeError, match="the scale has 4 elements, but there are 3 channels"):
            C.batch_normalization(x, p, p, p, p, True, running_count=C.constant(0, ()))
        with pytest.warns(UserWarning, match="running_count"):
            C.batch_normalization(x, *[C.constant(0, (3,))] * 4, True)


def test_a_chain_of_image_operations_keeps_channels_last():
    """Between the input and the last product nothing the size of an image is transposed back."""
    x = C.input_variable((3, 8, 8))
    weights = [C.constant(normal(*s).astype(np.float32)) for s in ((4, 3, 3, 3), (4, 4, 3, 3), (4, 1, 1))]
    ones = [C.constant(np.ones(4, np.float32)) for _ in range(4)]
    first = C.convolution(weights[0], x, auto_padding=[False, True, True]) + weights[2]
    normed = C.relu(C.batch_normalization(first, *ones, True, running_count=C.constant(0, ())))
    second = C.relu(C.convolution(weights[1], normed, auto_padding=[False, True, True]) + normed)
    f = C.reduce_sum(C.pooling(second, C.MAX_POOLING, (2, 2), (2, 2)))
    device = SingleDeviceSharding(jax.devices("cpu")[0])
    traced = trace_for("cpu", device, lambda: f.eval({x: np.zeros((5, 3, 8, 8), np.float32)})).traced
    text = traced.lower().as_text()
    moved = [line for line in text.splitlines() if "stablehlo.transpose" in line and "tensor<" in line]
    of_images = [line for line in moved if re.search(r"-> tensor<5x\d+x\d+x\d+xf32>", line)]
    assert len(of_images) == 2, of_images  # the input to channels last, and the pooled image back


@pytest.mark.parametrize("size", [11, 12, 13, 14, 15])
def test_no_cell_exceeds_its_region_if_rounded_up(size):
    image, regions = C.input_variable((1, 16, 16)), C.input_variable((1, 4))
    outside = np.ones((1, 1, 16, 16), np.float32)
    outside[..., :size, :size] = 0
    pooled = C.roipooling(image, regions, C.MAX_POOLING, (7, 7), 1.0)
    corners = np.array([[[0, 0, size - 1, size - 1]]], np.float32)
    assert not pooled.eval({image: outside, regions: corners}).any()


@pytest.mark.parametrize(("op", "reason"), [
    (lambda x: C.pooling(x, C.MAX_POOLING, (0, 2)), "the window (0, 2) has to have sizes of at least 1"),
    (lambda x: C.pooling(x, C.AVG_POOLING, (2, 2), strides=(0, 1)), "the strides (1, 0, 1) have to be positive"),
    (lambda x: C.unpooling(x, x, C.MAX_UNPOOLING, (0, 2)), "the window (0, 2)"),
    (lambda x: C.roipooling(x, C.input_variable((2, 4)), C.MAX_POOLING, (0, 2), 1.0), "output shape (0, 2)"),
    (lambda x: C.convolution(np.ones((2, 3, 0, 3), np.float32), x), "the kernel has an axis of size 0"),
    (lambda x: C.convolution_transpose(np.ones((3, 2, 3, 0), np.float32), x), "the kernel has an axis of size 0"),
    (lambda x: C.convolution(np.ones((2, 3, 3, 3), np.float32), x, groups=0), "groups = 0"),
    (lambda x: C.depth_to_space(x, 0), "block_size = 0"),
    (lambda x: C.space_to_depth(x, 0), "block_size = 0"),
])
def test_sizes_of_0_are_errors_when_the_operation_is_made(op, reason):
    with pytest.raises(ValueError) as raised:
        op(C.input_variable((3, 8, 8)))
    assert reason in str(raised.value)


@pytest.mark.parametrize("operation", [
    lambda x: C.pooling(x, C.MAX_POOLING, (1, 2), (1, 2)),
    lambda x: C.convolution(C.constant(1, (2, 3, 1, 2)), x, auto_padding=[False]),
    lambda x: C.convolution_transpose(C.constant(1, (3, 2, 1, 2)), x, auto_padding=[False]),
    lambda x: C.layers.BatchNormalization(map_rank=1)(x),
])
@pytest.mark.parametrize("sequence", [False, True])
def test_sparse_images_compute_what_dense_ones_do(operation, sequence):
    x = (C.sequence.input_variable if sequence else C.input_variable)((2, 2))
    images = np.array([[[0, 1], [2, 0]], [[2, 2], [1, 0]], [[1, 0], [0, 2]]])
    data = [images, images[:1]] if sequence else images
    sparse, dense = (operation(C.one_hot(x, 3, sparse_output=kind, axis=0)).eval({x: data}) for kind in (True, False))
    for a, b in zip(sparse, dense, strict=True):
        np.testing.assert_array_equal(a, b)
