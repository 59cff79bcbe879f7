"""What user functions are called with, and what they may return."""

from contextlib import nullcontext

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run.program_cache import programs
from cntkjax.graph.errors import ResultError
from cntkjax.graph.settings import Settings
from cntkjax.ops.functions import UserFunction
from tests.ops.user_functions import Scaled, Split


def test_forward_receives_a_batch_as_an_array():
    x = C.input_variable(2, needs_gradient=True)
    node = Scaled(x)
    f = C.user_function(node) + 1
    np.testing.assert_array_equal(f.eval({x: [[1, 2], [3, 4], [5, 6]]}), [[3, 5], [7, 9], [11, 13]])
    assert node.seen[0].shape == (3, 2) and node.retained == [[]]
    np.testing.assert_array_equal(f.grad({x: [[1, 2]]}), [[2, 2]])
    assert node.retained[1] == [node.output] and node.states == [2] and not node.root_function.primitive.states


def test_forward_receives_sequences_as_a_list(grid):
    x = C.sequence.input_variable(1, needs_gradient=True)
    node = Scaled(x)
    f = C.user_function(node)
    data = [np.ones((3, 1), np.float32), np.full((1, 1), 2, np.float32), np.full((2, 1), 3, np.float32)]
    for value, sample in zip(f.eval({x: data}), data, strict=True):
        np.testing.assert_array_equal(value, 2 * sample)
    assert [s.shape for s in node.seen[0]] == [(3, 1), (1, 1), (2, 1)]
    assert [g.tolist() for g in f.grad({x: data})] == [[[2]] * 3, [[2]], [[2]] * 2]


def test_forward_receives_sequences_of_one_step_in_a_loop(grid):
    x = C.sequence.input_variable(1, needs_gradient=True)
    h = C.placeholder()
    node = Scaled(C.sequence.past_value(h) + x, scale=0.5)
    f = C.user_function(node)
    f = f.replace_placeholders({h: f})
    values = f.eval({x: [np.ones((3, 1)), np.ones((1, 1))]})
    assert [v.ravel().tolist() for v in values] == [[0.5, 0.75, 0.875], [0.5]]
    gradients = f.grad({x: [np.ones((3, 1)), np.ones((1, 1))]})
    assert [g.ravel().tolist() for g in gradients] == [[0.875, 0.75, 0.5], [0.5]]
    assert all(s.shape == (1, 1) for step in node.seen for s in step)


def test_only_required_gradients_are_requested():
    x, y = C.input_variable(1, needs_gradient=True), C.input_variable(1)
    requests = []

    class Sum(Scaled):
        def backward(self, state, root_gradients, variables):
            requests.append(set(variables))
            super().backward(state, root_gradients, variables)

    C.user_function(Sum(x, y)).grad({x: [[1]], y: [[1]]}, [x])
    assert requests == [{x}]


def test_an_output_without_gradient_stops_the_backward_pass():
    class Constant(Scaled):
        def infer_outputs(self):
            x = self.inputs[0]
            return [C.output_variable(x.shape, x.dtype, x.dynamic_axes, needs_gradient=False)]

    x = C.input_variable(1, needs_gradient=True)
    node = Constant(x)
    assert (C.user_function(node) + 3 * x).grad({x: [[1]]}).tolist() == [[3]]
    assert not node.states and not node.output.needs_gradient


WRONG = {
    "batch": [None, "x", 3, {}, np.array([object()]), [[1, 2], [3]], np.zeros((0, 2))],
    "sequences": [None, "x", 3, {}, [None], [np.zeros(4)]],
}
OTHER_SIZES = {
    "batch": [np.zeros((3, 2))],
    "sequences": [[np.zeros((2, 2)), np.zeros((1, 2))], np.zeros((2, 2, 2))],
}
BOTH = [
    (form, result, fits)
    for fits, results in enumerate((WRONG, OTHER_SIZES)) for form in results for result in results[form]
]


