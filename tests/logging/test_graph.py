"""Walking through graphs (orders recorded from CNTK 2.7), finding nodes, and drawing."""
import shutil
import sys

import pytest

import cntkjax as C
from cntkjax.logging import graph
from cntkjax.logging._drawing import draw
from cntkjax.logging._rendering import layered_layout


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
def test_nodes_precede_their_operands_and_blocks_are_entered_last(model, depth, expected):
    assert names(graph.depth_first_search(model, lambda node: True, depth)) == expected.split()


@pytest.mark.parametrize(("depth", "expected"), [
    (0, "Second W2 First W1 x"), (1, "Second First W1 x Times W2"), (2, "Second First Times W2 x Times W1"),
    (-1, "Second First Times W2 x Times W1"),
])
def test_an_entered_block_counts_towards_the_depth_of_its_operands(depth, expected):
    def layer(name, number):
        weight = C.Parameter((2, 2), name=f"W{number}")
        return C.BlockFunction(name, name)(lambda a: C.times(a, weight))

    chain = layer("Second", 2)(layer("First", 1)(C.input_variable(2, name="x")))
    assert names(graph.depth_first_search(chain, lambda node: True, depth)) == expected.split()


def test_a_walk_that_begins_inside_a_block_ends_at_its_arguments():
    x = C.input_variable(3, name="x")
    f = C.layers.Dense(2, name="second")(C.layers.Dense(4, name="first")(x))
    root = f.second.block_root
    assert names(graph.depth_first_search(root, lambda node: True)) == ["Plus", "Times", "first", "W", "b"]
    (argument,) = graph.find_all_with_name(root, "first")
    assert argument.is_placeholder and argument is f.second.block_arguments_mapping[0][0]
    assert "Dense" not in graph.plot(root)


def test_the_visitor_selects(model):
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


def test_plot_lists_operations_operands_first():
    x, p = C.input_variable(3), C.Parameter(3)
    model = C.tanh(x * p)
    product = model.root_function.inputs[0]
    assert graph.plot(model) == (f"ElementTimes({x.uid}, {p.uid}) -> {product.uid};\n\n"
                                 f"Tanh({product.uid}) -> {model.output.uid};\n")


def test_the_order_of_lines_is_that_of_cntk():
    x, y = C.input_variable(3), C.input_variable(3)
    total, tanh = x + y, C.tanh(x)
    model = C.combine([C.splice(total * tanh, C.relu(tanh), total - y), total])
    lines = graph.plot(model).split("\n\n")
    assert [line.split("(")[0] for line in lines] == [
        "Minus", "ReLU", "Tanh", "Plus", "ElementTimes", "Splice", "Combine", "Combine"]
    assert lines[-1] == f"Combine({model.outputs[0].uid}, {total.output.uid}) -> {model.outputs[0].uid};\n"


def test_constants_in_blocks_are_not_shown():
    x = C.sequence.input_variable(3)
    assert graph.plot(C.sequence.last(x)).startswith(f"Sequence::Slice({x.uid}) -> Block")


def test_a_comma_remains_of_constants_in_blocks_that_come_last():
    x, y = C.input_variable(3), C.input_variable(3)
    p = [C.placeholder() for _ in range(3)]
    between = C.as_block(p[0] + p[1] + p[2], [(p[0], x), (p[1], C.constant(1)), (p[2], y)], "B")
    for model, shown in (
        (x / 255.0, f"{x.uid}, "), (2 / x, x.uid), (C.param_relu(C.constant(0.1, shape=3), x), f"{x.uid}, "),
        (C.element_divide(C.constant(1), C.constant(2)), ""), (between, f"{x.uid}, {y.uid}"),
    ):  # recorded
        root = model.root_function
        assert graph.plot(model) == f"{root.op_name}({shown}) -> {model.output.uid};\n"


