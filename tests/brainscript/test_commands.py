"""Whole configurations: what is trained, tested, written and logged. Numbers are those of CNTK 2.7."""

import math
import re
import resource
import warnings

import numpy as np
import pytest

from cntkjax import load_model
from cntkjax.brainscript.command_line import main
from cntkjax.brainscript.command_line import run as run_arguments

CONFIG = """
command = Train:Test:Write
precision = "float"
modelPath = "$Out$/models/net.dnn"
deviceId = -1
traceLevel = 1

Train = [
    action = "train"
    SimpleNetworkBuilder = [
        layerSizes = 2:5:2 ; layerTypes = "Tanh" ; initValueScale = 10
        trainingCriterion = "CrossEntropyWithSoftmax" ; evalCriterion = "ErrorPrediction"
        applyMeanVarNorm = true ; needPrior = true
    ]
    SGD = [
        epochSize = 0 ; minibatchSize = 20 ; maxEpochs = 3 ; learningRatesPerSample = 0.05
        momentumAsTimeConstant = 30 ; numMBsToShowResult = 2
    ]
]
reader = [
    readerType = "CNTKTextFormatReader" ; file = "$Data$"
    input = [ features = [ dim = 2 ; format = "dense" ] ; labels = [ dim = 2 ; format = "dense" ] ]
]
Test = [ action = "test" ]
Write = [
    action = write ; outputNodeNames = PosteriorProb:labels ; outputPath = "$Out$/out"
    reader = [ readerType = "CNTKTextFormatReader" ; file = "$Data$" ; randomize = false
        input = [ features = [ dim = 2 ; format = "dense" ] ; labels = [ dim = 2 ; format = "dense" ] ] ]
]
"""
LOSSES, ERRORS = (0.63191289, 0.35644959, 0.18582769), (0.26, 0.06, 0.04)


def write_data(path):
    rows = []
    for i in range(50):
        a, b = math.sin(1.7 * i) * 2, math.cos(2.3 * i)
        label = int(a + b > 0.2)
        rows.append(f"|features {a:.4f} {b:.4f} |labels {1 - label} {label}\n")
    path.write_text("".join(rows))


@pytest.fixture
def run(tmp_path, capfd, monkeypatch):
    """Runs the configuration with further arguments; returns the exit status, and what was logged."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.cntk").write_text(CONFIG)
    write_data(tmp_path / "data.ctf")

    def run(*arguments):
        status = main(["configFile=a.cntk", f"Data={tmp_path}/data.ctf", f"Out={tmp_path}", *arguments])
        return status, capfd.readouterr().err

    return run


def epochs(log):
    """(epoch, loss, error, samples) of each line about an epoch."""
    line = r"Finished Epoch\[ *(\d+) of \d+\]: \[Training\] \w+ = ([\d.]+) \* (\d+); \w+ = ([\d.]+) \* \d+; total"
    return [(int(e), float(loss), float(error), int(n)) for e, loss, n, error in re.findall(line, log)]


def test_train_test_and_write_give_the_numbers_of_cntk(run, tmp_path):
    status, log = run()
    assert status == 0, log
    for (number, loss, error, samples), expected, wrong in zip(epochs(log), LOSSES, ERRORS, strict=True):
        assert samples == 50 and loss == pytest.approx(expected, rel=1e-5) and error == wrong, number
    final = re.search(r"Final Results: Minibatch\[1-1\]: EvalClassificationError = 0.00000000 \* 50; "
                      r"CrossEntropyWithSoftmax = ([\d.]+) \* 50; perplexity = 1.1354", log)
    assert float(final[1]) == pytest.approx(0.1270165, rel=1e-5)
    rows = [line.split(" ") for line in (tmp_path / "out.PosteriorProb").read_text().splitlines()]
    assert len(rows) == 50
    np.testing.assert_allclose(np.array(rows[:2], float), [[0.129219, 0.870781], [0.059416, 0.940584]], atol=1.1e-6)
    assert (tmp_path / "out.labels").read_text().startswith("0.000000 1.000000\n")
    assert sorted(f.name for f in (tmp_path / "models").iterdir()) == [
        "net.dnn", "net.dnn.1", "net.dnn.2", "net.dnn.ckp"
    ]


UCI = """ readerType = "UCIFastReader" ; file = "$Out$/data.txt" ; miniBatchMode = partial ; prefetch = true
    features = [ start = 1 ; dim = 2 ]
    labels = [ start = 0 ; dim = 1 ; labelDim = 2 ; labelType = Category ; labelMappingFile = "$Out$/labels" ]
