"""Reader blocks of speech and images, and composite ones. Losses are those of CNTK 2.7 on the same files."""

import math
import re
import struct

import numpy as np
import pytest

from cntkjax.brainscript.command_line import main
from cntkjax.brainscript.readers import open_reader
from cntkjax.configuration import load
from cntkjax.sgd import ConfigError

CONFIG = """
command = Train
modelPath = "$Out$/m.dnn" ; deviceId = -1
Train = [
    action = train
    SimpleNetworkBuilder = [
        layerSizes = 6:4:2 ; initValueScale = 10 ; applyMeanVarNorm = true ; evalCriterion = ClassificationError
    ]
    SGD = [ epochSize = 0 ; minibatchSize = 8 ; maxEpochs = 2 ; learningRatesPerSample = 0.1 ; momentumPerMB = 0.9 ]
]
reader = [
    readerType = HTKMLFReader ; readMethod = blockRandomize ; miniBatchMode = partial ; randomize = auto
    features = [ dim = 6 ; type = real ; scpFile = "$Data$/all.scp" ]
    labels = [ mlfFile = "$Data$/all.mlf" ; labelMappingFile = "$Data$/states" ; labelDim = 2 ; labelType = category ]
]
composite = {
    reader = { verbosity = 0 ; randomize = true ; frameMode = true
        deserializers = ({
            type = "HTKFeatureDeserializer" ; module = "HTKDeserializers"
            input = { features = { dim = 6 ; scpFile = "$Data$/all.scp" } }
        } : {
            type = "HTKMLFDeserializer" ; module = "HTKDeserializers"
            input = { labels = { mlfFile = "$Data$/all.mlf" ; labelMappingFile = "$Data$/states" ; labelDim = 2 } }
        })
    }
}
"""
LOSSES = (0.66485438, 0.58687162)


def write_speech(folder):
    """Four utterances of two features a frame, and a label for each frame."""
    script, labels = [], ["#!MLF!#"]
    for u in range(4):
        frames = [(math.sin(u + 0.9 * t), math.cos(0.5 * u + 1.3 * t)) for t in range(5 + 2 * u)]
        data = b"".join(struct.pack(">2f", *frame) for frame in frames)
        (folder / f"u{u}.fea").write_bytes(struct.pack(">iihh", len(frames), 100000, 8, 9) + data)
        script.append(f"u{u}=.../u{u}.fea[0,{len(frames) - 1}]")
        labels.append(f'"u{u}.lab"')
        labels += [f"{100000 * t} {100000 * (t + 1)} s{int(a + b > 0.3)}" for t, (a, b) in enumerate(frames)]
        labels.append(".")
    (folder / "all.scp").write_text("\n".join(script) + "\n")
    (folder / "all.mlf").write_text("\n".join(labels) + "\n")
    (folder / "states").write_text("s0\ns1\n")


@pytest.fixture
def speech(tmp_path):
    """The arguments of a configuration with speech."""
    write_speech(tmp_path)
    (tmp_path / "a.cntk").write_text(CONFIG)
    return [f"configFile={tmp_path}/a.cntk", f"Data={tmp_path}", f"Out={tmp_path}"]


@pytest.mark.parametrize("further", [[], ["reader=[readerType=HTKDeserializers]"]])
def test_frames_of_speech_with_context(speech, capfd, further):
    assert main([*speech, *further]) == 0
    found = re.findall(r"\[Training\] CrossEntropyWithSoftmax = ([\d.]+) \* 32", capfd.readouterr().err)
    np.testing.assert_allclose(np.array(found, float), LOSSES, rtol=1e-6)


def test_scripts_with_relative_names_and_several_label_files(speech, tmp_path):
    """prefixPathInSCP and arrays in mlfFileList, and the old key `file` for scripts and labels."""
    (tmp_path / "plain.scp").write_text((tmp_path / "all.scp").read_text().replace(".../", ""))
    head, *utterances = re.split(r'(?m)^(?=")', (tmp_path / "all.mlf").read_text())
    for i, half in enumerate((utterances[:2], utterances[2:])):
        (tmp_path / f"{i}.mlf").write_text(head + "".join(half))
    root = load([*speech, "reader=[features=[prefixPathInSCP=$Data$;scpFile=$Data$/plain.scp]]",
                 "reader=[labels=[mlfFileList=$Data$/0.mlf:$Data$/1.mlf]]"])
    old = load([*speech, "older=[reader=[readerType=HTKMLFReader;features=[dim=6;file=$Data$/all.scp];"
                         "labels=[labelDim=2;file=$Data$/all.mlf;labelMappingFile=$Data$/states]]]"])
    wanted = minibatch(load(speech), 9)
    for other in (minibatch(root, 9), minibatch(old.block("older"), 9)):
        for name in ("features", "labels"):
            np.testing.assert_array_equal(other[name].asarray(), wanted[name].asarray())


def test_validation_of_truncated_utterances_has_its_own_number_of_pieces(speech, capfd):
    """As in TIMIT_TrainLSTM, whose log has minibatches of 10 * 10 frames in training, and of 10 in validation."""
    truncated = ["truncated=true", "Train=[SGD=[minibatchSize=4;maxEpochs=1;numMBsToShowResult=1]]",
                 "reader=[nbruttsineachrecurrentiter=2]"]
    validation = ("cvReader=[readerType=HTKMLFReader;features=[dim=6;scpFile=$Data$/all.scp];"
                  "labels=[mlfFile=$Data$/all.mlf;labelMappingFile=$Data$/states;labelDim=2]]")
    assert main([*speech, *truncated, validation]) == 0
    log = capfd.readouterr().err
    assert "-Minibatch[   1-   1]: CrossEntropyWithSoftmax" in log and log.count(" * 8; EvalClassificationError") == 3
    assert re.search(r"Final Results: Minibatch\[1-8\]: CrossEntropyWithSoftmax = \S+ \* 32;", log)


