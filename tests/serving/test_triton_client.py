"""NVIDIA's client of the protocol talks to `cntkjax serve`: JSON and binary tensors, metadata, and errors."""

import numpy as np
import pytest

from tests.serving.test_serve import Server

REASON = "needs tritonclient[http], which is in no extra because it holds ml_dtypes back, a package of jax"
triton = pytest.importorskip("tritonclient.http", reason=REASON)
utils = pytest.importorskip("tritonclient.utils", reason=REASON)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("triton"))
    client = triton.InferenceServerClient(server.address)
    yield client
    client.close()
    server.stop()


def test_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("scaled")
    assert client.get_model_metadata("scaled")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]


@pytest.mark.parametrize("binary", [True, False])
def test_answers(client, binary):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = triton.InferInput("x", data.shape, "FP32")
    given.set_data_from_numpy(data, binary_data=binary)
    wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("y", "total")]
    answer = client.infer("scaled", [given], outputs=wanted)
    np.testing.assert_allclose(answer.as_numpy("y"), 2 * data)
    np.testing.assert_allclose(answer.as_numpy("total").ravel(), data.sum(1))


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_are_answered(client, algorithm):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = triton.InferInput("x", data.shape, "FP32")
    given.set_data_from_numpy(data)
    answer = client.infer(
        "scaled", [given], request_compression_algorithm=algorithm, response_compression_algorithm=algorithm
    )
    np.testing.assert_allclose(answer.as_numpy("y"), 2 * data)


def test_mistakes_are_errors_of_the_client(client):
    given = triton.InferInput("x", (1, 2), "FP32")
    given.set_data_from_numpy(np.ones((1, 2), np.float32))
    with pytest.raises(utils.InferenceServerException, match="x"):
        client.infer("scaled", [given])