"""


def test_the_reader_of_uci_files_gives_the_numbers_of_cntk_s_text_format(run, tmp_path):
    old = CONFIG.partition("reader = [")
    at = old[2].index("]\n]") + 3
    rows = re.findall(r"features (.*) \|labels \d (.)", (tmp_path / "data.ctf").read_text())
    (tmp_path / "data.txt").write_text("".join(f"class{label} {numbers}\n" for numbers, label in rows))
    (tmp_path / "labels").write_text("class0\nclass1\n")
    (tmp_path / "a.cntk").write_text(f"{old[0]}reader = [{UCI}]\n{old[2][at + 1:]}")
    status, log = run("command=Train:Test")
    assert status == 0 and "WARNING" not in log, log
    assert [loss for _, loss, *_ in epochs(log)] == pytest.approx(LOSSES, rel=1e-5)
    _, log = run("command=Train", "makeMode=false", "reader=[miniBatchMode=full]")  # of 20, 20 and 10 samples
    assert [samples for *_, samples in epochs(log)] == [40, 40, 40]
    for reader, error in (
        ("labels=[labelType=Regression]", "data.txt, line 1, columns 0 to 0: could not convert string to float"),
        ("labels=[labelType=None]", "the reader has no input labels"),
        ("labels=[dim=2]", "labels in reader: a label is in one column, but dim = 2; for numbers as labels give"),
        ("features=[file=other.txt]", "reader needs blocks of streams with one file, such as features = ["),
    ):
        (tmp_path / "other.txt").write_text("0 1 2\n")
        status, log = run("command=Test", f"reader=[{reader}]")
        assert status == 1 and error in log, log


def test_training_ends_at_its_last_checkpoint_if_it_is_to_have_fewer_epochs(run, tmp_path):
    """As after an interrupt, if the epochs so far are enough."""
    run("command=Train", "Train=[SGD=[keepCheckPointFiles=true]]")
    for name in ("net.dnn", "net.dnn.ckp"):
        (tmp_path / "models" / name).unlink()
    status, log = run("command=Train", "Train=[SGD=[maxEpochs=2]]")
    assert status == 0 and not epochs(log), log
    values = [load_model(f"{tmp_path}/models/{name}").find_by_name("B1").value for name in ("net.dnn", "net.dnn.2")]
    np.testing.assert_array_equal(*values)


def test_a_log_that_cannot_be_written_goes_on_on_the_console(run, tmp_path):
    """A full disk is no reason to end a training."""
    (tmp_path / "log").symlink_to("/dev/full")
    status, log = run("command=Train", f"stderr={tmp_path}/log")
    assert status == 0 and f"{tmp_path}/log cannot be written, the log goes on here: No space left" in log
    assert log.count("cntk configFile=a.cntk") == 1 and len(epochs(log)) == 3
    assert (tmp_path / "models/net.dnn").is_file()


def test_parameters_are_written_once(run, tmp_path):
    nodes = "Write=[minibatchSize=20;outputNodeNames=B0:HLast]"
    status, log = run("command=Train:Write", "Train=[SGD=[maxEpochs=1]]", nodes)
    assert status == 0, log
    assert len((tmp_path / "out.B0").read_text().splitlines()) == 1
    assert len((tmp_path / "out.HLast").read_text().splitlines()) == 50


def test_the_log_has_the_lines_that_scripts_read(run):
    _, log = run("command=Train", "Train=[SGD=[maxEpochs=2,epochSize=50]]")
    lines = log.splitlines()
    for line in (
        "Commands: Train", 'precision = "float"', "# Train command (train action)".ljust(77) + "#",
        "Training criterion:   CrossEntropyWithSoftmax = CrossEntropyWithSoftmax",
        "Evaluation criterion: EvalClassificationError = ClassificationError",
        "\tNode 'W0' (LearnableParameter operation) : [5 x 2]", "\tNode 'B1' (LearnableParameter operation) : [2 x 1]",
        "Training 27 parameters in 4 out of 4 parameter tensors and 10 nodes with gradient:",
        "Precomputing --> 3 PreCompute nodes found.", "Precomputing --> Completed.",
        "Starting Epoch 1: learning rate per sample = 0.050000  effective momentum = 0.513417  momentum as time "
        "constant = 30.0 samples", "Starting minibatch loop.", 'Action "train" complete.', "__COMPLETED__",
    ):
        assert line in lines, line
    assert re.search(
        r"^ Epoch\[ 1 of 2\]-Minibatch\[   1-   2, 80.00%\]: CrossEntropyWithSoftmax = \d\.\d{8} \* 40; "
        r"EvalClassificationError = \d\.\d{8} \* 40; time = \d+\.\d{4}s; samplesPerSecond = [\d.]+$", log, re.MULTILINE
    )
    assert re.search(r"totalSamplesSeen = 100; learningRatePerSample = 0.050000001; epochTime=[\d.]+s$", log, re.M)


def test_trace_level_0_leaves_out_the_details_as_in_cntk_s_logs(run):
    """As in CNTK's baselines of AlexNet, VGG and ResNet-18 on ImageNet."""
    _, log = run("traceLevel=0", "command=Train:Test", "Train=[SimpleNetworkBuilder=[applyMeanVarNorm=false]]",
                 "Train=[SimpleNetworkBuilder=[needPrior=false]]")
    kinds = [re.split(r" \d|[\d:=\[]", line)[0] for line in log.splitlines() if not line.startswith("#")]
    assert kinds[2:] == [
        "", "", "", "Model has", "", "Training criterion", "Evaluation criterion", "", "Training", "",
        *["Finished Epoch"] * 3, "", "", "",
        "evalNodeNames are not specified, using all the default evalnodes and training criterion nodes.",
        "Final Results", "", "__COMPLETED__",
    ]
    assert "parameters in 4 parameter tensors." in log


