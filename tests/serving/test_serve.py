"""`cntkjax serve`: real requests to a real server, friendly and hostile ones."""

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import numpy as np
import pytest

import cntkjax as C


def scaled(factor):
    x = C.input_variable(3, name="x")
    return C.combine([C.times(x, C.parameter(init=np.eye(3, dtype=np.float32) * factor), name="y"),
                      C.reduce_sum(x, axis=0, name="total")])


def running_sum():
    words = C.sequence.input_variable(1, name="words")
    return C.layers.Recurrence(C.plus)(words)


class Server:
    def __init__(self, folder, *options):
        self.path = folder / "scaled.model"
        scaled(2).save(str(self.path))
        running_sum().save(str(folder / "sums.model"))
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cntkjax", "serve", str(self.path), f"seq={folder / 'sums.model'}", "--port",
                 "0", "--max-request", "0.01", *options], stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        line = self.process.stdout.readline()
        assert " serves scaled, seq" in line, self.log.read_text()
        self.address = line.split()[0].removeprefix("http://")
        assert self.address.startswith("127.0.0.1:")

    def stop(self):
        """As systemd does, so that coverage is saved."""
        self.process.terminate()
        try:
            self.process.communicate(timeout=30)
        finally:
            self.process.kill()
            self.process.communicate()

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read(), response.headers
        finally:
            connection.close()

    def json(self, method, path, body=None):
        status, answer, _ = self.request(method, path, body if body is None else json.dumps(body))
        return status, json.loads(answer)

    def infer(self, model="scaled", **body):
        return self.json("POST", f"/v2/models/{model}/infer", body)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("serve"))
    yield server
    server.stop()


def tensor(*rows, **changes):
    return {"name": "x", "datatype": "FP32", "shape": [len(rows), 3], "data": [list(r) for r in rows], **changes}


def test_health_and_metadata(server):
    for path in ("/v2/health/live", "/v2/health/ready"):
        assert server.request("GET", path)[0] == 200
    assert server.json("GET", "/v2")[1]["extensions"] == ["binary_tensor_data"]
    assert server.json("GET", "/v2/models/scaled/ready") == (200, {"name": "scaled", "ready": True})
    status, metadata = server.json("GET", "/v2/models/scaled")
    assert status == 200 and metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert [o["name"] for o in metadata["outputs"]] == ["y", "total"]
    assert server.json("GET", "/v2/models/seq")[1]["inputs"][0]["shape"] == [-1, -1, 1]


