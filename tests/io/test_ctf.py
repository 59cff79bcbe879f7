"""CTF files are read as CNTK 2.7 reads them; the expected values were recorded from it."""

import warnings

import numpy as np
import pytest

from cntkjax.engine.data.ragged import Ragged
from cntkjax.io import MinibatchSource
from cntkjax.io._ctf import CTFFile

pytestmark = pytest.mark.usefixtures("parser")
A, B = "|x 1 2 |y 1\n", "|x 3 4 |y 2\n"

GOOD = {
    "white lines before the first row are skipped": ("\n  \n" + A + B, [[[1, 2]], [[3, 4]]]),
    "a byte order mark is skipped": (b"\xef\xbb\xbf" + A.encode(), [[[1, 2]]]),
    "without ids each row is a sequence": (" " + A + B, [[[1, 2]], [[3, 4]]]),
    "an id continues over rows without one": ("0 " + A + B + "\t" + A + "1 " + B, [[[1, 2], [3, 4], [1, 2]], [[3, 4]]]),
    "ids are compared as numbers": ("00 " + A + "0 " + B, [[[1, 2], [3, 4]]]),
    "an id may touch the bar": ("0" + A + "1" + B, [[[1, 2]], [[3, 4]]]),
    "an id that comes back begins another sequence": ("5 " + A + "6 " + A + "5 " + B, [[[1, 2]], [[1, 2]], [[3, 4]]]),
    "ids are nothing in a file that begins without": (A + "5 " + B + "5 " + A, [[[1, 2]], [[3, 4]], [[1, 2]]]),
    "missing dense values are zeros": ("|x |y 1\n|x 3|y 2\n", [[[0, 0]], [[3, 0]]]),
    "the last newline may be missing": (A + "|x 3 4 |y 2", [[[1, 2]], [[3, 4]]]),
    "lines may end with CR LF": ("|x 1 2\t|y 1\r\n|x 3 4 |y 2 \r\n", [[[1, 2]], [[3, 4]]]),
    "streams come in any order": ("|y 1 |x 1 2\n" + B, [[[1, 2]], [[3, 4]]]),
    "other streams are skipped, whatever they hold": (
        "|x 1 2 |y 1 |z a : b\n|xx 9 |x 3 4 |y 2\n",
        [[[1, 2]], [[3, 4]]],
    ),
    "comments are skipped": ("|# first |x 1 2 |y 1 |# a |# b\n|x 3 4|#c|y 2|#", [[[1, 2]], [[3, 4]]]),
    "comments may be in any language": ("|x 1 2 |y 1 |# \u00e9\x01\n", [[[1, 2]]]),
}

BAD = {  # row -> text of the message; file and line are always named
    "a blank line": "a blank line without samples",
    "  \t": "a blank line without samples",
    "|# only a comment": r"a row without samples of '\|x', '\|y'",
    "|z 1 2": "a row without samples",
    "3 4 5": r"'3 4 5' precedes the first '\|'",
    "junk |x 1 2 |y 1": r"'junk' precedes the first '\|'",
    "5 6 |x 1 2 |y 1": r"'5 6' precedes the first '\|'",
    " 7 |x 1 2 |y 1": r"'7' precedes the first '\|'; only a sequence id may, and in the first column",
    "\t7|x 1 2 |y 1": r"'7' precedes the first '\|'",
    "|x a 4 |y 2": r"stream '\|x': 'a' is not a number",
    "|x .5 4 |y 2": "'.5' is not a number",
    "|x 1:1 |y 2": "'1:1' is not a number",
    "|x 1\v2 |y 2": "is not a number",
    "|x 3 4 5 |y 2": r"stream '\|x': 3 values, more than the dimension 2",
    "| 1 2 |x 1 2 |y 1": r"a '\|' without a name",
    "| x 1 2 |y 1": r"a '\|' without a name",
    "|x 1 2 |y 1 |": r"a '\|' without a name",
    "|x 1 2 |y 1 |# a | b": r"a '\|' without a name",
    "|x 1 2 |y 1 |x 3 4": r"stream '\|x' occurs twice",
}

SPARSE = {
    "1:1": {1: 1},
    "3:1 1:2": {1: 2, 3: 1},
    "1:1 1:2": {1: 3},
    "0:0 4:9": {4: 9},
    "1:-2.5e1\t": {1: -25},
    "01:1": {1: 1},
    "": {},
    "2:5.|# c": {2: 5},
}

BAD_SPARSE = {
    "2": "'2' is not of the form index:value",
    "1 :1": "'1' is not of the form",
    "1: 1": "'1:' is not of the form",
    "+1:1": "'\\+1:1' is not of the form",
    "1.0:1": "is not of the form",
    "1:1:1": "is not of the form",
    "1:.5": "is not of the form",
    "1:x": "is not of the form",
    "5:1": "index 5 is not below the dimension 5",
    "99999999999999999999:1": "index 99999999999999999999 is not below",
}


@pytest.mark.filterwarnings("ignore:.*fewer than")
@pytest.mark.parametrize("case", GOOD)
def test_well_formed_files_are_read(case, ctf, read_all):
    text, expected = GOOD[case]
    (minibatch,) = read_all(MinibatchSource(ctf(text, x=2, y=1), max_sweeps=1, randomize=False))
    assert minibatch["x"] == expected


@pytest.mark.parametrize("row", BAD)
def test_malformed_rows_are_reported_with_file_line_and_reason(row, ctf):
    text = "" if row == "a blank line" else row
    source = MinibatchSource(ctf(f"{A}{B}{text}\n{B}", x=2, y=1), randomize=False)
    with pytest.raises(RuntimeError, match=rf"(?s)data0\.ctf:3: .*{BAD[row]}.*maximum number of allowed errors \(0\)"):
        source.next_minibatch(1)