def minibatch(root, size, **options):
    source = open_reader(root.block("reader"), **options)
    return {info.name: data for info, data in source.next_minibatch(size).items()}


def test_composite_readers_read_the_same(speech):
    root = load(speech)
    single, composite = minibatch(root, 10), minibatch(root.block("composite"), 10)
    assert list(single) == list(composite) and composite["features"].num_samples == 10
    for name in single:
        np.testing.assert_array_equal(single[name].asarray(), composite[name].asarray())


def test_utterances_and_pieces_of_them(speech):
    whole = minibatch(load([*speech, "reader=[frameMode=false;randomize=none]"]), 11)
    assert [len(each) for each in whole["features"].as_sequences()] == [5]
    pieces = load([*speech, "reader=[frameMode=false;randomize=none;truncated=true]", "SGD=[minibatchSize=3]"])
    source = open_reader(pieces.block("reader"))
    assert source.truncation_length == 3
    features = source.next_minibatch(6)[source.streams.features]
    assert (features.num_samples, features.num_sequences) == (6, 2)


def test_whole_utterances_are_side_by_side_and_short_ones_fill_gaps(speech, tmp_path):
    script = tmp_path / "all.scp"
    u0, u1, u2, u3 = script.read_text().splitlines()  # of 5, 7, 9 and 11 frames
    script.write_text("\n".join((u1, u3, u2, u0.replace(",4]", ",3]"))))
    labels = (tmp_path / "all.mlf").read_text()
    (tmp_path / "all.mlf").write_text(re.sub(r"\n400000 500000 \S+", "", labels, count=1))
    reader = load([*speech, "reader=[frameMode=false;randomize=none;nbruttsineachrecurrentiter=2]"]).block("reader")
    source = open_reader(reader, once=True)
    read = [source.next_minibatch(3)[source.streams.features] for _ in range(2)]
    assert [[len(each) for each in data.as_sequences()] for data in read] == [[7, 11, 4], [9]]
    assert [data.end_of_sweep for data in read] == [False, True] and not source.next_minibatch(3)


NUMBERED = '#!MLF!#\n"*/u0.lab"\n0 5 dr1 0\n.\n"*/u1.lab"\n0 3 dr2 1\n3 7 dr1 0\n.\n'


def test_labels_without_a_mapping_file_are_numbers_of_lines_that_count_frames(speech, tmp_path):
    (tmp_path / "regions.mlf").write_text(NUMBERED)
    regions = 'reader=[regions=[mlfFile="$Data$/regions.mlf";labelDim=3]]'
    whole = "reader=[readerType=HTKDeserializers;randomize=none;frameMode=false]"
    data = minibatch(load([*speech, regions, whole]), 12)
    numbers = [each.toarray().argmax(1).tolist() for each in data["regions"].as_sequences()]
    assert numbers == [[0] * 5, [1] * 3 + [0] * 4]
    assert data["labels"].num_samples == 12


def test_a_line_without_the_number_of_its_label_needs_a_mapping_file(speech, tmp_path):
    (tmp_path / "regions.mlf").write_text(NUMBERED.replace("dr2 1", "dr2"))
    with pytest.raises(RuntimeError, match="line 6: '0 3 dr2' has no number of its label; give a label mapping file"):
        open_reader(load([*speech, 'reader=[regions=[mlfFile="$Data$/regions.mlf";labelDim=3]]']).block("reader"))


@pytest.mark.parametrize(("further", "message"), [
    ("truncated=true", "reader is truncated, but has no length of pieces: give truncationLength or minibatchSize"),
    ("reader=[features=[dim=7]]", "dim = 7 is no odd multiple of the 2 numbers of a frame"),
    ("reader=[readerType=HTKMLReader]", "there is no readerType HTKMLReader; did you mean HTKMLFReader?"),
    ("reader=[lattices=[denlatTocFile=a.toc]]", "reader has lattices, which are those of whole utterances"),
    ("reader=[frameMode=false;lattices=[denlatTocFile=*.toc]]", "there is no file *.toc"),
    ("reader=[frameMode=false;lattices=[denlatTocFile=a;numlatTocFile=b]]", "lattices of the labels alone"),
    ("reader=[readerType=Kaldi2Reader]", "Kaldi2Reader is not supported: convert the data to CNTK's text"),
])
def test_mistakes(speech, further, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        open_reader(load([*speech, further]).block("reader"))


def test_minibatches_that_are_not_full_are_left_out_of_training_only(speech, capfd):
    """As CNTK's page says of miniBatchMode = full: 32 frames are three minibatches of 10, for each of two epochs."""
    arguments = ["reader=[miniBatchMode=full]", "Train=[SGD=[minibatchSize=10]]", "command=Train:Test"]
    assert main([*speech, *arguments, "Test=[action=test]"]) == 0
    log = capfd.readouterr().err
    trained = re.findall(r"\[Training\] CrossEntropyWithSoftmax = \S+ \* (\d+);.* totalSamplesSeen = (\d+);", log)
    assert trained == [("30", "30"), ("30", "60")]
    assert re.search(r"Final Results: .*CrossEntropyWithSoftmax = \S+ \* 32;", log) and "WARNING" not in log