def test_answers_in_json(server):
    status, answer = server.infer(id="7", inputs=[tensor((1, 2, 3), (4, 5, 6))])
    assert status == 200 and (answer["id"], answer["model_name"]) == ("7", "scaled")
    y, total = answer["outputs"]
    assert y == {"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [2, 4, 6, 8, 10, 12]}
    assert (total["shape"], total["data"]) == ([2, 1], [6, 15])
    _, answer = server.infer(inputs=[tensor((1, 2, 3), data=[1, 2, 3])], outputs=[{"name": "total"}])
    assert [o["name"] for o in answer["outputs"]] == ["total"]


def test_answers_for_sequences(server):
    words = {"name": "words", "datatype": "FP32", "shape": [2, 3, 1], "data": [1, 2, 3, 4, 5, 6]}
    (output,) = server.infer("seq", inputs=[words])[1]["outputs"]
    assert (output["shape"], output["data"]) == ([2, 3, 1], [1, 3, 6, 4, 9, 15])


def test_answers_in_bytes(server):
    raw = np.array([[1, 2, 3]], "<f4").tobytes()
    header = json.dumps({
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": len(raw)}}],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}, {"name": "total"}],
    }).encode()
    length = {"Inference-Header-Content-Length": str(len(header))}
    status, body, headers = server.request("POST", "/v2/models/scaled/infer", header + raw, length)
    assert status == 200
    end = int(headers["Inference-Header-Content-Length"])
    y, total = json.loads(body[:end])["outputs"]
    assert y["parameters"] == {"binary_data_size": 12} and total["data"] == [6]
    np.testing.assert_array_equal(np.frombuffer(body[end:], "<f4"), [2, 4, 6])
    status, body, _ = server.request("POST", "/v2/models/scaled/infer", header + raw[:-1], length)
    assert status == 400 and b"11 bytes are left" in body


@pytest.mark.parametrize("encoding, bits", [("gzip", 31), ("deflate", 15), ("GZIP", 31)])
def test_compressed_requests_are_answered(server, encoding, bits):
    def compressed(content):
        compress = zlib.compressobj(wbits=bits)
        return compress.compress(content) + compress.flush()

    def post(body, encoding):
        headers = {"Content-Encoding": encoding}
        status, answer, _ = server.request("POST", "/v2/models/scaled/infer", body, headers)
        return status, json.loads(answer)

    body = compressed(json.dumps({"inputs": [tensor((1, 2, 3))]}).encode())
    status, answer = post(body, encoding)
    assert status == 200 and answer["outputs"][0]["data"] == [2, 4, 6]
    assert post(compressed(b" " * 5_000_000), encoding)[0] == 413  # more than a request may have, in 5 KB
    for damaged in (body[:-1], body + b"x", b"{}", b""):
        status, answer = post(damaged, encoding)
        assert status == 400 and f"not compressed by {encoding.lower()}" in answer["error"]
    assert post(json.dumps({"inputs": [tensor((1, 2, 3))]}), "Identity")[0] == 200
    status, answer = post(body, "br")
    assert status == 415 and "gzip or deflate, and the request's by 'br'" in answer["error"]


@pytest.mark.parametrize("body, text", [
    (b"{", "not JSON"), (b"\xff\xfe", "not JSON"), (b"[" * 9000, "not JSON"), (b"[]", '"inputs" is a list'),
    (b'{"inputs": 3}', '"inputs" is a list'),
    ({"inputs": []}, "no data for the inputs 'x'"),
    ({"inputs": [tensor((1, 2, 3), name="z")]}, "'z' is no input, or is there twice; the inputs are 'x'"),
    ({"inputs": [tensor((1, 2, 3), name=["x"])]}, "is no input"),
    ({"inputs": [tensor((1, 2, 3), datatype="INT64")]}, "input 'x' is FP32, and the request has 'INT64'"),
    ({"inputs": [tensor((1, 2), shape=[1, 2])]}, "input 'x' has the shape [-1, 3], and the request has [1, 2]"),
    ({"inputs": [tensor(shape=[0, 3])]}, "and the request has [0, 3]"),
    ({"inputs": [tensor((1, 2, 3), shape=[10**18, 3])]}, "has 3 numbers, and its shape"),
    ({"inputs": [tensor((1, 2, 3), shape=[True, 3])]}, "and the request has [True, 3]"),
    ({"inputs": [tensor((1, 2, "a"))]}, "has to be a list of numbers"),
    ({"inputs": [tensor((1, 2), (3,), shape=[1, 3])]}, "has to be a list of numbers"),
    ({"inputs": [tensor((1, 2, 10**400))]}, "has to be a list of numbers"),
    ({"inputs": [tensor((1, 2, 3))], "outputs": [{"name": "w"}]}, "'w' is no output; the outputs are 'y', 'total'"),
    ({"inputs": [tensor((1, 2, 3), parameters={"binary_data_size": -1})]}, "binary_data_size is -1"),
])  # fmt: skip
def test_mistakes_are_explained(server, body, text):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, answer, _ = server.request("POST", "/v2/models/scaled/infer", data)
    assert status == 400 and text in json.loads(answer)["error"]


def test_other_mistakes(server):
    assert server.infer("nothing", inputs=[])[0] == 404
    assert "the models are 'scaled', 'seq'" in server.json("GET", "/v2/models/nothing")[1]["error"]
    assert server.request("GET", "/v2/models/scaled/infer")[0] == 405
    assert server.request("GET", "/v2/models/..%2f..%2fetc/ready")[0] == 404
    assert server.request("POST", "/v2/models/scaled/infer", b"x" * 11_000)[0] == 413
    assert server.request("POST", "/v2/models/scaled/infer", iter([b"x" * 6_000] * 2))[0] == 413  # in chunks
    for length in ("-1", "x", "99", "²"):
        headers = {"Inference-Header-Content-Length": length.encode()}
        assert server.request("POST", "/v2/models/scaled/infer", b"{}", headers)[0] == 400
    assert server.request("GET", "/v2/health/live")[0] == 200


def test_many_at_once_and_metrics(server):
    def ask(i):
        return server.infer(inputs=[tensor((i, 0, 0))])[1]["outputs"][0]["data"][0]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(40))) == [2 * i for i in range(40)]
    metrics = server.request("GET", "/metrics")[1].decode()
    assert 'cntkjax_requests_total{model="scaled",status="200"}' in metrics
    assert 'cntkjax_request_seconds_count{model="scaled"}' in metrics and "nothing" not in metrics


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_file_that_changes_is_loaded_again_and_a_damaged_one_is_not(server, tmp_path):
    def first():
        return server.infer(inputs=[tensor((1, 0, 0))])[1]["outputs"][0]["data"][0]

    contents = server.path.read_bytes()
    server.path.write_bytes(contents[: len(contents) // 2])
    wait_until(lambda: b'result="failed"' in server.request("GET", "/metrics")[1])
    assert first() == 2
    assert "cannot be loaded; the model from before stays" in server.log.read_text()
    scaled(5).save(str(tmp_path / "new.model"))
    shutil.move(tmp_path / "new.model", server.path)
    wait_until(lambda: first() == 5)


def test_it_stops_gracefully(tmp_path):
    server = Server(tmp_path)
    server.stop()
    assert server.process.returncode == 0
    assert "Traceback" not in server.log.read_text()


def test_a_second_interrupt_ends_it_without_the_requests_under_way(tmp_path):
    server = Server(tmp_path)
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as slow:
        slow.sendall(b"POST /v2/models/scaled/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{")
        assert server.request("GET", "/v2")[0] == 200
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: "Waiting for connections" in server.log.read_text())
        server.process.send_signal(signal.SIGINT)
        server.process.communicate(timeout=20)
        assert b" 503 " in slow.recv(4096).split(b"\r\n")[0]
    assert server.process.returncode == 0
    assert "Traceback" not in server.log.read_text()


def test_a_request_that_comes_as_it_stops_is_answered(tmp_path):
    server = Server(tmp_path)
    connection = http.client.HTTPConnection(server.address, timeout=30)
    for last in (False, True):
        if last:
            server.process.terminate()
            wait_until(lambda: "Shutting down" in server.log.read_text())
        connection.request("POST", "/v2/models/scaled/infer", json.dumps({"inputs": [tensor([1, 2, 3])]}))
        response = connection.getresponse()
        assert response.status == 200
        assert json.loads(response.read())["outputs"][0]["data"] == [2, 4, 6]
        assert response.headers.get("Connection") == ("close" if last else None)
    server.stop()
    assert server.process.returncode == 0


@pytest.mark.parametrize("models, text", [
    (["nowhere.model"], "no such file"),
    (["a.model", "b/a.model"], "give NEWNAME="), (["a/b=c.model"], "cannot be one"),
])  # fmt: skip
def test_what_cannot_be_served_is_reported(models, text, capsys):
    from cntkjax.cli import main

    assert main(["serve", *models]) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("option, value, text", [
    ("--port", "99999", "99999 is not from 0 to 65535"), ("--max-batch", "0", "0 is not from 1 to inf"),
    ("--max-queue", "0", "0 is not from 1 to inf"), ("--max-delay", "nan", "nan is not from 0 to 60000"),
    ("--body-timeout", "-1", "-1 is not from 0 to 86400"), ("--max-request", "inf", "inf is not from 0 to 1048576"),
    ("--max-batch", "many", "invalid int value: 'many'"),
])  # fmt: skip
def test_numbers_that_options_cannot_be_are_refused(option, value, text, capsys):
    from cntkjax.cli import main

    with pytest.raises(SystemExit):
        main(["serve", "a.model", f"{option}={value}"])
    assert f"argument {option}: {text}" in capsys.readouterr().err


def test_a_full_queue_is_answered_by_503_and_no_request_is_lost(tmp_path):
    server = Server(tmp_path, "--max-queue", "1", "--max-batch", "1", "--max-request", "1")
    body = json.dumps({"inputs": [
        {"name": "words", "datatype": "FP32", "shape": [1, 20000, 1], "data": [1] * 20000}]}, separators=(",", ":"))

    def ask(_):
        return server.request("POST", "/v2/models/seq/infer", body)

    try:
        assert ask(0)[0] == 200  # the shape is compiled
        with ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(ask, range(96)))
        statuses = [status for status, _, _ in answers]
        assert set(statuses) == {200, 503}
        refused = next(answer for answer in answers if answer[0] == 503)
        assert refused[2]["Retry-After"] == "1" and b"too many requests" in refused[1]
        text = server.request("GET", "/metrics")[1].decode()
        assert f'cntkjax_requests_total{{model="seq",status="503"}} {float(statuses.count(503))}' in text
        assert ask(0)[0] == 200
    finally:
        server.stop()


