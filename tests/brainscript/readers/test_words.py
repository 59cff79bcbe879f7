"""LMSequenceReader and LUSequenceReader, class-based softmax, and the recurrent networks that are trained with them."""

import numpy as np
import pytest

from cntkjax.brainscript.command_line import main
from cntkjax.brainscript.readers import open_reader
from cntkjax.brainscript.simple import simple_network
from cntkjax.configuration import load
from cntkjax.sgd import ConfigError

CLASSES = "0 9 </s> 0\n1 5 a 0\n2 4 <unk> 1\n3 3 b 1\n4 1 c 2\n"
TEXT = "</s> a b </s>\n</s> c a </s>\n</s> b </s>\n</s> a zebra </s>\n"
IOB = "BOS O\nfly O\nto O\nrome B\nEOS O\n\nBOS O\nto O\nparis B\nEOS O\n\n\n"
LM = """
reader = [ readerType = LMSequenceReader ; file = "$Data$/text" ; wordclass = "$Data$/classes" ; unk = "<unk>"
    nbruttsineachrecurrentiter = 0
    labelIn = [ labelDim = 5 ; beginSequence = "</s>" ; endSequence = "</s>" ] ; labels = [ labelType = NextWord ] ]
"""
LU = """
reader = [ readerType = LUSequenceReader ; file = "$Data$/iob" ; wordContext = -1:0:1 ; unk = "<unk>"
    wordmap = "$Data$/map" ; nbruttsineachrecurrentiter = 10 ; equalLength = false
    labelIn = [ token = "$Data$/words" ; useWordMap = true ; beginSequence = "BOS" ; endSequence = "EOS" ]
    labels = [ token = "$Data$/labels" ] ]
"""
TRAIN = """
command = Train:Test ; modelPath = "$Data$/model" ; deviceId = -1
Train = [ action = train
    SimpleNetworkBuilder = [ rnnType = KIND ; layerSizes = SIZES ; recurrentLayer = 1:2 ; lookupTableOrder = ORDER
        initValueScale = 20 ; trainingCriterion = CRITERION ; evalCriterion = CRITERION ; nbrClass = 3 ]
    SGD = [ minibatchSize = 16 ; epochSize = 0 ; maxEpochs = 8 ; learningRatesPerSample = 0.5 ; momentumPerMB = 0 ] ]
Test = [ action = test ; minibatchSize = 16 ]
"""


def write_sentences(folder):
    """A text, its vocabulary and classes, and sentences with labels."""
    for name, text in {
        "classes": CLASSES, "text": TEXT, "iob": IOB,
        "map": "paris <unk>\nto to\nfly fly\nrome rome\nBOS BOS\nEOS EOS\n",
        "words": "BOS\nEOS\nfly\nrome\nto\n<unk>\n", "labels": "B\nO\n",
    }.items():
        (folder / name).write_text(text)


@pytest.fixture
def data(tmp_path):
    write_sentences(tmp_path)
    return tmp_path


def source(data, text, **options):
    (data / "c.cntk").write_text(text)
    extra = [f"reader=[{key}={value}]" for key, value in options.items()]
    return open_reader(load([f"configFile={data}/c.cntk", f"Data={data}", *extra]).block("reader"))


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("</s> ", ""), TEXT.replace(" </s>", "")])
def test_next_words_are_labels_with_their_classes_and_unknown_words_are_unk(data, text):
    """Lines get the words that begin and end a sentence where they lack them (CNTK's issue 325)."""
    (data / "text").write_text(text)
    reader = source(data, LM)
    minibatch = reader.next_minibatch(100)
    features, labels = (minibatch[reader[name]].as_sequences() for name in ("features", "labels"))
    assert [[int(row.argmax()) for row in np.asarray(each.todense())] for each in features] == [
        [0, 1, 3], [0, 4, 1], [0, 1, 2]
    ]
    assert labels[0].tolist() == [[1, 0, 0, 2], [3, 1, 2, 4], [0, 0, 0, 2]]
    assert reader.next_minibatch(100)[reader["features"]].num_samples == 2  # the shorter sentence
    assert not reader.next_minibatch(100)


