"""Operations of CNTK's compiled module, whose axes count from the fastest one. The values are those of CNTK 2.7."""
import numpy as np
import pytest

import cntkjax as C
from cntkjax.compat import cntk_py
from cntkjax.compat.operations import OPERATIONS


def K(numbers):
    return C.constant(np.asarray(numbers, np.float32))


A = K([[1, 2, 3], [4, 5, 6]])
B = K([[6, 5, 4], [3, 2, 1]])
IMAGE = K(np.arange(16).reshape(1, 4, 4))
KERNEL = K(np.ones((1, 1, 3, 3)))
X, Y = C.Axis(0), C.Axis(1)  # along the last axis of a shape, and the last but one


@pytest.mark.parametrize(("name", "arguments", "expected"), [
    ("times", (K(np.eye(3)), A), [[1, 2, 3], [4, 5, 6]]),
    ("times_transpose", (K([[1, 0, 0]]), A), [[1], [4]]),
    ("minus", (A, B, "difference"), [[-5, -3, -1], [1, 3, 5]]),
    ("reduce_sum", (A, X), [[6], [15]]),
    ("reduce_sum", (A, [Y], False), [5, 7, 9]),
    ("reduce_max", (A, C.Axis.all_axes()), 6),
    ("argmax", (B, Y), [[0, 0, 0]]),
    ("softmax", (K([[0, 0]]), X, "half"), [[0.5, 0.5]]),
    ("splice", ([A, B], X), [[1, 2, 3, 6, 5, 4], [4, 5, 6, 3, 2, 1]]),
    ("slice", (A, [X, Y], [0, 1], [2, 2]), [[4, 5]]),
    ("slice", (A, [X], [0], [3], [2]), [[1, 3], [4, 6]]),
    ("transpose", (IMAGE, [C.Axis(2), X, Y]), np.arange(16).reshape(4, 4).T[:, :, None].transpose(1, 0, 2)),
    ("transpose_axes", (A, X, Y), [[1, 4], [2, 5], [3, 6]]),
    ("reshape", (A, (3, 2), "other"), [[1, 2], [3, 4], [5, 6]]),
    ("reshape", (IMAGE, (2, 2), X, Y), np.arange(16).reshape(1, 4, 2, 2)),
    ("reshape", (IMAGE, (2, 8), X, C.Axis(2)), np.arange(16).reshape(1, 2, 8)),
    ("expand_dims", (K([1, 2]), X), [[1], [2]]),
    ("flatten", (IMAGE, Y), np.arange(16).reshape(4, 4)),
    ("flatten", (IMAGE, C.Axis(2)), np.arange(16).reshape(1, 16)),
    ("pad", (K([[1, 2]]), 0, [1, 0], [0, 1], 5.0), [[5, 1, 2], [5, 5, 5]]),
    ("one_hot_op", (K([0, 2]), 3, False, C.Axis(-1)), [[1, 0], [0, 0], [0, 1]]),
    ("gather_op", (K([1]), A), [[4, 5, 6]]),
    ("gather_op", (K([1]), A, X), [[2], [5]]),
    ("pre_lu", (K([0.1]), K([-1])), [-0.1]),
    ("convolution", (KERNEL, IMAGE, (1, 1, 1), [True], [False, False, False]), [[[45, 54], [81, 90]]]),
    ("pooling", (IMAGE, cntk_py.PoolingType_Max, (2, 2), (1, 2), [False, False]), [[[5, 7], [9, 11], [13, 15]]]),
    ("mean_variance_normalization", (K([[[1, 1]]]), True, False), [[[0, 0]]]),
    ("constant_like", (A, 2.5), [[2.5] * 3] * 2),
    ("mean", ([A, B], "mean"), [[3.5] * 3] * 2),
    ("uniform_random", ((2,), cntk_py.DataType_Float, 5.0, 5.0001, 3), [5, 5]),
])
def test_operations_take_arguments_in_their_own_order(name, arguments, expected):
    function = getattr(cntk_py, name)(*arguments)
    np.testing.assert_allclose(function.eval(), expected, rtol=1e-4, atol=1e-6)
    if isinstance(arguments[-1], str):
        assert function.name == arguments[-1]


@pytest.mark.parametrize(("arguments", "expected"), [
    ((), [[0, 1, 2]]), ((2,), [[0, 0, 1]]), ((C.constant(5),), [[5, 1, 2]]), ((C.constant(5), 2, "far"), [[5, 5, 1]]),
])
def test_delays_may_leave_out_their_initial_state(arguments, expected):
    s = C.sequence.input_variable(())
    (value,) = cntk_py.past_value(s, *arguments).eval({s: [np.array([1, 2, 3], np.float32)]})
    np.testing.assert_array_equal([value], expected)


def test_inputs_and_placeholders():
    batch = [C.Axis.default_batch_axis()]
    variables = [
        cntk_py.input_variable((2, 3), False, 1, True, "nm", batch), cntk_py.input_variable((2, 3), 1, "n"),
        cntk_py.output_variable((2, 3), 1, batch, True, "n"), cntk_py.placeholder_variable((2, 3), "a", batch),
        cntk_py.placeholder_variable("q"),
    ]
    assert [str(v) for v in variables] == [
        "Input('nm', [#], [2 x 3])", "Input('n', [#, *], [2 x 3])", "Output('n', [#], [2 x 3])",
        "Placeholder('a', [#], [2 x 3])", "Placeholder('q', [???], [???])",
    ]
    assert variables[0].needs_gradient and not variables[1].needs_gradient
    assert cntk_py.input_variable((2, 3), True, 1).is_sparse


def test_the_number_of_best_guesses_is_optional():
    """It precedes the axis."""
    x, y = (C.input_variable(2) for _ in range(2))
    data = {x: [[0.2, 0.8]], y: [[1, 0]]}
    wrong = cntk_py.classification_error(x, y, C.Axis(0)), cntk_py.classification_error(x, y, 2, C.Axis(0), "top 2")
    assert [float(np.squeeze(f.eval(data))) for f in wrong] == [1, 0]


def test_errors_name_the_arguments_that_do_not_fit():
    with pytest.raises(TypeError, match=r"x, axis, keepdims and a name; these do not fit: \[3, 'x'\]"):
        cntk_py.reduce_sum(A, X, True, 3, "x")


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_each_operation_documents_its_counterpart(name):
    assert callable(getattr(cntk_py, name)) and "with the arguments" in getattr(cntk_py, name).__doc__
