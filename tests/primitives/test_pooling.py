"""Pooling and unpooling against loops in NumPy, and against numbers recorded from CNTK 2.7."""

import re

import numpy as np
import pytest

import cntkjax as C
from cntkjax.graph.errors import ShapeError
from tests.primitives.windows import check_gradient, normal, variable, windows

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


@pytest.mark.parametrize("size", [11, 12, 13, 14, 15])
def test_no_cell_exceeds_its_region_if_rounded_up(size):
    image, regions = C.input_variable((1, 16, 16)), C.input_variable((1, 4))
    outside = np.ones((1, 1, 16, 16), np.float32)
    outside[..., :size, :size] = 0
    pooled = C.roipooling(image, regions, C.MAX_POOLING, (7, 7), 1.0)
    corners = np.array([[[0, 0, size - 1, size - 1]]], np.float32)
    assert not pooled.eval({image: outside, regions: corners}).any()
