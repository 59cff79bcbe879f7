"""A deserializer describes itself: MinibatchSource opens whatever is registered for the type of a description."""

import numpy as np
import pytest

from cntkjax.engine.data.ragged import Ragged
from cntkjax.formats.containers import Dictionary
from cntkjax.io import CTFDeserializer, MinibatchSource, StreamDef, StreamDefs, StreamInformation
from cntkjax.io.deserializer import ChunkedDeserializer, enumerate_sequences, register_deserializer


def countdown(*starts):
    return Dictionary(type="CountdownDeserializer", starts=list(starts))


@register_deserializer("CountdownDeserializer")
class Countdown(ChunkedDeserializer):
    """A chunk for each start, with the sequences [start, ..., 1], [start - 1, ..., 1], ..., [1]."""

    def __init__(self, description):
        self.starts = description["starts"]
        self.num_chunks = len(self.starts)
        self.streams = [StreamInformation("x", 0, "dense", np.float32, (1,))]

    def read_chunk(self, chunk):
        sequences = [np.arange(n, 0, -1, dtype=np.float32)[:, None] for n in range(self.starts[chunk], 0, -1)]
        return {"x": Ragged.from_sequences(sequences)}


def test_the_minimum_is_enough_to_read(read_all):
    source = MinibatchSource(countdown(2, 1), randomize=False, max_sweeps=1)
    assert read_all(source, 2) == [{"x": [[[2], [1]]]}, {"x": [[[1]], [[1]]]}]


def test_the_minimum_is_enough_to_shuffle_share_and_resume(read_all):
    source, resumed = (MinibatchSource(countdown(3, 2, 4), max_sweeps=2) for _ in range(2))
    first = read_all(source, 5, limit=2)
    resumed.restore_from_checkpoint(source.get_checkpoint_state())
    rest = read_all(source, 5)
    assert rest == read_all(resumed, 5)
    assert sum(len(minibatch["x"]) for minibatch in first + rest) == 2 * (3 + 2 + 4)
    shards = [
        read_all(MinibatchSource(countdown(3, 2), max_sweeps=1), 4, num_data_partitions=2, partition_index=rank)
        for rank in range(2)
    ]
    assert sum(len(minibatch["x"]) for shard in shards for minibatch in shard) == 3 + 2


def test_the_minimum_is_enough_to_join(ctf, read_all):
    source = MinibatchSource([countdown(2), ctf("0 |y 7\n1 |y 8\n", y=1)], randomize=False, max_sweeps=1)
    assert read_all(source) == [{"x": [[[2], [1]], [[1]]], "y": [[[7]], [[8]]]}]


def test_a_type_is_registered_once():
    with pytest.raises(ValueError, match=r"'CountdownDeserializer' is registered for Countdown already; choose"):
        register_deserializer("CountdownDeserializer")(type("Other", (ChunkedDeserializer,), {}))


def test_an_unknown_type_lists_the_known_ones():
    with pytest.raises(TypeError, match=r"for the type 'Other'. The types are: .*CNTKTextFormatDes.*Register"):
        MinibatchSource(Dictionary(type="Other"))
    with pytest.raises(TypeError, match=r"'a.ctf' is no deserializer; pass the result of CTFDeserializer\(...\)"):
        MinibatchSource("a.ctf")


def test_read_chunk_has_to_be_defined():
    with pytest.raises(NotImplementedError, match=r"has to define read_chunk\(chunk\)"):
        ChunkedDeserializer().read_chunk(0)


def test_an_unknown_stream_in_input_map_lists_the_streams(tmp_path):
    path = tmp_path / "d.ctf"
    path.write_text("|x 1 |y 2\n")
    source = MinibatchSource(CTFDeserializer(str(path), StreamDefs(x=StreamDef("x", 1), y=StreamDef("y", 1))))
    other = StreamInformation("z", 0, "dense", np.float32, (1,))
    with pytest.raises(KeyError, match=r"z\(\[1\]\) for 'a'.* The streams are: x, y. Write input_map={variable: "):
        source.next_minibatch(1, {"a": other})
    with pytest.raises(RuntimeError, match=r"'z'. The streams are: x, y. Write one of these names, as in source"):
        source.stream_info("z")


def test_sequences_are_enumerated_chunk_by_chunk():
    chunks, indices = enumerate_sequences(np.array([2, 0, 1]))
    assert (chunks.tolist(), indices.tolist()) == ([0, 0, 2], [0, 1, 0])
