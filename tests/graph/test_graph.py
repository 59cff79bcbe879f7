"""Graphs: inference, order, placeholders, clones, search. Expected orders and texts are CNTK 2.7's."""

import numpy as np
import pytest

import cntkjax as C


def parts():
    x = C.input_variable(3, name="x")
    W, b, W2 = (C.parameter(s, name=n) for s, n in (((3, 2), "W"), (2, "b"), ((2, 2), "W2")))
    return x, W, b, W2


def test_inputs_are_visited_depth_first_in_the_order_of_operands():
    x, W, b, W2 = parts()
    assert C.times(C.times(x, W) + b, W2).inputs == (x, W, b, W2)
    assert C.plus(C.times(C.times(x, W), W2), b).inputs == (x, W, W2, b)
    y = C.input_variable(2, name="y")
    assert (y + C.times(x, W)).arguments == (y, x)


def test_every_operation_returns_a_composite_around_a_primitive():
    x, W, *_ = parts()
    f = C.times(x, W)
    assert f.is_composite and not f.is_primitive and f.root_function.is_primitive
    assert f.root_function.op_name == "Times" and f.output.owner is f.root_function
    assert f.output.uid == f.root_function.uid + "_Output_0"


def test_repr_and_str_show_names_shapes_and_axes():
    x, W, b, _ = parts()
    f = C.times(x, W)
    assert repr(x) == "Input('x', [#], [3])" and repr(W) == "Parameter('W', [], [3 x 2])"
    assert str(f + b) == "Composite(x: Tensor[3]) -> Tensor[2]"
    assert str(C.relu(x)) == "ReLU(x: Tensor[3]) -> Tensor[3]"
    s = C.sequence.input_variable(3, name="s")
    assert str(C.relu(s)) == "ReLU(s: Sequence[Tensor[3]]) -> Sequence[Tensor[3]]"
    assert str(C.relu(C.placeholder(name="p"))) == "ReLU(p: Sequence[tensor]) -> Sequence[tensor]"


def test_inferred_dimensions_are_filled_in_at_first_use():
    W = C.parameter((C.InferredDimension, 2), init=C.glorot_uniform())
    with pytest.raises(ValueError, match="no value yet"):
        _ = W.value
    f = C.times(C.input_variable((4, 3)), W)
    assert W.shape == (3, 2) and f.shape == (4, 2)
    assert W.value.shape == (3, 2) and np.abs(W.value).max() > 0


def test_inferred_dimensions_wait_for_placeholders():
    p, W = C.placeholder(), C.parameter((C.InferredDimension, 4))
    f = C.times(p, W) + 1
    assert f.shape == (-2,) and W.shape == (-1, 4)
    f.replace_placeholder(C.input_variable(3))
    assert f.shape == (4,) and W.shape == (3, 4)


def test_recurrence_gets_its_shape_from_outside_the_loop():
    s, h = C.sequence.input_variable(3), C.placeholder()
    f = C.relu(C.times(s, C.parameter((3, 4))) + C.times(C.sequence.past_value(h), C.parameter((4, 4))))
    assert f.shape == (4,) and f.placeholders == (h,)
    f.replace_placeholders({h: f})
    assert f.placeholders == () and f.shape == (4,)
    assert f.dynamic_axes == (C.Axis.default_batch_axis(), C.Axis.default_dynamic_axis())


@pytest.mark.parametrize("order", [lambda loop, v: loop + v, lambda loop, v: v + loop])
def test_nested_recurrences_get_their_shape_from_outside_both(order):
    v = C.sequence.input_variable((1, 4))

    def loop(step):
        p = C.placeholder()
        f = step(C.sequence.past_value(p))
        return f.replace_placeholders({p: f.output})

    f = loop(lambda h: C.tanh(order(loop(lambda g: C.sin(g + h)), v)))
    assert f.shape == (1, 4)
    expected = np.array([0.7615942, 0.9341569])  # of CNTK 2.7
    np.testing.assert_allclose(f.eval({v: [np.ones((2, 1, 4))]})[0], np.tile(expected, (4, 1)).T[:, None], rtol=1e-6)


