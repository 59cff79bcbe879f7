"""Convolution against loops in NumPy, and against numbers recorded from CNTK 2.7."""

import re

import jax
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.xla.materialize import storing_values
from cntkjax.engine.xla.platform import lowering_for
from cntkjax.engine.xla.work import _products, _results
from cntkjax.graph.errors import ShapeError
from cntkjax.primitives._window import place
from cntkjax.primitives.convolution import _at_any_positions, _convolved, _transposed
from tests.primitives.windows import check_gradient, normal, variable, windows


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


# shape of a sample, kernel, strides, padded axes, dilation
CONVOLUTIONS = [
    ((3, 6, 5), (4, 3, 3, 3), (1, 1), (True, True), 1),
    ((3, 7, 6), (4, 3, 2, 3), (2, 1), (True, False), 1),
    ((3, 7, 6), (20, 3, 3, 3), (2, 2), (True, True), 1),  # many filters on an odd number of channels
    ((4, 7, 6), (5, 4, 1, 1), (2, 2), (True, True), 1),  # a product
    ((2, 7, 8), (3, 2, 1, 1), (3, 3), (True, True), 1),  # of which the first cells are left out
    ((2, 9, 9), (3, 2, 3, 2), (1, 2), (True, False), 2),
    ((4, 6, 5), (6, 2, 3, 3), (1, 1), (True, True), 1),  # two groups
    ((20, 4, 3), (10, 2, 3, 3), (1, 2), (True, True), 1),  # ten, joined to one piece
    ((48, 3, 4), (12, 8, 2, 1), (1, 1), (True, False), 2),  # six, in two pieces
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


class TestSmallImages:
    """Where windows have more cells than the image, or than there are positions."""

    CASES = pytest.mark.parametrize(("shape", "size", "windows"), [
        ((2, 7, 7, 3), (5, 5), [place(7, 5, 2, before=2, after=1)] * 2),  # 4x4 positions
        ((2, 4, 4, 3), (5, 5), [place(4, 5, auto=True)] * 2),
        ((2, 2, 2, 3), (3, 3), [place(2, 3, auto=True)] * 2),
        ((2, 1, 2, 3), (3, 3), [place(1, 3, auto=True), place(2, 3, auto=True)]),
        ((2, 1, 1, 3), (3, 3), [place(1, 3, auto=True)] * 2),
        ((2, 4, 5, 3), (4, 5), [place(4, 4), place(5, 5)]),  # one position
        ((2, 6, 6, 3), (4, 4), [place(6, 4, 9, before=-1, after=-1)] * 2),
        ((2, 5, 3), (5,), [place(5, 5, 2, auto=True)]),
        ((2, 6, 6, 3), (3, 3), [place(6, 3, 3, dilation=2, before=1, after=1)] * 2),
        ((2, 2, 3, 2, 3), (3, 2, 3), [place(2, 3, auto=True), place(3, 2, auto=True), place(2, 3, auto=True)]),
    ])

    @staticmethod
    def arrays(shape, size):
        return normal(*shape), normal(4, shape[-1], *size)

    @staticmethod
    def with_gradients(x, w, windows):
        y, pull = jax.vjp(lambda x, w: _convolved(x, w, windows), x, w)
        return (y, *pull(y * y))

    @CASES
    def test_values_and_gradients_are_those_of_xlas_convolution(self, shape, size, windows):
        arrays, results = self.arrays(shape, size), []
        with jax.enable_x64(True):
            for platform in ("cpu", "gpu"):
                with lowering_for(platform):
                    results.append(self.with_gradients(*arrays, windows))
        for actual, expected in zip(*results, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)

    @CASES
    def test_a_library_computes_them(self, shape, size, windows):
        x, w = (a.astype(np.float32) for a in self.arrays(shape, size))
        with storing_values(True), lowering_for("cpu"):
            jaxpr = jax.make_jaxpr(lambda x, w: self.with_gradients(x, w, windows))(x, w).jaxpr
        assert all(_products(equation) == 1 for equation, _ in _results(jaxpr))


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

    @pytest.mark.parametrize(("kernel", "windows"), [
        ((3, 2, 2, 4), [place(8, 2, 2), place(16, 4, 4)]),
        ((3, 2, 4, 6), [place(8, 4, 2, auto=True), place(11, 6, 3, auto=True)]),
        ((2, 3, 4, 2), [place(9, 4, 2, before=1, after=2), place(7, 2, 1)]),
        ((2, 4, 3, 2, 1), [place(8, 3, 2), place(7, 2, 3), place(4, 1, 1)]),
        ((2, 3, 4), [place(30, 4, 4, before=-3, after=-2)]),
        ((2, 1, 3, 3), [place(9, 3, 2, dilation=2), place(8, 3, 1)]),
    ])
    def test_values_and_gradients_are_those_of_the_transpose_of_what_xla_convolves(self, kernel, windows):
        """With a channel for each place between two strides, as on CPUs, and as on GPUs."""
        w, x = (normal(*shape).astype(np.float32) for shape in (kernel, (2, *(k.count for k in windows), kernel[0])))
        lengths = [(k.count - 1) * k.stride + k.extent - k.before - k.after for k in windows]
        d = normal(2, *lengths, kernel[1]).astype(np.float32)
        convolution = lambda d, w: _at_any_positions(d, w, windows)  # noqa: E731
        (y,) = jax.linear_transpose(lambda d: convolution(d, w), d)(x)
        dx, pull = jax.vjp(lambda w: convolution(d, w), w)
        for platform in ("cpu", "gpu"):
            with lowering_for(platform):
                value, gradient = jax.vjp(lambda x, w: _transposed(x, w, tuple(windows)), x, w)
                for actual, expected in zip((value, *gradient(d)), (y, dx, *pull(x)), strict=True):
                    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-4)

    def test_no_zeros_are_multiplied_where_the_stride_divides_the_window(self):
        x, w = np.zeros((1, 3, 3, 2), np.float32), np.zeros((2, 5, 4, 4), np.float32)
        windows = (place(8, 4, 2, auto=True),) * 2
        with lowering_for("cpu"):
            text = jax.jit(lambda x, w: _transposed(x, w, windows)).lower(x, w).as_text()
        assert text.count("stablehlo.convolution") == 1 and "lhs_dilate = [1, 1]" in text

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
