"""Master label files that are parsed at once have the labels of the line parser."""

import numpy as np
import pytest

from cntkjax.io import _htk, _mlf_vectorized
from cntkjax.io._utterances import utterance_name


def master_labels(random, ends="\n"):
    """The text of a master label file, in all forms that are usual."""
    lines = ["#!MLF!#"]
    for number in range(30):
        lines.append(f'"*/utterance {number}.lab"' if number % 3 else f'"folder/{number % 7}.rec"')
        end, frames = 0, 0
        for _ in range(random.integers(0, 9)):
            frames += int(random.integers(1, 40))
            begin, end = end, frames * 100_000 + int(random.integers(-50_000, 50_000))
            rest = " -12.5 word" * int(random.integers(0, 2))
            lines.append(f"{begin}{' ' * random.integers(1, 3)}{end}\t{random.choice(['sil', 'a', 'b_s3'])}{rest}")
        lines += [".", *[""] * int(random.integers(0, 2))]
    return ends.join(lines) + ends


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize("seed", range(5))
def test_labels_parsed_at_once_are_those_of_the_line_parser(tmp_path, monkeypatch, seed, ends):
    numbers = {"sil": 0, "a": 1, "b_s3": 2}
    path = tmp_path / "labels.mlf"
    path.write_bytes(master_labels(np.random.default_rng(seed), ends).encode())
    (tmp_path / "list").write_text("\n".join(numbers))
    monkeypatch.setattr(_mlf_vectorized, "_BLOCK", 700)  # so that blocks begin within utterances
    stream = {"dim": 3, "mlfFile": str(path), "labelMappingFile": str(tmp_path / "list")}
    reader = _htk.MasterLabels({"input": {"y": stream}})
    at_once = list(_mlf_vectorized.utterances(str(path), _mlf_vectorized.LabelTable(numbers), 100_000))
    by_line = list(reader._utterances_by_line(str(path)))
    assert len(by_line) == 30
    assert [utterance_name(name.strip('"')) for name, _ in at_once] == [name for name, _ in by_line]
    for (_, actual), (_, expected) in zip(at_once, by_line, strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "text",
    ['"a"\n0 100000 sil\n', '"a"\n0 100000 sil\n.\n0 1 sil\n.\n', '"a"\n0 100000 new\n.\n', '"a"\n0 100000\n.\n',
     '"a"\n100000 200000 sil\n.\n', '"a"\n0 0x1 sil\n.\n', '"ä"\n0 100000 sil\n.\n', '"a"\r0 100000 sil\n.\n',
     '"a"\n0 100000 sil\n"b"\n0 100000 sil\n.\n', ".\n"],
    ids=repr,
)
def test_unusual_labels_are_left_to_the_line_parser(tmp_path, text):
    (tmp_path / "labels.mlf").write_text("#!MLF!#\n" + text, encoding="utf-8")
    with pytest.raises(_mlf_vectorized.Unusual):
        list(_mlf_vectorized.utterances(str(tmp_path / "labels.mlf"), _mlf_vectorized.LabelTable({"sil": 0}), 100_000))
