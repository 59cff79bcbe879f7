"""The vocabulary of class-based language models."""

from cntkjax.brainscript.actions.vocabulary import classes
from tests.brainscript.actions.test_writers import run


def test_words_are_numbered_by_frequency_and_put_into_classes(tmp_path):
    (tmp_path / "text").write_text("</s> b a a a </s>\n</s> b a c d </s>\n")
    assert run(tmp_path, """
command = Words
Words = [ action = writeWordAndClass ; inputFile = "$Data$/text" ; beginSequence = "</s>" ; endSequence = "</s>"
    outputVocabFile = "$Data$/v" ; outputWord2Cls = "$Data$/w" ; outputCls2Index = "$Data$/c" ; vocabSize = 4
    nbrClass = 2 ; cutoff = 0 ]
""") == 0
    rows = [line.split() for line in (tmp_path / "v").read_text().splitlines()]
    assert [row[:3] for row in rows[:1]] == [["0", "4", "a"]]
    assert sorted(row[1:3] for row in rows[1:]) == [["2", "</s>"], ["2", "<unk>"], ["2", "b"]]
    assert [row[3] for row in rows] == (tmp_path / "w").read_text().split() == ["0", "1", "1", "1"]
    assert (tmp_path / "c").read_text() == "0\n1\n"


def test_classes_have_equal_sums_of_square_roots():
    counts = [1024, 256, 256, *[64] * 8, *[16] * 16]  # square roots 32, 16, 16, 8 x 8, 16 x 4: 192 in all
    assert classes(counts, 6) == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, *[3] * 7, *[4] * 9]
    assert classes(counts, 1) == classes(counts, 0) == [0] * 27
