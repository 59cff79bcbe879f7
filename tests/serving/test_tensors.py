"""Tensors of the Open Inference Protocol, in JSON and as bytes, and what is said about bad requests."""

import json

import numpy as np
import pytest

import cntkjax as C
from cntkjax.serving.models import Batching, Loaded
from cntkjax.serving.tensors import BadRequest, Query, decoded, description, encoded

X, S = C.input_variable((2, 3), name="x"), C.sequence.input_variable(2, dtype=np.float64, name="s")


def test_a_batch_and_steps_of_any_number_are_axes_of_any_size():
    assert description("x", X) == {"name": "x", "datatype": "FP32", "shape": [-1, 2, 3]}
    assert description("s", S) == {"name": "s", "datatype": "FP64", "shape": [-1, -1, 2]}
    free = C.input_variable(C.FreeDimension)
    assert description("free", free)["shape"] == [-1, -1]


def request(name="x", shape=(1, 2, 3), datatype="FP32", data=(1, 2, 3, 4, 5, 6), **more):
    return {"name": name, "shape": list(shape), "datatype": datatype, "data": list(data), **more}


def body(*inputs, **more):
    return json.dumps({"inputs": inputs, **more}).encode()


def test_tensors_in_json_have_the_type_of_the_input():
    query = decoded(body(request(), id=7), None, {"x": X})
    assert query.id == "7" and query.outputs == [] and query.binary == frozenset()
    assert query.tensors["x"].dtype == np.float32
    assert query.tensors["x"].tolist() == [[[1, 2, 3], [4, 5, 6]]]


@pytest.mark.filterwarnings("error")
def test_numbers_of_any_size_are_taken():
    large = [10**20, 1.5, -(10**30), 1e300, 0, 3]
    tensor = decoded(body(request(data=large)), None, {"x": X}).tensors["x"]
    np.testing.assert_array_equal(tensor.ravel(), np.float32([1e20, 1.5, -1e30, np.inf, 0, 3]))
    with pytest.raises(BadRequest, match="list of numbers"):
        decoded(body(request(data=[10**20, "1", None, True, 0, 3])), None, {"x": X})


def test_bytes_follow_in_the_order_of_the_inputs():
    x, s = np.arange(6, dtype="<f4"), np.arange(4, dtype="<f8")
    head = body(
        *({"name": n, "shape": shape, "datatype": t, "parameters": {"binary_data_size": a.nbytes}}
          for n, shape, t, a in (("s", [1, 2, 2], "FP64", s), ("x", [1, 2, 3], "FP32", x)))
    )
    query = decoded(head + s.tobytes() + x.tobytes(), str(len(head)), {"x": X, "s": S})
    assert query.tensors["x"].ravel().tolist() == x.tolist() and query.tensors["s"].ravel().tolist() == s.tolist()


def test_bytes_after_the_last_tensor_are_refused():
    head = body({"name": "x", "shape": [1, 2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 24}})
    with pytest.raises(BadRequest, match="goes on for 3 bytes after its last tensor"):
        decoded(head + bytes(27), str(len(head)), {"x": X})


def test_outputs_are_chosen_and_each_may_be_bytes():
    outputs = [{"name": "a"}, {"name": "b", "parameters": {"binary_data": True}}]
    query = decoded(body(request(), outputs=outputs), None, {"x": X})
    assert query.outputs == ["a", "b"] and query.binary == {"b"}
    everything = decoded(body(request(), parameters={"binary_data_output": True}), None, {"x": X})
    assert everything.binary is None


def test_an_id_of_null_is_none():
    assert decoded(body(request(), id=None), None, {"x": X}).id is None


@pytest.mark.parametrize(("data", "length", "says"), [
    (b"{", None, "the request is not JSON"),
    (b"[" * 100_000, None, "the request is not JSON"),
    (b"[]", None, '"inputs" is a list of objects'),
    (b'{"inputs": [3]}', None, '"inputs" is a list of objects'),
    (body(), None, "there are no data for the inputs 'x'"),
    (body(request("y")), None, "'y' is no input, or is there twice; the inputs are 'x'"),
    (body(request(), request()), None, "'x' is no input, or is there twice"),
    (body(request("n" * 10**6)), None, "'n{199} is no input, or is there twice"),
    (body(request(datatype="FP64")), None, "input 'x' is FP32, and the request has 'FP64'"),
    (body(request(shape=(1, 3, 2))), None, r"has the shape \[-1, 2, 3\], and the request has \[1, 3, 2\]"),
    (body(request(shape=(-1, 2, 3))), None, "and the request has"),
    (body(request(shape=(True, 2, 3))), None, "and the request has"),
    (body(request(data=(1, 2))), None, r"has 2 numbers, and its shape \[1, 2, 3\] needs 6"),
    (body(request(data="123456")), None, '"data" has to be a list of numbers'),
    (body(request(data=[[1], [2, 3]])), None, '"data" has to be a list of numbers'),
    (body(request(parameters={"binary_data_size": 24})), None, "binary_data_size is 24, and 0 bytes are left"),
    (body(request(parameters={"binary_data_size": "1"})), None, "binary_data_size is '1'"),
    (body(request(parameters={"shared_memory_region": "r"})), None, "'x' needs 'shared_memory_region', an extension"),
    (body(request(), outputs=[{"name": "a", "parameters": {"classification": 2}}]), None, "'a' needs 'classification'"),
    (body(request()), "9" * 30, "Inference-Header-Content-Length is"),
    (body(request()), "-1", "Inference-Header-Content-Length is '-1'"),
])
def test_mistakes_say_what_is_wrong_with_which_input(data, length, says):
    with pytest.raises(BadRequest, match=says):
        decoded(data, length, {"x": X})


