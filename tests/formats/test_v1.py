"""Models of CNTK 1 compute the same as in CNTK 2.7, which computed the numbers that have no formula."""

import importlib.util
import struct
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.graph.errors import AxisError

_spec = importlib.util.spec_from_file_location("v1_writer", Path(__file__).with_name("v1_writer.py"))
w = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(w)

DNN = Path(__file__).resolve().parents[3] / "shared" / "data" / "legacy" / "01_OneHidden.dnn"
X, Y = np.float32([[0.5, -1, 2]]), np.float32([[1.5, 0, 3]])


def recurrence():
    return w.network(
        w.source("x", 4), w.learnable("W", (2, 4), [0.1 * i for i in range(8)]),
        w.learnable("R", (2, 2), [0.1, 0.2, 0.3, 0.4]), w.times("a", "W", "x"),
        w.node("PastValue", "p", "h", values=w.int32(1) + w.shape(2) + struct.pack("<f", 0.5)), w.times("b", "R", "p"),
        w.node("Plus", "c", "a", "b"), w.node("Tanh", "h", "c"), outputs=["h"],
    )


def convolution(*, kernel=(4, 18), own_layout=True, version=31):
    lists = w.shape(3, 3, 2) + w.shape(1, 1, 4) + w.shape(1, 1, 2) + w.flags(1, 1, 1) + w.flags(1, 1, 0)
    lists += w.shape(0, 0, 0) * 2 + w.int32(0, 1) + w.uint64(0) + b"\0" * (version >= 9)
    lists += (w.shape(0) if version >= 20 else b"") + b"\0" * ((version >= 21) + (version >= 23)) + b"\0"
    lists += w.shape(1, 1, 1) if version >= 18 else b""
    weights = w.learnable("w", kernel, [0.01 * i for i in range(72)])
    node = w.node("Convolution", "t", "w", "x", values=lists)
    return w.network(w.source("x", 6, 6, 2, version=version), weights, node, outputs=["t"], version=version)


def one(op, *sources, values=b"", version=31):
    inputs = [name for _, name, _, _ in sources]
    return w.network(*sources, w.node(op, "t", *inputs, values=values), version=version)


def test_a_recurrence_starts_with_its_initial_value():
    h = C.load_model(recurrence())
    values = h.eval({h.arguments[0]: [np.ones((3, 4), np.float32)]})[0]
    np.testing.assert_allclose(
        values, [[0.88535166, 0.95623744], [0.9178815, 0.9737268], [0.9192097, 0.97441787]], rtol=1e-6
    )
    assert [(p.name, p.shape) for p in h.parameters] == [("W", (4, 2)), ("R", (2, 2))]


@pytest.mark.parametrize("version", [4, 6, 7, 8, 9, 10, 12])
def test_products_of_each_version(version):
    """CNTK 2.7 reads these bytes, and no others that were tried, as this product."""
    W, x = w.learnable("W", (3, 2), np.arange(1, 7)), w.source("x", 2, version=version)
    nodes = W, x, w.times("t", "W", "x", version=version), w.node("Tanh", "y", "t")
    f = C.load_model(w.network(*nodes, outputs="y", version=version))
    assert f.W.value.tolist() == [[1, 2, 3], [4, 5, 6]] and f.arguments[0].shape == (2,)
    np.testing.assert_allclose(f.eval({f.arguments[0]: [[[0.1, 0.01]]]})[0], np.tanh([[0.14, 0.25, 0.36]]), rtol=1e-6)


@pytest.mark.parametrize("version", [5, 7, 8, 9, 10, 17, 18, 20, 21, 23, 31])
@pytest.mark.parametrize("kernel", [(4, 18), (3, 3, 2, 4)])
def test_kernels_stored_as_a_matrix(kernel, version):
    f = C.load_model(convolution(kernel=kernel, version=version))
    values = f.eval({f.arguments[0]: [np.arange(72, dtype=np.float32).reshape(1, 2, 6, 6)]})[0]
    np.testing.assert_allclose(values.ravel()[:6], [24.919998, 36.74, 37.940002, 39.14, 40.34, 26.24], rtol=1e-5)
    assert f.parameters[0].shape == (4, 2, 3, 3)


