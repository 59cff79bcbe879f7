"""Element-wise operations: their accuracy, and gradients at the edges."""

import numpy as np
import pytest

import cntkjax as C


@pytest.mark.parametrize("count", [20_000, 100_000])  # small and large arrays are computed by different formulas
@pytest.mark.parametrize("dtype, ulps", [(np.float32, 2.5), (np.float64, 3.5)])
def test_tanh_is_exact_to_a_few_ulps_and_unbiased(dtype, ulps, count):
    """Near 1 the gradient 1 - tanh² is a difference of a few ulps, for which XLA's own tanh is biased."""
    values = np.random.default_rng(0).uniform(-9, 9, count).astype(dtype)
    values[:1000] *= 1e-3
    exact = np.tanh(values.astype(np.longdouble))
    x = C.input_variable((), dtype)
    errors = (np.abs(C.tanh(x).eval({x: values})) - np.abs(exact)) / np.spacing(np.abs(exact).astype(dtype))
    assert np.abs(errors).max() < ulps
    for low, high in ((0.6, 2), (2, 4), (4, 6)):
        assert abs(errors[(np.abs(values) > low) & (np.abs(values) < high)].mean()) < 0.05


@pytest.mark.parametrize("times", [1, 10_000])
def test_tanh_of_zero_infinity_and_nan(times):
    values = np.array([0.0, -0.0, np.inf, -np.inf, 1e-40, np.nan] * times, np.float32)
    x = C.input_variable(())
    actual = C.tanh(x).eval({x: values})
    np.testing.assert_array_equal(actual[:4], [0.0, -0.0, 1.0, -1.0])
    assert 0 <= actual[4] <= 1e-40 and np.isnan(actual[5])


def test_gradients_at_the_edges_are_those_of_cntk():
    x = C.input_variable(4, needs_gradient=True)
    data = {x: np.array([[0, -1, 1e-40, 2]], np.float32)}
    np.testing.assert_allclose(C.log(x).grad(data), [[9.087821e36, 9.087821e36, 9.087821e36, 0.5]], rtol=1e-5)
    assert C.sqrt(x).grad(data)[0, :2].tolist() == [np.inf, np.inf]
    assert C.abs(x).grad({x: np.array([[0, -3, 1, 2]], np.float32)}).tolist() == [[0, -1, 1, 1]]
    assert C.clip(x, 1, 2).grad({x: np.array([[1, 2, 1.5, 3]], np.float32)}).tolist() == [[1, 1, 1, 0]]


def test_powers_of_zero_and_of_negative_numbers():
    base, exponent = C.input_variable(4, needs_gradient=True), C.input_variable(4, needs_gradient=True)
    power = C.pow(base, exponent)
    data = {base: np.array([[0, -1, 2, -2]], np.float32), exponent: np.array([[-1, 2, 0, 3]], np.float32)}
    assert power.eval(data).tolist() == [[0, 1, 1, -8]]
    gradient = power.grad(data, wrt=[base, exponent])
    assert gradient[base].tolist() == [[0, -2, 0, 12]]
    np.testing.assert_allclose(gradient[exponent], [[0, 0, 0.6931472, 0]], rtol=1e-6)


@pytest.mark.parametrize("operation", [C.relu, C.sqrt, C.log], ids=["relu", "sqrt", "log"])
def test_a_sum_over_an_image_keeps_nan(operation):
    """XLA's sums of `maximum(x, 0)` pass over NaN where YNNPACK computes them, as for images."""
    x = C.input_variable((16, 32, 32))
    images = np.ones((2, 16, 32, 32), np.float32)
    images[0, 3, 5, 7] = np.nan
    for f in C.reduce_sum(operation(x)), C.reduce_mean(operation(x) * 2, axis=C.Axis.all_static_axes()):
        assert np.isnan(f.eval({x: images})).tolist() == [True, False]
