"""Loss functions of the library."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.brainscript.library.package import PACKAGE
from cntkjax.brainscript.library.table import OPERATIONS
from tests.brainscript.language.descriptions import build


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


def test_criteria_in_further_operations_are_the_sums_over_a_minibatch_that_they_are_in_cntk():
    network = build("""
        x = Input {3} ; y = Input {3} ; W = ParameterTensor {(2 : 2), initValue=3}
        error = SquareError (x, y) ; ll = Logistic (y, x)
        both = Constant (0.5) .* error + ll
        regularized = error + MatrixL1Reg (W)
        root = Sqrt (error) ; small = MatrixL2Reg (x)
        outputNodes = (both : regularized : root : small)
    """)
    x = np.float32([[0.2, 0.4, 0.6], [0.1, 0.3, 0.9]])
    y = np.float32([[0, 1, 1], [0, 0, 1]])
    data = {network.nodes["x"]: x, network.nodes["y"]: y}
    error = ((x - y) ** 2).sum(1)
    logistic = -np.log(np.where(y == 1, x, 1 - x)).sum(1)
    expected = {"both": error / 2 + logistic, "regularized": error.sum() + 12, "root": error.sum() ** 0.5,
                "small": (x**2).sum() ** 0.5}
    for name, values in expected.items():
        f = C.combine([network.nodes[name]])
        actual = np.ravel(f.eval({v: data[v] for v in f.arguments}))
        np.testing.assert_allclose(actual, np.ravel(values), rtol=1e-5, err_msg=name)


def test_softmax_and_criteria_are_over_all_elements_or_along_an_axis():
    network = build("""
        x = Input {(2 : 3)} ; y = Input {(2 : 3)} ; one = Input {(2 : 3)}
        all = Softmax (x) ; log = LogSoftmax (x) ; columns = LogSoftmax (x, axis=2)
        loss = CrossEntropyWithSoftmax (one, x) ; error = ClassificationError (one, x)
        losses = CrossEntropyWithSoftmax (y, x, axis=1) ; errors = ClassificationError (y, x, axis=1)
        outputNodes = (all : log : columns : loss : error : losses : errors)
    """)
    x = np.float32([[[1, 2], [4, 0], [1, 3]]])
    y = np.float32([[[0, 1], [1, 0], [1, 0]]])
    one = np.float32([[[0, 0], [1, 0], [0, 0]]])

    def log_softmax(axis):
        return x - np.log(np.exp(x).sum(axis, keepdims=True))

    expected = {
        "all": np.exp(log_softmax((1, 2))), "log": log_softmax((1, 2)), "columns": log_softmax(1),
        "loss": -(one * log_softmax((1, 2))).sum(), "error": 0.0,
        "losses": -(y * log_softmax(2)).sum(2), "errors": 1 / 3,
    }
    data = {network.nodes["x"]: x, network.nodes["y"]: y, network.nodes["one"]: one}
    for name, values in expected.items():
        f = C.combine([network.nodes[name]])
        actual = f.eval({v: data[v] for v in f.arguments})
        np.testing.assert_allclose(np.ravel(actual), np.ravel(values), rtol=1e-5, err_msg=name)