def test_a_command_may_have_a_trace_level_of_its_own(run):
    """As in the baseline of Text/G2P."""
    _, log = run("traceLevel=0", "Train=[traceLevel=1]", "command=Train")
    assert "Commands:" not in log
    for line in ("Creating virgin network.", "-Minibatch[", 'Action "train" complete.', "SGD: Saving checkpoint"):
        assert line in log


def test_a_single_worker_trains_in_parallel_if_the_configuration_says_so(run):
    """Then it quantizes, and a test finds the end of the data with another minibatch, as in CNTK's log of MultiGpu."""
    block = "DataParallelSGD;parallelizationStartEpoch=3;DataParallelSGD=[gradientBits=1]"
    parallel = f"Train=[SGD=[ParallelTrain=[parallelizationMethod={block}]]]"
    loop = ", DataParallelSGD training (myRank = 0, numNodes = 1, numGradientBits = 1), distributed reading is ENABLED."
    _, log = run(parallel, "command=Train", "modelPath=other")
    assert "DataParallelSGD training" not in log and epochs(log)[2][1] == pytest.approx(LOSSES[2], rel=1e-5)
    _, log = run(parallel, "command=Train:Test", "parallelTrain=true")
    lines = [line.removeprefix("Starting minibatch loop") for line in log.splitlines() if "minibatch loop" in line]
    assert lines == [".", ".", loop] and "Initializing dataParallelSGD for 1-bit quantization." in log
    assert epochs(log)[1][1] == pytest.approx(LOSSES[1], rel=1e-5)
    assert 1e-4 < abs(epochs(log)[2][1] / LOSSES[2] - 1) < 0.2
    assert re.search(r"^Minibatch\[1-2\].*\nFinal Results: Minibatch\[1-2\]", log, re.MULTILINE)


def test_the_defaults_of_the_page_about_sgd_blocks_are_understood(run):
    """And so are numbers of devices with a star, and a validation reader that is another one."""
    sizes = "blockMomentumSGD = { blockSize = (120000 * #workers) ; resetSGDMomentum = true; }"
    status, log = run("command=Train", f"Train=[SGD=[parallelTrain=[{sizes}]];cvReader=$reader$]", "deviceId=*2")
    assert status == 0 and "WARNING" not in log and "[Validate]" in log


def test_a_device_that_is_not_there_is_explained(run):
    status, log = run("command=Train", "deviceId=77")
    assert status == 1 and "deviceId = -1 is the CPU, auto the GPU if there is one" in log and "CALL STACK" not in log


