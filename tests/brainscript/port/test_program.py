"""Configurations as Python programs."""

import re
import runpy

import numpy as np
import pytest
from PIL import Image

from cntkjax.brainscript.command_line import main
from cntkjax.brainscript.port import program_of
from cntkjax.cli import main as cli
from cntkjax.sgd import ConfigError
from tests.brainscript.readers.test_speech import CONFIG, write_speech
from tests.brainscript.readers.test_words import LM, LU, TRAIN, write_sentences

CONFIGURATION = """
command = train
modelPath = "model.dnn"
train = [
    action = train
    {builder}
    SGD = [ epochSize = 0 ; minibatchSize = 4 ; learningRatesPerSample = 0.1 ; maxEpochs = 2 ]
    reader = [
        readerType = CNTKTextFormatReader ; file = "data.ctf"
        input = [ x = [ dim = 2 ; format = dense ] ; y = [ alias = label ; dim = 2 ; format = dense ] ]
    ]
]
"""
BRAINSCRIPT = """
    BrainScriptNetworkBuilder = {
        t = DynamicAxis {} ; x = Input {2, dynamicAxis=t} ; y = Input {2}
        h = DenseLayer {3, activation=Tanh} (x)
        state = Sigmoid (h + PastValue (3, state))
        z = LinearLayer {2} (BS.Sequences.Last (state))
        ce = CrossEntropyWithSoftmax (y, z) ; errs = ClassificationError (y, z)
        criterionNodes = (ce) ; evaluationNodes = (errs) ; outputNodes = (z)
    }
"""
NDL = """
    NDLNetworkBuilder = [
        x = Input(2) ; y = Input(2)
        W = Parameter(2, 2) ; z = Times(W, x)
        ce = CrossEntropyWithSoftmax(y, z, tag=criteria) ; errs = ErrorPrediction(y, z, tag=eval) ; OutputNodes = (z)
    ]
"""
COUNTED = """
    BrainScriptNetworkBuilder = {  # with a loop behind which sizes are unknown at first
        x = Input {2} ; t = DynamicAxis {} ; y = Input {2, dynamicAxis=t}
        count = BS.Loop.Count (x)
        z = LinearLayer {2} (Splice (count : MeanVarNorm (x) : Constant (7)))
        last = BS.Sequences.Last (z .* ParameterTensor {2, initValue=1, learningRateMultiplier=0.1})
        ce = CrossEntropyWithSoftmax (y, last) ; errs = ClassificationError (y, last)
        criterionNodes = (ce) ; evaluationNodes = (errs) ; outputNodes = (last)
    }
"""
STEPS = """
    BrainScriptNetworkBuilder = {  # of sequences, without an operation on them
        x = Input {2} ; y = Input {2}
        ce = SquareError (LinearLayer {2} (x), x) ; criterionNodes = (ce) ; outputNodes = (ce)
    }
"""
NORMALIZED = "SimpleNetworkBuilder = [ layerSizes = 2:3:2 ; applyMeanVarNorm = true ; needPrior = true ]"
SIMPLE = "SimpleNetworkBuilder = [ layerSizes = 2:3:2 ; applyMeanVarNorm = false ; needPrior = false ]"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    random = np.random.default_rng(3)
    rows = []
    for sequence in range(24):
        steps, label = random.normal(size=(2, 2)), random.integers(2)
        onehot = "1 0" if label else "0 1"
        rows += [f"{sequence} |x {a:.3f} {b:.3f}" + (f" |label {onehot}" if not at else "")
                 for at, (a, b) in enumerate(steps + label)]
    (tmp_path / "data.ctf").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained_by_both(folder, capfd, text):
    """The losses of a configuration's epochs, and those of its program."""
    (folder / "a.cntk").write_text(text)
    assert main(["configFile=a.cntk"]) == 0
    log = capfd.readouterr()
    losses = re.findall(r"Finished Epoch.*?\[Training\] \w+ = ([\d.]+)", log.out + log.err)
    (folder / "model.dnn").unlink()
    for checkpoint in folder.glob("model.dnn.*"):
        checkpoint.unlink()
    (folder / "a.py").write_text(program_of(["configFile=a.cntk"]))
    runpy.run_path("a.py", run_name="__main__")
    found = re.findall(r"Finished Epoch.*?loss = ([\d.]+)", capfd.readouterr().out)
    return [float(each) for each in losses], [float(each) for each in found]


