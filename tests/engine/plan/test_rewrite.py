"""Rewritten blocks: computed as one node with the values of their composition, and only if the blocks match."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax import sequence as S
from cntkjax.engine.plan.plan import Plan
from cntkjax.graph.build import note_edit
from cntkjax.graph.errors import AxisError
from cntkjax.ops._blocks import as_one_block

LENGTHS = (3, 1, 4, 2)


def names(function):
    return [node.primitive.name for node in Plan(function.outputs).nodes]


def data(dtype, shape=(2,)):
    rng = np.random.default_rng(3)
    return [rng.standard_normal((n, *shape)).astype(dtype) for n in LENGTHS]


def test_a_block_of_the_name_with_another_graph_inside_is_opened():
    x = S.input_variable(2)
    block = as_one_block("Sequence::Softmax", lambda v: C.exp(v) + 1, [x])
    assert names(block) == ["Exp", "Plus"]
    np.testing.assert_allclose(block.eval({x: data(np.float32)})[0], np.exp(data(np.float32)[0]) + 1, rtol=1e-6)
    halved = as_one_block("Sequence::Slice", lambda v: S.last(C.element_times(v, 0.5)), [x])
    assert names(halved) == ["ElementTimes", "Sequence::Last"]


def inner_nodes(function):
    inside = C.logging.graph.depth_first_search(function, lambda _: True, depth=-1)
    return {node.op_name: node for node in inside if isinstance(node, C.Function)}


def test_an_edited_block_is_opened():
    softmax = S.softmax(S.input_variable(2))
    assert names(softmax) == ["Sequence::Softmax"]
    power = inner_nodes(softmax)["Exp"].root_function
    power.node_inputs = [C.negate(power.node_inputs[0]).output]
    note_edit()
    assert names(softmax)[:3] == ["ReduceElements", "ReconcileDynamicAxis", "Minus"]


def test_clones_and_loaded_models_are_rewritten_too(tmp_path):
    x, y = S.input_variable(2), S.input_variable(2)
    softmax = S.softmax(x)
    assert names(softmax.clone("share", {x: y})) == ["Sequence::Softmax"]
    softmax.save(str(tmp_path / "softmax.model"))
    loaded = C.Function.load(str(tmp_path / "softmax.model"))
    assert names(loaded) == ["Sequence::Softmax"]
    for a, b in zip(loaded.eval(data(np.float32)), softmax.eval(data(np.float32)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_nodes_inside_a_rewritten_block_can_be_evaluated():
    x = S.input_variable(2)
    softmax = S.softmax(x)
    power = inner_nodes(softmax)["Exp"]
    values = C.combine([softmax, power]).eval({x: data(np.float32)})
    powers = values[power.output]
    np.testing.assert_allclose(powers[2], np.exp(data(np.float32)[2] - data(np.float32)[2].max(0)), rtol=1e-5)
    np.testing.assert_allclose(values[softmax.output][2], powers[2] / powers[2].sum(0), rtol=1e-5)


def test_shapes_are_updated_when_a_placeholder_is_replaced():
    placeholder = C.placeholder()
    result = S.softmax(placeholder)
    x = S.input_variable(2)
    result.replace_placeholder(x)
    assert names(result) == ["Sequence::Softmax"]
    np.testing.assert_allclose(result.eval({x: data(np.float32)})[0].sum(0), 1, rtol=1e-6)


def test_a_softmax_inside_a_loop_along_its_own_sequences_is_an_error():
    x, h = S.input_variable(2), C.placeholder(2)
    result = S.softmax(x + S.past_value(h))
    result = result.replace_placeholders({h: result})
    with pytest.raises(AxisError, match="recurrent loop"):
        result.eval({x: data(np.float32)})


def test_blocks_are_matched_again_while_a_program_is_traced_with_constants_on_the_device():
    for length in (2, 40):  # one program, traced again for the second graph, which came after an edit
        note_edit()
        x = S.input_variable(2)
        first = S.first(x)
        inside = inner_nodes(first)["PastValue"]  # its operands go to the device
        twice = first * 2
        values = C.combine([twice, inside]).eval({x: [np.full((length, 2), 3, "f")]})
        np.testing.assert_array_equal(values[twice.output], [[6, 6]])


def test_a_long_chain_of_blocks_is_rewritten_without_recursion():
    h = C.input_variable(4)
    for _ in range(300):
        h = C.log_softmax(h)
    assert [node.op_name for node in Plan([h.output]).nodes] == ["LogSoftmax"] * 300


def test_a_rule_that_follows_a_cycle_without_a_delay_ends():
    x = C.input_variable(2)
    quotient = x / C.square(x)
    cycle = C.sin(quotient).clone("share", {x: quotient})
    with pytest.raises(ValueError, match="cycle without a delayed value"):
        cycle.eval()