def test_training_goes_on_from_the_last_checkpoint(run, tmp_path):
    run("command=Train")
    whole = load_model(tmp_path / "models" / "net.dnn").find_by_name("W0").value
    assert "Final model exists" in run("command=Train")[1]
    for name in ("net.dnn", "net.dnn.ckp"):
        (tmp_path / "models" / name).unlink()
    run("command=Train", "makeMode=false", "Train=[SGD=[keepCheckPointFiles=true]]")
    for name in ("net.dnn", "net.dnn.ckp"):
        (tmp_path / "models" / name).unlink()
    _, log = run("command=Train")
    assert "Starting from checkpoint. Loading network from" in log
    assert [(number, loss) for number, loss, _, _ in epochs(log)] == [(3, pytest.approx(LOSSES[2], rel=1e-5))]
    assert "totalSamplesSeen = 150" in log
    np.testing.assert_array_equal(load_model(tmp_path / "models" / "net.dnn").find_by_name("W0").value, whole)
    before = (tmp_path / "models" / "net.dnn").read_bytes()
    assert run("command=Train", "makeMode=false", "Train=[SimpleNetworkBuilder=[layerSizes=3:5:2]]")[0] == 1
    assert (tmp_path / "models" / "net.dnn").read_bytes() == before  # a wrong configuration removes nothing
    assert len(epochs(run("command=Train", "makeMode=false")[1])) == 3


def test_training_goes_on_from_a_model_without_a_state(run, tmp_path):
    """As in CNTK's log of ParallelTraining/AsynchronousSGD, whose run begins with a model.1 that was copied there."""
    run("command=Train", "Train=[SGD=[maxEpochs=1;momentumAsTimeConstant=0]]")
    (tmp_path / "models" / "net.dnn").rename(tmp_path / "models" / "net.dnn.1")
    (tmp_path / "models" / "net.dnn.ckp").unlink()
    _, log = run("command=Train", "Train=[SGD=[momentumAsTimeConstant=0]]")
    assert "Checkpoint file is missing. Parameter-learning state (such as momentum) will be reset." in log
    (second, third), resumed = epochs(log), load_model(tmp_path / "models" / "net.dnn").find_by_name("W0").value
    assert (second[0], third[0]) == (2, 3) and "totalSamplesSeen = 100" in log
    whole = epochs(run("command=Train", "makeMode=false", "Train=[SGD=[momentumAsTimeConstant=0]]")[1])
    assert [second, third] == whole[1:]  # the data are those of these epochs
    np.testing.assert_array_equal(load_model(tmp_path / "models" / "net.dnn").find_by_name("W0").value, resumed)


def test_validation_data_and_cv(run):
    _, log = run("command=Train", "Train=[cvReader=[readerType=CNTKTextFormatReader;file=$Data$;input=[features=[dim=2;"
                 "format=dense];labels=[dim=2;format=dense]]]]")
    assert "Finished Epoch[ 3 of 3]: [Validate] CrossEntropyWithSoftmax = 0.12701" in log
    _, log = run("command=CV", "CV=[action=cv;crossValidationInterval=1:1:2]")
    assert len(re.findall("Final Results", log)) == 3 and "Best model of criterion 2: " in log


def test_the_log_goes_to_a_file(run, tmp_path):
    status, log = run("command=Train:Test", f"stderr={tmp_path}/logs/x", "timestamping=true")
    assert status == 0 and "Redirecting stderr to file" in log and "Epoch" not in log
    lines = (tmp_path / "logs" / "x_Train_Test.log").read_text().splitlines()
    stamped = r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d: "
    assert any(re.match(rf"{stamped}Finished Epoch\[ 3 of 3\]", line) for line in lines)
    status, log = run("command=Nothing", f"stderr={tmp_path}/logs/x")
    assert status == 1 and "command = Nothing: there is no block Nothing" in log
    assert "EXCEPTION occurred: " in (tmp_path / "logs" / "x").read_text()


@pytest.mark.parametrize(("arguments", "file"), [
    (["command=Train:Write"], "out.PosteriorProb"), (["Write=[action=plot;outputDOTFile=full]"], "full"),
    (["Write=[action=dumpNode;outputFile=full]"], "full"),
])
def test_a_file_that_cannot_be_written_is_named(run, tmp_path, arguments, file):
    """The disk is full, as this device is."""
    (tmp_path / file).symlink_to("/dev/full")
    run("command=Train")
    status, log = run("command=Write", *arguments)
    assert status == 1 and f"No space left on device: '{tmp_path / file if '.' in file else file}'" in log
    assert "Exception ignored" not in log


def test_a_network_without_parameters_is_not_trained(run):
    status, log = run("command=Pass", """Pass=[action=train ; SGD=[maxEpochs=1 ; learningRatesPerMB=1]
        BrainScriptNetworkBuilder=[features = Input (2) ; labels = Input (2) ; criterionNodes = (ce)
                                   ce = SquareError (labels, features)]]""")
    assert status == 1 and "nothing can be learned: ce depends on no parameters" in log


