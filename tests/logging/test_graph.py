"""Walking through graphs (orders recorded from CNTK 2.7), finding nodes, and drawing."""
import shutil

import pytest

import cntkjax as C
from cntkjax.logging import graph


@pytest.fixture(scope="module")
def model():
    """Two nested blocks and a block beside them that shares a parameter."""
    inner_weight, outer_bias = C.Parameter((3, 3), name="pi"), C.Parameter(3, name="po")

    @C.BlockFunction("Inner", "inner_name")
    def inner(a, b):
        return C.plus(C.times(a, inner_weight), b)

    @C.BlockFunction("Outer", "outer_name")
    def outer(a):
        return C.tanh(inner(a, outer_bias))

    x, y = C.input_variable(3, name="x"), C.input_variable(3, name="y")
    return C.combine([outer(x + C.Constant(1, name="one")), inner(x, y) * C.Constant(2, name="c")], name="z")


def names(nodes):
    return [getattr(node, "op_name", "") or node.name for node in nodes]


@pytest.mark.parametrize(("depth", "expected"), [
    (0, "Combine Outer pi po Plus x one ElementTimes Inner y c"),
    (1, "Combine Outer ElementTimes Inner c Plus x one Tanh Inner pi po y Plus Times"),
    (2, "Combine Outer ElementTimes Inner c Plus x one Tanh Inner y Plus Times pi Plus Times po"),
    (-1, "Combine Outer ElementTimes Inner c Plus x one Tanh Inner y Plus Times pi Plus Times po"),
])
def test_nodes_come_before_their_operands_and_blocks_open_last(model, depth, expected):
    assert names(graph.depth_first_search(model, lambda node: True, depth)) == expected.split()


@pytest.mark.parametrize(("depth", "expected"), [
    (0, "Second W2 First W1 x"), (1, "Second First W1 x Times W2"), (2, "Second First Times W2 x Times W1"),
    (-1, "Second First Times W2 x Times W1"),
])
def test_a_block_that_was_opened_counts_for_what_lies_before_it(depth, expected):
    def layer(name, number):
        weight = C.Parameter((2, 2), name=f"W{number}")
        return C.BlockFunction(name, name)(lambda a: C.times(a, weight))

    chain = layer("Second", 2)(layer("First", 1)(C.input_variable(2, name="x")))
    assert names(graph.depth_first_search(chain, lambda node: True, depth)) == expected.split()


def test_the_visitor_chooses(model):
    parameters = graph.depth_first_search(model, lambda node: isinstance(node, C.Parameter), depth=-1)
    assert names(parameters) == ["pi", "po"]


def test_recurrent_graphs_are_walked_once():
    x = C.sequence.input_variable(3, name="s")
    state = C.placeholder(name="h")
    loop = C.plus(x, C.sequence.past_value(state), name="loop")
    loop.replace_placeholders({state: loop})
    assert sorted(names(graph.depth_first_search(loop, lambda node: bool(node.name)))) == ["Plus", "s"]


def test_finding_by_name_and_uid(model):
    assert names(graph.find_all_with_name(model, "po")) == ["po"]
    assert graph.find_by_name(model, "outer_name").op_name == "Outer"
    assert graph.find_by_name(model, "nothing") is None
    assert graph.find_all_with_name(model, "nothing") == []
    x = graph.find_by_name(model, "x")
    assert graph.find_by_uid(model, x.uid) is x
    assert graph.find_by_uid(model, "nothing") is None


def test_a_name_must_be_unique_and_text():
    x = C.input_variable(3)
    both = C.plus(x, 1, name="dup") + C.plus(x, 2, name="dup")
    assert len(graph.find_all_with_name(both, "dup")) == 2
    with pytest.raises(ValueError, match='multiple functions matching "dup"'):
        graph.find_by_name(both, "dup")
    with pytest.raises(ValueError, match="node name has to be a string"):
        graph.find_by_name(both, None)


def test_outputs_of_all_functions(model):
    owners = [output.owner.op_name for output in graph.get_node_outputs(model)]
    assert owners == ["Outer", "ElementTimes", "Outer", "Plus", "ElementTimes", "Inner"]


def test_a_text_has_a_line_for_each_operation_operands_first():
    x, p = C.input_variable(3), C.Parameter(3)
    model = C.tanh(x * p)
    product = model.root_function.inputs[0]
    assert graph.plot(model) == (f"ElementTimes({x.uid}, {p.uid}) -> {product.uid};\n\n"
                                 f"Tanh({product.uid}) -> {model.output.uid};\n\n")


def test_a_drawing_for_graphviz(tmp_path):
    model = C.tanh(C.input_variable(3, name='in"put') * 2)
    graph.plot(model, tmp_path / "it.dot")
    text = (tmp_path / "it.dot").read_text()
    assert text.startswith("digraph {")
    assert '[shape=ellipse, label="Input in\\"put"]' in text
    assert 'label="Tanh"]' in text
    assert text.count(" -> ") == 3


def test_other_files_need_graphviz(tmp_path, monkeypatch):
    model = C.tanh(C.input_variable(3))
    with pytest.raises(ValueError, match="ends in none of .svg"):
        graph.plot(model, str(tmp_path / "it.jpg"))
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(ImportError, match="apt-get install graphviz"):
        graph.plot(model, str(tmp_path / "it.png"))