SINGLE = {
    "Sigmoid": 1 / (1 + np.exp(-X)), "RectifiedLinear": [[0.5, 0, 2]], "Softmax": [[0.17529039, 0.03911257, 0.7855970]],
    "LogSoftmax": [[-1.7413113, -3.2413113, -0.2413113]], "Log": [[-0.6931472, -85.1, 0.6931472]], "Cosine": np.cos(X),
    "SumColumnElements": [[1.5]], "Hardmax": [[0, 0, 1]], "Pass": X, "Sqrt": [[0.70710677, 0, 1.4142135]],
}


@pytest.mark.parametrize("op", SINGLE)
def test_operations_of_one_operand(op):
    f = C.load_model(one(op, w.source("x", 3)))
    np.testing.assert_allclose(f.eval({f.arguments[0]: [X]})[0], SINGLE[op], rtol=1e-5, atol=1e-6)


PAIRS = {
    "Scale": X * Y, "Minus": X - Y, "SquareError": 3.0, "CrossEntropyWithSoftmax": 3.3359010, "ErrorPrediction": 0.0,
    "LogPlus": [[1.8132617, 0.3132616, 3.3132617]], "CosDistance": [0.8783101],
}


@pytest.mark.parametrize("op", PAIRS)
def test_operations_of_two_operands(op):
    f = C.load_model(one(op, w.source("x", 3), w.source("y", 3)))
    by_name = {v.name: v for v in f.arguments}
    x, y = (Y, X) if op == "CrossEntropyWithSoftmax" else (X, Y)  # the label comes first
    values = f.eval({by_name["x"]: [x], by_name["y"]: [y]})
    np.testing.assert_allclose(values[0] if isinstance(values, list) else values, PAIRS[op], rtol=1e-5)


@pytest.mark.parametrize(("op", "expected"), [("LambdaRank", 81.17532), ("NDCG1Eval", 0)])
def test_measures_of_ranking_have_the_gain_first_and_truncated_groups(op, expected):
    f = C.load_model(one(op, w.source("gain", 1), w.source("score", 1), w.source("group", 1)))
    feeds = {"score": [0.5, 0.2, 0.9, 0.1], "gain": [1, 3, 0, 2], "group": [0.2, 0.6, 0.9, 0.3]}
    values = f.eval({v: [np.float32(feeds[v.name])[:, None]] for v in f.arguments})
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize(("op", "leaves", "values", "expected"), [
    ("LookupTable", [(2, 3)], b"", [1 + 0.1, 2 + 0.12, 3, 4]),
    ("RowRepeat", [], w.uint64(2), [1, 0, 0.02, 0, 1, 0] * 2),
    ("PerDimMeanVarDeNormalization", [(6, 1), (6, 1)], b"", [2, 2, 3 + 0.02 / 3, 4, 5.2, 6]),
])
def test_operations_that_cntk_2_refuses(op, leaves, values, expected):
    """LookupTable multiplies each part of a column; the others are defined by their names."""
    parameters = [w.learnable(f"w{i}", dims, np.arange(1, 1 + np.prod(dims))) for i, dims in enumerate(leaves)]
    x = w.source("x", 6)
    nodes = (*parameters, x) if op == "LookupTable" else (x, *parameters)
    f = C.load_model(one(op, *nodes, values=values))
    result = f.eval({f.arguments[0]: [np.float32([[1, 0, 0.02, 0, 1, 0]])]})[0].ravel()
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_the_property_of_training_is_0_in_evaluations():
    """CNTK 2.7 reads these bytes, and no other property; it cannot compute with it."""
    x, t = w.source("x", 2), w.node("EnvironmentInput", "t", values=w.text("isTraining"))
    f = C.load_model(w.network(x, t, w.node("Plus", "y", "x", "t"), version=31))
    assert f.eval({f.arguments[0]: [np.float32([[1, 2]])]})[0].tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="no environment property 'epoch'; the only one is isTraining"):
        C.load_model(w.network(x, w.node("EnvironmentInput", "t", values=w.text("epoch")), version=31))