def test_a_body_that_does_not_come_is_answered_by_408(tmp_path):
    server = Server(tmp_path, "--body-timeout", "0.5")
    host, port = server.address.split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=20) as slow:
            slow.sendall(b"POST /v2/models/scaled/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{")
            assert b" 408 " in slow.recv(4096).split(b"\r\n")[0]
        assert server.infer(inputs=[tensor((1, 2, 3))])[0] == 200
    finally:
        server.stop()


def test_a_client_that_sends_no_request_is_not_waited_for(tmp_path):
    server = Server(tmp_path, "--body-timeout", "0.5")
    host, port = server.address.split(":")
    try:
        with ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection((host, int(port)), timeout=20)) for _ in range(3)]
            clients[1].sendall(b"GET /v2 HTTP/1.1\r\nHo")
            clients[2].sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\nGET /v2 HTTP/1.1\r\nHo")
            clients[2].sendall(b"s")
            answers = [b"".join(iter(lambda c=client: c.recv(4096), b"")) for client in clients]
        assert [answer.count(b"HTTP/1.1 200 ") for answer in answers] == [0, 0, 1]
        assert server.infer(inputs=[tensor((1, 2, 3))])[0] == 200
    finally:
        server.stop()


def test_a_client_that_goes_away_is_no_failure_of_the_server(tmp_path):
    server = Server(tmp_path)
    host, port = server.address.split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(b"POST /v2/models/scaled/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{")
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
        end = time.monotonic() + 20
        while "_requests_total{" not in (metrics := server.request("GET", "/metrics")[1].decode()):
            assert time.monotonic() < end, metrics
            time.sleep(0.05)
        assert 'cntkjax_requests_total{model="scaled",status="499"} 1.0' in metrics
        assert "Traceback" not in server.log.read_text()
    finally:
        server.stop()


HOSTILE = [
    b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 4096, b"POST /v2/models/scaled/infer HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"GET /v2/models/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: x\r\n\r\n", b"A" * 200_000,
    b"POST /v2/models/scaled/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v2/models/scaled/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 99999999999999999999\r\n"
    b"Content-Length: 2\r\n\r\n{}",
]


def test_hostile_bytes_get_an_error_or_nothing_and_the_server_goes_on(server):
    host, port = server.address.split(":")
    nested = b"[" * 5000
    requests = [*HOSTILE, b"POST /v2/models/scaled/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + nested]
    for data in requests:
        with socket.create_connection((host, int(port)), timeout=20) as connection, suppress(ConnectionError):
            connection.sendall(data)
            with suppress(OSError):  # the server may have closed it
                connection.shutdown(socket.SHUT_WR)
            first = connection.recv(4096).split(b"\r\n")[0]
            assert not first or first.split()[1].startswith(b"4"), (data[:60], first)
    assert server.infer(inputs=[tensor((1, 2, 3))])[0] == 200
    assert server.process.poll() is None