@pytest.mark.parametrize(("size", "sizes"), [(9, [6, 2, 3]), (8, [3, 3, 2, 3]), (1, [3, 3, 2, 3])])
def test_minibatches_hold_sentences_of_one_length_as_many_as_fit(data, size, sizes):
    reader = source(data, LM)
    found = []
    while minibatch := reader.next_minibatch(size):
        found.append(minibatch[reader["labels"]].num_samples)
    assert found == sizes


def test_epochs_end_with_a_whole_minibatch_and_begin_anew(data):
    reader = source(data, LM, nbruttsineachrecurrentiter=1)
    for _ in range(2):
        reader.begin_epoch(5)
        found = []
        while minibatch := reader.next_minibatch(100):
            found.append(minibatch[reader["labels"]].num_samples)
        assert found == [3, 3]


def test_without_classes_labels_are_words(data):
    reader = source(data, LM.replace('wordclass = "$Data$/classes" ;', ""), unk="a")
    minibatch = reader.next_minibatch(100)
    assert reader["labels"].is_sparse
    assert minibatch[reader["labels"]].asarray().argmax(-1)[0].tolist() == [1, 2, 0]  # words in order of appearance


def test_words_have_labels_and_neighbours_within_their_sentence(data):
    reader = source(data, LU)
    minibatch = reader.next_minibatch(1000)
    features, labels = (minibatch[reader[name]].asarray() for name in ("features", "labels"))
    assert features.shape == (2, 5, 18) and labels.argmax(-1)[0].tolist() == [1, 1, 1, 0, 1]
    words = features.reshape(2, 5, 3, 6).argmax(-1)
    assert words[0].tolist() == [[0, 0, 2], [0, 2, 4], [2, 4, 3], [4, 3, 1], [3, 1, 1]]
    assert words[1, 2].tolist() == [4, 5, 1]  # paris is mapped to <unk>
    far = source(data, LU, wordContext=f"{10**30}")
    assert far.next_minibatch(1000)[far["features"]].asarray().argmax(-1)[0].tolist() == [1] * 5  # the last word


def test_the_end_sequence_of_labels_ends_sentences_that_no_minibatch_cuts(data):
    """CNTK's log of Text/SLU counts 51 lines, as many as its file has the label O, which is endSequence there."""
    (data / "iob").write_text("BOS O\nfly B\nto B\nrome O\nEOS O\n\nBOS O\nto B\nEOS O\n")
    reader = source(data, LU.replace('$Data$/labels" ]', '$Data$/labels" ; beginSequence = "O" ; endSequence = "O" ]'))
    minibatch = reader.next_minibatch(2)
    words = minibatch[reader["features"]].as_sequences()
    assert [np.asarray(each.todense()).reshape(-1, 3, 6).argmax(-1).tolist() for each in words] == [
        [[0, 0, 0]], [[2, 2, 4], [2, 4, 3], [4, 3, 3]], [[1, 1, 1]], [[0, 0, 0]], [[4, 4, 1], [4, 1, 1]],
    ]


def test_sentences_of_one_length_stand_together(data):
    (data / "iob").write_text("\n\n".join("fly O\n" * (length - 1) + "EOS O" for length in (3, 1, 2, 3, 1, 1)) + "\n")

    def lengths(**options):
        reader, found = source(data, LU, **options), []
        while minibatch := reader.next_minibatch(6):
            found.append([each.shape[0] for each in minibatch[reader["labels"]].as_sequences()])
        return found

    assert lengths(equalLength="true") == [[3, 3], [1, 1, 1], [2]]
    assert lengths(equalLength="true", nbruttsineachrecurrentiter=2) == [[3, 3], [1, 1], [2], [1]]
    assert lengths(equalLength="true", nbruttsineachrecurrentiter=1) == [[3], [1], [2], [3], [1], [1]]
    assert lengths() == [[3, 1, 2, 3, 1, 1]]


def test_words_in_several_columns_stand_beside_each_other(data):
    (data / "iob").write_text("BOS BOS O\nfly paris O\nEOS to O\n")
    reader = source(data, LU, wordContext="0:1")
    features = reader.next_minibatch(1000)[reader["features"]].asarray()
    assert features.shape == (1, 3, 24)
    assert features.reshape(3, 4, 6).argmax(-1).tolist() == [[0, 0, 2, 5], [2, 5, 1, 4], [1, 4, 1, 4]]


