"""Batch normalization against NumPy, and against numbers recorded from CNTK 2.7."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.graph.errors import ShapeError
from tests.primitives.windows import normal, variable


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
