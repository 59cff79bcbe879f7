"""The block ``writer``: features in files of HTK, labels as text."""

import io
import struct

import numpy as np
import pytest

from cntkjax.brainscript.actions.output_format import Format, OutputWriter
from cntkjax.brainscript.command_line import main
from tests.brainscript.readers.test_speech import write_speech

SPEECH = """
command = Train:Text:Htk ; modelPath = "$Data$/m.dnn" ; deviceId = -1
Train = [
    action = train
    SimpleNetworkBuilder = [ layerSizes = 6:4:2 ; needPrior = true ; initValueScale = 10 ]
    SGD = [ epochSize = 0 ; minibatchSize = 8 ; maxEpochs = 1 ; learningRatesPerSample = 0.1 ]
]
reader = [
    readerType = HTKMLFReader
    features = [ dim = 6 ; scpFile = "$Data$/all.scp" ]
    labels = [ mlfFile = "$Data$/all.mlf" ; labelMappingFile = "$Data$/states" ; labelDim = 2 ]
]
Text = [ action = write ; outputPath = "$Data$/text" ]
Htk = [ action = write ; writer = [
    writerType = HTKMLFWriter ; ScaledLogLikelihood = [ dim = DIM ; scpFile = "$Data$/out.scp" ; type = Real ] ] ]
"""


def run(folder, text):
    (folder / "c.cntk").write_text(text)
    return main([f"configFile={folder}/c.cntk", f"Data={folder}"])


def test_likelihoods_of_frames_are_written_in_a_htk_file_for_each_utterance(tmp_path):
    write_speech(tmp_path)
    (tmp_path / "out.scp").write_text("".join(f"{tmp_path}/out/u{i}.llk\n" for i in range(4)))
    assert run(tmp_path, SPEECH.replace("DIM", "2")) == 0
    found = []
    for i in range(4):
        data = (tmp_path / "out" / f"u{i}.llk").read_bytes()
        assert struct.unpack(">iihh", data[:12]) == (5 + 2 * i, 100000, 8, 9)
        found.append(np.frombuffer(data[12:], ">f4").reshape(-1, 2))
    expected = np.loadtxt(tmp_path / "text.ScaledLogLikelihood")
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-5)


def test_criteria_are_written_as_sums_over_minibatches(tmp_path):
    write_speech(tmp_path)
    config = SPEECH.replace("Train:Text:Htk", "Train:Text:Whole").replace("DIM", "2")
    for name, size in (("Text", 10), ("Whole", 1000)):
        config += f"""
            {name} = [ action = write ; outputPath = "$Data$/{name}" ; minibatchSize = {size}
                       outputNodeNames = CrossEntropyWithSoftmax ]
        """
    assert run(tmp_path, config) == 0
    parts, whole = (np.loadtxt(tmp_path / f"{name}.CrossEntropyWithSoftmax", ndmin=1) for name in ("Text", "Whole"))
    assert parts.shape == (4,) and whole.shape == (1,)
    assert parts.sum() == pytest.approx(whole[0], abs=1e-5)


@pytest.mark.parametrize(("dim", "files", "message"), [
    ("3", 4, "the node has 2 values a sample, not dim = 3"), ("2", 3, "lists fewer files than there are utterances"),
])  # fmt: skip
def test_htk_files_that_do_not_fit_are_errors(tmp_path, capfd, dim, files, message):
    write_speech(tmp_path)
    (tmp_path / "out.scp").write_text("".join(f"{tmp_path}/u{i}.llk\n" for i in range(files)))
    assert run(tmp_path, SPEECH.replace("DIM", dim).replace(":Text", "")) == 1
    assert message in capfd.readouterr().err


def test_the_most_probable_label_of_each_word_is_a_line(tmp_path):
    (tmp_path / "words").write_text("a\nb\n<unk>\n")
    (tmp_path / "labels").write_text("X\nY\n")
    (tmp_path / "text").write_text("a X\nb Y\n\nb Y\nc X\n")
    assert run(tmp_path, """
command = Make:Write ; modelPath = "$Data$/m.dnn" ; deviceId = -1
reader = [ readerType = LUSequenceReader ; file = "$Data$/text" ; labelIn = [ token = "$Data$/words" ]
    labels = [ token = "$Data$/labels" ] ]
Write = [ action = write ; outputNodeNames = labels ; writer = [
    writerType = LUSequenceWriter ; labels = [ file = "$Data$/out/labels.txt" ; token = "$Data$/labels" ] ] ]
Make = [ action = edit ; outputModelPath = "$Data$/m.dnn" ; BrainScriptNetworkBuilder = [
    features = Input (3) ; labels = Input (2) ; z = ParameterTensor (2:3) * features
    ce = CrossEntropyWithSoftmax (labels, z, tag="criterion") ] ]
""") == 0
    assert (tmp_path / "out/labels.txt").read_text() == "X\nY\nY\nX\n"


@pytest.mark.parametrize(("transposed", "text"), [(True, "c\nb\nc\n"), (False, "c b c\n")])
def test_words_are_written_on_lines_of_their_own_or_beside_each_other(transposed, text):
    file = io.StringIO()
    values = np.eye(3)[[2, 1, 2]]
    OutputWriter(Format("category", tuple("abc"), transposed=transposed), "z", file).sequence(values, (3,))
    assert file.getvalue() == text
