"""Deserializers that users write: the forms of their data, and what is said about other ones."""

import gc
import itertools
import time
import weakref

import numpy as np
import pytest
import scipy.sparse as sp

from cntkjax.io import MinibatchSource, StreamInformation, UserDeserializer

EYE = np.eye(4, dtype=np.float32)


class Chunks(UserDeserializer):
    def __init__(self, chunk, chunks=3):
        self.chunk, self.chunks, self.asked = chunk, chunks, []

    def stream_infos(self):
        return [
            StreamInformation("x", 0, "dense", np.float32, (2,)),
            StreamInformation("s", 1, "sparse", np.float32, (4,)),
        ]

    def num_chunks(self):
        return self.chunks

    def get_chunk(self, chunk_id):
        self.asked.append(chunk_id)
        return self.chunk(chunk_id)


def sequences(c):
    return {
        "x": [np.full((k + 1, 2), 10 * c + k) for k in range(3)],
        "s": [sp.csr_matrix(EYE[: k + 1]) for k in range(3)],
    }


def samples(c):
    return {"x": np.arange(6).reshape(3, 2) + 10 * c, "s": sp.csr_matrix(EYE[:3])}


@pytest.mark.parametrize(("method", "expected"), [("num_chunks", "a whole number"), ("stream_infos", "a list")])
@pytest.mark.parametrize("result", [None, 2.5])
def test_what_the_methods_return_is_checked(method, expected, result):
    kind = type("Wrong", (Chunks,), {method: lambda self: result})
    with pytest.raises(TypeError, match=f"Wrong.{method} has to return {expected}, not {result}"):
        MinibatchSource([kind(samples)])


@pytest.mark.parametrize("result", [None, 2.5])
def test_a_chunk_is_a_mapping(result):
    with pytest.raises(TypeError, match=rf"Chunks.get_chunk\(0\) has to return .name of a stream: data., not {result}"):
        MinibatchSource([Chunks(lambda c: result)], randomize=False).next_minibatch(1)


def test_lists_are_sequences(read_all):
    (minibatch,) = read_all(MinibatchSource([Chunks(sequences, 1)], randomize=False, max_sweeps=1))
    assert minibatch["x"] == [[[k, k]] * (k + 1) for k in range(3)]
    assert minibatch["s"] == [[{i: 1} for i in range(k + 1)] for k in range(3)]


def test_rows_of_arrays_and_matrices_are_samples(read_all):
    minibatches = read_all(MinibatchSource(Chunks(samples), randomize=False, max_sweeps=1), 4)
    assert [len(m["x"]) for m in minibatches] == [4, 4, 1]
    assert minibatches[1]["x"] == [[[12, 13]], [[14, 15]], [[20, 21]], [[22, 23]]]
    assert minibatches[1]["s"] == [[{1: 1}], [{2: 1}], [{0: 1}], [{1: 1}]]


def test_data_are_converted_to_the_format_of_the_stream(read_all):
    def mixed(c):
        return {"x": [np.array([1, 2]), sp.csr_matrix([[3.0, 4.0], [5, 6]])], "s": [EYE[:1], [EYE[1], EYE[2]]]}

    (minibatch,) = read_all(MinibatchSource(Chunks(mixed, 1), randomize=False, max_sweeps=1))
    assert minibatch == {"x": [[[1, 2]], [[3, 4], [5, 6]]], "s": [[{0: 1}], [{1: 1}, {2: 1}]]}


def test_shuffled_chunks_occur_once_in_a_sweep(read_all):
    user = Chunks(samples)
    minibatches = read_all(MinibatchSource(user, max_sweeps=2), 4)
    assert sorted(step[0] for m in minibatches for (step,) in m["x"]) == sorted([0, 2, 4, 10, 12, 14, 20, 22, 24] * 2)
    assert sorted(user.asked) == [0, 1, 2]


@pytest.mark.parametrize("chunk, message", [
    (lambda c: {"x": [EYE[:1, :2]], "s": []}, r"get_chunk\(0\), stream 's': is an empty list"),
    (lambda c: {"x": [EYE[:1, :2]]}, r"Chunks.get_chunk\(0\): has no data of the streams \['s'\]"),
    (lambda c: {**samples(c), "x": EYE[:2, :2]}, r"as many sequences for each stream, but returns \{'x': 2, 's': 3\}"),
    (lambda c: {**samples(c), "x": EYE[:3]}, r"stream 'x': samples have shape \(4,\), but the stream has \(2,\)"),
    (lambda c: {**samples(c), "s": sp.csr_matrix(EYE[:3, :3])}, r"samples have shape \(3,\), but the stream"),
])
def test_an_invalid_chunk_is_an_error(chunk, message):
    with pytest.raises(RuntimeError, match=message):
        MinibatchSource(Chunks(chunk)).next_minibatch(1)


def test_a_chunk_has_to_stay_the_same():
    count = itertools.chain([1, 1], itertools.repeat(2))
    user = Chunks(lambda c: {"x": [np.ones((next(count), 2))], "s": [EYE[:1]]}, 2)
    source = MinibatchSource(user, randomize=False)
    source.next_minibatch(1)
    source.next_minibatch(1)
    with pytest.raises(RuntimeError, match=r"get_chunk\(0\): returns sequences of other lengths than before"):
        source.next_minibatch(1)


def test_chunks_are_requested_one_at_a_time_and_freed_at_the_end(read_all):
    at_work, given_out = [], []

    def chunk(c):
        assert not at_work
        at_work.append(c)
        time.sleep(0.001)
        x = np.ones((3, 2), np.float32)
        given_out.append(weakref.ref(x))
        at_work.clear()
        return {**samples(c), "x": x}

    source = MinibatchSource(Chunks(chunk, 5), max_sweeps=1, randomization_window_in_chunks=2)
    source.restore_from_checkpoint({"minibatchSourcePosition": 4})
    assert sum(len(m["x"]) for m in read_all(source, 2)) == 11
    gc.collect()
    assert [x() for x in given_out] == [None] * len(given_out)


@pytest.mark.parametrize("error", [KeyError("my own"), StopIteration("my own"), ValueError("my own")])
def test_errors_of_the_user_are_the_cause_of_a_runtime_error(error):
    def fails(c):
        raise error

    name = type(error).__name__
    with pytest.raises(RuntimeError, match=rf"Chunks.get_chunk\(0\) raised {name}: .?my own") as raised:
        MinibatchSource(Chunks(fails)).next_minibatch(1)
    causes = raised.value.__cause__, raised.value.__cause__ and raised.value.__cause__.__cause__
    assert error in causes