@pytest.mark.parametrize("values", SPARSE)
def test_sparse_samples(values, ctf, read_all):
    (minibatch,) = read_all(MinibatchSource(ctf(f"|w {values}\n|w 2:1\n", w=(5,)), max_sweeps=1, randomize=False))
    assert minibatch["w"] == [[SPARSE[values]], [{2: 1}]]


@pytest.mark.parametrize("values", BAD_SPARSE)
def test_malformed_sparse_samples(values, ctf):
    source = MinibatchSource(ctf(f"|w 2:1\n|w {values}\n", w=(5,)), randomize=False)
    with pytest.raises(RuntimeError, match=rf"data0.ctf:2: stream '\|w': .*{BAD_SPARSE[values]}"):
        source.next_minibatch(1)


@pytest.mark.parametrize("text, message", [
    ("", "Input file is empty"),
    ("\n\n   \n", "Input file is empty"),
    ("a |x 1 2\n", "line 1: begins with 'a' instead of a sequence id or '|'"),
    ("\n-1 |x 1 2\n", "line 2: begins with '-'"),
])
def test_other_files_are_refused_when_the_source_is_created(text, message, ctf):
    with pytest.raises(RuntimeError, match=message.replace("|", r"\|")):
        MinibatchSource(ctf(text, x=2))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_files_in_utf_16_are_told_so(encoding, ctf):
    with pytest.raises(RuntimeError, match=r"data0\.ctf is encoded in UTF-16, .* save it in UTF-8"):
        MinibatchSource(ctf(("\ufeff" + A).encode(encoding), x=2, y=1))


def test_a_missing_file_is_an_error(ctf):
    with pytest.raises(RuntimeError, match="Input file 'nowhere.ctf' is not open: No such file"):
        MinibatchSource(ctf("", x=2) | {"file": "nowhere.ctf"})
    with pytest.raises(RuntimeError, match=r"'~/nowhere.ctf' is not open: .*(?s:.*)os\.path\.expanduser"):
        MinibatchSource(ctf("", x=2) | {"file": "~/nowhere.ctf"})


def test_a_sequence_without_samples_of_a_stream_is_an_error_even_if_errors_are_allowed(ctf):
    text = A + "|x 3 4\n" + B
    source = MinibatchSource(ctf(text, {"maxErrors": 50}, x=2, y=1), randomize=False)
    with pytest.raises(
        RuntimeError, match=r"data0.ctf:2: the sequence beginning here \(id 1\) has no sample of stream '\|y'"
    ):
        source.next_minibatch(1)


def test_malformed_samples_are_skipped_if_errors_are_allowed(ctf, read_all):
    text = "0 |x 1 2 |y 1\n0 |x z 4 |y 5\n\n0 |x 5 6\n1 |x 7 8 |y 2\n1 |x 9 9 9\n"
    source = MinibatchSource(ctf(text, {"maxErrors": 4}, x=2, y=1), max_sweeps=2, randomize=False)
    with pytest.warns(UserWarning, match="skipped") as warned:
        first, second = read_all(source, 6)
    assert first == second == {"x": [[[1, 2], [5, 6]], [[7, 8]]], "y": [[[1], [5]], [[2]]]}
    rows = {str(w.message).split(": ")[0].split("/")[-1] for w in warned}
    assert rows == {"data0.ctf:2", "data0.ctf:3", "data0.ctf:6"}
    source = MinibatchSource(ctf(text, {"maxErrors": 3}, x=2, y=1), randomize=False)
    with pytest.raises(RuntimeError, match=r"allowed errors \(3\)"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source.next_minibatch(5)


def test_padding_with_zeros_warns_once_per_chunk(ctf):
    source = MinibatchSource(ctf("|x 1\n|x 1 2\n|x\n", x=2), randomize=False)
    with pytest.warns(UserWarning, match=r"data0.ctf:1, and 1 more: stream '\|x' has fewer than 2 values") as warned:
        source.next_minibatch(3)
    assert len(warned) == 1


def test_ids_can_be_ignored(ctf, read_all):
    source = MinibatchSource(ctf("0 " + A + "0 " + B, {"skipSequenceIds": True}, x=2), max_sweeps=1, randomize=False)
    assert read_all(source) == [{"x": [[[1, 2]], [[3, 4]]]}]


@pytest.mark.parametrize("chunk", [1, 25, 60, 10**6])
@pytest.mark.parametrize("ids", [True, False])
def test_chunks_hold_whole_sequences_and_lose_none(chunk, ids, ctf):
    text = "".join(f"{i // 3 if ids else ''} |x {i}\n" for i in range(30))
    file = CTFFile(ctf(text, {"chunkSizeInBytes": chunk}, x=1))
    read = Ragged.concatenate([file.read_chunk(i)["x"] for i in range(file.num_chunks)])
    assert read.data.ravel().tolist() == list(range(30))
    assert set(read.lengths.tolist()) == {3 if ids else 1}
    assert file.sequence_keys().tolist() == list(range(10 if ids else 30))
    assert file.chunk_sizes().tolist() == np.diff(file.index.chunks).tolist()
    assert (file.num_chunks == 1) == (chunk == 10**6)
    assert all((file.sequence_lengths(i) == file.read_chunk(i)["x"].lengths).all() for i in range(file.num_chunks))


def test_line_numbers_are_those_of_the_file(ctf):
    text = "\n" + A * 50 + "|x q 1 |y 2\n" + A * 50
    source = MinibatchSource(ctf(text, {"chunkSizeInBytes": 100}, x=2, y=1), randomize=False)
    with pytest.raises(RuntimeError, match="data0.ctf:52: "):
        source.next_minibatch(101)