def test_a_criterion_whose_lattices_a_reader_had_gets_an_input_for_them():
    """CNTK 2.7 reads these bytes too, and then refuses the operation."""
    sources = w.source("labels", 2), w.source("z", 2), w.source("likelihood", 2)
    f = C.load_model(w.network(*sources, w.node("SequenceWithSoftmax", "ce", "labels", "z", "likelihood"),
                               w.node("Tanh", "h", "z"), version=31))
    assert [(v.name, v.shape) for v in f.arguments] == [
        ("labels", (2,)), ("z", (2,)), ("likelihood", (2,)), ("lattices", (1,))]
    h = f.h
    assert h.eval({h.arguments[0]: [np.float32([[0, 0]])]})[0].tolist() == [[0, 0]]


@pytest.mark.parametrize("dims", [(3, 1), (3,)])
def test_products_with_a_diagonal_matrix(dims):
    f = C.load_model(one("DiagTimes", w.learnable("w", dims, [1, 2, 3]), w.source("x", 3)))
    assert f.shape == dims[::-1]
    np.testing.assert_allclose(f.eval({f.arguments[0]: [X]})[0].ravel(), [0.5, -2, 6])


def test_edit_distances_keep_their_penalties():
    values = struct.pack("<fff", 2, 3, 4) + b"\1" + w.uint64(2, 1, 0)
    attributes = C.load_model(one("EditDistanceError", w.source("x", 3), w.source("y", 3), values=values)).find_by_name(
        "t").attributes
    assert attributes == {
        "SubstitutionPenalty": 2, "DeletionPenalty": 3, "InsertionPenalty": 4, "SquashInputs": True,
        "TokensToIgnore": [1, 0],
    }


def test_criteria_are_sums_over_the_samples_of_all_sequences():
    f = C.load_model(one("SquareError", w.source("x", 1), w.source("y", 1)))
    a, b = f.arguments
    data = [np.float32([[1], [2], [3]]), np.float32([[4]])]
    assert f.eval({a: data, b: [d + 1 for d in data]}) == 4
    total = C.load_model(one("SumElements", w.source("x", 1)))
    assert total.eval({total.arguments[0]: data}) == 10


@pytest.mark.parametrize(("label", "loss", "gradient"), [
    ([1.5, 0, 3], 3.335901, [-1.3247097, 0.03911257, -2.214403]), ([0, 0, 0], 0, [0.17529039, 0.03911257, 0.785597]),
])
def test_cross_entropies_of_labels_that_do_not_sum_to_1(label, loss, gradient):
    f = C.load_model(w.network(
        w.source("x", 3), w.source("y", 3), w.learnable("b", (3,), X[0]), w.node("Plus", "z", "x", "b"),
        w.node("CrossEntropyWithSoftmax", "t", "y", "z"),
    ))
    by_name = {v.name: v for v in f.arguments}
    data = {by_name["x"]: np.zeros((1, 1, 3), np.float32), by_name["y"]: np.float32([[label]])}
    assert f.eval(data) == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(np.ravel(f.grad(data, wrt=list(f.parameters))), gradient, rtol=1e-5)


def test_precomputed_means_are_constants_and_outputs():
    values = b"\1" + w.matrix(np.float32([0.1, 0.2, 0.3]), 3)
    f = C.load_model(w.network(
        w.source("x", 3), w.node("Mean", "m", "x", values=values), w.node("InvStdDev", "s", "x", values=values),
        w.node("PerDimMeanVarNormalization", "t", "x", "m", "s"),
    ))
    assert [v.name for v in f.outputs] == ["m", "s", "t"]
    results = f.eval({f.arguments[0]: [X]}, outputs=[f.outputs[2]])
    np.testing.assert_allclose(results[0], (X - [[0.1, 0.2, 0.3]]) * [[0.1, 0.2, 0.3]], rtol=1e-5)


