"""Clones, substitutes and search. Expected orders and numbers are CNTK 2.7's."""

import numpy as np
import pytest

import cntkjax as C
from tests.graph.parts import parts


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


def test_a_frozen_parameter_may_be_of_a_wider_type_than_the_constant_beside_it():
    f = C.parameter((), init=0.5, dtype=np.float64) * C.constant(1.5)
    g = f.clone("freeze")
    assert g.dtype == np.float64
    np.testing.assert_array_equal(g.eval(), 0.75)


@pytest.mark.parametrize("build", [
    lambda x, p: C.layers.Dense(2)(x + p),
    lambda x, p: p * C.sin(x + C.parameter(3)),
    lambda x, p: C.times(C.times(x, C.parameter((3, 4))) + C.parameter(4), C.parameter((4, 3))) * p,
])
def test_parameters_of_a_clone_are_created_in_their_order(build):
    f = build(C.input_variable(3), C.parameter(1))
    copies = f.clone("clone").parameters
    created = sorted(copies, key=lambda p: (len(p.uid), p.uid))
    assert [p.shape for p in created] == [p.shape for p in copies] == [p.shape for p in f.parameters]


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


def test_a_block_that_is_applied_to_parameters_and_constants_contains_them():
    x, p = C.input_variable(2, name="x"), C.parameter(2, name="p")
    double = C.BlockFunction("Double", "double")(lambda a, b: a * C.constant(2, name="two") + b)

    def bound(f):
        return [outer.name for _, outer in f.root_function.block_arguments_mapping]

    for f, outside, order in [
        (double(x, p), ["x"], ["two", "p", "x"]),
        (double(p, x), ["x"], ["p", "two", "x"]),
        (double(C.constant(1, name="k"), p), [], ["k", "two", "p"]),
        (C.layers.Dense(2)(p), [], ["W", "p", "b"]),
        (C.squared_error(x, p).clone("share"), ["x", "p"], ["x", "p"]),
    ]:
        assert bound(f) == outside
        assert [v.name for v in f.inputs] == [v.name for v in f.root_function.inputs] == order
    assert [q.name for q in C.layers.Dense(2)(p).parameters] == ["W", "p", "b"]
    assert C.layers.Dense(2, init=1)(C.constant([1, 2])).eval().tolist() == [3, 3]


def test_values_that_replace_placeholders_of_blocks_go_inside():
    """The orders are those of CNTK 2.7."""
    a, p, k = C.placeholder(name="a"), C.parameter(2, name="p"), C.constant([1, 2], name="k")
    models = C.layers.Dense(2), C.layers.Sequential([C.layers.Dense(2), C.layers.Dense(2)])
    for value, model, names in [
        (p, models[0], ["W", "p", "b"]), (k, models[0], ["W", "k", "b"]), (p, models[1], ["W", "b", "W", "p", "b"]),
        (p * 2, models[0], ["W", "b", "p", ""]),
    ]:
        f = model(a).clone("clone").replace_placeholder(value)
        assert [v.name for v in f.inputs] == names
        assert [v.name for v in f.clone("clone").inputs] == names
    f = C.squared_error(C.input_variable(2, name="x"), a).replace_placeholders({a: p})
    assert [outer.name for _, outer in f.root_function.block_arguments_mapping] == ["x"]
    dense = C.layers.Dense(2, init=1)
    dense.replace_placeholders({dense.placeholders[0]: k})
    assert dense.eval().tolist() == [3, 3]


@pytest.mark.parametrize("step", [C.softsign, C.elu, C.selu, C.softplus, C.leaky_relu], ids=lambda f: f.__name__)
def test_a_loop_of_double_precision_is_copied_with_its_blocks(step):
    x, h = C.sequence.input_variable(2, dtype=np.float64), C.placeholder()
    f = step(C.sequence.past_value(h)) + x
    f = f.replace_placeholders({h: f.output})
    data = [np.array([[0.5, -1], [1, 2], [0.25, 0]])]
    np.testing.assert_array_equal(f.clone("clone").eval(data), f.eval(data))
    assert {c.dtype for c in f.constants} == {np.float64}  # also inside of the block, as in checkpoints of CNTK
