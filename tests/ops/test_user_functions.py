"""Functions that users write in Python."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.ops.functions import Function, UserFunction
from tests.ops.user_functions import Scaled, Split


def test_parameters_are_trained_through_a_user_function():
    x, w = C.input_variable(2), C.parameter((2,), init=1)
    node = Scaled(w, C.constant(0, (2,)))
    f = C.element_times(C.user_function(node), x)
    trainer = C.Trainer(f, (C.reduce_sum(f), None), [C.sgd([w], C.learning_parameter_schedule_per_sample(0.1))])
    for _ in range(3):
        trainer.train_minibatch({x: [[1, 2]]})
    np.testing.assert_allclose(w.value, [1 - 3 * 0.2, 1 - 3 * 0.4], rtol=1e-6)
    assert len(node.seen) == len(node.states) == 3


@pytest.mark.parametrize("method", ["forward", "backward"])
@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_sys_exit_and_ctrl_c_in_a_user_function_leave_the_step_as_themselves(method, end, capfd):
    class Ending(Scaled):
        pass

    def ending(*arguments):
        raise end

    setattr(Ending, method, ending)
    x, w = C.input_variable(2), C.parameter((2,), init=1)
    loss = C.reduce_sum(C.user_function(Ending(w)) * x)
    trainer = C.Trainer(None, loss, [C.sgd([w], 0.1)])
    with pytest.raises(type(end)) as caught:
        trainer.train_minibatch({x: [[1, 2]]})
    assert caught.value is end and w.value.tolist() == [1, 1] and trainer.total_number_of_samples_seen == 0
    assert "Traceback" not in capfd.readouterr().err


def test_several_outputs():
    x = C.input_variable(2, needs_gradient=True)
    node = Split(x)
    more, ten = C.user_function(node).outputs
    assert (more.name, ten.name) == ("more", "ten")
    f = C.user_function(node).eval({x: [[1, 2]]})
    assert f[more].tolist() == [[2, 3]] and f[ten].tolist() == [[10, 20]]
    assert (more * ten).grad({x: [[1, 2]]}).tolist() == [[1 * 10 + 2 * 10, 2 * 10 + 3 * 10]]


def test_sequences_without_steps():
    x = C.sequence.input_variable(1, needs_gradient=True)
    f = C.user_function(Scaled(C.sequence.gather(x, C.greater(x, 0))))
    for order in (slice(None), slice(None, None, -1)):
        data = [np.array(steps, np.float32) for steps in ([[-1], [-2]], [[3], [-4], [5]])][order]
        assert [v.tolist() for v in f.eval({x: data})] == [[], [[6], [10]]][order]
        assert [g.tolist() for g in f.grad({x: data})] == [[[0], [0]], [[2], [0], [2]]][order]


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
            copies = state, state.deep_clone(True), state.alias(readOnly=True)
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


def test_sparse_vectors_that_are_computed_are_csr_matrices():
    """As in CNTK, also what is selected of them; several axes are arrays."""
    x, pair, steps = C.input_variable(()), C.input_variable(2), C.sequence.input_variable(())
    rows = [np.eye(4)[[1, 3, 0]], np.eye(4)[[2]]]
    hot = C.one_hot(steps, 4, sparse_output=True)
    sequences = {steps: [np.array([1, 3, 0], np.float32), np.array([2], np.float32)]}
    node = Scaled(hot)
    for got, expected in zip(C.user_function(node).eval(sequences), rows, strict=True):
        np.testing.assert_array_equal(got, 2 * expected)
    assert [s.format for s in node.seen[0]] == ["csr", "csr"]
    node = Scaled(C.sequence.last(hot))
    np.testing.assert_array_equal(C.user_function(node).eval(sequences), 2 * np.eye(4)[[0, 2]])
    assert node.seen[0].format == "csr"
    node = Scaled(C.one_hot(x, 4, sparse_output=True), as_numpy=False)
    node.forward = lambda value, *rest: node.seen.append(value) or (None, value)
    np.testing.assert_array_equal(C.user_function(node).eval({x: [1, 3]}), np.eye(4)[[1, 3]])
    assert node.seen[0].is_sparse()
    node = Scaled(C.one_hot(pair, 4, sparse_output=True))
    np.testing.assert_array_equal(C.user_function(node).eval({pair: [[1, 3]]}), 2 * np.eye(4)[[[1, 3]]])


def test_functions_are_called_in_the_order_of_the_graph():
    """As in CNTK, where those of a Faster R-CNN draw samples from one generator of random numbers."""
    calls = []

    class Logged(Scaled):
        def forward(self, *arguments):
            calls.append(self.name)
            return super().forward(*arguments)

    x, w, b = C.input_variable(3), C.parameter((3, 3), init=np.eye(3, dtype=np.float32)), C.parameter(3)
    a = C.user_function(Logged(C.times(C.tanh(C.times(x, w)), w), name="a"))
    c = C.user_function(Logged(b * x, name="b"))
    d, e = C.user_function(Logged(x, name="c")), C.user_function(Logged(a + c, name="d"))
    product = e * C.user_function(Logged(d * 2, name="e"))
    f = product + C.user_function(Logged(c, name="f")) + C.user_function(Logged(C.reduce_sum(b) * x, name="g"))
    f.eval({x: np.ones((2, 3))})
    assert "".join(calls) == "abdcefg"
    calls.clear()
    trainer = C.Trainer(None, (C.reduce_sum(f), None), [C.sgd(f.parameters, 0.1)])
    trainer.train_minibatch({x: np.ones((2, 3))})
    assert "".join(calls) == "abdcefg"


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


@pytest.mark.parametrize("makes", [lambda inputs: None, lambda inputs: inputs[0], lambda inputs: 1 / 0])
def test_clone_must_return_a_function(makes):
    class Odd(Scaled):
        def clone(self, cloned_inputs):
            assert type(cloned_inputs) is tuple  # as in CNTK
            return makes(cloned_inputs)

    with pytest.raises(RuntimeError, match=r"Odd\): clone (returned|raised)"):
        C.user_function(Odd(C.input_variable(2))).clone("share")


def test_clone_may_make_variables_of_its_inputs():
    class Casts(Scaled):
        def clone(self, cloned_inputs):
            cloned_inputs[0].__class__ = C.Variable  # as programs for CNTK do, which passes objects without properties
            return Casts(cloned_inputs[0])

    w, x = C.parameter(2, init=3), C.input_variable(2)
    copy = C.element_times(C.user_function(Casts(w)), x).clone("clone")
    [parameter] = copy.parameters
    assert type(parameter) is C.Parameter and parameter is not w
    assert copy.eval({copy.arguments[0]: [[1, 2]]}).tolist() == [[6, 12]]  # twice the parameter


def test_forward_may_modify_its_argument():
    class AddsInPlace(Scaled):
        def forward(self, argument, device=None, outputs_to_retain=None):
            argument += 1
            return None, argument

    x = C.input_variable(2)
    data = np.array([[1, 2]], np.float32)
    assert C.user_function(AddsInPlace(x)).eval({x: data}).tolist() == [[2, 3]]
    assert data.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "outputs", [lambda x: C.output_variable(x.shape, x.dtype, x.dynamic_axes), lambda x: [3], lambda x: []]
)
def test_infer_outputs_must_return_a_list_of_variables(outputs):
    class Wrong(Scaled):
        def infer_outputs(self):
            return outputs(self.inputs[0])

    with pytest.raises(RuntimeError, match="infer_outputs returned .*\nFix: return a list"):
        C.user_function(Wrong(C.input_variable(2)))


def test_a_node_of_the_graph_serializes_a_record_of_the_user_function():
    """Source: CNTK 2.7."""
    x = C.input_variable(2)
    node = Scaled(x, name="mine", scale=3.0)
    assert node.op_name == f"{Scaled.__module__}.Scaled" and node.serialize() == {"scale": 3.0}
    function = (C.user_function(node) + 1).find_by_name("mine")
    assert function.op_name == "UserFunction" and function.serialize() == {
        "module": Scaled.__module__, "class": "Scaled", "op_name": node.op_name, "state": {"scale": 3.0}, "version": 1,
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
