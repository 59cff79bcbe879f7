"""Arguments that can only be mistakes are errors at once; what CNTK computes something sensible with is accepted."""

import inspect
import math

import numpy as np
import pytest

import cntkjax as C

x, two = C.input_variable(3, name="x"), C.input_variable(2)
w = C.parameter(3, init=1.0)


def trainer():
    return C.Trainer(None, C.reduce_sum(C.squared_error(x * w, 0)), C.sgd([w], 0.1))


MISTAKES = {  # what was passed: the call, what the message says
    "a learning rate that is NaN": (lambda: C.sgd([w], math.nan), "sgd: .*nan is not a number"),
    "NaN among learning rates": (lambda: C.learning_parameter_schedule([0.1, math.nan]), "nan is not a number"),
    "NaN after some epochs": (lambda: C.learning_parameter_schedule([(2, 0.1), (1, math.nan)]), "nan"),
    "momentum above 1": (lambda: C.momentum_sgd([w], 0.1, 1.5), "momentum_sgd: .*momentum = 1.5 is above 1"),
    "a schedule of such momentums": (lambda: C.momentum_schedule([0.9, 2]), "momentum = 2.0 is above 1"),
    "variance momentum above 1": (lambda: C.adam([w], 0.1, 0.9, variance_momentum=1.2), "momentum = 1.2 is above 1"),
    "a negative time constant": (lambda: C.momentum_as_time_constant_schedule(-5), "momentum = -5: a time constant"),
    "a stride of 0": (lambda: x[::0], "a stride of 0 selects nothing"),
    "a negative size of a stream": (lambda: C.io.StreamDef("x", shape=-3), "StreamDef: shape = -3"),
    "a text as size of a stream": (lambda: C.io.StreamDef("x", shape="b"), "StreamDef: shape = 'b'"),
    "topN above the classes": (lambda: C.classification_error(two, two, topN=9), "topN = 9 of 2 classes"),
    "a layer above all memory": (lambda: C.layers.Dense(2**40), "Dense: .* 1,099,511,627,776 elements"),
    "a weight above all memory": (lambda: C.layers.Dense(2**37)(C.input_variable(9)), "'W'.* limits it"),
    "a negative layer": (lambda: C.layers.Dense(-3), "Dense: the shape is .* not -3"),
    "a layer of no units": (lambda: C.layers.Dense(0), "Dense: the shape is .* not 0"),
    "a text as layer": (lambda: C.layers.Dense("a"), "Dense: the shape is .* not 'a'"),
    "a text as parameter": (lambda: C.parameter("x"), "parameter: .* not 'x'"),
    "no minibatch": (lambda: trainer().train_minibatch(None), r"Trainer.train_minibatch: Input\('x'.* NoneType"),
    "no model to debug": (lambda: C.debugging.debug_model(None), "debug_model: model = None"),
    "a negative seed": (lambda: C.dropout(x, 0.5, seed=-3), "dropout: seed = -3"),
    "a window of 2**40 steps": (lambda: C.layers.PastValueWindow(2**40, -2), "PastValueWindow: window_size"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_an_error_at_once(name):
    mistake, message = MISTAKES[name]
    with pytest.raises((ValueError, TypeError), match=message):
        mistake()


ACCEPTED = {  # as in CNTK 2.7
    "a negative learning rate is gradient ascent": (lambda: C.learning_parameter_schedule(-0.1)[0], -0.1),
    "an infinite learning rate": (lambda: C.learning_parameter_schedule(math.inf)[0], math.inf),
    "a time constant that never ends": (lambda: C.momentum_as_time_constant_schedule(math.inf)[0], 1.0),
    "a size that is a whole float": (lambda: C.layers.Dense(4.0)(x).shape, (4,)),
    "no bias, as None": (lambda: len(C.layers.Dense(4, bias=None)(x).parameters), 1),
    "no name, as None": (lambda: C.relu(x, name=None).name, ""),
    "padding with NaN": (lambda: np.isnan(C.pad([1.0], [(1, 1)], constant_value=math.nan).eval()).tolist(),
                         [True, False, True]),
    "a stride of -1 reverses": (lambda: C.constant([1, 2, 3])[0:3:-1].eval().tolist(), [3, 2, 1]),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_cntk_computes_with_is_accepted(name):
    compute, expected = ACCEPTED[name]
    assert compute() == expected


@pytest.mark.parametrize("function, parameters", [
    (C.layers.Dense, "shape activation init input_rank map_rank bias init_bias name"),
    (C.Function.eval, "self arguments outputs device as_numpy"),
    (C.Trainer.train_minibatch, "self arguments outputs device is_sweep_end"),
    (C.Constant.__init__, "self value shape dtype device name"),
])
def test_older_ways_to_look_at_a_signature_show_the_parameters_too(function, parameters):
    assert inspect.getfullargspec(function).args == parameters.split()  # as in CNTK: it does not look behind wrappers


@pytest.mark.parametrize("call, title", [
    (lambda: trainer().train_minibatch(q=1), "Trainer.train_minibatch"),
    (lambda: (x * w).clone(q=1), "Function.clone"),
    (lambda: C.Trainer(q=1), "Trainer"),
    (lambda: C.sgd([w], 0.1, q=1), "sgd"),
])
def test_an_argument_that_there_is_not_is_told_of_what_the_user_called(call, title):
    with pytest.raises(TypeError, match=rf"^{title}\(\) got an unexpected keyword argument 'q'"):
        call()