@pytest.mark.parametrize(("version", "variance"), [(12, [1.00001, 0.25001, 0.11112111, 0.06251]), (18, [1, 2, 3, 4])])
def test_old_normalizations_have_a_deviation_and_no_count(version, variance):
    statistics = [w.learnable(n, (4, 1), [1, 2, 3, 4], rate) for n, rate in (("s", 1), ("b", 1), ("m", 0), ("v", 0))]
    values = b"\0" + w.double(64, 0) + w.int32(1) + w.uint64(600) + w.double(1e-5) + b"\1"
    f = C.load_model(one("BatchNormalization", w.source("x", 4), *statistics, values=values, version=version))
    constants = {c.name: c.value.ravel() for c in f.constants}
    np.testing.assert_allclose(constants["v"], variance, rtol=1e-5)
    np.testing.assert_array_equal(constants["t.run_sample_count"], [0])


def test_normalizations_of_version_19():
    statistics = [w.learnable(n, (4, 1), [1, 2, 3, 4], rate) for n, rate in (("s", 1), ("b", 1), ("m", 0), ("v", 0))]
    values = b"\0" + w.double(64, 0) + w.int32(1) + b"\1" + w.double(0.5) + b"\1"
    sources = w.source("x", 4), *statistics, w.learnable("n", (1,), [600], 0)
    f = C.load_model(one("BatchNormalization", *sources, values=values, version=19))
    result = f.eval({f.arguments[0]: [np.float32([[0.1, 0.2, 0.3, 0.4]])]})[0]
    np.testing.assert_allclose(result, [[0.2651531, -0.27683973, -1.3296318, -2.7882252]], rtol=1e-5)


def pooling(version):
    values = w.shape(2, 2, 1) + w.shape(1, 1, 1) + w.shape(2, 2, 1) + w.flags(1, 1, 1) + w.flags(0, 0, 0)
    return values + w.shape(0, 0, 0) * 2 + w.int32(1, 1) + w.uint64(0) + b"\0" * (version >= 9)


OLD = {  # operation: dimensions of the input, values in the file, numbers for 0.1, 0.2, ... by CNTK 2.7
    "Slice": ((4,), w.uint64(1, 2) + w.int32(1), [0.2, 0.3]),
    "RowSlice": ((4,), w.uint64(1, 2) + w.int32(1), [0.2, 0.3]),
    "ReduceElements": ((4,), w.int32(1) + w.text("Sum"), [1]),
    "PastValue": ((2,), w.int32(1) + w.shape(2) + struct.pack("<f", 0.5), [0.5, 0.5]),
    "Delay": ((2,), w.int32(1) + w.shape(2) + struct.pack("<f", 0.5), [0.5, 0.5]),
    "TransposeDimensions": ((2, 3), w.int32(1, 2), [0.1, 0.3, 0.5, 0.2, 0.4, 0.6]),
    "Transpose": ((2, 3), w.int32(1, 2), [0.1, 0.3, 0.5, 0.2, 0.4, 0.6]),
    "MaxPooling": ((6, 6, 2), w.int32(2, 1) + w.uint64(3, 1, 2), [1.4, 1.5, 1.6, 1.7, 1.8, 2.6, 2.7, 2.8, 2.9, 3]),
    "AveragePooling": ((6, 6, 2), w.int32(2, 1) + w.uint64(3, 1, 2), [0.75, 0.85, 0.95, 1.05, 1.15, 1.95, 2.05]),
    "Reshape": ((4,), w.int32(1, 2) + w.shape(2, 2), [0.1, 0.2, 0.3, 0.4]),
    "Dropout": ((3,), b"", [0.1, 0.2, 0.3]),
}