@pytest.mark.parametrize("builder", [BRAINSCRIPT, NDL, COUNTED, STEPS, NORMALIZED])
def test_the_program_trains_to_the_numbers_of_the_configuration(folder, capfd, builder):
    rows = (folder / "data.ctf").read_text().splitlines()
    if builder in (NDL, NORMALIZED):  # one step a sequence
        (folder / "data.ctf").write_text("\n".join(rows[::2]) + "\n")
    text = CONFIGURATION.replace("{builder}", builder)
    if builder is NORMALIZED:
        text = text.replace("[ x = [", "[ features = [ alias = x ;").replace("; y = [", "; labels = [")
    expected, found = trained_by_both(folder, capfd, text)
    assert len(expected) == 2
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_keys_that_the_sgd_block_here_has_not_are_left_out_and_other_names_are_translated(folder, capfd):
    keys = ("maxEpochs = 2 ; momentumPerSample = 0.9 ; perfTraceLevel = 0 ; ParallelTrain = [ parallelizationMethod = "
            "BlockMomentumSGD ; BlockMomentumSGD = [ blockSizePerWorker = 8 ] ]")
    text = CONFIGURATION.replace("{builder}", BRAINSCRIPT).replace("maxEpochs = 2", keys)
    expected, found = trained_by_both(folder, capfd, text)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    settings = (folder / "a.py").read_text().partition("SETTINGS")[2]
    assert "blockMomentumSGD = [\n            blockSize = 8\n        ]\n    ]\n]" in settings and "perf" not in settings