@pytest.mark.parametrize(("change", "message"), [
    (("text", "</s> a\n</s>\n"), r"text, line 2: '</s>' is one word"),
    (("classes", "0 9 </s> 0\n1 5 a\n"), r"classes, line 2: '1 5 a' is not index, count, word and class"),
    (("classes", "0 9 </s> 1\n1 5 a 0\n"), "classes have to be 0, 1, 2"),
    (("classes", CLASSES.replace("<unk>", "d")), "text, line 4: zebra is not in wordclass, nor is unk = <unk>"),
])  # fmt: skip
def test_faults_of_language_files_are_named(data, change, message):
    (data / change[0]).write_text(change[1])
    with pytest.raises(ConfigError, match=message):
        source(data, LM)


def test_faults_of_labelled_files_are_named(data):
    (data / "iob").write_text("BOS O\nfly to O\n")
    with pytest.raises(ConfigError, match="iob, line 2: 'fly to O' is not 1 word and a label"):
        source(data, LU)
    (data / "iob").write_text("BOS Z\n")
    with pytest.raises(ConfigError, match="iob, line 1: Z is not in the token file of labels"):
        source(data, LU)
    (data / "iob").write_text("BOS O\n")
    with pytest.raises(ConfigError, match=r"c.cntk, line 2, column \d+: wordContext is a whole number, not 'one'\n"):
        source(data, LU.replace("-1:0:1", "0:one"))
    with pytest.raises(ConfigError, match=r"c.cntk, line 3, column \d+: there is no file .*/mop"):
        source(data, LU.replace("/map", "/mop"))
    with pytest.raises(ConfigError, match="did you mean LUSequenceReader"):
        source(data, LU.replace("LUSequenceReader", "LUSequencReader"))


def test_other_kinds_of_networks_are_named_as_not_supported(data, capfd):
    (data / "c.cntk").write_text(TRAIN.replace("KIND", "LBLM").replace("SIZES", "18:3:2") + LU)
    assert main([f"configFile={data}/c.cntk", f"Data={data}"]) == 1
    assert "rnnType is one of SIMPLENET, SIMPLERNN, LSTM, CLASSLM, CLASSLSTM" in capfd.readouterr().err


@pytest.mark.parametrize(("kind", "reader", "sizes", "order", "criterion"), [
    ("LSTM", LU, "18:3:4:2", 3, "CrossEntropyWithSoftmax"), ("SIMPLERNN", LU, "18:4:2", 1, "CrossEntropyWithSoftmax"),
    ("CLASSLSTM", LM, "5:3:4:5", 1, "classCrossEntropyWithSoftmax"),
    ("CLASSLM", LM, "5:4:5", 1, "ClassCrossEntropyWithSoftmax"),
])  # fmt: skip
def test_recurrent_networks_learn(data, capfd, kind, reader, sizes, order, criterion):
    text = TRAIN
    for name, value in (("KIND", kind), ("SIZES", sizes), ("ORDER", str(order)), ("CRITERION", criterion)):
        text = text.replace(name, value)
    (data / "c.cntk").write_text(text + reader)
    assert main([f"configFile={data}/c.cntk", f"Data={data}"]) == 0
    log = capfd.readouterr().err
    losses = [float(line.split(" = ")[1].split(" *")[0]) for line in log.splitlines() if "[Training]" in line]
    assert len(losses) == 8 and losses[-1] < 0.9 * losses[0]
    assert "perplexity = " in log.split("Final Results")[1]


def test_three_layers_of_lstm_units_have_the_nodes_of_cntks_log():
    """The shapes of their loops depend on the order in which nodes are made: log of Examples/Text/SLU."""
    root = load(["net=[rnnType=LSTM;layerSizes=12:2:3:3:3:5;lookupTableOrder=3;recurrentLayer=2:3:4]"])
    assert len(simple_network(root.required_block("net"), "float").nodes) == 168