@pytest.mark.parametrize(("op", "version"), [
    (op, version) for op in [*OLD, "Pooling"] for version in range(5 if op == "Pooling" else 4, 10)
])
def test_operations_of_old_versions(op, version):
    """CNTK 2.7 reads these bytes, and none of some others, as the numbers here."""
    maxima = (6, 6, 2), pooling(version), [0.8, 1, 1.2, 2, 2.2, 2.4, 3.2, 3.4, 3.6, 4.4]
    dims, values, expected = OLD.get(op, maxima)
    f = C.load_model(one(op, w.source("x", *dims, version=version), values=values, version=version))
    x = np.arange(1, np.prod(dims) + 1, dtype=np.float32).reshape(1, *dims[::-1]) / 10
    np.testing.assert_allclose(f.eval({f.arguments[0]: [x]})[0].ravel()[: len(expected)], expected, rtol=1e-5)


@pytest.mark.parametrize(("window", "padded", "expected"), [
    ((3, 3, 1, 1), 1, [2.576, 3.794, 3.914, 4.034, 4.154, 2.7]), ((3, 3, 2, 1), 0, [5.664, 5.97, 6.582, 6.888]),
    ((3, 2, 2, 1), 0, [2.228, 2.36, 2.624, 2.756]), ((2, 3, 2, 1), 0, [2.43, 2.562, 2.694, 2.826]),
])
def test_convolutions_of_version_4(window, padded, expected):
    kernel = 4, 2 * window[0] * window[1]
    weights = w.learnable("w", kernel, [0.01 * i for i in range(kernel[0] * kernel[1])])
    values = w.uint64(*window) + w.int32(4, 1) + bytes([padded]) + w.uint64(0)
    node = w.node("Convolution", "t", "w", "x", values=values)
    f = C.load_model(w.network(w.source("x", 6, 6, 2, version=4), weights, node, outputs=["t"], version=4))
    x = np.arange(1, 73, dtype=np.float32).reshape(1, 2, 6, 6) / 10
    np.testing.assert_allclose(f.eval({f.arguments[0]: [x]})[0].ravel()[: len(expected)], expected, rtol=1e-3)


@pytest.mark.parametrize(("version", "values", "scale"), [
    (10, w.shape(2, 2), 0.0625), (25, w.shape(2, 2), 0.0625), (26, w.shape(2, 2) + w.int32(1) + w.double(0.25), 0.25),
])
def test_regions_have_a_scale_since_version_26(version, values, scale):
    sources = w.source("x", 6, 6, 2, version=version), w.source("r", 4, 1, version=version)
    f = C.load_model(one("ROIPooling", *sources, values=values, version=version))
    assert f.output.owner.attributes["spatialScale"] == scale and f.shape == (1, 2, 2, 2)


@pytest.mark.parametrize(("op", "version", "values"), [
    ("Where", 10, b""), ("Where", 11, w.text("ax")),
    ("OptimizedRNNStack", 13, w.uint64(0, 1, 1) + w.text("rnnTanh")),
    ("OptimizedRNNStack", 14, w.uint64(0, 1, 1) + w.text("rnnTanh") + w.int32(0)),
    ("RandomSample", 15, b"\1" + w.uint64(2)), ("RandomSample", 16, b"\1" + w.uint64(2, 7, 0)),
])
def test_values_that_later_versions_added(op, version, values):
    sources = [w.learnable("W", (4, 1), [0.1] * 4)] if op != "Where" else []
    sources += [w.source("x", 1, version=version)] if op != "RandomSample" else []
    f = C.load_model(one(op, *sources, values=values, version=version))
    assert [v.owner.op_name for v in f.outputs] == [op]


def test_transposed_axes_are_counted_from_1():
    f = C.load_model(one("TransposeDimensions", w.source("x", 2, 3), values=w.int32(1, 2)))
    x = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    np.testing.assert_array_equal(f.eval({f.arguments[0]: [x]})[0], x.transpose(0, 2, 1))


def test_old_poolings_store_width_before_height():
    values = w.int32(2, 1) + w.uint64(3, 1, 2)
    f = C.load_model(one("MaxPooling", w.source("x", 6, 6, 2), values=values))
    assert f.shape == (2, 2, 5)


