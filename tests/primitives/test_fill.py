"""Tensors filled with numbers: one-hot, casts, assignment."""

import numpy as np
import pytest

import cntkjax as C


@pytest.mark.parametrize("sparse", [True, False])
def test_one_hot_of_numbers_that_are_no_class_is_zero_as_in_cntk(sparse):
    i = C.input_variable(1)
    f = C.times(C.one_hot(i, 3, sparse_output=sparse), np.float32([[1], [2], [4]]))
    data = np.float32([0, 2.9, 3, -1, -0.5, np.nan, np.inf, 1e9])[:, None]
    assert f.eval({i: data}).ravel().tolist() == [1, 4, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("sparse", [False, True])
def test_one_hot_of_an_invalid_class_is_zero(sparse):
    """Numbers: CNTK 2.7."""
    x = C.input_variable(6)
    rows = C.times(C.one_hot(x, 3, sparse_output=sparse), [[1], [2], [3]])
    assert rows.eval({x: [[-0.2, -1, 0.7, 1.9, 2.99, 3]]}).ravel().tolist() == [0, 0, 1, 2, 3, 0]


class TestAssign:
    def test_with_a_saved_state_it_takes_effect_after_the_backward_pass(self):
        state, value = C.parameter(2, init=0), C.parameter(2, init=3)
        assignment = C.assign(state, value)
        kept, _ = assignment.forward({}, [assignment.output], {assignment.output})
        assert state.value.tolist() == [0, 0]
        gradient = assignment.backward(kept, {assignment.output: np.ones(2, np.float32)}, {state})
        assert state.value.tolist() == [3, 3] and gradient[state].tolist() == [0, 0]

    def test_it_takes_effect_after_the_forward_pass(self):
        state = C.constant(np.array([1, 2], np.float32))
        before_and_after = C.combine([C.assign(state, state + 1), state * 1])
        values = list(before_and_after.eval().values())
        assert [v.tolist() for v in values] == [[2, 3], [1, 2]] and state.value.tolist() == [2, 3]

    def test_a_parameter_is_assigned(self):
        parameter = C.parameter(2, init=0)
        C.assign(parameter, [3, 4]).eval()
        assert parameter.value.tolist() == [3, 4]


def test_casts_convert_the_element_type():
    x = C.input_variable(2, needs_gradient=True)
    cast = C.cast(x, np.float64)
    assert cast.dtype == np.float64 and cast.eval({x: [[1, 2]]}).dtype == np.float64
    assert C.reduce_sum(cast).grad({x: [[1, 2]]}).tolist() == [[1, 1]]
    with pytest.raises(ValueError, match="not supported"):
        C.cast(x, np.int32)


def test_a_sparse_one_hot_picks_rows_and_ignores_invalid_classes():
    x, W = C.input_variable(()), C.parameter(init=np.arange(8, dtype=np.float32).reshape(4, 2))
    rows = C.times(C.one_hot(x, 4, sparse_output=True), W)
    assert rows.eval({x: np.array([2, 7, -1, 0], np.float32)}).tolist() == [[4, 5], [0, 0], [0, 0], [0, 1]]
