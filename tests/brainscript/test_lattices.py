"""Sequence-discriminative criteria of speech, in a network that reads utterances with their lattices."""

import re
import struct

import pytest

from cntkjax.brainscript.command_line import main
from cntkjax.brainscript.port import program_of

from ..primitives.test_lattice import LABELS, LIKELIHOOD, ONE, PHONES, STATES, TRANSITIONS, TWO

CONFIG = """
command = Make:Test ; modelPath = "$Data$/m.dnn" ; deviceId = -1
Make = [ action = edit ; outputModelPath = "$Data$/m.dnn" ; BrainScriptNetworkBuilder = {
    latticeAxis = DynamicAxis()
    features = Input{6} ; labels = Input{6, tag="label"} ; lattice = Input{1, dynamicAxis=latticeAxis, tag="label"}
    z = ParameterTensor {6, initValue=1} .* features
    cr = LatticeSequenceWithSoftmax (labels, z, z, lattice, "$Data$/symbols", "$Data$/phones", "$Data$/states",
                                     "$Data$/transitions", seqGammarUsesMBR=RISK, tag="criterion")
} ]
Test = [ action = test ; reader = [ frameMode = false ; deserializers = (
    [ type = HTKFeatureDeserializer ; input = [ features = [ dim = 6 ; scpFile = "$Data$/all.scp" ] ] ] :
    [ type = HTKMLFDeserializer ; input = [ labels = [
        mlfFile = "$Data$/all.mlf" ; labelMappingFile = "$Data$/states" ; labelDim = 6 ] ] ] :
    [ type = LatticeDeserializer ; input = [ lattice = [ latticeIndexFile = "$Data$/index" ] ] ] ) ] ]
"""


@pytest.mark.parametrize(("bayes_risk", "expected"), [("false", -0.5143871), ("true", -1.5357035)])
def test_values_are_those_of_cntk(tmp_path, capfd, bayes_risk, expected):
    (tmp_path / "u.fea").write_bytes(struct.pack(">iihh", 9, 100000, 24, 9) + LIKELIHOOD.astype(">f4").tobytes())
    frames = [f"{100000 * t} {100000 * (t + 1)} s{row.argmax()}" for t, row in enumerate(LABELS)]
    (tmp_path / "archive").write_bytes(ONE)
    for name, text in {
        "symbols": "sil\nsp\nx\ny\n", "phones": PHONES, "transitions": TRANSITIONS, "index": f"{tmp_path}/toc\n",
        "states": "".join(f"s{i}\n" for i in range(STATES)), "all.scp": f"u={tmp_path}/u.fea[0,8]\n",
        "all.mlf": "\n".join(["#!MLF!#", '"u.lab"', *frames, ".", ""]), "toc": f"u={tmp_path}/archive[0]\n",
        "c.cntk": CONFIG.replace("RISK", bayes_risk),
    }.items():
        (tmp_path / name).write_text(text)
    assert main([f"configFile={tmp_path}/c.cntk", f"Data={tmp_path}"]) == 0
    value, samples = re.search(r"Final Results: .* cr = ([-\d.]+) \* (\d+)", capfd.readouterr().err).groups()
    assert float(value) * int(samples) == pytest.approx(expected, rel=1e-5)