@pytest.mark.parametrize(("kind", "reader", "sizes", "order", "criterion"), [
    ("LSTM", LU, "18:3:4:2", 3, "CrossEntropyWithSoftmax"),
    ("CLASSLM", LM, "5:4:5", 1, "ClassCrossEntropyWithSoftmax"),
])
def test_sentences_are_read_as_the_configuration_says(
    tmp_path, capfd, monkeypatch, kind, reader, sizes, order, criterion
):
    write_sentences(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = TRAIN.replace("Train:Test", "Train").replace("$Data$/model", "model.dnn")
    for name, value in (("KIND", kind), ("SIZES", sizes), ("ORDER", str(order)), ("CRITERION", criterion)):
        text = text.replace(name, value)
    text += reader + reader.replace("reader = [", "cvReader = [")
    expected, found = trained_by_both(tmp_path, capfd, f"Data = .\n{text}")
    assert len(expected) == 8
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("change", ["truncated = true", "frameMode = false ; nbruttsineachrecurrentiter = 2"])
def test_utterances_and_their_pieces_are_read_as_the_configuration_says(tmp_path, capfd, monkeypatch, change):
    write_speech(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = CONFIG[: CONFIG.index("composite = {")].replace("$Data$", ".").replace("$Out$/m.dnn", "model.dnn")
    expected, found = trained_by_both(tmp_path, capfd, text.replace("readMethod", f"{change} ; readMethod"))
    assert len(expected) == 2
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_columns_are_read_as_the_configuration_says(folder, capfd):
    rows = np.random.default_rng(5).normal(size=(24, 3)).round(3)
    (folder / "data.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    (folder / "labels").write_text("a\nb\n")
    (folder / "kinds.csv").write_text("\n".join(f"{a},{b},{'ab'[int(c > 0)]}" for a, b, c in rows))
    reader = """reader = [ readerType = UCIFastReader ; file = "FILE" ; customDelimiter = ","
                           x = [ start = 0 ; dim = 2 ] ; y = [ start = 2 ; dim = 1 ; OPTIONS ] ]"""
    beginning = CONFIGURATION[: CONFIGURATION.index("reader = [")]
    value = NDL.replace("y = Input(2)", "y = Input(1)").replace("(2, 2)", "(1, 2)")
    value = value.replace("CrossEntropyWithSoftmax", "SquareError").replace("ErrorPrediction", "SquareError")
    for builder, file, options in (
        (NDL, "kinds.csv", "labelDim = 2 ; labelMappingFile = labels"), (value, "data.csv", "labelType = Regression"),
    ):
        text = beginning.replace("{builder}", builder) + reader.replace("FILE", file).replace("OPTIONS", options) + "]"
        expected, found = trained_by_both(folder, capfd, text)
        assert len(expected) == 2
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        for written in folder.glob("model.dnn*"):
            written.unlink()


def test_streams_may_have_names_that_are_none_in_python(folder, capfd):
    """As those of records, in speech above all: net.features (CNTK's issue 798)."""
    network = BRAINSCRIPT.replace("x = Input {2, dynamicAxis=t}", "net = { in = Input {2, dynamicAxis=t} }")
    network = network.replace("(x)", "(net.in)").replace("y = ", "lambda = ").replace("(y,", "(lambda,")
    text = CONFIGURATION.replace("{builder}", network).replace("[ x = [", "[ net.in = [ alias = x ;")
    expected, found = trained_by_both(folder, capfd, text.replace("; y = [", "; lambda = ["))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_images_are_read_as_the_configuration_says(folder, capfd):
    for i in range(6):
        pixels = np.random.default_rng(i).integers(0, 255, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    (folder / "map.txt").write_text("".join(f"{i}.png\t{i % 2}\n" for i in range(6)))
    reader = """
        reader = { deserializers = ({ type = "ImageDeserializer" ; file = "map.txt"
        input = { x = { transforms = ({ type = Scale ; width = 4 ; height = 4 ; channels = 3 } : { type = Transpose }) }
        y = { labelDim = 2 } } }) }"""
    network = BRAINSCRIPT.replace("Input {2, dynamicAxis=t}", "Input {(4:4:3)}")
    network = network.replace("BS.Sequences.Last (state)", "h")
    text = CONFIGURATION[: CONFIGURATION.index("    reader = [")].replace("{builder}", network) + reader + "\n]\n"
    expected, found = trained_by_both(folder, capfd, text)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_program_works_in_the_current_directory_of_the_configuration(folder, capfd, monkeypatch):
    layer = "EmbeddingLayer {3, embeddingPath='E.txt', transpose=true}"
    builder = BRAINSCRIPT.replace("DenseLayer {3, activation=Tanh}", layer)
    (folder / "E.txt").write_text("1 2 3\n4 5 6\n")
    (folder / "a.cntk").write_text(CONFIGURATION.replace("{builder}", builder))
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    program = program_of([f"configFile={folder}/a.cntk", f"currentDirectory={folder}"])
    (folder / "elsewhere" / "a.py").write_text(program)
    runpy.run_path("a.py", run_name="__main__")
    assert "Finished Epoch[2" in capfd.readouterr().out and (folder / "model.dnn").is_file()


def test_models_of_cntk_itself_are_an_error_that_says_what_to_do(folder):
    (folder / "a.cntk").write_text(CONFIGURATION.replace("{builder}", BRAINSCRIPT))
    assert main(["configFile=a.cntk", "train=[SGD=[keepCheckPointFiles=true]]"]) == 0
    (folder / "a.py").write_text(program_of(["configFile=a.cntk"]))
    with pytest.raises(ValueError, match="holds another function") as caught:
        runpy.run_path("a.py", run_name="__main__")
    assert "model.dnn.1 is the checkpoint that training goes on from" in caught.value.__notes__[-1]
    (folder / "model.dnn.1.ckp").unlink()
    with pytest.raises(ConfigError, match=r"model\.dnn has been trained by cntk.*: change modelPath"):
        runpy.run_path("a.py", run_name="__main__")


def test_the_program_tests_on_the_data_of_the_validation_reader(folder):
    reader = CONFIGURATION[CONFIGURATION.index("    reader = ["):].rstrip()[:-1]
    text = CONFIGURATION.replace("    reader = [", reader.replace("reader", "cvReader", 1) + "    reader = [")
    (folder / "a.cntk").write_text(text.replace("{builder}", BRAINSCRIPT))
    program = program_of(["configFile=a.cntk"])
    assert "create_reader(), model=model, cv_source=create_validation_reader())" in program
    (folder / "a.cntk").write_text(text.replace("{builder}", BRAINSCRIPT).replace("alias = label", "alias = other", 1))
    assert "def create_validation_reader(max_sweeps=1)" in program_of(["configFile=a.cntk"])
    assert "y=C.io.StreamDef(field='other', shape=2" in program_of(["configFile=a.cntk"])


def test_the_program_of_a_network_by_sizes_makes_the_same_nodes(folder):
    text = CONFIGURATION.replace("{builder}", SIMPLE)
    (folder / "a.cntk").write_text(text)
    (folder / "a.py").write_text(program_of(["configFile=a.cntk"]))
    nodes = runpy.run_path("a.py")["create_network"]()
    assert nodes["CrossEntropyWithSoftmax"].parameters[0].shape in ((1, 2), (3, 2), (1, 3), (2, 3))


def test_the_program_is_that_of_the_command_which_is_listed_first(folder):
    (folder / "a.cntk").write_text(CONFIGURATION.replace("{builder}", SIMPLE) + f"""
        other = [ action = train\n{NDL} ]
        SGD = [ maxEpochs = 1 ; learningRatesPerSample = 0.1 ]
        reader = [ readerType = CNTKTextFormatReader ; file = x ; input = [ x = [ dim = 2 ] ] ]
    """)
    assert "The command train" in program_of(["configFile=a.cntk"])
    for action in ("train", "trainRNN"):
        arguments = ["configFile=a.cntk", "command=test:other:train", f"other=[action={action}]"]
        assert "The command other" in program_of(arguments)


def test_the_command_prints_the_program(folder, capsys):
    (folder / "a.cntk").write_text(CONFIGURATION.replace("{builder}", NDL))
    assert cli(["port", "a.cntk", "train=[SGD=[maxEpochs=7]]"]) == 0
    printed = capsys.readouterr().out
    assert "maxEpochs = 7" in printed
    compile(printed, "a.py", "exec")


@pytest.mark.parametrize(("change", "says"), [
    (("action = train", "action = test"), "no command that trains"),
    (("tag=criteria", "tag=output"), "No criterion node"),
])
def test_what_no_program_can_say_is_an_error(folder, change, says):
    (folder / "a.cntk").write_text(CONFIGURATION.replace("{builder}", NDL).replace(*change))
    with pytest.raises(ConfigError, match=says):
        program_of(["configFile=a.cntk"])
