"""Empty, damaged and hostile files: an error with file and position, never an endless loop or an error of Python's.

CNTK 2.7 was asked about most of these files; the names of cases say where it is more lenient.
"""

import os
import struct

import numpy as np
import pytest

from cntkjax.engine.data.ragged import Ragged
from cntkjax.io import (
    INFINITELY_REPEAT,
    CBFDeserializer,
    CTFDeserializer,
    HTKFeatureDeserializer,
    HTKMLFBinaryDeserializer,
    HTKMLFDeserializer,
    LatticeDeserializer,
    MinibatchSource,
    StreamDef,
    StreamDefs,
    StreamInformation,
)
from cntkjax.io._cbf import MAGIC
from cntkjax.io.deserializer import ChunkedDeserializer, register_deserializer

pytestmark = pytest.mark.timeout(30)
HUGE = "9" * 5000  # Python converts at most 4300 digits


def cbf(*chunks, version=1, sequences=None):
    """A file with a dense stream x of dimension 1; chunks are lists of sequences, in the table with so many of them."""
    text, table = MAGIC + struct.pack("<I", version), b""
    for chunk in chunks:
        count = len(chunk) if sequences is None else sequences
        table += struct.pack("<qII", len(text), count, sum(map(len, chunk)))
        text += struct.pack(f"<{len(chunk)}I", *map(len, chunk))
        text += b"".join(struct.pack(f"<I{len(s)}f", len(s), *s) for s in chunk)
    header = MAGIC + struct.pack("<II", len(chunks), 1) + struct.pack("<BI1sBI", 0, 1, b"x", 0, 1)
    return text + header + table + struct.pack("<q", len(text))


def ctf_source():
    return CTFDeserializer("file", StreamDefs(x=StreamDef("x", 2)))


def sparse_ctf_source():
    return CTFDeserializer("file", StreamDefs(x=StreamDef("x", 2, is_sparse=True)))


def cbf_source():
    return CBFDeserializer("file")


def features():
    return HTKFeatureDeserializer(StreamDefs(x=StreamDef(shape=1, scp="file")))


def labels():
    return HTKMLFDeserializer("labels", StreamDefs(x=StreamDef(shape=2, mlf="file")))


def labels_by_this_map():
    return HTKMLFDeserializer("file", StreamDefs(x=StreamDef(shape=2, mlf="good.mlf")))


def binary_labels():
    return HTKMLFBinaryDeserializer(StreamDefs(x=StreamDef(shape=2, mlf="file")))


def lattices():
    return LatticeDeserializer("file", StreamDefs(x=StreamDef()))


def lattices_of_this_table():
    return LatticeDeserializer("tables", StreamDefs(x=StreamDef()))


NO_DATA = r"\bfile: expected samples of the streams x, but there are none; check that this is the right file"
CASES = {
    "CBF without chunks": (cbf_source, cbf(), NO_DATA),
    "CBF with an empty chunk": (cbf_source, cbf([[1.0]], []), "file, byte 24: .*chunk 1 has 0 bytes and 0 sequences"),
    "CBF with only an empty sequence": (cbf_source, cbf([[]]), NO_DATA),
    "CBF with too many sequences": (
        cbf_source, cbf([[1.0]], sequences=2**32 - 1), "file, byte 12: .*chunk 0 has 12 bytes and 4294967295 sequences"
    ),
    "CBF of version 2": (cbf_source, cbf([[1.0]], version=2), "file, byte 8: the file has version 2"),
    "CBF that ends after its magic number": (cbf_source, MAGIC, "file, byte 8: .*expected 4 more bytes"),
    "CTF beginning with a digit of Latin-1": (ctf_source, b"\xb2 |x 1 2\n", "file, line 1: begins with '²'"),
    "CTF with an id of 65 bits": (
        ctf_source, b"1 |x 1 2\n\n18446744073709551616 |x 1 2\n", "file, line 3: a sequence id above 18446744073709"
    ),
    "CTF with an id of 21 digits": (ctf_source, b"100000000000000000000 |x 1 2\n", "file, line 1: a sequence id above"),
    "CTF with an id of two million digits": (
        ctf_source, b"|x 3 4\n".join([b"1 ", b"7" * 2_000_000, b""]), "file, line 2: a sequence id above"
    ),
    "CTF with a huge index": (sparse_ctf_source, f"|x {HUGE}:1\n", "file:1: stream '|x': index 9+ is not below"),
    "script without utterances": (features, "", NO_DATA),
    "script of blank lines": (features, "\n\n", NO_DATA),
    "script with a digit of Unicode, which CNTK drops": (features, "u=a[0,²]\n", "file, line 1: .*no range of frames"),
    "script with Arabic digits, which CNTK drops": (features, "u=a[0,٢]\n", "file, line 1: .*no range of frames"),
    "script with a huge frame": (features, f"\nu=a[0,{HUGE}]\n", "file, line 2: .*more than 10000000 frames"),
    "script with a frame of 32 bits": (features, f"u=a[{2**31},{2**31}]\n", "file, line 1: .*beyond frame 2147483647"),
    "script with a NUL character": (features, "u=a\0[0,1]\n", "file, line 1: contains a NUL character"),
    "empty label file": (labels, "", "file, line 1: a master label file has to begin with"),
    "label file without utterances": (labels, "#!MLF!#\n", NO_DATA),
    "label file without labels": (labels, '#!MLF!#\n"u"\n.\n', NO_DATA),
    "label file with a huge time": (labels, f'#!MLF!#\n"u"\n0 {HUGE} a\n.\n', "file, line 3: .*malformed"),
    "label file with a time above floats": (labels, f'#!MLF!#\n"u"\n0 {"9" * 400} a\n.\n', "file, line 3: .*malformed"),
    "label file with a time of a year": (labels, f'#!MLF!#\n"u"\n0 {10**14} a\n.\n', "file, line 3: .*more than 1000"),
    "label file with Arabic digits": (labels, '#!MLF!#\n"u"\n0 ٣٠٠٠٠٠ a\n.\n', "file, line 3: .*malformed"),
    "label file with a NUL character": (labels, '#!MLF!#\n"u\0"\n', "file, line 2: contains a NUL character"),
    "label mapping without labels": (labels_by_this_map, "\n", "file: the label mapping file is empty; write one"),
    "empty binary label file": (binary_labels, b"", "file: a binary master label file has to begin with MLF"),
    "binary label file without utterances": (binary_labels, b"MLF\1\0", NO_DATA),
    "list without tables of lattices": (lattices, "", NO_DATA),
    "table without lattices": (lattices_of_this_table, "", r"\btables: expected samples of the streams x"),
    "table with a huge offset": (lattices_of_this_table, f"u=a[{HUGE}]\n", "file, line 1: .*does not locate a lattice"),
    "table with a NUL character": (lattices_of_this_table, "u=a\0[0]\n", "file, line 1: contains a NUL character"),
}