def test_a_state_that_is_joined_with_an_input_gets_its_shape_from_the_weights_of_both():
    x, W = C.sequence.input_variable((1, 3)), C.parameter((5, 2), init=C.glorot_uniform(seed=1))

    def loop(initial_state):
        p = C.placeholder()
        f = C.tanh(C.times(C.splice(C.sequence.past_value(p, initial_state), x), W))
        return f.replace_placeholders({p: f.output})

    sequence = [np.ones((3, 1, 3), np.float32)]
    values = [loop(initial).eval({x: sequence})[0] for initial in (0, C.constant(0, (1, 2)))]
    assert values[0].shape == (3, 1, 2)
    np.testing.assert_array_equal(*values)


def test_operands_of_different_dynamic_axes():
    x, s = C.input_variable(3), C.sequence.input_variable(3)
    assert (x + s).dynamic_axes == s.dynamic_axes
    other = C.sequence.input_variable(3, sequence_axis=C.Axis("foo"))
    with pytest.raises(RuntimeError, match=r"(?s)do not match the dynamic axes \[#, \*\].*test_graph.py.*broadcast_as"):
        _ = s + other


@pytest.mark.parametrize("build, message", [
    (lambda: C.input_variable(3) + C.constant(np.ones(2)), "Plus: the shapes of the operands do not broadcast"),
    (lambda: C.times(C.input_variable(3), C.parameter((4, 2))),
     r"inner dimensions differ: 3 \(left axis -1\) against 4 \(right axis 0\)"),
    (lambda: C.input_variable(2, dtype=np.float64) + C.input_variable(2),
     "operands of different types: float64 and float32"),
    (lambda: C.sequence.past_value(C.input_variable(2)), "has no sequence axis"),
])
def test_operands_that_do_not_fit_are_an_error_when_the_graph_is_built(build, message):
    for caught in (ValueError, RuntimeError):  # CNTK raises either
        with pytest.raises(caught, match=f"(?s){message}.*test_graph.py"):
            build()


@pytest.mark.parametrize("method", ["clone", "share", "freeze"])
def test_a_clone_has_parameters_by_its_method(method):
    x, W, b, _ = parts()
    f = C.plus(C.times(x, W), b, name="z")
    b.value = [1, 2]
    g = f.clone(method)
    assert g.arguments[0] is not x and g.arguments[0].name == "x" and g.name == "z"
    leaves = g.constants if method == "freeze" else g.parameters
    assert [v.name for v in leaves] == ["W", "b"]
    assert (leaves[0] is W) == (method == "share")
    b.value = [3, 4]
    expected = [[3, 4]] if method == "share" else [[1, 2]]
    np.testing.assert_array_equal(g.eval({g.arguments[0]: np.ones((1, 3))}), expected)


def test_clone_with_substitutions_omits_replaced_nodes():
    x, W, b, W2 = parts()
    f = C.plus(C.times(C.times(x, W), W2), b)
    new = C.input_variable(2, name="n")
    g = f.clone("clone", {f.root_function.inputs[0]: new})
    assert g.arguments == (new,) and [p.name for p in g.parameters] == ["b"]


def test_clone_of_a_recurrence_is_a_recurrence():
    s, h = C.sequence.input_variable(1), C.placeholder()
    f = s + C.sequence.past_value(h)
    f.replace_placeholders({h: f})
    t = C.sequence.input_variable(1)
    np.testing.assert_array_equal(f.clone("clone", {s: t}).eval({t: [[[1], [2], [3]]]})[0], [[1], [3], [6]])


