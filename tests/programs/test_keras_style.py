"""A training step as the CNTK backend of Keras 2.3 builds it, against NumPy."""

import numpy as np
import pytest

import cntkjax as C


@pytest.fixture(autouse=True)
def keras_counts_dynamic_axes():
    C.set_global_option("align_axis", 1)
    yield
    C.set_global_option("align_axis", 0)


def test_a_graph_of_updates_trains_and_counts():
    x, t = C.input_variable(3, name="x"), C.input_variable(C.FreeDimension, name="t")
    w, count = C.parameter((3, 1), init=1), C.parameter((), init=0, name="count")
    z = C.times(x, w)
    loss = C.reduce_mean(C.square(z - t), axis=C.Axis.all_axes())
    gradient = C.constant(0, shape=w.shape, name="keras_grad_placeholder")
    updates = [C.assign(w, w - 0.1 * gradient), C.assign(count, count + C.reduce_sum(t, axis=C.Axis.all_axes()))]
    of_weights = C.combine([u.output for u in updates if not u.arguments])
    (placeholder,) = of_weights.find_all_with_name("keras_grad_placeholder")
    learner = C.cntk_py.universal_learner([w], [placeholder], of_weights)
    trainer = C.Trainer(loss, (loss, loss), [learner])
    others = C.combine([u.output for u in updates if u.arguments])

    rng = np.random.default_rng(1)
    expected, total = np.ones((3, 1)), 0.0
    for _ in range(3):
        data, targets = rng.standard_normal((4, 3)).astype(np.float32), rng.standard_normal((4, 1)).astype(np.float32)
        _, outputs = trainer.train_minibatch({x: data, t: targets}, (loss.output,))
        error = data @ expected - targets
        np.testing.assert_allclose(np.asarray(outputs[loss.output]), np.mean(error**2), rtol=1e-4)
        expected = expected - 0.1 * 2 * data.T @ error / 4
        np.testing.assert_allclose(w.value, expected, rtol=1e-4, atol=1e-5)
        value = others.eval({t: targets}, as_numpy=False)
        total += targets.sum()
        assert value.is_valid and C.Value is type(value)
        np.testing.assert_allclose(count.value, total, rtol=1e-4)


def test_without_weight_updates_there_is_no_gradient_placeholder():
    assert C.combine([]).find_all_with_name("keras_grad_placeholder") == []


def test_batches_become_static_and_back():
    """As Keras does if an operation needs the batch axis: a user function that passes on the data of its Value."""
    class ToStatic(C.ops.functions.UserFunction):
        def __init__(self, x, size, name="convert_to_static"):
            super().__init__([x], as_numpy=False, name=name)
            self.shape_there = (size, *x.shape)

        def infer_outputs(self):
            return [C.output_variable(self.shape_there, self.inputs[0].dtype, [])]

        def forward(self, arguments, device=None, outputs_to_retain=None):
            assert arguments.shape()[0] == self.shape_there[0]
            return None, C.cntk_py.Value(arguments.data())

        def backward(self, state, root_gradients):
            return C.cntk_py.Value(root_gradients.data())

    x = C.input_variable(2, needs_gradient=True)
    f = C.reduce_sum(C.user_function(ToStatic(x, 3)) * np.array([[1, 2], [3, 4], [5, 6]], np.float32))
    assert f.eval({x: np.ones((3, 2))}).tolist() == 21
    assert f.grad({x: np.ones((3, 2))}).tolist() == [[1, 2], [3, 4], [5, 6]]
