"""Rewritten blocks: computed as one node with the values of their composition, and only if the blocks match."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cntkjax as C
from cntkjax import sequence as S
from cntkjax.engine.data.layout import Layout
from cntkjax.engine.plan import rewrite
from cntkjax.engine.plan.plan import Plan
from cntkjax.graph.build import note_edit
from cntkjax.graph.errors import AxisError
from cntkjax.ops._blocks import as_one_block
from cntkjax.primitives import sequence as sequence_primitives
from cntkjax.primitives.reduce import STEPWISE, over_steps

OPERATIONS = {
    "softmax": (S.softmax, "Sequence::Softmax"),
    "first": (S.first, "Sequence::First"),
    "last": (S.last, "Sequence::Last"),
    "reduce_sum": (S.reduce_sum, "ReduceElements"),
    "reduce_max": (S.reduce_max, "ReduceElements"),
}
LENGTHS = (3, 1, 4, 2)


def names(function):
    return [node.primitive.name for node in Plan(function.outputs).nodes]


def data(dtype, shape=(2,)):
    rng = np.random.default_rng(3)
    return [rng.standard_normal((n, *shape)).astype(dtype) for n in LENGTHS]


def computed(op, dtype, shape=(2,)):
    """The nodes, values and gradients of an operation, weighted unequally."""
    x = S.input_variable(shape, dtype, needs_gradient=True)
    result = op(x)
    total = C.reduce_sum(result * C.sin(result + 1), C.Axis.all_axes())
    values, feed = result.eval({x: data(dtype, shape)}), {x: data(dtype, shape)}
    return names(result), [*values, *total.grad(feed, wrt=[x])]


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", OPERATIONS)
def test_values_and_gradients_equal_those_of_the_composition(name, dtype, monkeypatch):
    op, node = OPERATIONS[name]
    nodes, values = computed(op, dtype)
    assert node in nodes and not {"GatherPacked", "UnpackSequenceOp"} & set(nodes)
    monkeypatch.setattr(rewrite, "BLOCK_RULES", {})
    nodes, expected = computed(op, dtype)
    assert len(nodes) > 1
    tolerance = 5e-3 if dtype is np.float16 else 1e-5
    for a, b in zip(values, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(np.float64), b, rtol=tolerance, atol=tolerance)


def test_wide_samples_have_the_same_values(monkeypatch):
    values = computed(S.softmax, np.float32, (3000,))[1]
    monkeypatch.setattr(rewrite, "BLOCK_RULES", {})
    for a, b in zip(values, computed(S.softmax, np.float32, (3000,))[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("op, node", [(C.softmax, "Softmax"), (C.log_softmax, "LogSoftmax")])
def test_softmax_along_a_static_axis_equals_the_composition(op, node, dtype, axis, monkeypatch):
    samples = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(dtype) * 3
    samples[0, 1] = 2  # largest elements may be several

    def evaluated():
        x = C.input_variable((3, 4), dtype, needs_gradient=True)
        weighted = C.sin(op(x, axis=axis) * np.arange(12, dtype=dtype).reshape(3, 4))
        return names(weighted), [weighted.eval({x: samples}), weighted.grad({x: samples})]

    nodes, values = evaluated()
    assert node in nodes and "ReduceElements" not in nodes
    monkeypatch.setattr(rewrite, "BLOCK_RULES", {})
    nodes, expected = evaluated()
    assert nodes.count("ReduceElements") == 2
    tolerance = 2e-2 if dtype is np.float16 else 1e-5
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("channels", [2, 6])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_normalization_over_channels_equals_the_composition(channels, dtype, monkeypatch):
    image = np.random.default_rng(0).standard_normal((2, channels, 3, 4)).astype(dtype)

    def evaluated():
        x = C.input_variable(image.shape[1:], dtype, needs_gradient=True)
        normalized = C.local_response_normalization(x, 2, 1.5, 0.5, 0.75)
        return names(normalized), [normalized.eval({x: image}), C.sin(normalized).grad({x: image})]

    nodes, values = evaluated()
    assert nodes == ["LocalResponseNormalization"]
    monkeypatch.setattr(rewrite, "BLOCK_RULES", {})
    for a, b in zip(values, evaluated()[1], strict=True):
        assert a.dtype == b.dtype
        roundings = 4 * np.finfo(dtype).eps
        np.testing.assert_allclose(a.astype(np.float64), b, rtol=roundings, atol=roundings)


@pytest.mark.parametrize("also_read", [False, True], ids=["pooled only", "read elsewhere"])
@pytest.mark.parametrize("window, options", [
    ((3, 3), {"strides": (2, 2)}), ((3, 3), {"strides": (1, 2), "auto_padding": [True, False]}),
    ((2, 2), {"strides": (3, 3), "ceil_out_dim": True}),
], ids=["strides", "padding", "windows of padding alone"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_maxima_of_relu_equal_the_composition(dtype, window, options, also_read, monkeypatch):
    images = np.random.default_rng(0).integers(-3, 3, (2, 2, 6, 7)).astype(dtype)  # equal values, and zeros

    def evaluated():
        x = C.input_variable(images.shape[1:], dtype, needs_gradient=True)
        positive = C.relu(x)
        total = C.reduce_sum(C.sin(C.pooling(positive, C.MAX_POOLING, window, **options)), C.Axis.all_static_axes())
        total = total + C.reduce_sum(positive * positive, C.Axis.all_static_axes()) if also_read else total
        return names(total), [total.eval({x: images}), total.grad({x: images})]

    nodes, values = evaluated()
    assert "RectifiedPooling" in nodes and ("ReLU" in nodes) == also_read
    monkeypatch.setattr(rewrite, "NODE_RULES", {})
    nodes, expected = evaluated()
    assert {"ReLU", "Pooling"} <= set(nodes)
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_means_of_relu_are_not_those_of_its_operand():
    x = C.input_variable((1, 2, 2))
    mean = C.pooling(C.relu(x), C.AVG_POOLING, (2, 2))
    assert mean.eval({x: np.array([[[[-8, 4], [0, -4]]]], np.float32)}).item() == 1


def test_a_block_of_the_name_with_another_graph_inside_is_opened():
    x = S.input_variable(2)
    block = as_one_block("Sequence::Softmax", lambda v: C.exp(v) + 1, [x])
    assert names(block) == ["Exp", "Plus"]
    np.testing.assert_allclose(block.eval({x: data(np.float32)})[0], np.exp(data(np.float32)[0]) + 1, rtol=1e-6)
    halved = as_one_block("Sequence::Slice", lambda v: S.last(C.element_times(v, 0.5)), [x])
    assert names(halved) == ["ElementTimes", "Sequence::Last"]


def test_the_second_to_last_step_is_not_the_last():
    x = S.input_variable(1)
    values = S.slice(x, -2, -1).eval({x: [np.arange(3, dtype=np.float32)[:, None]]})
    np.testing.assert_array_equal(values, [[1]])


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


def shared_rows(sequences, steps, size):
    """Sequences of equal length end to end in one row, and their layout."""
    length = np.full(sequences, steps, np.int32)
    start = np.arange(sequences, dtype=np.int32) * steps
    layout = Layout(np.zeros_like(length), start, length, sequences * steps, 1)
    return np.random.default_rng(0).standard_normal((sequences * steps, 1, size)).astype(np.float32), layout


@pytest.mark.parametrize("reduction", STEPWISE)
def test_reductions_of_sequences_that_share_a_row_read_each_step_only_a_few_times(reduction):
    x, layout = shared_rows(32, 16, 8)
    compiled = jax.jit(lambda x, layout: over_steps(reduction, x, layout)).lower(x, layout).compile()
    assert compiled.cost_analysis()["bytes accessed"] < 16 * x.nbytes  # a gather of whole rows: 32 times and more
    expected = {"Sum": jnp.sum, "Mean": jnp.mean, "Max": jnp.max, "Min": jnp.min, "LogSum": jax.nn.logsumexp}[reduction]
    np.testing.assert_allclose(compiled(x, layout), expected(x.reshape(32, 16, 8), 1), rtol=1e-5, atol=1e-5)


def test_blocks_are_matched_again_while_a_program_is_traced_with_constants_on_the_device():
    for length in (2, 40):  # one program, traced again for the second graph, which came after an edit
        note_edit()
        x = S.input_variable(2)
        first = S.first(x)
        inside = inner_nodes(first)["PastValue"]  # its operands go to the device
        twice = first * 2
        values = C.combine([twice, inside]).eval({x: [np.full((length, 2), 3, "f")]})
        np.testing.assert_array_equal(values[twice.output], [[6, 6]])


def sliced(begin, end, feed, dtype):
    """The nodes, values and gradients of a slice, weighted unequally."""
    x = S.input_variable(2, dtype, needs_gradient=True)
    result = S.slice(x, begin, end)
    total = C.reduce_sum(result * C.sin(result + 1), C.Axis.all_axes())
    return names(result), [*result.eval({x: feed}), *total.grad({x: feed}, wrt=[x])]


@pytest.mark.usefixtures("grid")
@pytest.mark.parametrize("lengths", [(4, 7, 5), (5, 5, 5)])
@pytest.mark.parametrize("begin, end", [(1, 0), (0, 2), (0, -1), (2, 4), (1, -1), (3, 6), (0, 9), (6, 0)])
def test_slices_from_a_fixed_step_on_equal_the_composition(begin, end, lengths, monkeypatch):
    feed = [np.random.default_rng(n).standard_normal((n, 2)) for n in lengths]
    nodes, values = sliced(begin, end, feed, np.float64)
    assert nodes[-1] == "Sequence::GridSlice"
    monkeypatch.setattr(rewrite, "NODE_RULES", {})
    nodes, expected = sliced(begin, end, feed, np.float64)
    assert nodes[-1] == "GatherPacked"
    for a, b, sequence in zip(values, expected, [*feed, *feed], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
        assert len(a) in (len(sequence), len(sequence[begin : end or None]))


@pytest.mark.parametrize("begin, end", [(-2, 0), (-3, -1)])
def test_slices_that_begin_near_the_end_are_gathered(begin, end):
    feed = [np.random.default_rng(n).standard_normal((n, 2)).astype(np.float32) for n in (4, 7)]
    nodes, values = sliced(begin, end, feed, np.float32)
    assert nodes[-1] == "GatherPacked"
    for a, b in zip(values, feed, strict=False):
        np.testing.assert_array_equal(a, b[begin : end or None])


def test_slices_of_sparse_sequences_stay_sparse_and_combine_with_others_of_their_length():
    x, y = S.input_variable(9, is_sparse=True), S.input_variable(2)
    both = C.times(S.slice(x, 1, 0), np.eye(9, 2, dtype=np.float32)) + S.slice(y, 0, -1)
    ones = [[0, 1, 1], [1, 0]]
    steps = [np.arange(2 * len(s), dtype=np.float32).reshape(-1, 2) for s in ones]
    values = both.eval({x: C.Value.one_hot(ones, 9), y: steps})
    np.testing.assert_array_equal(values[0], np.eye(2)[[1, 1]] + [[0, 1], [2, 3]])
    np.testing.assert_array_equal(values[1], np.eye(2)[[0]] + [[0, 1]])


@pytest.mark.usefixtures("grid")
def test_gathering_and_scattering_by_permutation_equals_adding_up(monkeypatch):
    flags = [np.array(f, np.float32) for f in ([0, 1, 1], [1], [0, 1, 0, 1], [1, 0])]

    def computed():
        x, c = S.input_variable(2, needs_gradient=True), S.input_variable(())
        steps = S.gather(x, c) * 2
        scattered = S.scatter(steps, c)
        feed = {x: data(np.float32), c: flags}
        total = C.reduce_sum(scattered * C.sin(scattered + x), C.Axis.all_axes())
        return [*steps.eval(feed), *scattered.eval(feed), *total.grad(feed, wrt=[x])]

    permuted = computed()
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")  # what was compiled before is not traced
    monkeypatch.setattr(sequence_primitives, "_is_one_to_one", lambda index: False)
    note_edit()
    for a, b in zip(permuted, computed(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