@pytest.mark.parametrize("method", ["share", "clone", "freeze"])
def test_a_substitute_that_computes_from_the_graph_closes_a_loop(method):
    """Greedy decoding: the history is what the model computed one step earlier. Numbers are CNTK's."""
    x, history = C.sequence.input_variable(3, name="x"), C.sequence.input_variable(3, name="history")
    W = C.parameter((3, 3), init=np.array([[0, 1, 0.5], [1, 0, 0], [0.25, 1, 1]], "f"))
    model = C.plus(x, C.times(history, W))
    greedy = model.clone(method, {history: C.sequence.past_value(C.hardmax(model)).output})
    assert [v.name for v in greedy.arguments] == ["x"]
    scores = greedy.eval({greedy.arguments[0]: [np.array([[1, 2, 3], [0.5, 0.5, 0.75], [0.5, 0, 0.5]], "f")]})[0]
    np.testing.assert_array_equal(scores, [[1, 2, 3], [0.75, 1.5, 1.75], [0.75, 1, 1.5]])


@pytest.mark.parametrize(("substitutes", "arguments", "sums"), [
    (lambda x, y, relu, product: {product.output: C.tanh(product).output}, "x", [1.4621172, 2.7615942]),
    (lambda x, y, relu, product: {product.output: relu.output}, "x", [2, 4]),
    (lambda x, y, relu, product: {relu.output: C.tanh(relu).output}, "x=", [1.1423912, 1.4460414]),
    (lambda x, y, relu, product: {relu.output: C.times(x, 2 * np.eye(2, dtype="f")).output}, "x=", [3, 6]),
    (lambda x, y, relu, product: {x: C.sigmoid(x).output}, "x=", [1.0965879, 1.3211956]),
    (lambda x, y, relu, product: {product.output: C.tanh(y).output}, "y= x", [1.4621172, 2.7615942]),
])
def test_a_substitute_is_copied_if_it_depends_on_a_copied_node(substitutes, arguments, sums):
    """A substitute that uses the variable it replaces uses its copy. Recorded from CNTK; `=` marks originals."""
    x, y = C.input_variable(2, name="x"), C.input_variable(2, name="y")
    relu = C.relu(x)
    product = C.times(relu, np.eye(2, dtype="f") / 2)
    copy = C.plus(product, relu).clone("share", substitutes(x, y, relu, product))
    assert " ".join(v.name + "=" * (v in (x, y)) for v in copy.arguments) == arguments
    data = {"x": [[1, 2]], "y": [[0.5, 1]]}
    np.testing.assert_allclose(copy.eval({v: data[v.name] for v in copy.arguments})[0], sums, rtol=1e-6)


def test_shared_parameter_is_cloned_once():
    W = C.parameter((2, 2), name="W")
    f = C.times(C.times(C.input_variable(2), W), W)
    assert len(f.clone("clone").parameters) == 1


def test_function_from_python_keeps_the_order_of_its_arguments():
    @C.Function
    def f(a, b):
        return b - a

    assert [v.name for v in f.signature] == ["a", "b"]
    x, y = C.input_variable(1), C.input_variable(1)
    np.testing.assert_array_equal(f(x, y).eval({x: [[1]], y: [[5]]}), [[4]])
    np.testing.assert_array_equal(f(b=x, a=y).eval({x: [[1]], y: [[5]]}), [[-4]])


@pytest.mark.parametrize("call, message", [
    (lambda f, x: f(x), "expected 2 arguments, got 1"),
    (lambda f, x: f(x, x, x), "expected 2 arguments, got 3"),
    (lambda f, x: f(x, c=x), "unexpected keyword argument 'c'"),
])
def test_invalid_calls_are_errors(call, message):
    f = C.Function(lambda a, b: a + b)
    with pytest.raises(TypeError, match=message):
        call(f, C.input_variable(1))


def test_blocks_show_as_one_operation_and_compute_what_they_wrap():
    @C.BlockFunction("Scale", "s")
    def scale(p, q):
        return p * q + 1

    x = C.input_variable(2, name="x")
    f = scale(x, C.constant([2, 3]))
    block = f.root_function
    assert block.is_block and block.op_name == "Scale" and f.output.name == "s"
    assert [inner.name for inner, _ in block.block_arguments_mapping] == ["x", ""], "as what stands for them outside"
    assert block.block_root.op_name == "Plus"
    np.testing.assert_array_equal(f.eval({x: [[1, 1]]}), [[3, 4]])
    np.testing.assert_array_equal(f.clone("clone", {x: x}).eval({x: [[1, 1]]}), [[3, 4]])