def test_dot_source_lists_nodes_and_edges(tmp_path):
    x = C.input_variable(3, name='in"put')
    model = C.tanh(x * 2, name="t")
    graph.plot(model, tmp_path / "it.dot")
    lines = (tmp_path / "it.dot").read_text().splitlines()
    assert lines[0] == "digraph network_graph {"
    assert any(line.startswith(f'"{x.uid}" [label="Input\\nin\\"put\\n[#](3,)", shape=egg') for line in lines)
    assert any('[label="2.0", shape=box, color=white' in line for line in lines)
    assert any('[label="*", shape=ellipse' in line for line in lines)
    assert f'"{x.uid}" -> "{model.root_function.inputs[0].owner.uid}" [label="in\\"put\\n[#](3,)"];' in lines
    assert sum(" -> " in line for line in lines) == 4


def test_drawings_are_written_to_files(tmp_path, model, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)  # without Graphviz
    text = graph.plot(model, tmp_path / "it.txt")
    assert (tmp_path / "it.txt").read_text() == text == graph.plot(model)
    for kind, begins in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        graph.plot(model, tmp_path / f"it.{kind}")
        assert (tmp_path / f"it.{kind}").read_bytes().startswith(begins)


def test_graphviz_is_used_if_it_is_installed(tmp_path, monkeypatch):
    dot = tmp_path / "dot"
    dot.write_text('#!/bin/sh\necho "$@"; cat\n')
    dot.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda program: str(dot))
    graph.plot(C.tanh(C.input_variable(3)), tmp_path / "it.svg")
    assert (tmp_path / "it.svg").read_text().startswith("-Tsvg\ndigraph network_graph {")


def test_files_that_cannot_be_written(tmp_path, monkeypatch):
    model = C.tanh(C.input_variable(3))
    with pytest.raises(ValueError, match="has none of the extensions .svg"):
        graph.plot(model, str(tmp_path / "it.jpg"))
    monkeypatch.setattr(shutil, "which", lambda program: None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="apt-get install graphviz"):
        graph.plot(model, str(tmp_path / "it.png"))


def test_nodes_lie_in_layers_below_their_operands():
    x = C.sequence.input_variable(3)
    model = C.sequence.last(C.layers.Recurrence(C.layers.RNNStep(3))(x)) + C.sequence.first(x)
    drawing = draw(model)
    positions, routes = layered_layout(drawing)
    assert len(set(positions.values())) == len(positions)
    closing = [route for route in routes if route[-1][1] <= route[0][1]]
    assert len(closing) == 1, "the loop closes once, everything else goes down"
    for (source, target, _), route in zip(drawing.edges, routes, strict=True):
        assert (route[0], route[-1]) == (positions[source], positions[target])
        assert not set(route[1:-1]) & set(positions.values()), "long edges pass beside nodes"


def test_html_representation_in_notebooks(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    model = C.layers.Dense(2, name="a<b")(C.input_variable(3))
    text = model._repr_html_()
    assert text.startswith("<p><code>a&lt;b: Dense(Tensor[3])") and "<svg" in text and "<table>" in text
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "<svg" not in model._repr_html_() and "<table>" in model._repr_html_()


def test_operands_of_an_operation_that_is_a_block_precede_what_is_inside():
    x, p = C.input_variable((3, 4), name="x"), C.parameter((3, 4), name="p")

    def titles(f):
        return [node.name or node.op_name for node in graph.depth_first_search(f, lambda node: True, depth=-1)]

    assert titles(C.reduce_sum(p, 0)) == ["ReduceElements", "p", "MultiAxisReduce", "_static_axes_subop"]
    assert titles(C.squared_error(p, x)) == ["SquaredError", "p", "x", "ReduceElements", "ElementTimes", "Minus"]
    dense = C.layers.Dense(2)(p)
    assert titles(dense) == ["Dense", "Plus", "Times", "p", "W", "b"]
    both = C.reduce_sum(x, (0, C.Axis.default_batch_axis()))
    assert titles(both)[2:] == ["MultiAxisReduce", "_batch_axes_subop", "_static_axes_subop"]