@pytest.mark.parametrize("form, result, fits", BOTH)
def test_results_of_a_wrong_form_are_errors(form, result, fits):
    """CNTK raises RuntimeError or ValueError; the number of values may differ."""

    class Forward(Scaled):
        def forward(self, arguments, device=None, outputs_to_retain=None):
            return None, result

    class Backward(Scaled):
        def backward(self, state, root_gradients):
            return result

    x = (C.sequence.input_variable if form == "sequences" else C.input_variable)(2, needs_gradient=True)
    data = np.ones((2, 2), np.float32)
    with nullcontext() if fits else pytest.raises(ResultError, match="a user function made "):
        values = C.user_function(Forward(x)).eval({x: [data] if form == "sequences" else data})
        assert [np.shape(v) for v in values] == [np.shape(v) for v in result]
    if result is not None:
        with pytest.raises(ResultError, match="a user function made "):
            C.user_function(Backward(x)).grad({x: [data] if form == "sequences" else data})


def test_a_single_sequence_may_be_returned_without_a_list():
    """As in CNTK."""

    class Bare(Scaled):
        def forward(self, arguments, device=None, outputs_to_retain=None):
            return None, arguments[0] * 2

        def backward(self, state, root_gradients):
            return root_gradients[0] * 3

    x = C.sequence.input_variable(2, needs_gradient=True)
    f = C.user_function(Bare(x))
    assert f.eval({x: [np.ones((3, 2), np.float32)]})[0].tolist() == [[2, 2]] * 3
    assert f.grad({x: [np.ones((3, 2), np.float32)]})[0].tolist() == [[3, 3]] * 3


def test_backward_may_return_more_gradients_than_requested_but_only_of_inputs():
    class Makes(Scaled):
        def backward(self, state, root_gradients, variables):
            variables.update({key(self): root_gradients for key in keys})

    x = C.input_variable(2, needs_gradient=True)
    keys = [lambda f: f.inputs[0], lambda f: f.inputs[1]]
    f = C.user_function(Makes(x, C.constant([1, 2])))
    assert f.grad({x: [[1, 2], [3, 4]]}).tolist() == [[1, 1], [1, 1]]
    keys = [lambda f: "x"]
    with pytest.raises(ResultError, match="backward set a gradient for 'x'"):
        f.grad({x: [[1, 2]]})
    keys = []
    assert f.grad({x: [[1, 2]]}).tolist() == [[0, 0]]


def test_backward_is_called_for_arguments_that_need_gradients():
    x = C.input_variable(1, needs_gradient=True)
    node = Scaled(x)
    f = C.user_function(node) + C.parameter((1,))
    C.Trainer(f, (C.reduce_sum(f), None), [C.sgd(f.parameters, 0.1)]).train_minibatch({x: [[1]]})
    assert len(node.seen) == len(node.states) == 1


def test_grad_calls_backward_for_all_arguments_that_need_gradients():
    """Source: CNTK 2.7."""
    x, y, w = C.input_variable(1, needs_gradient=True), C.input_variable(1), C.parameter(1, init=1)
    asking, silent = Scaled(x), Scaled(y)
    f = C.user_function(asking) * C.user_function(silent) * w
    assert f.grad({x: [[3]], y: [[5]]}, [w]).tolist() == [60] and (asking.states, silent.states) == ([1], [])
    assert asking.output.needs_gradient and silent.output.needs_gradient  # as infer_outputs says


def test_outputs_without_gradient_have_no_root_gradient():
    """Source: CNTK 2.7."""
    gradients = []

    class Halves(Split):
        def infer_outputs(self):
            x = self.inputs[0]
            return [C.output_variable(x.shape, x.dtype, x.dynamic_axes, needs_gradient=n) for n in (False, True)]

        def backward(self, state, root_gradients):
            gradients.append([root_gradients[v] for v in self.outputs])
            return 10 * root_gradients[self.outputs[1]]

    x = C.input_variable(1, needs_gradient=True)
    more, ten = C.user_function(Halves(x)).outputs
    assert (more.needs_gradient, ten.needs_gradient) == (False, True)
    assert (more * ten).grad({x: [[3]]}).tolist() == [[40]] and gradients[0][0] is None and gradients[0][1] == 4


