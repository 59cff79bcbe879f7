"""Functions that users write in Python."""

import sys
from contextlib import nullcontext

import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run.program_cache import programs
from cntkjax.graph.errors import ResultError, ShapeError
from cntkjax.ops.functions import Function, UserFunction


class Scaled(UserFunction):
    """scale · a + b of arrays or lists; records its arguments."""

    def __init__(self, *inputs, name="scaled", scale=2.0, as_numpy=True):
        super().__init__(inputs, as_numpy=as_numpy, name=name)
        self.scale, self.seen, self.states, self.retained = scale, [], [], []

    def infer_outputs(self):
        x = self.inputs[0]
        return [C.output_variable(x.shape, x.dtype, x.dynamic_axes)]

    def forward(self, arguments, device=None, outputs_to_retain=None):
        self.seen.append(arguments)
        self.retained.append(list(outputs_to_retain))
        a, b = arguments if len(self.inputs) > 1 else (arguments, None)
        return len(self.seen), each(lambda x: self.scale * x + (0 if b is None else b), a)

    def backward(self, state, root_gradients, variables=None):
        self.states.append(state)
        if variables is None:
            return each(lambda g: g * self.scale, root_gradients)
        for v in variables:
            variables[v] = each(lambda g, v=v: g * (self.scale if v == self.inputs[0] else 1), root_gradients)
        return None

    def serialize(self):
        return {"scale": self.scale}

    @staticmethod
    def deserialize(inputs, name, state):
        return Scaled(*inputs, name=name, scale=state["scale"])


def each(f, data):
    return [f(d) for d in data] if isinstance(data, list) else f(data)


class Split(UserFunction):
    """x + 1 and 10 x."""

    def __init__(self, x, name="split"):
        super().__init__([x], name=name)

    def infer_outputs(self):
        x = self.inputs[0]
        return [C.output_variable(x.shape, x.dtype, x.dynamic_axes, name=n) for n in ("more", "ten")]

    def forward(self, argument, outputs, device=None, outputs_to_retain=None):
        more, ten = self.outputs
        outputs[more], outputs[ten] = argument + 1, argument * 10
        return "kept"

    def backward(self, state, root_gradients):
        more, ten = self.outputs
        return root_gradients[more] + 10 * root_gradients[ten]


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


def test_parameters_are_trained_through_a_user_function():
    x, w = C.input_variable(2), C.parameter((2,), init=1)
    node = Scaled(w, C.constant(0, (2,)))
    f = C.element_times(C.user_function(node), x)
    trainer = C.Trainer(f, (C.reduce_sum(f), None), [C.sgd([w], C.learning_parameter_schedule_per_sample(0.1))])
    for _ in range(3):
        trainer.train_minibatch({x: [[1, 2]]})
    np.testing.assert_allclose(w.value, [1 - 3 * 0.2, 1 - 3 * 0.4], rtol=1e-6)
    assert len(node.seen) == len(node.states) == 3


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


def test_several_outputs():
    x = C.input_variable(2, needs_gradient=True)
    node = Split(x)
    more, ten = C.user_function(node).outputs
    assert (more.name, ten.name) == ("more", "ten")
    f = C.user_function(node).eval({x: [[1, 2]]})
    assert f[more].tolist() == [[2, 3]] and f[ten].tolist() == [[10, 20]]
    assert (more * ten).grad({x: [[1, 2]]}).tolist() == [[1 * 10 + 2 * 10, 2 * 10 + 3 * 10]]


def test_values_instead_of_arrays():
    x = C.sequence.input_variable(1, needs_gradient=True)

    class ByValue(Scaled):
        def forward(self, argument, device=None, outputs_to_retain=None):
            self.seen.append(argument)
            return None, argument

        def backward(self, state, root_gradients):
            return root_gradients

    node = ByValue(x, as_numpy=False)
    data = [np.ones((2, 1), np.float32), np.ones((1, 1), np.float32)]
    f = C.user_function(node)
    assert [v.tolist() for v in f.eval({x: data})] == [d.tolist() for d in data]
    assert isinstance(node.seen[0], C.cntk_py.Value) and node.seen[0].shape() == (2, 2, 1)  # methods, as in CNTK
    assert node.seen[0].mask().asarray().tolist() == [[2, 1], [2, 0]]
    assert isinstance(C.Value(np.ones(2)), C.cntk_py.Value)
    data_seen = node.seen[0].data()
    assert node.seen[0].shape().dimensions() == data_seen.shape().dimensions() == (2, 2, 1)
    assert isinstance(data_seen, C.NDArrayView) and (data_seen.is_sparse(), data_seen.device()) == (False, C.cpu())
    assert data_seen.as_shape((4,)).shape().rank() == 1 and data_seen.deep_clone().asarray().shape == (2, 2, 1)
    assert [g.tolist() for g in f.grad({x: data})] == [d.tolist() for d in data]