def test_output_formats(run, tmp_path):
    (tmp_path / "map.txt").write_text("no\nyes\n")
    form = 'Write=[format=[type="category";labelMappingFile="map.txt";sequenceEpilogue="\\t// %s %d\\n"]]'
    run("command=Train:Write", form)
    assert (tmp_path / "out.labels").read_text().splitlines()[:2] == ["yes\t// labels 0", "yes\t// labels 1"]
    run("command=Write", 'Write=[format=[elementSeparator=",";precisionFormat=".2";sequencePrologue="%x: "]]')
    assert (tmp_path / "out.PosteriorProb").read_text().splitlines()[0] == "2 1 1: 0.13,0.87"
    for names in ('"H1,PosteriorProb"', "H1:PosteriorProb", "(H1:PosteriorProb)", "(H1,PosteriorProb)"):
        assert run("command=Write", f"Write=[outputNodeNames={names}]")[0] == 0
        (tmp_path / "out.H1").unlink()
    rows = (tmp_path / "data.ctf").read_text().splitlines()
    (tmp_path / "keys.ctf").write_text("".join(f"{7 * i} {row}\n" for i, row in enumerate(rows, 1)))
    form = 'Write=[format=[sequencePrologue="%k %d "];writeSequenceKey=true]'
    run("command=Write", f"Data={tmp_path}/keys.ctf", form)
    written = (tmp_path / "out.labels").read_text().splitlines()
    assert [line.split()[:2] for line in written[:3]] == [["7", "0"], ["14", "1"], ["21", "2"]]
    run("command=Write", "Write=[outputNodeNames=B1]")  # a value that is none of samples
    assert (tmp_path / "out.B1").read_text().splitlines() == [" ".join(f"{v:.6f}" for v in learned_bias(tmp_path))]


@pytest.mark.parametrize("every", [1, 0])
def test_a_training_whose_loss_is_no_number_ends_with_an_error(run, tmp_path, every):
    """As CNTK's does (issue 607), before it writes a model."""
    rate = f"Train=[SGD=[learningRatesPerSample=1e30;numMBsToShowResult={every}]]"
    status, log = run("command=Train:Test", rate, "Train=[SimpleNetworkBuilder=[trainingCriterion=SquareError]]")
    assert status == 1 and "EXCEPTION occurred: The training criterion is not a number (NAN)" in log
    assert "SquareError = nan * " in log and not (tmp_path / "models/net.dnn").exists()


def learned_bias(folder):
    return load_model(f"{folder}/models/net.dnn").find_by_name("B1").value.ravel()