@pytest.mark.parametrize("randomize", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_damaged_file_is_an_error_with_its_position(tmp_path, monkeypatch, case, randomize):
    describe, content, message = CASES[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "labels").write_text("a\nb\n")
    (tmp_path / "good.mlf").write_text('#!MLF!#\n"u"\n0 300000 a\n.\n')
    (tmp_path / "tables").write_text("file\n")
    with pytest.raises(RuntimeError, match=message):
        MinibatchSource(describe(), randomize=randomize, max_sweeps=INFINITELY_REPEAT).next_minibatch(10)


def test_ids_of_64_bits_are_exact(tmp_path):
    path = tmp_path / "ids.ctf"
    ids = [2**64 - 1, 2**64 - 1, 2**64 - 2, 10**19, 10**19 - 1, 3]
    path.write_text("".join(f"{i:030} |x {i % 7}\n" for i in ids))
    source = MinibatchSource(CTFDeserializer(str(path), StreamDefs(x=StreamDef("x", 1))), randomize=False, max_sweeps=1)
    assert source.next_minibatch(10)[source.streams.x].num_sequences == 5


@pytest.mark.parametrize("unusual", ["/dev/zero", "pipe", "folder", "nul\0"])
@pytest.mark.parametrize("kind", [ctf_source, cbf_source, features, labels, binary_labels, lattices])
def test_devices_pipes_and_folders_are_refused(tmp_path, monkeypatch, kind, unusual):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels").write_text("a\n")
    if unusual == "pipe":
        os.mkfifo("file")
    elif unusual == "folder":
        (tmp_path / "file").mkdir()
    elif unusual == "/dev/zero":
        (tmp_path / "file").symlink_to(unusual)
    description = kind()
    if unusual == "nul\0":
        description = replaced(description, "file", unusual)
    with pytest.raises(RuntimeError, match="only regular files are read|[Ii]s a directory|contains a NUL character"):
        MinibatchSource(description)


def replaced(value, old, new):
    """A description with another file."""
    if isinstance(value, dict):
        return {key: replaced(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, old, new) for item in value]
    return new if value == old else value


@register_deserializer("NumbersInChunks")
class NumbersInChunks(ChunkedDeserializer):
    """Chunks of so many sequences of one sample, as in a format that knows no better."""

    def __init__(self, description):
        self.sizes = description["sizes"]
        self.num_chunks, self.streams = len(self.sizes), [StreamInformation("x", 0, "dense", np.float32, (1,))]

    def read_chunk(self, chunk):
        size = self.sizes[chunk]
        return {"x": Ragged(np.full((size, 1), chunk, np.float32), np.ones(size, np.int32))}


@pytest.mark.parametrize("options", [{"randomize": False}, {}, {"randomization_window_in_chunks": 0,
                                                                "randomization_window_in_samples": 3}])
def test_chunks_without_sequences_are_skipped(read_all, options):
    for sizes in ([0, 2, 0, 1], [1, 0], [0, 0, 3]):
        source = MinibatchSource({"type": "NumbersInChunks", "sizes": sizes}, max_sweeps=2, **options)
        assert sum(len(minibatch["x"]) for minibatch in read_all(source, 2)) == 2 * sum(sizes)
    source = MinibatchSource({"type": "NumbersInChunks", "sizes": [0, 0]}, **options)
    with pytest.raises(RuntimeError, match="^MinibatchSource.*: expected samples of the streams x, but there are none"):
        source.next_minibatch(2)
    with pytest.raises(RuntimeError, match="^MinibatchSource.*: expected samples of the streams x, but there are none"):
        source.restore_from_checkpoint({"minibatchSourcePosition": 3})
