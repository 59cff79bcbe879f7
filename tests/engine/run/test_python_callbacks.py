"""Python code that programs call: its errors, when it is called, and in which thread."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run.program_cache import programs
from cntkjax.graph.errors import ResultError, ShapeError
from tests.ops.user_functions import Scaled


class Broken(Scaled):
    def __init__(self, x, how, name="broken"):
        super().__init__(x, name=name)
        self.how = how

    def infer_outputs(self):
        return 3 if self.how == "outputs" else super().infer_outputs()

    def forward(self, arguments, device=None, outputs_to_retain=None):
        if self.how == "forward":
            raise KeyError("boom")
        return None, np.ones((7, 7)) if self.how == "shape" else arguments

    def backward(self, state, root_gradients):
        raise NotImplementedError("no gradient")


@pytest.mark.parametrize(
    "how, kind, message",
    [
        ("outputs", RuntimeError, r"'broken' \(.*Broken\): infer_outputs returned 3"),
        ("forward", RuntimeError, r"user function 'broken' \(.*Broken\): forward raised KeyError: 'boom'"),
        ("shape", ResultError, r"data of shape \(7, 7\) .* has to be of shape \(1, 2\)"),
        ("backward", RuntimeError, r"backward raised NotImplementedError: no gradient"),
    ],
)
def test_exceptions_are_reported_with_the_function(how, kind, message):
    x = C.input_variable(2, needs_gradient=True)
    with pytest.raises(kind, match=message) as caught:
        C.user_function(Broken(x, how)).grad({x: [[1, 2]]})
    assert not isinstance(caught.value, ShapeError)
    assert caught.value.__cause__ is not None or how in ("shape", "outputs")


def test_an_error_in_a_step_leaves_parameters_unchanged():
    w = C.parameter((2,), init=1)
    node = Broken(w, "backward")
    f = C.user_function(node)
    x = C.input_variable(2)
    trainer = C.Trainer(f, (C.reduce_sum(f * x), None), [C.sgd([w], 0.1)])
    with pytest.raises(RuntimeError, match="no gradient"):
        trainer.train_minibatch({x: [[1, 1]]})
    np.testing.assert_array_equal(w.value, [1, 1])


def test_forward_may_evaluate_a_function_on_a_large_minibatch():
    x, y = C.input_variable(1000), C.input_variable(1000)
    inner = C.tanh(y)

    class Evaluates(Scaled):
        def forward(self, argument, device=None, outputs_to_retain=None):
            return None, inner.eval({y: argument})

    data = np.random.default_rng(0).standard_normal((3000, 1000)).astype(np.float32)
    np.testing.assert_allclose(C.user_function(Evaluates(x)).eval({x: data}), np.tanh(data), rtol=1e-5, atol=1e-6)


def test_manual_forward_and_backward_call_each_once():
    x = C.input_variable(1, needs_gradient=True)
    node = Scaled(x)
    f = C.square(C.user_function(node))
    state, outputs = f.forward({x: [[3]]}, [f.output], {f.output})
    assert outputs[f.output].tolist() == [[36]] and (len(node.seen), node.states) == (1, [])
    assert f.backward(state, {f.output: np.ones((1, 1))}, {x})[x].tolist() == [[24]]
    assert (len(node.seen), node.states) == (1, [1])


def test_evaluations_and_training_start_quickly():
    x = C.input_variable(2)
    z = C.user_function(Scaled(x * C.parameter(2, init=1)))
    for _ in range(2):
        z.eval({x: [[1, 2]]})
    trainer = C.Trainer(z, C.reduce_sum(z), [C.sgd(z.parameters, 0.1)])
    trainer.train_minibatch({x: [[1, 2]]})
    (evaluation,) = next(p for p in programs if z.output in p.plan.outputs).executables
    (training,) = trainer._step(()).program.executables
    assert not evaluation.allowance.is_unlimited and not training.allowance.is_unlimited


class Identity64(C.ops.functions.UserFunction):
    def forward(self, argument, device=None, outputs_to_retain=None):
        assert argument.dtype == np.float64
        return None, argument

    def backward(self, state, root_gradients):
        return root_gradients

    def infer_outputs(self):
        return [C.output_variable(self.inputs[0].shape, np.float64, self.inputs[0].dynamic_axes)]


def test_double_precision_reaches_a_function_that_xla_calls_from_its_own_thread():
    x = h = C.input_variable(400, dtype=np.float64)
    w = C.parameter((400, 400), init=0.01, dtype=np.float64)
    for _ in range(6):
        h = C.tanh(C.times(h, w))
    z = C.user_function(Identity64([h.output]))
    learner = C.sgd(z.parameters, C.learning_parameter_schedule_per_sample(1e-6))
    trainer = C.Trainer(z, (C.squared_error(z, x),), [learner])
    for _ in range(3):
        assert trainer.train_minibatch({x: np.full((256, 400), 1 / 3)})