# As in CNTK's public configurations Speech/DNN/SequenceTraining and SequenceTrainingNewReader: a network that has been
# trained on frames gets the criterion of sequences, from MEL for HTKMLFReader or in BrainScript for deserializers. In
# their logs both have the same numbers.
STAGES = """
modelPath = "$Data$/frames" ; deviceId = -1 ; precision = float ; outputNodeNames = OL.z
SGD = [ epochSize = 0 ; minibatchSize = 1 ; maxEpochs = 2 ; learningRatesPerSample = 0.05 ; numMBsToShowResult = 1
        hsmoothingWeight = 0.75 ; seqGammarAMF = 2 ]
reader = [ FILES ]
Frames = [ action = train ; NDLNetworkBuilder = [ run = ndl ; ndl = [
    features = Input(6, tag=feature) ; labels = Input(6, tag=label)
    OL.W = Parameter(6, 6, init=fixedValue, value=0.25) ; OL.z = Times(OL.W, features)
    ce = CrossEntropyWithSoftmax(labels, OL.z, tag=criterion) ; err = ErrorPrediction(labels, OL.z, tag=eval)
    prior = Constant(0.5, rows=6) ; scaledLogLikelihood = Minus(OL.z, prior) ; OutputNodes = (scaledLogLikelihood) ] ] ]
Replace = [ action = edit ; editPath = "$Data$/replace.mel" ]
Old = [ action = train ; modelPath = "$Data$/old" ; reader = [ FILES ; frameMode = false
    hmms = [ phoneFile = "$Data$/phones" ; transpFile = "$Data$/transitions" ]
    lattices = [ denlatTocFile = "$Data$/*.lats.toc" ] ] ]
New = [ action = train ; modelPath = "$Data$/new" ; BrainScriptNetworkBuilder = {
    model = BS.Network.CloneFunction ((old.features), [ z = old.OL_z ; likelihood = old.scaledLogLikelihood ])
    old = BS.Network.Load ("$Data$/frames")
    features = Input {6} ; labels = Input {6, tag="label"}
    axis = DynamicAxis() ; lattice = Input {1, dynamicAxis=axis, tag="label"}
    clone = model (features)
    ce = LatticeSequenceWithSoftmax (labels, clone.z, clone.likelihood, lattice, "$Data$/a.lats.symlist",
        "$Data$/phones", "$Data$/states", "$Data$/transitions", hSmoothingWeight=0.75, seqGammarAMF=2, tag="criterion")
    err = ClassificationError (labels, clone.z, tag="evaluation") }
    reader = [ frameMode = false ; randomize = none ; deserializers = (
    [ type = HTKFeatureDeserializer ; input = [ features = [
        dim = 6 ; scpFile = "$Data$/all.scp" ; definesMBSize = true ] ] ] :
    [ type = HTKMLFDeserializer ; input = [ labels = [
        mlfFile = "$Data$/all.mlf" ; labelMappingFile = "$Data$/states" ; labelDim = 6 ] ] ] :
    [ type = LatticeDeserializer ; input = [ lattice = [ latticeIndexFile = "$Data$/index" ] ] ] ) ] ]
Test = [ action = test ; modelPath = "$Data$/old" ; minibatchSize = 1 ; reader = [ FILES ; frameMode = false
    hmms = [ phoneFile = "$Data$/phones" ; transpFile = "$Data$/transitions" ]
    lattices = [ denlatTocFile = "$Data$/b.lats.toc" ] ] ]
Direct = [ action = train ; modelPath = "$Data$/direct"
    NDLNetworkBuilder = [ run = ndl ; ndl = [
    features = Input(6, tag=feature) ; labels = Input(6, tag=label)
    OL.W = Parameter(6, 6, init=fixedValue, value=0.25) ; OL.z = Times(OL.W, features)
    ce = SequenceWithSoftmax(labels, OL.z, OL.z, tag=criterion) ] ]
    reader = [ FILES ; frameMode = false ; nbruttsineachrecurrentiter = 2
    hmms = [ phoneFile = "$Data$/phones" ; transpFile = "$Data$/transitions" ]
    lattices = [ denlatTocFile = "$Data$/*.lats.toc" ] ] ]
Write = [ action = write ; modelPath = "$Data$/old" ; outputPath = "$Data$/written" ]
"""
FILES = """readerType = HTKMLFReader ; randomize = none
    features = [ dim = 6 ; scpFile = "$Data$/all.scp" ]
    labels = [ mlfFile = "$Data$/all.mlf" ; labelMappingFile = "$Data$/states" ; labelDim = 6 ]"""
REPLACE = """m1 = LoadModel("FOLDER/frames", format="cntk")
SetDefaultModel(m1)
SetProperty(ce, "criterion", false)
Remove(ce)
ce = SequenceWithSoftmax(labels, OL.z, scaledLogLikelihood)
SetProperty(ce, criterion, true)
SaveModel(m1, "FOLDER/old.0", format="cntk")
"""


