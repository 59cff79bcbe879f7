"""Damaged files of data: new ones each time that more are asked for, and all that were ever read wrongly again.

A file that ends in anything but data or an explained error is stored in corpus/ by fuzz.py, and stays there.
"""

import itertools
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from .training import LONGER

FUZZ = Path(__file__).resolve().parents[1] / "formats" / "fuzz.py"
CORPUS = Path(__file__).parent / "corpus"
KINDS = ("model", "checkpoint", "ctf", "cbf")


def report(*arguments):
    command = [sys.executable, "-W", "ignore", FUZZ, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110 * LONGER)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


def binary_format(sequences):
    """A file of CNTK's binary format with one chunk of a dense stream of dimension 2."""
    magic = struct.pack("<Q", 0x636E746B5F62696E)
    text = magic + struct.pack("<I", 1) + struct.pack(f"<{len(sequences)}I", *map(len, sequences))
    for sequence in sequences:
        text += struct.pack(f"<I{2 * len(sequence)}f", len(sequence), *itertools.chain(*sequence))
    header = magic + struct.pack("<II", 1, 1) + struct.pack("<BI1sBI", 0, 1, b"x", 0, 2)
    steps = sum(map(len, sequences))
    return text + header + struct.pack("<qII", 12, len(sequences), steps) + struct.pack("<q", len(text))


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_were_read_wrongly_once_are_read_or_refused(kind):
    files = [p for p in sorted(CORPUS.glob(f"{kind}-*")) if kind != "checkpoint" or p.suffix == ".ckp"]
    if files:
        assert report(kind, 0, "--replay", *files)["bad"] == []


@pytest.mark.parametrize("kind", ["ctf", "cbf"])
def test_damaged_data_are_read_or_refused(kind, tmp_path):
    text = b"".join(b"%d |x %d.5 -1e3 |y %d:2 2:0.1 |# comment\n" % (i // 2, i, i % 2) for i in range(20))
    path = tmp_path / "data"
    path.write_bytes(text if kind == "ctf" else binary_format([[[1, 2], [3, 4]], [[5, 6]]]))
    result = report(kind, 100 * LONGER, "--seed", LONGER, path)
    assert result["bad"] == [] and result["refused"]