def test_copies_of_such_values_have_methods_too():
    x = C.input_variable(2, needs_gradient=True)
    seen = []

    class Keeps(Scaled):
        def forward(self, argument, device=None, outputs_to_retain=None):
            return argument.deep_clone(), argument.alias()

        def backward(self, state, root_gradients):
            copies = state, state.deep_clone(True), state.alias(read_only=True)
            seen.extend((v.device(), v.shape().dimensions(), v.is_read_only(), v.asarray().tolist()) for v in copies)
            return root_gradients.alias()

    assert C.user_function(Keeps(x, as_numpy=False)).grad({x: [[1, 2]]}).tolist() == [[1, 1]]
    assert seen == [(C.cpu(), (1, 2), read_only, [[1, 2]]) for read_only in (False, True, True)]


def test_double_precision_and_sparse_input():
    x = C.input_variable(3, dtype=np.float64)
    assert C.user_function(Scaled(x)).eval({x: [[0.1, 0.2, 0.3]]}).dtype == np.float64
    s = C.input_variable(3, is_sparse=True)
    node = Scaled(s)
    np.testing.assert_array_equal(C.user_function(node).eval({s: C.Value.one_hot([1, 0], 3)}), 2 * np.eye(3)[[1, 0]])
    assert node.seen[0].format == "csr"
    node = Scaled(s, as_numpy=False)
    node.forward = lambda value, *rest: node.seen.append(value) or (None, value)
    np.testing.assert_array_equal(C.user_function(node).eval({s: C.Value.one_hot([1, 0], 3)}), np.eye(3)[[1, 0]])
    assert node.seen[0].is_sparse() and node.seen[0].data().is_sparse()


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


def test_a_missing_forward_is_an_error():
    class Empty(UserFunction):
        infer_outputs = Scaled.infer_outputs

    x = C.input_variable(2)
    with pytest.raises(RuntimeError, match="forward has to be overridden"):
        C.user_function(Empty([x])).eval({x: [[1, 2]]})


def test_a_missing_backward_is_an_error():
    class Forwards(UserFunction):
        infer_outputs, forward = Scaled.infer_outputs, lambda self, x, *_: (None, x)

    x = C.input_variable(2, needs_gradient=True)
    with pytest.raises(RuntimeError, match="backward has to be overridden"):
        C.user_function(Forwards([x])).grad({x: [[1, 2]]})


def test_an_error_in_a_step_leaves_parameters_unchanged():
    w = C.parameter((2,), init=1)
    node = Broken(w, "backward")
    f = C.user_function(node)
    trainer = C.Trainer(f, (C.reduce_sum(f), None), [C.sgd([w], 0.1)])
    x = C.input_variable(2)
    trainer = C.Trainer(f, (C.reduce_sum(f * x), None), [C.sgd([w], 0.1)])
    with pytest.raises(RuntimeError, match="no gradient"):
        trainer.train_minibatch({x: [[1, 1]]})
    np.testing.assert_array_equal(w.value, [1, 1])


def test_clones_and_files_recreate_it(tmp_path):
    x = C.input_variable(2)
    f = C.user_function(Scaled(x, C.parameter((2,), init=1), scale=3.0)) + 1
    copy = f.clone("clone")
    assert [v.shape for v in copy.arguments] == [(2,)] and copy.find_by_name("scaled").scale == 2
    f.save(str(tmp_path / "f"))
    loaded = Function.load(str(tmp_path / "f"))
    assert loaded.find_by_name("scaled").op_name == "UserFunction" and loaded.find_by_name("scaled").scale == 3
    np.testing.assert_array_equal(loaded.eval([[1, 2]]), [[5, 8]])


