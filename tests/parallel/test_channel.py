"""Messages between workers: who does not join, or fails before all have, is named."""

import json
import socket
import struct

import pytest

from cntkjax.parallel.channel import Channel, Hub, WorkerError


@pytest.fixture
def joining(monkeypatch):
    """The address of a hub that waits for three workers."""
    monkeypatch.setenv("CNTKJAX_WORKER_TIMEOUT", "2")
    server = socket.create_server(("127.0.0.1", 0))
    Hub(server, 3).start()
    return server.getsockname()


def join_as(rank, address):
    """A connection over which nothing follows."""
    connection = socket.create_connection(address)
    frame = json.dumps({"kind": "join", "rank": rank, "size": 3, "host": "here"}).encode() + b"\n"
    connection.sendall(struct.pack("!i", len(frame)) + frame)
    return connection


@pytest.mark.parametrize("failure, message", [
    ("silent", r"worker 1 \(on here\) has not answered for 2 s"),
    ("closed", r"worker 1 \(on here\) was killed or crashed"),
])
def test_a_worker_that_fails_while_others_have_not_joined_is_named(joining, failure, message):
    with join_as(1, joining) as connection:
        if failure == "closed":
            connection.close()
        with pytest.raises(WorkerError, match=message):
            Channel(joining, 0, 3, lambda text, is_culprit: None)


def test_a_worker_does_not_wait_forever_for_a_socket_that_nobody_serves(monkeypatch):
    monkeypatch.setenv("CNTKJAX_JOIN_TIMEOUT", "2")
    late = pytest.raises(WorkerError, match="worker 0 has not started within 2 s")
    with socket.create_server(("127.0.0.1", 0)) as server, late:
        Channel(server.getsockname(), 1, 2, lambda text, is_culprit: None)