def test_axes_inputs_and_types():
    f = C.load_model(one("Tanh", w.source("x", 3, axis="*", op="SparseInputValue")))
    assert f.arguments[0].is_sparse and f.arguments[0].dynamic_axes[1].name == "defaultDynamicAxis"
    dynamic = w.node("DynamicAxis", "__noSequenceAxis")
    f = C.load_model(w.network(dynamic, w.source("x", 3, axis="__noSequenceAxis"), w.node("Tanh", "t", "x")))
    assert len(f.arguments[0].dynamic_axes) == 1
    weights = w.learnable("w", (3, 1), [1, 2, 3], rate=0, dtype=np.float64)
    f = C.load_model(w.network(w.source("x", 3), weights, w.node("Plus", "t", "w", "x"), precision="double"))
    assert f.dtype == np.float64 and not f.parameters and f.constants[0].shape == (1, 3)


def test_outputs_are_the_listed_and_unused_nodes_by_name():
    f = C.load_model(w.network(
        w.source("x", 3), w.node("Tanh", "t", "x"), w.node("Tanh", "B", "x"), w.node("Tanh", "a", "t"), outputs=["t"]
    ))
    assert [v.name for v in f.outputs] == ["B", "a", "t"]


def test_a_model_can_be_saved_in_the_format_of_cntk_2(tmp_path):
    C.load_model(recurrence()).save(tmp_path / "new.model")
    assert [p.name for p in C.load_model(tmp_path / "new.model").parameters] == ["W", "R"]


@pytest.mark.skipif(not DNN.exists(), reason="needs the model of CNTK 1 in ../shared/data/legacy")
def test_a_network_trained_by_cntk_1():
    f = C.load_model(DNN)
    assert [v.name for v in f.outputs] == ["ce", "errs", "ol.z", "top5Errs"]
    assert {v.name: v.shape for v in f.arguments} == {"features": (784,), "labels": (10,)}
    features = np.random.RandomState(0).rand(2, 3, 784).astype(np.float32) * 255
    labels = np.eye(10, dtype=np.float32)[np.arange(6).reshape(2, 3)]
    by_name = {v.name: v for v in f.arguments}
    results = f.eval({by_name["features"]: list(features), by_name["labels"]: list(labels)})
    values = {v.name: value for v, value in results.items()}
    assert [values["errs"], values["top5Errs"]] == [5, 2]
    np.testing.assert_allclose(values["ce"], 49.473385, rtol=1e-5)
    last = [-0.538815, -5.646074, 5.799423, 8.856691, -13.844092, 6.947535, -4.07155, -0.820605, 4.862513, -3.751999]
    np.testing.assert_allclose(values["ol.z"][1][0, 0], last, rtol=1e-4, atol=1e-4)


def test_criteria_combine_sequence_axes_of_equal_lengths():
    """As in models of sequence taggers that CNTK 2.0's beta versions saved; values of CNTK 2.7."""
    chosen = [
        node for i in "12" for node in (
            w.node("Where", "where" + i, "x", values=w.text("WhereNodeAxis")),
            w.node("PackedIndex", "index" + i, "x", "where" + i), w.node("GatherPacked", "some" + i, "index" + i, "x"),
        )
    ]
    f = C.load_model(w.network(
        w.node("DynamicAxis", "n"), w.source("x", 1, axis="n"), w.source("label", 1), *chosen,
        w.node("Plus", "sum", "some1", "some2"), w.node("SquareError", "error", "sum", "label"),
        outputs=["sum", "error"],
    ))
    error, total = f.outputs
    assert [axis.name for axis in total.dynamic_axes] == ["defaultBatchAxis", "WhereNodeAxis"]
    by_name = {v.name: v for v in f.arguments}
    x = [np.float32([[1], [0], [1]]), np.float32([[0], [1]])]
    label = [np.float32([[1], [1]]), np.float32([[5]])]
    result = f.eval({by_name["x"]: x, by_name["label"]: label})
    assert [v.ravel().tolist() for v in result[total]] == [[2, 2], [2]] and result[error] == 11
    with pytest.raises(AxisError, match=r"differ in length: \[2, 1\] against \[3, 1\]"):
        f.eval({by_name["x"]: x, by_name["label"]: [np.zeros((3, 1), np.float32), np.zeros((1, 1), np.float32)]})