@pytest.mark.parametrize(("arguments", "message"), [
    (["command=Tran"], "column 9: command = Tran: there is no block Tran; did you mean Train?\n  command=Tran\n"),
    (["Train=[action=trian]"], "; did you mean train?"),
    (["Train=[SGD=[maxEpochs=x]]"], "'x' is no number. maxEpochs takes a whole number"),
    (["Train=[action=createLabelMap]"], "Train has no section: write section = ..."),
    (["Train=[action=createLabelMap;section=Tests]"], "section = Tests: there is no block Tests; did you mean Test?"),
    (["Train=[action=createLabelMap;section=Test]"], "the labels of CNTKTextFormatReader have no names in the data"),
    (["Train=[action=adapt]"], "adapt is not supported: build the network with BS.Network.Load and CloneFunction"),
    (["reader=[readerType=LibSVMBinaryReader]"], "LibSVMBinaryReader is not supported: convert the data to CNTK's"),
    (["reader=[input=[features=[dim=x]]]"], "dim is a whole number of at least 1, not 'x'"),
    (["reader=[input=[features=[dim=-1]]]"], "dim is a whole number of at least 1, not '-1'"),
    (["reader=[input=[features=[dim=3]]]"], "the reader's features have 3 values a sample, but the network's input "
     "features has 2"),
    (["command=Test"], "there is no model"),
    (["Train=[SGD=[maxEpochs=many]]"], "column 23: 'many' is no number. maxEpochs takes"),
    (["Train=[SGD=[maxEpochs=many]]"], f"\n  Train=[SGD=[maxEpochs=many]]\n{' ' * 24}^"),
    (["Rate=fast", "Train=[SGD=[learningRatesPerSample=$Rate$]]"], "column 6: 'fast' is no number"),
    (["Rate=0.1:fast", "Train=[SGD=[learningRatesPerSample=0.2:$Rate$]]"], "column 10: 'fast' is no number"),
    (["Train=[SGD=[learningRatesPerMB=1]]"],
     f"exclude each other: give one of them\n  Train=[SGD=[learningRatesPerMB=1]]\n{' ' * 33}^"),
    (["Train.SGD.maxEpochs=2"], "Train.SGD.maxEpochs is no name: write Train=[SGD=[maxEpochs=2]]"),
    (["configFile="], "a file has to be named here; in . there are a.cntk"),
    (["b.cntk"], "b.cntk is no key = value; a file is given by configFile=b.cntk"),
    (["--version"], "--version is no key = value; cntk --help shows how"),
    (["deviceId=GPX"], "there is no device gpx; deviceId = -1 is the CPU"),
    (["reader=[file=nowhere.ctf]"], "column 14: there is no file nowhere.ctf; relative names are those in "),
    (["reader=[randomize=flase]"], "randomize is one of auto, none, true, t, yes, y, 1, false, f, no, n, 0; did you"),
    (["Train=[SimpleNetworkBuilder=[layerTypes=Sigmod]]"], "RectifiedLinear; did you mean Sigmoid?"),
    (["Train=[SGD=[evalCriterionNodeName=Wrong]]"], "column 35: evalCriterionNodeName: the network has no node Wrong; "
     "its criteria and outputs are EvalClassificationError, CrossEntropyWithSoftmax, "),
    (["Train=[SimpleNetworkBuilder=[layerSizes=2]]"], "\n  in the command Train, the command line, line 1, column 1\n"),
])
def test_mistakes(run, arguments, message):
    status, log = run(*arguments)
    assert status == 1 and message in log and "Traceback" not in log


def test_a_network_that_does_not_fit_into_memory_is_an_error(run):
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**38, limits[1]))  # so that no machine tries it
    try:
        status, log = run("command=Train", "Train=[SimpleNetworkBuilder=[layerSizes=2:100000000000:2]]")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert status == 1 and "EXCEPTION occurred: " in log and "Unable to allocate" in log


@pytest.mark.parametrize(("old", "new", "message"), [
    ("file =", "fle =", "reader has no file: write file = ... in it, or in a block around it; is fle meant to be file"),
    ("SimpleNetworkBuilder", "SimpleNetworkBilder", "there is no SimpleNetworkBilder; did you mean SimpleNetworkBui"),
])
def test_keys_that_are_missing_are_explained_with_what_is_there_instead(run, tmp_path, old, new, message):
    (tmp_path / "a.cntk").write_text(CONFIG.replace(old, new, 1))
    status, log = run("command=Train")
    assert status == 1 and re.search(rf"a.cntk, line \d+, column \d+: .*{re.escape(message)}.*\n.*\n *\^", log), log


def test_a_configuration_from_windows_runs(run, tmp_path):
    """With a mark of its encoding, line ends of two characters, and backslashes in the names of files."""
    text = CONFIG.replace("$Out$/models/", "$Out$\\models\\").replace("$Data$", "$Dir$\\data.ctf")
    (tmp_path / "b.cntk").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    status, log = run("configFile=.\\b.cntk", "command=Train:Test", "Dir=.", "Train=[SGD=[maxEpochs=1]]")
    assert status == 0 and epochs(log)[0][1] == pytest.approx(LOSSES[0], rel=1e-5)
    assert (tmp_path / "models" / "net.dnn").is_file()


def test_warnings_are_in_the_log_and_nodes_have_no_place_in_python(run, tmp_path):
    text = CONFIG.replace("dim = 2", "dim = 3", 1).replace("layerSizes = 2:", "layerSizes = 3:")
    (tmp_path / "b.cntk").write_text(text)
    with warnings.catch_warnings(action="default"):
        status, log = run("configFile=b.cntk", "command=Train", "Data=data.ctf", "Out=.")
    assert status == 0 and re.search(r"^WARNING: data.ctf:1, and 49 more: stream .* has fewer than 3 values", log, re.M)
    _, log = run("command=Describe", "Describe=[action=edit;outputModelPath=m]",
                 """BrainScriptNetworkBuilder=[x = Input (2) ; z = ParameterTensor {(3:5)} * x]""")
    assert re.search(r"left +Input\('x', .*\)$", log, re.M) and ".py" not in log