@pytest.fixture
def data(tmp_path):
    """Three utterances; that in the middle has no lattice. Each archive has one of the two others."""
    script, labels = [], ["#!MLF!#"]
    for name, frames in ("u", 9), ("v", 4), ("w", 5):
        values = LIKELIHOOD[:frames].astype(">f4").tobytes()
        (tmp_path / f"{name}.fea").write_bytes(struct.pack(">iihh", frames, 100000, 24, 9) + values)
        script.append(f"{name}={tmp_path}/{name}.fea[0,{frames - 1}]")
        rows = enumerate(LABELS[:frames].argmax(1))
        labels += [f'"{name}.lab"', *(f"{100000 * t} {100000 * (t + 1)} s{state}" for t, state in rows), "."]
    for archive, utterance, lattice in ("a", "u", ONE), ("b", "w", TWO):
        (tmp_path / f"{archive}.lats").write_bytes(lattice)
        (tmp_path / f"{archive}.lats.toc").write_text(f"{utterance}={tmp_path}/{archive}.lats[0]\n")
        (tmp_path / f"{archive}.lats.symlist").write_text("sil\nsp\nx\ny\n")
    for name, text in {
        "phones": PHONES, "transitions": TRANSITIONS, "index": f"{tmp_path}/a.lats.toc\n{tmp_path}/b.lats.toc\n",
        "states": "".join(f"s{i}\n" for i in range(STATES)), "all.scp": "\n".join([*script, ""]),
        "all.mlf": "\n".join([*labels, ""]), "replace.mel": REPLACE.replace("FOLDER", str(tmp_path)),
        "c.cntk": STAGES.replace("FILES", FILES),
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(data, commands, *further):
    return main([f"configFile={data}/c.cntk", f"Data={data}", f"command={commands}", *further])


def minibatches(log):
    return re.findall(r"Minibatch\[ *[-\d., %]+\]: ce = ([-\d.]+) \* (\d+); err = ([-\d.]+)", log)


def test_a_criterion_of_htkmlfreader_trains_to_the_numbers_of_one_with_deserializers(data, capfd):
    assert run(data, "Frames:Replace") == 0
    capfd.readouterr()
    assert run(data, "Old") == 0
    log = capfd.readouterr().err
    old = minibatches(log)
    assert "Training criterion:   ce = SequenceWithSoftmax" in log
    assert "Setting Hsmoothing weight to 0.75 and frame-dropping threshhold to 1e-10\n" in log
    assert "Setting SeqGammar-related parameters: amf=2.00, lmf=14.00, wp=0.00, bMMIFactor=0.00, usesMBR=false\n" in log
    assert run(data, "New") == 0
    log = capfd.readouterr().err
    assert "Model has 10 nodes" in log  # the axis of the lattices is one of them
    assert old == minibatches(log)
    assert [samples for _, samples, _ in old] == ["9", "5"] * 2
    assert old[0] != old[2]


def test_a_trained_model_is_tested_with_other_lattices_and_written(data, capfd):
    assert run(data, "Frames:Replace:Old:Test:Write") == 0
    log = capfd.readouterr().err
    assert "WARNING" not in log
    assert re.search(r"Final Results: Minibatch\[1-1\]: err = [\d.]+ \* 5; ce = [-\d.]+ \* 5", log)
    assert len((data / "written.OL.z").read_text().split()) == 18 * STATES


def test_other_criteria_of_the_model_need_no_lattices(data, capfd):
    assert run(data, "Frames:Replace:Old") == 0
    assert run(data, "Test", "Test=[reader=$reader$]", "Test=[evalNodeNames=err]") == 0
    assert re.search(r"Final Results: .* err = [\d.]+ \* 18", capfd.readouterr().err)


def test_the_program_of_a_configuration_trains_to_the_same_numbers(data, capfd):
    assert run(data, "Direct") == 0
    expected = re.findall(r"ce = ([-\d.]+) \* (\d+)", capfd.readouterr().err)
    for file in data.glob("direct*"):
        file.unlink()
    program = program_of([f"configFile={data}/c.cntk", f"Data={data}", "command=Direct"])
    assert "C.lattice_sequence_with_softmax(labels, OL_z, OL_z, lattices, symListPath=" in program
    exec(compile(program, "program", "exec"), {"__name__": "__main__"})
    losses = re.findall(r"loss = ([-\d.e]+) \* (\d+)", capfd.readouterr().out)
    assert [float(loss) for loss, _ in losses] == pytest.approx([float(loss) for loss, _ in expected], rel=1e-5)
    assert [samples for _, samples in losses] == [samples for _, samples in expected] == ["14"] * 4


def test_epochs_are_counted_in_frames(data, capfd):
    assert run(data, "Frames:Replace") == 0
    capfd.readouterr()
    assert run(data, "Old", "SGD=[epochSize=10]", "SGD=[maxEpochs=3]") == 0
    assert re.findall(r"Finished Epoch.* ce = [-\d.]+ \* (\d+)", capfd.readouterr().err) == ["14", "9", "14"]


@pytest.mark.parametrize(("before", "after", "message"), [
    ('phoneFile = "$Data$/phones"', "phoneFile = nowhere", "there is no file nowhere"),
    ("denlatTocFile", "tocFile", "SequenceWithSoftmax needs a HTKMLFReader with lattices = ["),
    ("hsmoothingWeight = 0.75", "doReferenceAlign = true", "training with alignment is not supported; leave out doRef"),
    ("*.lats.toc", "?.*.toc", "the lists of symbols of the lattices differ"),
])
def test_mistakes(data, capfd, before, after, message):
    if "differ" in message:
        (data / "b.lats.symlist").write_text("sp\nsil\nx\ny\n")
    (data / "c.cntk").write_text((data / "c.cntk").read_text().replace(before, after))
    assert run(data, "Direct") != 0
    assert message in capfd.readouterr().err
