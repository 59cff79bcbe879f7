"""Text is read in pieces, as if all of it were in memory."""

import pytest

from cntkjax.io import CTFDeserializer, MinibatchSource, StreamDef, StreamDefs, _ctf_parser, _text
from cntkjax.io._text import FileText

ROWS = b"".join(b"|x %d\n" % i for i in range(1000))


@pytest.mark.parametrize("end", [len(ROWS), len(ROWS) - 1])
def test_pieces_of_a_file_are_its_rows(tmp_path, monkeypatch, end):
    monkeypatch.setattr(_text, "_LINE", 7)
    monkeypatch.setattr(_ctf_parser, "_PIECE", 100)
    path = tmp_path / "rows.ctf"
    path.write_bytes(ROWS[:end])
    for begin in (0, 10):
        text = FileText(str(path), begin, end)
        pieces = [text[piece] for piece in _ctf_parser._pieces(text)]
        assert b"".join(pieces) == ROWS[begin:]
        assert all(piece.endswith(b"\n") for piece in pieces)


def test_a_malformed_last_row_without_a_newline_is_reported(tmp_path):
    path = tmp_path / "rows.ctf"
    path.write_bytes(ROWS + b"|x oops")
    streams = StreamDefs(x=StreamDef("x", 1))
    source = MinibatchSource(CTFDeserializer(str(path), streams), randomize=False, max_sweeps=1)
    with pytest.raises(RuntimeError, match=r":1001: stream '\|x': 'oops' is not a number"):
        source.next_minibatch(2000)
