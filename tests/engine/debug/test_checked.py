"""Checked mode names the operation that produced a NaN, and changes no state."""

import numpy as np
import pytest

import cntkjax as C


@pytest.fixture
def checked():
    C.debugging.set_checked_mode(True)
    yield
    C.debugging.set_checked_mode(False)


def test_error_names_the_first_operation_with_nan_in_its_result(checked):
    x = C.input_variable(2, name="x")
    large = C.exp(x * 100)
    model = C.tanh(C.minus(large, large, name="unknown")) + 1
    with pytest.raises(RuntimeError, match=r"(?s)NaN in the result of Minus 'unknown'.*test_checked.py"):
        model.eval({x: [[1, 2]]})
    assert np.isfinite(model.eval({x: [[0.1, 0.2]]})).all()


def test_error_names_data_with_nan(checked):
    x = C.input_variable(2, name="x")
    with pytest.raises(RuntimeError, match="NaN in the data of Input"):
        (x + 1).eval({x: [[np.nan, 2]]})


def test_infinity_passes_as_in_cntk(checked):
    assert C.exp(C.constant(100)).eval() == np.inf


def test_padding_is_not_searched(checked):
    x = C.sequence.input_variable(1)
    values = C.log(C.sequence.past_value(x, 1) + 1).eval({x: [[[1.0], [2.0], [3.0]], [[4.0]]]})
    np.testing.assert_allclose(values[0], np.log([[2.0], [2.0], [3.0]]), rtol=1e-6)


def test_training_stops_before_parameters_are_touched(checked):
    x, w = C.input_variable(2), C.parameter(init=np.ones(2, np.float32))
    loss = C.exp(x * w) - C.exp(x * w)
    trainer = C.Trainer(loss, (loss, None), [C.sgd([w], 0.1)])
    with pytest.raises(RuntimeError, match="NaN in minibatch 1, in the result of Minus"):
        trainer.train_minibatch({x: [[1000, 1]]})
    np.testing.assert_array_equal(w.value, [1, 1])
    assert trainer.total_number_of_samples_seen == 0
    assert trainer.train_minibatch({x: [[1, 1]]})