def test_names_that_are_nearly_those_of_keys_or_special_nodes_are_warned_about(run, tmp_path):
    (tmp_path / "b.cntk").write_text(f"precsion = double\nother = modelPaths ; modelPaths = 1\n{CONFIG}")
    _, log = run("configFile=b.cntk", "command=Train", "Data=data.ctf", "Out=.", "Train=[SGD=[maxEpochs=1]]")
    assert "b.cntk, line 1, column 1: precsion has no effect; did you mean precision?" in log
    assert log.count(" has no effect") == 1
    network = "x = Input {2} ; z = 2 .* x ; OutputNodes = (z)"
    with warnings.catch_warnings(action="default"):
        _, log = run("command=Make", f"Make=[action=edit;outputModelPath=m;BrainScriptNetworkBuilder={{{network}}}]")
    assert "OutputNodes gives nodes no role; did you mean outputNodes?" in log


def test_unknown_keys_are_warned_about(run):
    _, log = run("command=Train:Test", "Train=[SGD=[maxEpochs=1]]", "Test=[distributedMBReading=true]")
    assert "WARNING" not in log
    _, log = run("command=Train", "comand=Test", "outs=1", "Proj16to32Filename=x", "Train=[SGD=[maxEpochs=1]]")
    assert "comand has no effect; did you mean command?" in log and log.count(" has no effect") == 1
    _, log = run("command=Train", "makeMode=false", "Train=[SGD=[minibatchSze=3];SimpleNetworkBuilder=[layerSize=3]]")
    assert "SGD has no key minibatchSze, which is ignored; did you mean minibatchSize?" in log
    assert "SimpleNetworkBuilder has no key layerSize, which is ignored; did you mean layerSizes?" in log
    _, log = run("command=Train:Test", "makeMode=false", "Train=[maxEpoch=3;size=2;SGD=[maxEpochs=$size$]]",
                 "Test=[evalNodeName=HLast]")
    warnings = re.findall("WARNING: .*: (.*)", log)
    assert [each.partition(",")[0] for each in warnings] == [
        "Train has no key maxEpoch", "Test has no key evalNodeName"]
    assert "ignored; did you mean evalNodeNames?" in warnings[1]
    assert log.index(warnings[0]) < log.index("Starting Epoch 1")


def test_models_are_edited_and_dumped(run, tmp_path):
    run("command=Train")
    (tmp_path / "a.mel").write_text(
        f'm = LoadModel("{tmp_path}/models/net.dnn", format=cntk)\nSetDefaultModel(m)\n'
        f'Rename(HLast, Last)\nSaveModel(m, "{tmp_path}/$name$.dnn", format=cntk)\n'
    )
    status, log = run(
        "command=Edit:Dump:Test", "Edit=[action=edit;editPath=a.mel;name=edited]", f"modelPath={tmp_path}/edited.dnn",
        "Dump=[action=dumpNode;nodeNameRegex=\"W.|Last\";outputFile=dump.txt]",
    )
    assert status == 0, log
    dumped = (tmp_path / "dump.txt").read_text().splitlines()
    assert dumped[0] == "Last=Plus ( W1*H1 , B1 )" and dumped[1].startswith("W0=LearnableParameter [5,2]")
    assert "CrossEntropyWithSoftmax = 0.12701" in log
    run("command=Values", f"modelPath={tmp_path}/edited.dnn",
        "Values=[action=dumpNode;nodeName=W0;printMetadata=false;outputFile=dump.txt]")
    rows = (tmp_path / "dump.txt").read_text().splitlines()
    assert rows == [line for line in rows if not line.strip(" #") or len(line.split()) == 2] and len(rows) == 6


@pytest.mark.parametrize("precision", ["float", "double"])
def test_svd_keeps_a_part_of_the_singular_values(run, tmp_path, precision):
    command = "SVD=[action=SVD;NodeNameRegex=W.;KeepRatio={};AlignedSize=1;outputModelPath={}/svd.dnn]"
    status, log = run("command=Train:SVD", command.format(1, tmp_path), f"precision={precision}")
    assert status == 0, log
    assert "5-by-2     matrix (node name: W0" in log and "keep     2 svd values" in log
    assert "CrossEntropyWithSoftmax = 0.12701" in run("command=Test", f"modelPath={tmp_path}/svd.dnn")[1]
    names = {p.name: p.shape for p in load_model(tmp_path / "svd.dnn").parameters}
    assert names["W0_U"] == (2, 5) and names["W0_V"] == (2, 2)
    assert "keep     1 svd values" in run("command=SVD", command.format(0.5, tmp_path))[1]
    for text, says in (("W0 0.5\n\nW1 1\n", "name: W0                  ) ---  keep 50.0%"),
                       ("W0 .5\nW1 much", "ranks, line 2: 'W1 much' is not an expression and a fraction")):
        (tmp_path / "ranks").write_text(text)
        assert says in run("command=SVD", f"{command.format(1, tmp_path)[:-1]};SVDConfig=ranks]")[1]


