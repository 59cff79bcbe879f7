"""Malformed rows are reported in their order, whatever pieces the text is parsed in."""

import pytest

from cntkjax.io import _ctf_parser
from cntkjax.io._ctf_rows import Field, RowReporter

pytestmark = pytest.mark.usefixtures("compiled_parser")

FIELDS = [Field(b"x", 3, False), Field(b"w", 50, True), Field(b"xx", 1, False)]


@pytest.mark.filterwarnings("ignore:.*skipped")
def test_malformed_rows_of_all_pieces_are_reported_in_order(monkeypatch):
    text = b"".join(b"|x %d\n" % i if i % 7 else b"|x %d z\n|xx %d |x a\n" % (i, i) for i in range(1000))
    expected = _ctf_parser.parse_chunk(text, FIELDS, RowReporter("f", 0, 1000, {}, 0))
    monkeypatch.setattr(_ctf_parser, "_PIECE", 100)
    reporter = RowReporter("f", 0, 1000, {}, 0)
    samples = _ctf_parser.parse_chunk(text, FIELDS, reporter)
    assert reporter.num_errors == 3 * 143
    for a, b in zip(samples, expected, strict=True):
        assert a.rows.tolist() == b.rows.tolist() and len(a.data) == len(b.data)
    assert samples[2].data.ravel().tolist() == list(range(0, 1000, 7))
    with pytest.raises(RuntimeError, match="^f:2: stream '[|]x'.*maximum number of allowed errors"):
        _ctf_parser.parse_chunk(text, FIELDS, RowReporter("f", 0, 2, {}, 0))