def test_search_by_name():
    x, W, b, _ = parts()
    inner = C.times(x, W, name="product")
    f = C.plus(inner, b, name="sum")
    assert f.find_by_name("product") is inner.root_function
    assert f.find_by_name("W") is W and f.W is W
    assert f.find_by_name("nothing") is None
    with pytest.raises(AttributeError, match="no attribute or member 'nothing'"):
        _ = f.nothing
    twice = C.plus(C.relu(x, name="same"), C.tanh(x, name="same"))
    assert len(twice.find_all_with_name("same")) == 2
    with pytest.raises(ValueError, match="multiple"):
        twice.find_by_name("same")


@pytest.mark.parametrize("model", [
    lambda dense, p: C.layers.Sequential([dense, C.layers.Dense(2)]),
    lambda dense, p: C.layers.Sequential([lambda x: C.times(x, p), dense]),
    lambda dense, p: C.layers.Dense(2, name="W"),
])
def test_a_name_that_several_layers_use_is_no_attribute(model):
    z = model(C.layers.Dense(2), C.parameter((3, 3), name="W"))(C.input_variable(3))
    with pytest.raises(ValueError, match='multiple items are called "W"'):
        _ = z.W


def test_attributes_of_a_block_that_was_found_by_name_are_its_own():
    z = C.layers.Sequential([C.layers.Dense(4, name="one"), C.layers.Dense(2, name="two")])(C.input_variable(3))
    assert (z.one.W.shape, z.two.W.shape) == ((3, 4), (4, 2))


def test_deep_graphs_need_no_recursion():
    x = C.input_variable(1)
    f = x
    for _ in range(3000):
        f = C.plus(f, 1)
    assert len(f.inputs) == 3001
    g = f.clone("share")
    assert len(g.inputs) == 3001


def test_combine_has_the_outputs_themselves():
    x = C.input_variable(1)
    a, b = x + 1, x + 2
    f = C.combine([a, b])
    assert f.outputs == (a.output, b.output)
    outputs = f.eval({x: [[1]]})
    np.testing.assert_array_equal(outputs[a.output], [[2]])
    np.testing.assert_array_equal(outputs[b.output], [[3]])
    g = f.clone("share", {x: x})
    assert g.outputs[0] is not a.output and len(g.outputs) == 2


def test_forward_and_backward():
    x = C.input_variable(3, needs_gradient=True)
    f = x * x * 2
    state, values = f.forward({x: np.ones((2, 3))}, [f.output], [f.output])
    np.testing.assert_array_equal(values[f.output], 2 * np.ones((2, 3)))
    gradients = f.backward(state, {f.output: 3 * np.ones((2, 3))}, {x})
    np.testing.assert_array_equal(gradients[x], 12 * np.ones((2, 3)))
    assert f.forward({x: np.ones((2, 3))})[0] is None


def test_grad_with_root_chosen_variables_and_outputs():
    x, W, b, W2 = parts()
    hidden = C.times(x, W)
    loss = C.times(hidden + b, W2)
    W2.value = np.eye(2)
    data = {x: np.ones((4, 3))}
    gradients, value = loss.grad(data, wrt=[W, b], outputs=[hidden.output])
    np.testing.assert_array_equal(gradients[W], 4 * np.ones((3, 2)))
    np.testing.assert_array_equal(gradients[b], [4, 4])
    np.testing.assert_array_equal(value, np.zeros((4, 2)))
    np.testing.assert_array_equal(loss.grad(data, wrt=[W], grad_root=hidden.output), 4 * np.ones((3, 2)))
    with pytest.raises(ValueError, match="needs_gradient == True"):
        loss.grad(data)
