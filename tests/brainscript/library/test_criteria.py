"""Loss functions of the library."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.brainscript.library.package import PACKAGE
from cntkjax.brainscript.library.table import OPERATIONS


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_class_based_softmax_multiplies_the_probabilities_of_class_and_word(dtype):
    rng = np.random.default_rng(0)
    hidden, weights, groups = rng.normal(size=(3, 4)), rng.normal(size=(5, 4)), rng.normal(size=(3, 3))
    labels = np.array([[1, 0, 0, 2], [2, 1, 2, 4], [4, 2, 4, 5]], dtype)
    with C.default_options(dtype=dtype):
        x, g = C.input_variable(4, needs_gradient=True), C.input_variable(3, needs_gradient=True)
        y = C.input_variable(4)
        w = C.parameter(init=weights.astype(dtype))
        loss = OPERATIONS["ClassBasedCrossEntropyWithSoftmax"].build(PACKAGE, y, x, w, g, name="loss")
    given = {x: hidden.astype(dtype), y: labels, g: groups.astype(dtype)}

    def expected(hidden, weights, groups):
        total = 0.0
        for h, (word, group, begin, end), c in zip(hidden, labels.astype(int), groups, strict=True):
            z = weights[begin:end] @ h
            total += np.log(np.exp(z).sum()) - z[word - begin] + np.log(np.exp(c).sum()) - c[group]
        return total

    assert loss.eval(given).sum() == pytest.approx(expected(hidden, weights, groups), rel=1e-5)
    gradients = loss.grad(given, wrt=[x, w, g])
    for variable, values in zip((x, w, g), (hidden, weights, groups), strict=True):
        numeric = np.zeros_like(values)
        for i in np.ndindex(values.shape):
            change = np.zeros_like(values)
            change[i] = 1e-6
            sums = [expected(*(each + sign * change if each is values else each for each in (hidden, weights, groups)))
                    for sign in (1, -1)]
            numeric[i] = (sums[0] - sums[1]) / 2e-6
        np.testing.assert_allclose(np.reshape(gradients[variable], values.shape), numeric, rtol=2e-5, atol=1e-5)