def test_a_free_dimension_is_inferred_from_the_result():
    class Free(Scaled):
        def infer_outputs(self):
            x = self.inputs[0]
            return [C.output_variable(C.FreeDimension, x.dtype, x.dynamic_axes)]

    x = C.input_variable(2)
    assert C.user_function(Free(x)).eval({x: [[1, 2]]}).tolist() == [[2, 4]]


def test_outputs_are_retained_before_a_backward_pass_even_without_a_gradient():
    """CNTK's Faster R-CNN tells training from testing by this. Source: CNTK 2.7."""
    retained = []

    class Asks(Scaled):
        def infer_outputs(self):
            x = self.inputs[0]
            return [C.output_variable(x.shape, x.dtype, x.dynamic_axes, needs_gradient=False)]

        def forward(self, x, device=None, outputs_to_retain=None):
            retained.append(len(outputs_to_retain))
            return None, x

    x, w = C.input_variable(2), C.parameter(2)
    loss = C.reduce_sum(C.user_function(Asks(x)) * w)
    trainer, feeds = C.Trainer(loss, (loss, loss), C.sgd([w], C.learning_parameter_schedule(0.1))), {x: [[1, 2]]}
    loss.eval(feeds)
    loss.grad(feeds, wrt=[w])
    loss.forward(feeds, [loss.output], {loss.output})
    trainer.train_minibatch(feeds)
    trainer.test_minibatch(feeds)
    assert retained == [0, 1, 1, 1, 0]


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 3), (1, 1, 2, 3)])
def test_a_single_sample_may_be_returned_without_a_batch_axis_or_as_a_sequence(shape):
    """Labels of anchors in CNTK's Faster R-CNN."""

    class Makes(Scaled):
        def infer_outputs(self):
            x = self.inputs[0]
            return [C.output_variable((2, 3), x.dtype, x.dynamic_axes)]

        def forward(self, x, device=None, outputs_to_retain=None):
            return None, np.arange(6).reshape(shape)

    x = C.input_variable(2)
    assert C.user_function(Makes(x)).eval({x: [[1, 2]]}).tolist() == [[[0, 1, 2], [3, 4, 5]]]
    assert C.user_function(Makes(x)).eval({x: [[1, 2], [3, 4]]}).shape == (1, 2, 3)


def test_a_free_dimension_is_determined_by_one_call_of_forward():
    """The number of proposals in CNTK's Faster R-CNN is known only to forward. Numbers: CNTK 2.7."""

    class Picks(UserFunction):
        calls = 0

        def __init__(self, x):
            super().__init__([x])

        def infer_outputs(self):
            x = self.inputs[0]
            return [C.output_variable((C.FreeDimension, 2), x.dtype, x.dynamic_axes, needs_gradient=False)]

        def forward(self, x, device=None, outputs_to_retain=None):
            Picks.calls += 1
            return None, np.full((len(x), int(x[0, 0]), 2), x[0, 0])

        def backward(self, state, root_gradients):
            return None

    x, w = C.input_variable(3), C.parameter(3, init=1)
    picked = C.user_function(Picks(x))
    total = C.reduce_sum(C.times(picked, C.parameter((2, 1), init=1)))
    for n, expected in (4, 32), (2, 8), (4, 32), (7, 98):
        assert picked.eval({x: [[n, 0, 0]]}).shape == (1, n, 2)
        assert total.eval({x: [[n, 0, 0]]}) == expected
    np.testing.assert_array_equal((total * C.reduce_sum(x * w)).grad({x: [[3, 1, 1]]}, wrt=[w]), [54, 18, 18])
    assert Picks.calls == 9