def test_bytes_of_another_number_are_refused():
    head = body({"name": "x", "shape": [1, 2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 8}})
    with pytest.raises(BadRequest, match=r"input 'x' has 8 bytes, and its shape \[1, 2, 3\] needs 24"):
        decoded(head + bytes(8), str(len(head)), {"x": X})


WORDS = C.sequence.input_variable(50, is_sparse=True, name="x")


@pytest.mark.parametrize("datatype", ["INT32", "INT64"])
def test_a_sparse_input_takes_the_indices_of_one_hot_vectors(datatype):
    indices = np.array([[3, 49, 0], [1, 1, 2]])
    loaded = Loaded(C.layers.Recurrence(C.layers.GRU(2))(C.layers.Embedding(4)(WORDS)), Batching())
    queries = [
        body(request(shape=(2, 3), datatype=datatype, data=indices.tolist())),
        body(request(shape=(2, 3, 50), data=np.eye(50)[indices].ravel())),
    ]
    by_index, dense = (loaded.submit(decoded(query, None, loaded.inputs)).result() for query in queries)
    np.testing.assert_array_equal(by_index, dense)
    raw = indices.astype({"INT32": "<i4", "INT64": "<i8"}[datatype]).tobytes()
    head = json.dumps({"inputs": [{"name": "x", "shape": [2, 3], "datatype": datatype,
                                   "parameters": {"binary_data_size": len(raw)}}]}).encode()
    value = decoded(head + raw, str(len(head)), {"x": WORDS}).tensors["x"]
    assert [sequence.indices.tolist() for sequence in value.as_sequences(WORDS)] == indices.tolist()


@pytest.mark.parametrize(("more", "says"), [
    ({"data": [0, 50]}, "input 'x' takes indices from 0 to 49, and the request has 0 to 50"),
    ({"data": [-1, 2]}, "from 0 to 49, and the request has -1 to 2"),
    ({"data": [0, 1 << 40]}, "from 0 to 49, and the request has 0 to 1099511627776"),
    ({"data": [0, 1.0]}, '"data" has to be a list of integers'),
    ({"datatype": []}, r"input 'x' is FP32, and the request has \[\]"),
    ({"data": [0, 1], "shape": [2]}, r"has the shape \[-1, -1\], and the request has \[2\]"),
])
def test_mistakes_in_indices_are_explained(more, says):
    item = request(shape=(1, 2), datatype="INT32")
    with pytest.raises(BadRequest, match=says):
        decoded(body({**item, **more}), None, {"x": WORDS})


def test_an_input_that_is_not_sparse_takes_no_indices():
    with pytest.raises(BadRequest, match="input 's' is FP64, and the request has 'INT32'"):
        decoded(body(request("s", (1, 2), "INT32", [0, 1])), None, {"s": S})


@pytest.mark.parametrize("binary", [frozenset(), frozenset({"b"}), None])
def test_answers_have_the_values_in_json_or_as_bytes_behind_it(binary):
    values = {"a": np.array([[1.5, 2.0]], np.float32), "b": np.array([3.0])}
    answer, length = encoded(Query("7", {}, [], binary), "model", values)
    as_bytes = set(values) if binary is None else binary
    assert (length is None) == (not as_bytes)
    head = json.loads(answer[:length])
    assert (head["model_name"], head["model_version"], head["id"]) == ("model", "1", "7")
    begin = length
    for output, (name, array) in zip(head["outputs"], values.items(), strict=True):
        assert (output["name"], output["shape"]) == (name, list(array.shape))
        if name in as_bytes:
            end = begin + output["parameters"]["binary_data_size"]
            assert answer[begin:end] == array.tobytes()
            begin = end
        else:
            assert output["data"] == array.ravel().tolist()
