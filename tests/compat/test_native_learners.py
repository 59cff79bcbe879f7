"""Learners by the names of CNTK's compiled module. The numbers are those of CNTK 2.7."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.compat import cntk_py

MOMENTUM = C.momentum_schedule(0.9)


@pytest.mark.parametrize("name, arguments, minibatch_size, expected", [
    ("sgd", [], None, [0.798101, 0.59820104]),
    ("momentum_sgd", [MOMENTUM, True], 2, [0.970711, 0.941712]),
    ("nesterov", [MOMENTUM, True], None, [0.95344263, 0.90734625]),
    ("ada_grad", [True], None, [0.7312767, 0.7312321]),
    ("ada_delta", [0.95, 1e-6], 2, [0.99977493, 0.99977493]),
    ("fsada_grad", [MOMENTUM, True, MOMENTUM], 0, [0.9420019, 0.942001]),
    ("adam", [MOMENTUM, True, MOMENTUM, 1e-8, False], 0, [0.79999995, 0.79999995]),
    ("adam", [MOMENTUM, True, MOMENTUM, 1e-8, False], None, [0.95000005, 0.95000005]),
    ("rmsprop", [0.9, 1.2, 0.8, 5.0, 0.1, True], None, [0.73128855, 0.73120844]),
])
def test_two_steps_are_those_of_cntk(name, arguments, minibatch_size, expected):
    options = cntk_py.AdditionalLearningOptions()
    options.l2_regularization_weight = 0.01
    if minibatch_size is not None:
        options.dict_options[cntk_py.Learner._MINIBATCH_SIZE] = cntk_py.SizeTWrapper(minibatch_size)
    x, w = C.input_variable(2), C.parameter(2, init=1.0)
    make = getattr(cntk_py, f"{name}_learner")
    learner = make([w], C.learning_parameter_schedule(0.1), *arguments, options)
    trainer = C.Trainer(None, C.reduce_sum(C.times_transpose(w, x)), learner)
    for _ in range(2):
        trainer.train_minibatch({x: np.array([[1, 2]] * 4, np.float32)})
    np.testing.assert_allclose(w.value, expected, rtol=2e-5)


def test_too_many_arguments_are_an_error():
    with pytest.raises(TypeError, match="sgd_learner takes lr and options, not 2 values"):
        cntk_py.sgd_learner([C.parameter(1)], 0.1, 0.2)
