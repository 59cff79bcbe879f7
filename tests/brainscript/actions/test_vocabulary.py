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


def test_label_maps_have_the_labels_of_the_data_as_they_appear(tmp_path):
    (tmp_path / "rows").write_text("red,1,x\nblue;2,y\n\nred,3,y\n")
    assert run(tmp_path, """
command = Map:Train ; modelPath = "$Data$/m" ; deviceId = -1
Map = [ action = createLabelMap ; section = Train ; minibatchSize = 2 ]
Train = [ action = train
    SimpleNetworkBuilder = [ layerSizes = 1:2 ]
    SGD = [ maxEpochs = 1 ; minibatchSize = 3 ; epochSize = 0 ; learningRatesPerMB = 1 ]
    reader = [ readerType = UCIFastReader ; file = "$Data$/rows" ; customDelimiter = ",;"
        features = [ start = 1 ; dim = 1 ]
        labels = [ start = 0 ; dim = 1 ; labelDim = 2 ; labelMappingFile = "$Data$/new/colours" ]
        others = [ start = 2 ; dim = 1 ; labelDim = 2 ; labelMappingFile = "$Data$/new/letters" ]
    ] ]
""") == 0
    assert (tmp_path / "new/colours").read_text() == "red\nblue\n"
    assert (tmp_path / "new/letters").read_text() == "x\ny\n"


def test_label_maps_of_the_readers_of_sentences_have_the_words_and_labels_of_the_text(tmp_path):
    (tmp_path / "text").write_text("</s> a b </s>\n\nc a\n")
    (tmp_path / "tags").write_text("BOS O\nbig A\ndogs N\n\nBOS O\nlarge A\n")
    (tmp_path / "map").write_text("large big\n")
    assert run(tmp_path, """
command = Words:Tags
Words = [ action = createLabelMap ; section = LM ]
Tags = [ action = createLabelMap ; section = LU ]
LM = [ reader = [ readerType = SequenceReader ; file = "$Data$/text" ; labelIn = [ beginSequence = "<s>"
    labelDim = 5 ; endSequence = "</s>" ; labelMappingFile = "$Data$/w" ] ] ]
LU = [ reader = [ readerType = LUSequenceReader ; file = "$Data$/tags" ; wordMap = "$Data$/map"
    labelIn = [ useWordMap = true ; labelMappingFile = "$Data$/i" ] ; labels = [ labelMappingFile = "$Data$/o" ] ] ]
""") == 0
    files = [(tmp_path / name).read_text().split() for name in "wio"]
    assert files == [["<s>", "</s>", "a", "b", "c"], ["BOS", "big", "dogs"], ["O", "A", "N"]]