def test_each_size_of_a_free_dimension_is_compiled_once():
    class Repeats(UserFunction):
        def __init__(self, x):
            super().__init__([x])

        def infer_outputs(self):
            x = self.inputs[0]
            return [C.output_variable((C.FreeDimension,), x.dtype, x.dynamic_axes, needs_gradient=False)]

        def forward(self, x, device=None, outputs_to_retain=None):
            return None, np.repeat(x, int(x[0, 0]), axis=1)

        def backward(self, state, root_gradients):
            return None

    x = C.input_variable(1)
    repeated = C.user_function(Repeats(x))
    for n in (4, 2, 4, 2, 3, 4):
        assert repeated.eval({x: [[n]]}).tolist() == [[n] * n]
    (program,) = [p for p in programs if repeated.output in p.plan.outputs]
    assert len(program.executables) == 4  # one for the guess before the first call


class Copies(UserFunction):
    """So many copies of a number as its first row says, plus `more`; gradients flow back to the number."""

    def __init__(self, x, more, fails=False):
        super().__init__([x], name="copies")
        self.more, self.fails, self.calls = more, fails, 0

    def infer_outputs(self):
        return [C.output_variable((C.FreeDimension,), self.inputs[0].dtype, self.inputs[0].dynamic_axes)]

    def forward(self, x, device=None, outputs_to_retain=None):
        self.calls += 1
        if self.fails:
            raise KeyError("no copies")
        return None, np.repeat(x[:, :1], x.shape[1] + self.more, axis=1)

    def backward(self, state, root_gradients):
        return root_gradients.sum(1, keepdims=True) * np.eye(1, self.inputs[0].shape[0], dtype=np.float32)


def copying_trainer(**second):
    """Trains w with two functions, each of which decides on a size. The loss is 7 w for x = (1, 2)."""
    x, w = C.input_variable(2), C.parameter(2, init=1)
    first = Copies(x * w, 2)
    second = Copies(C.reshape(C.reduce_sum(C.user_function(first)) / 4, (1,)), 6, **second)
    loss = C.reduce_sum(C.user_function(second))
    rate = C.learning_parameter_schedule_per_sample(0.25)
    return (first, second), w, C.Trainer(loss, (loss, None), [C.sgd([w], rate)]), {x: [[1, 2]]}


@pytest.mark.parametrize("deterministic, compiled", [(False, 1), (True, 3)])
def test_training_is_compiled_once_the_sizes_of_results_are_known(deterministic, compiled, monkeypatch):
    monkeypatch.setattr(Settings, "deterministic", deterministic)
    functions, w, trainer, feed = copying_trainer()
    before = len(C.debugging.compilation_report().programs)
    for step in range(2):
        trainer.train_minibatch(feed)
        assert [f.calls for f in functions] == [step + 1, step + 1]
    np.testing.assert_array_equal(w.value, [1 - 2 * 7 / 4, 1])
    texts = [c.text for c in C.debugging.compilation_report().programs[before:]]
    assert sum(text.startswith("the training step") for text in texts) == compiled


def test_an_error_of_a_function_that_decides_on_a_size_leaves_everything_as_it_was():
    functions, w, trainer, feed = copying_trainer(fails=True)
    with pytest.raises(RuntimeError, match="no copies"):
        trainer.train_minibatch(feed)
    assert w.value.tolist() == [1, 1]
    functions[1].fails = False
    trainer.train_minibatch(feed)
    assert w.value.tolist() == [1 - 7 / 4, 1]


class Shifted(C.ops.functions.UserFunction):
    """Returns one array of all sequences instead of a list, as `arguments[0] + 3` is."""

    def infer_outputs(self):
        return [C.output_variable(self.inputs[0].shape, self.inputs[0].dtype, self.inputs[0].dynamic_axes)]

    def forward(self, arguments, device=None, outputs_to_retain=None):
        return None, np.asarray(arguments) + 3

    def backward(self, state, root_gradients):
        return root_gradients


def test_sequences_of_a_free_size_may_be_returned_as_one_array():
    x = C.sequence.input_variable(C.FreeDimension, needs_gradient=True)
    f = C.user_function(Shifted([x]))
    for size in (3, 6):
        data = np.arange(size, dtype=np.float32)
        gradient, value = f.grad({x: data}, wrt=[x], outputs=[f.output])
        np.testing.assert_array_equal(np.squeeze(value), data + 3)
        np.testing.assert_array_equal(np.squeeze(gradient), np.ones(size))