def test_plot_writes_the_graph_as_cntk_does(run, tmp_path):
    _, log = run("command=Train:Plot", 'Plot=[action=plot;outputDOTFile=net.dot;renderCmd="touch <OUT>"]')
    assert "renderCmd is not run" in log
    lines = (tmp_path / "net.dot").read_text().splitlines()
    assert lines[0] == " strict digraph {" and lines[-1] == "}"
    assert ' node [ shape = ellipse , color = red  , fillcolor = white ]; "features" ; ' in lines
    assert '  "W0" [ label = "W0 [5 x 2]\\nLearnableParameter" ] ;' in lines
    assert '  "EvalClassificationError" [ label = "EvalClassificationError [1]\\nClassificationError" ] ;' in lines
    edges = [line for line in lines if "->" in line]
    loss = "CrossEntropyWithSoftmax"
    assert edges[:3] == [f' "labels" -> "{loss}" ; ', f' "HLast" -> "{loss}" ; ', ' "W1*H1" -> "HLast" ; ']
    assert edges[-1] == ' "labels" -> "Prior" ; ' and ' "MeanOfFeatures" -> "MVNormalizedFeatures" ; ' in edges


def test_sizes_of_layers_may_be_in_quotes_and_are_numbers(run):
    quoted = 'Train=[SimpleNetworkBuilder=[layerSizes="2:5:2"]]'
    assert run("command=Train", quoted, "Train=[SGD=[maxEpochs=1]]")[0] == 0
    status, log = run("command=Train", "Train=[SimpleNetworkBuilder=[layerSizes=2:many:2]]", "makeMode=false")
    assert status == 1 and "column 43: layerSizes is a whole number, not 'many'" in log


def test_a_network_without_steps_takes_the_samples_of_sequences(run, tmp_path):
    """As CNTK's command line did; all samples are one minibatch, so that their order matters in the last digit only."""

    def numbers(*arguments):
        status, log = run("Train=[SGD=[minibatchSize=50]]", *arguments)
        assert status == 0, log
        return *epochs(log), *np.fromstring((tmp_path / "out.PosteriorProb").read_text(), sep=" ").reshape(50, 2)

    single = numbers()
    rows = (tmp_path / "data.ctf").read_text().splitlines()
    (tmp_path / "data.ctf").write_text("\n".join(f"{i // 4} {row}" for i, row in enumerate(rows)))
    for found, expected in zip(numbers("makeMode=false"), single, strict=True):
        assert found == pytest.approx(expected, rel=1e-5)


def test_what_runs_is_profiled_on_request(run, tmp_path):
    assert run("command=Train", "profilerEnabled=true", f"WorkDir={tmp_path}/work")[0] == 0
    assert len(list((tmp_path / "work" / "profiler").glob("*_summary_*"))) == 1


def test_values_of_an_ndl_block_count_in_the_files_that_it_names(tmp_path, monkeypatch, capsys):
    """As imageLayout in CNTK's own examples; what the command line says counts first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "macros.ndl").write_text("Layer (x) = [ W = Parameter ($size$, 3) ; z = Times (W, x) ]")
    (tmp_path / "net.ndl").write_text("x = Input (3) ; out = Layer (x) ; OutputNodes = out")
    (tmp_path / "a.cntk").write_text("""
        command = t
        t = [ action = train
              NDLNetworkBuilder = [ size = 4 ; ndlMacros = "macros.ndl"
                                    networkDescription = net.ndl ] ]
    """)
    for arguments, size in (([], 4), (["size=5"], 5)):
        run_arguments(["configFile=a.cntk", *arguments], describes=True)
        assert f"[{size} x 3]" in capsys.readouterr().out


def test_a_network_is_described_without_the_device_of_its_training(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.cntk").write_text(CONFIG)
    run_arguments(["configFile=a.cntk", "deviceId=7"], describes=True)
    assert "criterion nodes: CrossEntropyWithSoftmax" in capsys.readouterr().out
