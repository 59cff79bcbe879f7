"""The index of a text file: where sequences begin, found in windows of the file."""

import numpy as np
import pytest

from cntkjax.io import _ctf_index
from cntkjax.io._ctf import CTFFile


def test_scanning_a_large_file_shows_its_progress_on_a_terminal(ctf, monkeypatch, capsys):
    monkeypatch.setattr(_ctf_index, "_SILENT_SECONDS", -1)
    monkeypatch.setattr(_ctf_index, "_REFRESH_SECONDS", -1)
    description = ctf("".join(f"|x {i}\n" for i in range(100)), x=1)
    CTFFile(description)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("cntkjax._terminal.is_interactive", lambda: True)
    monkeypatch.setattr(_ctf_index, "_WINDOW", 100)
    CTFFile(description)
    shown = capsys.readouterr().err
    assert "data0.ctf:  50% of 0.0 GB scanned" in shown or "49%" in shown
    assert shown.endswith(" \r")


@pytest.mark.usefixtures("parser")
def test_sequences_may_span_windows_of_the_index(ctf, monkeypatch):
    text = "".join(f"{i // 3} |x {i}\n" for i in range(30))
    index = CTFFile(ctf(text, x=1)).index
    monkeypatch.setattr("cntkjax.io._ctf_index._WINDOW", 16)
    for name in ("begins", "rows", "keys"):
        np.testing.assert_array_equal(getattr(CTFFile(ctf(text, x=1)).index, name), getattr(index, name))