@pytest.mark.parametrize("makes", [lambda inputs: None, lambda inputs: inputs[0], lambda inputs: 1 / 0])
def test_clone_must_return_a_function(makes):
    class Odd(Scaled):
        def clone(self, cloned_inputs):
            assert type(cloned_inputs) is tuple  # as in CNTK
            return makes(cloned_inputs)

    with pytest.raises(RuntimeError, match=r"Odd\): clone (returned|raised)"):
        C.user_function(Odd(C.input_variable(2))).clone("share")


def test_a_file_runs_no_code_of_modules_that_are_not_imported(tmp_path, monkeypatch):
    f = C.user_function(Scaled(C.input_variable(2)))
    monkeypatch.setattr(Scaled, "__module__", "elsewhere")
    f.save(str(tmp_path / "f"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "elsewhere.py").write_text("raise SystemExit")
    with pytest.raises(ValueError, match="'elsewhere.Scaled', which is not known"):
        Function.load(str(tmp_path / "f"))
    callbacks = {"elsewhere.Scaled": lambda inputs, name, state: Scaled(*inputs, scale=5)}  # for this file alone
    loaded = Function.load(str(tmp_path / "f"), udf_factory_callback_map=callbacks)
    assert loaded.eval([[1, 2]]).tolist() == [[5, 10]]
    with pytest.raises(ValueError, match="'elsewhere.Scaled', which is not known"):
        Function.load(str(tmp_path / "f"))
    Function.register_udf_deserialize_callback("elsewhere.Scaled", lambda inputs, name, state: Scaled(*inputs, **state))
    assert Function.load(str(tmp_path / "f")).eval([[1, 2]]).tolist() == [[2, 4]]
    with pytest.raises(ValueError, match="there is a callback for"):
        Function.register_udf_deserialize_callback("elsewhere.Scaled", print)


def test_forward_may_evaluate_a_function_on_a_large_minibatch():
    x, y = C.input_variable(1000), C.input_variable(1000)
    inner = C.tanh(y)

    class Evaluates(Scaled):
        def forward(self, argument, device=None, outputs_to_retain=None):
            return None, inner.eval({y: argument})

    data = np.random.default_rng(0).standard_normal((3000, 1000)).astype(np.float32)
    np.testing.assert_allclose(C.user_function(Evaluates(x)).eval({x: data}), np.tanh(data), rtol=1e-5, atol=1e-6)


def test_backward_is_called_for_arguments_that_need_gradients():
    x = C.input_variable(1, needs_gradient=True)
    node = Scaled(x)
    f = C.user_function(node) + C.parameter((1,))
    C.Trainer(f, (C.reduce_sum(f), None), [C.sgd(f.parameters, 0.1)]).train_minibatch({x: [[1]]})
    assert len(node.seen) == len(node.states) == 1


def test_manual_forward_and_backward_call_each_once():
    x = C.input_variable(1, needs_gradient=True)
    node = Scaled(x)
    f = C.square(C.user_function(node))
    state, outputs = f.forward({x: [[3]]}, [f.output], {f.output})
    assert outputs[f.output].tolist() == [[36]] and (len(node.seen), node.states) == (1, [])
    assert f.backward(state, {f.output: np.ones((1, 1))}, {x})[x].tolist() == [[24]]
    assert (len(node.seen), node.states) == (1, [1])


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


def test_forward_may_modify_its_argument():
    class AddsInPlace(Scaled):
        def forward(self, argument, device=None, outputs_to_retain=None):
            argument += 1
            return None, argument

    x = C.input_variable(2)
    data = np.array([[1, 2]], np.float32)
    assert C.user_function(AddsInPlace(x)).eval({x: data}).tolist() == [[2, 3]]
    assert data.tolist() == [[1, 2]]


@pytest.mark.parametrize("outputs", [lambda x: C.output_variable(x.shape, x.dtype, x.dynamic_axes), lambda x: [3]])
def test_infer_outputs_must_return_a_list_of_variables(outputs):
    class Wrong(Scaled):
        def infer_outputs(self):
            return outputs(self.inputs[0])

    with pytest.raises(RuntimeError, match="infer_outputs returned .*\nFix: return a list"):
        C.user_function(Wrong(C.input_variable(2)))


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


def test_evaluations_start_quickly_and_training_does_not():
    x = C.input_variable(2)
    z = C.user_function(Scaled(x * C.parameter(2, init=1)))
    for _ in range(2):
        z.eval({x: [[1, 2]]})
    trainer = C.Trainer(z, C.reduce_sum(z), [C.sgd(z.parameters, 0.1)])
    trainer.train_minibatch({x: [[1, 2]]})
    (evaluation,) = next(p for p in programs if z.output in p.plan.outputs).executables
    (training,) = trainer._step(()).program.executables
    assert evaluation.allowance.left < training.allowance.left == float("inf")


def test_a_node_of_the_graph_serializes_a_record_of_the_user_function():
    """Source: CNTK 2.7."""
    x = C.input_variable(2)
    node = Scaled(x, name="mine", scale=3.0)
    assert node.op_name == f"{__name__}.Scaled" and node.serialize() == {"scale": 3.0}
    function = (C.user_function(node) + 1).find_by_name("mine")
    assert function.op_name == "UserFunction" and function.serialize() == {
        "module": __name__, "class": "Scaled", "op_name": node.op_name, "state": {"scale": 3.0}, "version": 1,
    }
    assert function is not node and function.seen is node.seen  # in CNTK the node has no reference to the object


@pytest.mark.parametrize("inputs", [C.input_variable(2), C.input_variable(C.FreeDimension), C.constant(1), None, 3])
def test_inputs_are_a_list(inputs):
    with pytest.raises(TypeError, match="inputs must be a list"):
        UserFunction(inputs)


def _names_inside():
    """All names of a user function and of its node in the graph, except those that CNTK or `Scaled` use."""
    node = Scaled(C.input_variable(2))
    names = {name for o in (node, node.root_function) for name in (*dir(o), *vars(o)) if not name.startswith("__")}
    known = {"clone", "custom_attributes", "deserialize", "inputs", "name", "op_name", "output"}
    return sorted(names - vars(node).keys() - vars(Scaled).keys() - known)


@pytest.mark.parametrize("where", ["object", "class"])
def test_subclasses_may_use_any_attribute_name(tmp_path, where):
    class Keeping(Scaled):
        def __init__(self, *inputs, name="keeping"):
            super().__init__(*inputs, name=name)
            for attribute in names if where == "object" else ():
                setattr(self, attribute, "mine")

        def forward(self, arguments, device=None, outputs_to_retain=None):
            assert all(getattr(self, attribute) == "mine" for attribute in names)
            return super().forward(arguments, device, outputs_to_retain)

    names = _names_inside()
    assert {"primitive", "node_inputs", "_outputs", "_memory", "run_forward", "shape", "owner", "train"} < set(names)
    for attribute in names if where == "class" else ():
        setattr(Keeping, attribute, "mine")
    x, w = C.input_variable(2), C.parameter(2, init=1)
    f = C.user_function(Keeping(x * w)) + 1
    C.Trainer(f, (C.reduce_sum(f), None), C.sgd([w], 0.25)).train_minibatch({x: [[1, 2]]})
    assert w.value.tolist() == [0.5, 0] and f.eval({x: [[1, 2]]}).tolist() == [[2, 1]]
    assert (Keeping(x) + Keeping(x)).eval({x: [[1, 2]]}).tolist() == [[4, 8]]
    assert f.clone("share", {x: w}).eval().tolist() == [1.5, 1]
    if where == "object":
        f.save(str(tmp_path / "f"))
        make = {f"{__name__}.Keeping": lambda inputs, name, state: Keeping(*inputs, name=name)}
        assert Function.load(str(tmp_path / "f"), udf_factory_callback_map=make).eval([[1, 2]]).tolist() == [[2, 1]]


def test_a_composite_of_a_named_node_has_no_name():
    """Source: CNTK 2.7."""
    x = C.input_variable(2)
    named = C.relu(x, name="r")
    assert [C.as_composite(named.root_function).name, C.as_composite(named.root_function, "q").name] == ["", "q"]
    assert [named.name, named.clone("share").name, named.root_function.clone("share").name] == ["r", "r", ""]
    assert C.user_function(Scaled(x)).name == "" and len(C.user_function(Scaled(x)).find_all_with_name("scaled")) == 1


def test_functions_have_the_attributes_of_their_only_output_and_no_value():
    x = C.input_variable(2)
    one, two = C.relu(x), C.combine(C.relu(x), x + 1)
    assert one.owner is one.output.owner and (one.is_output, one.is_input, one.is_constant) == (True, False, False)
    assert not any(hasattr(two, name) for name in ("shape", "owner", "is_output", "is_input", "is_parameter"))
    assert not hasattr(C.constant(1) + 1, "value")


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
