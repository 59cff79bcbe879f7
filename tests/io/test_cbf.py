import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cntkjax.io import CBFDeserializer, MinibatchSource, StreamDef, StreamDefs
from cntkjax.io._cbf import MAGIC, CBFFile

STEP = st.dictionaries(st.integers(0, 5), st.integers(1, 9).map(float), max_size=3)


def cbf(chunks: list[list[dict]], double: bool = False) -> bytes:
    """A file with a dense stream x of dimension 2 and a sparse stream w of dimension 6; chunks of sequences."""
    real, text, table = "d" if double else "f", MAGIC + struct.pack("<I", 1), b""
    for chunk in chunks:
        lengths = [max(len(s["x"]), len(s["w"])) for s in chunk]
        table += struct.pack("<qII", len(text), len(chunk), sum(lengths))
        text += struct.pack(f"<{len(chunk)}I", *lengths)
        for s in chunk:
            text += struct.pack(f"<I{2 * len(s['x'])}{real}", len(s["x"]), *np.ravel(s["x"]))
        for s in chunk:
            entries = [e for step in s["w"] for e in step.items()]
            text += struct.pack("<II", len(s["w"]), len(entries))
            text += struct.pack(f"<{len(entries)}{real}", *[v for _, v in entries])
            text += struct.pack(f"<{len(entries)}i{len(s['w'])}I", *[i for i, _ in entries], *map(len, s["w"]))
    header = MAGIC + struct.pack("<II", len(chunks), 2)
    header += struct.pack("<BI1sBI", 0, 1, b"x", double, 2) + struct.pack("<BI1sBI", 1, 1, b"w", double, 6)
    return text + header + table + struct.pack("<q", len(text))


def sequence(steps):
    return st.fixed_dictionaries({
        "x": st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=steps),
        "w": st.lists(STEP, min_size=1, max_size=steps),
    })


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("cbf") / "data.cbf"


@given(
    st.sampled_from([1, 4]).flatmap(
        lambda n: st.lists(st.lists(sequence(n), min_size=1, max_size=4), min_size=1, max_size=3)
    ),
    st.booleans(),
)
def test_a_written_file_is_read_back(path, chunks, double):
    path.write_bytes(cbf(chunks, double))
    file = CBFFile(CBFDeserializer(str(path)))
    assert [len(file.sequence_lengths(i)) for i in range(file.num_chunks)] == [len(chunk) for chunk in chunks]
    for i, chunk in enumerate(chunks):
        data = file.read_chunk(i)
        assert [s.tolist() for s in data["x"].sequences()] == [[list(step) for step in s["x"]] for s in chunk]
        dense = [[[step.get(k, 0) for k in range(6)] for step in s["w"]] for s in chunk]
        assert [s.to_dense().tolist() for s in data["w"].sequences()] == dense
        assert data["x"].dtype == data["w"].dtype == np.dtype(np.float64 if double else np.float32)


@pytest.fixture
def small(tmp_path):
    place = tmp_path / "small.cbf"
    place.write_bytes(cbf([[{"x": [(1, 2)], "w": [{3: 1.0}]}, {"x": [(3, 4), (5, 6)], "w": [{}]}]]))
    return place


def test_streams_can_be_selected_renamed_and_reshaped(small, read_all):
    streams = StreamDefs(features=StreamDef("x", (1, 2)))
    source = MinibatchSource(CBFDeserializer(str(small), streams), randomize=False, max_sweeps=1)
    assert read_all(source) == [{"features": [[[[1, 2]]], [[[3, 4]], [[5, 6]]]]}]


@pytest.mark.parametrize("stream, message", [
    (StreamDef("z", 2), r"has no stream 'z'; its streams: \['x', 'w'\]"),
    (StreamDef("x", 3), r"'x' is dense of dimension 2, but is requested as dense of shape \(3,\)"),
    (StreamDef("x", 2, is_sparse=True), "'x' is dense of dimension 2, but is requested as sparse"),
])
def test_streams_must_match_the_file(small, stream, message):
    with pytest.raises(RuntimeError, match=message):
        MinibatchSource(CBFDeserializer(str(small), StreamDefs(a=stream)))


def test_a_script_may_change_its_working_directory(small, read_all, monkeypatch):
    monkeypatch.chdir(small.parent)
    source = MinibatchSource(CBFDeserializer(small.name), randomize=False, max_sweeps=1)
    monkeypatch.chdir("/")
    assert read_all(source)


def test_other_files_are_refused(small):
    small.write_bytes(b"something else")
    with pytest.raises(RuntimeError, match=r"small.cbf\) is not a valid CNTK binary format file"):
        MinibatchSource(CBFDeserializer(str(small)))
    with pytest.raises(RuntimeError, match="Input file 'nowhere.cbf' is not open"):
        MinibatchSource(CBFDeserializer("nowhere.cbf"))


def test_a_corrupt_byte_anywhere_is_an_error_or_harmless(small):
    """Either an error of this kind that names the file, or data of the right form: never anything else."""
    good = small.read_bytes()
    for i in range(len(good)):
        for byte in (0, 255, good[i] ^ 1):
            small.write_bytes(good[:i] + bytes([byte]) + good[i + 1 :])
            read_or_refuse(small)
        small.write_bytes(good[:i])
        with pytest.raises(RuntimeError, match="small.cbf"):
            CBFFile(CBFDeserializer(str(small)))


def read_or_refuse(place):
    try:
        file = CBFFile(CBFDeserializer(str(place)))
        for i in range(file.num_chunks):
            for info in file.streams:
                ragged = file.read_chunk(i)[info.name]
                if info.is_sparse:
                    assert (ragged.data.indices < ragged.data.width).all()
                else:
                    assert ragged.data.shape[1:] == info.sample_shape
    except RuntimeError as error:
        assert "small.cbf" in str(error)


def test_the_stated_lengths_count_whichever_streams_are_read(tmp_path):
    sequences = 6
    for stated, per_minibatch in ((3, 1), (1, 3)):  # as in CNTK
        text = MAGIC + struct.pack("<I", 1) + struct.pack("<6I", *[stated] * sequences)
        text += b"".join(struct.pack("<If", 1, i) for i in range(sequences))
        text += b"".join(struct.pack("<I3f", 3, i, i, i) for i in range(sequences))
        header = MAGIC + struct.pack("<II", 1, 2)
        header += b"".join(struct.pack("<BI1sBI", 0, 1, name, 0, 1) for name in (b"x", b"w"))
        header += struct.pack("<qII", 12, sequences, sequences * stated)
        (tmp_path / "f.cbf").write_bytes(text + header + struct.pack("<q", len(text)))
        for names in ("x", "w", "xw"):
            streams = StreamDefs(**{name: StreamDef(name, 1) for name in names})
            source = MinibatchSource(CBFDeserializer(str(tmp_path / "f.cbf"), streams), randomize=False)
            data = source.next_minibatch(3)[source.streams[names[0]]]
            assert data.num_sequences == per_minibatch
            assert data.as_sequences()[0].shape == (3 if names == "w" else 1, 1)
