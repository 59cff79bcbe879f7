"""Users own the arrays they receive and keep the arrays they pass in, as in CNTK 2.7."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.ops.functions import UserFunction

BATCH = np.ones((2, 3), np.float32)
SEQUENCES = [np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)]


class Network:
    def __init__(self):
        self.x = C.input_variable(3, needs_gradient=True)
        self.s = C.sequence.input_variable(3)
        self.W = C.parameter((3, 2), init=1)
        self.f, self.g = C.times(self.x, self.W), C.times(self.s, self.W)

    def forward(self):
        state, outputs = self.f.forward({self.x: BATCH}, [self.f.output], {self.f.output})
        return state, outputs[self.f.output]

    def backward(self, wrt):
        return self.f.backward(self.forward()[0], {self.f.output: np.ones((2, 2), np.float32)}, {self.x, self.W})[wrt]

    def trained(self):
        loss = C.reduce_sum(C.square(self.f))
        trainer = C.Trainer(self.f, (loss, loss), [C.sgd([self.W], C.learning_parameter_schedule(0))])
        return trainer.train_minibatch({self.x: BATCH}, outputs=[self.f.output])[1][self.f.output]


RESULTS = {
    "eval": lambda n: n.f.eval({n.x: BATCH}),
    "call": lambda n: n.f(BATCH),
    "eval of a sequence": lambda n: n.g.eval({n.s: SEQUENCES})[0],
    "eval of sequences of one length": lambda n: n.g.eval({n.s: SEQUENCES[:2]})[1],
    "eval of a number": lambda n: C.reduce_sum(n.f, axis=C.Axis.all_axes()).eval({n.x: BATCH}),
    "eval of constants": lambda n: C.plus([1, 2], [3, 4]).eval(),
    "forward": lambda n: n.forward()[1],
    "backward": lambda n: n.backward(n.x),
    "backward of a parameter": lambda n: n.backward(n.W),
    "grad": lambda n: n.f.grad({n.x: BATCH}, [n.x]),
    "value": lambda n: n.W.value,
    "asarray of a parameter": lambda n: n.W.asarray(),
    "asarray of a result": lambda n: n.f.eval({n.x: BATCH}, as_numpy=False).asarray(),
    "data of a result": lambda n: n.f.eval({n.x: BATCH}, as_numpy=False).data.asarray(),
    "asarray of a Value": lambda n: C.Value(BATCH).asarray(),
    "mask": lambda n: C.Value.create(n.s, SEQUENCES).mask,
    "train_minibatch": lambda n: n.trained(),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_a_result_is_writable_contiguous_and_owned_by_the_caller(result):
    network = Network()
    first, before = result(network), result(network).copy()
    first[...] = 77
    assert first.flags.c_contiguous
    assert np.array_equal(result(network), before)


def test_writing_to_the_array_of_a_value_does_not_change_the_value():
    network = Network()
    for value in (C.Value(BATCH), network.f.eval({network.x: BATCH}, as_numpy=False)):
        before = value.asarray()
        value.asarray()[...] = value.data.asarray()[...] = 77
        assert np.array_equal(value.asarray(), before)


def test_a_value_is_unchanged_when_its_source_array_changes():
    array = BATCH.copy()
    value, view = C.Value(array), C.NDArrayView.from_dense(array)
    array[...] = 5
    assert value.asarray().max() == view.asarray().max() == 1


def test_arguments_of_a_user_function_are_writable():
    class Writes(UserFunction):
        def infer_outputs(self):
            x = self.inputs[0]
            return [C.output_variable(x.shape, x.dtype, x.dynamic_axes)]

        def forward(self, argument, device=None, outputs_to_retain=None):
            argument *= 2
            return None, argument

        def backward(self, state, root_gradients):
            root_gradients += 1
            return root_gradients

    network = Network()
    doubled = C.user_function(Writes([network.x]))
    assert doubled.eval({network.x: BATCH}).tolist() == [[2] * 3] * 2
    assert doubled.grad({network.x: BATCH}).tolist() == [[2] * 3] * 2


def test_a_step_trains_on_the_fed_data_even_if_the_buffer_is_refilled_at_once():
    """The step still runs when train_minibatch has returned."""
    x, W = C.input_variable(1024), C.parameter((1024, 1024), init=0.001)
    product = x
    for _ in range(8):
        product = C.times(product, W)
    loss = C.reduce_sum(product * x)
    trainer = C.Trainer(None, (loss,), [C.sgd([W], C.learning_parameter_schedule_per_sample(0))])
    buffer, losses = np.empty((512, 1024), np.float32), []
    for number in (1, 2, 3):
        buffer[...] = number
        trainer.train_minibatch({x: buffer})
        buffer[...] = 1e6
        losses.append(trainer.previous_minibatch_loss_average)
    np.testing.assert_allclose(np.divide(losses, losses[0]), [1, 4, 9], rtol=1e-4)
