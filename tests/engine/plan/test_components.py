"""Components of graphs: in the order of computation, and which of them are recurrent loops."""

import pytest

import cntkjax as C
from cntkjax.engine.plan.components import strongly_connected_components
from tests.engine.lower.test_loops import sequences


def test_cycle_without_a_delay_is_an_error():
    x = C.sequence.input_variable(2)
    h = C.placeholder(shape=2)
    bad = C.tanh(x + h)
    bad.replace_placeholders({h: bad})
    with pytest.raises(ValueError, match="cycle without a delayed value"):
        bad.eval({x: sequences([2], 2)})


def test_a_delay_by_no_step_in_a_loop_is_an_error():
    x = C.sequence.input_variable(2)
    h = C.placeholder(shape=2)
    bad = C.tanh(x + C.sequence.past_value(h, time_step=0))
    bad.replace_placeholders({h: bad})
    with pytest.raises(ValueError, match="by no step"):
        bad.eval({x: sequences([2], 2)})


def test_loop_that_looks_both_ways_is_an_error():
    x = C.sequence.input_variable(2)
    h = C.placeholder(shape=2)
    bad = C.tanh(x + C.sequence.past_value(h) + C.sequence.future_value(h))
    bad.replace_placeholders({h: bad})
    with pytest.raises(ValueError, match="both back and ahead"):
        bad.eval({x: sequences([2], 2)})


class Graph:
    """Nodes by name, each with the names of its operands."""

    def __init__(self, **operands):
        self.operands = operands

    def components(self, *roots):
        found = strongly_connected_components(roots, lambda node: iter(self.operands[node]))
        return [" ".join(sorted(component)) for component in found]


def test_operands_come_before_what_is_computed_from_them_each_once():
    assert Graph(a="", b="a", c="ab", d="cb").components("d", "b") == ["a", "b", "c", "d"]


def test_nodes_on_a_cycle_are_one_component():
    graph = Graph(x="", a="xc", b="a", c="b", y="c", z="zy")
    assert graph.components("z") == ["x", "a b c", "y", "z"]


def test_cycles_that_touch_are_one_component_and_others_are_not():
    assert Graph(a="bc", b="a", c="a").components("a") == ["a b c"]
    assert Graph(a="b", b="ac", c="d", d="c").components("a") == ["c d", "a b"]


def test_deep_graphs_take_no_recursion():
    graph = Graph(**{f"n{i}": [f"n{i - 1}"] if i else [] for i in range(5000)})
    assert graph.components("n4999") == [f"n{i}" for i in range(5000)]
