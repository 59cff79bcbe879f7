"""What is logged of a training with several evaluation nodes, and of one whose epochs are repeated."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax import load_model
from cntkjax.brainscript.command_line import main
from tests.brainscript.test_commands import write_data
from tests.logging.test_tensorboard import events

CONFIG = """
command = Train
modelPath = "net.dnn"
deviceId = -1
reader = [
    readerType = "CNTKTextFormatReader" ; file = "data.ctf" ; randomize = false
    input = [ features = [ dim = 2 ; format = "dense" ] ; labels = [ dim = 2 ; format = "dense" ] ]
]
cvReader = [
    readerType = "CNTKTextFormatReader" ; file = "cv.ctf"
    input = [ features = [ dim = 2 ; format = "dense" ] ; labels = [ dim = 2 ; format = "dense" ] ]
]
Train = [
    action = "train"
    BrainScriptNetworkBuilder = {
        features = Input {2} ; labels = Input {2}
        W = ParameterTensor {(2:2), init="fixedValue", value=0.5}
        b = ParameterTensor {2, init="uniform", initValueScale=20}
        z = W * features + b
        ce = CrossEntropyWithSoftmax (labels, z)
        errs = ClassificationError (labels, z)
        topErrs = ClassificationError (labels, z, topN=2)
        size = ReduceSum (W)
        mean = new ComputationNode [ operation = 'EpochAccumulator' ; inputs = (ReduceSum (features)) ]
        root = Sqrt (SumElements (features .* features))
        featureNodes = (features) ; labelNodes = (labels) ; criterionNodes = (ce)
        evaluationNodes = (errs : topErrs : size : root : mean)
    }
    SGD = [
        minibatchSize = 20 ; maxEpochs = 2 ; learningRatesPerSample = 0.05 ; momentumPerMB = 0
        numMBsToShowResult = 2 ; firstMBsToShowResult = 1
    ]
]
Test = [ action = "test" ; minibatchSize = 25 ]
"""


@pytest.fixture
def run(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.cntk").write_text(CONFIG)
    write_data(tmp_path / "data.ctf")
    lines = (tmp_path / "data.ctf").read_text().splitlines()  # for validation, with every seventh label wrong
    wrong = [line if i % 7 else line[:-3] + line[:-4:-1] for i, line in enumerate(lines)]
    wrong = [line.replace("features -", "features ") for line in wrong]  # so that they have another mean
    (tmp_path / "cv.ctf").write_text("\n".join(wrong))

    def run(*arguments):
        status = main(["configFile=a.cntk", *arguments])
        log = capfd.readouterr().err
        assert status == 0, log
        return log

    return run


def expected(path, data):
    """Loss, error, sum of weights and mean of data with the model in a file, with NumPy."""
    rows = [re.findall(r"-?[\d.]+", line) for line in Path(data).read_text().splitlines()]
    x, y = np.array(rows, float)[:, :2], np.array(rows, float)[:, 2:]
    model = load_model(path)
    W, b = (model.find_by_name(name).value for name in ("W", "b"))
    z = x @ W + b
    loss = (np.log(np.exp(z).sum(1)) - (z * y).sum(1)).mean()
    return loss, 100 * (z.argmax(1) != y.argmax(1)).mean(), W.sum(), x.sum(1).mean()


def test_each_evaluation_node_is_logged(run):
    log = run("command=Train:Test")
    number, percentage = r"(\d\.\d{8})", r"(\d+\.\d{3})%"
    nodes = rf"ce = {number} \* N; errs = {percentage} \* N; topErrs = 0.000% \* N"
    nodes += rf"; size = (-?{number[1:]} \* N; root = [\d.]+ \* N; mean = (-?{number[1:]} \* 1"
    assert "Evaluation criteria:\n\terrs = ClassificationError\n\ttopErrs = ClassificationError\n\tsize = " in log
    lines = re.findall(r"^ Epoch\[ 1 of 2\]-Minibatch\[ +(\d)- +(\d)\]: " + nodes.replace("N", r"(\d+)"), log, re.M)
    assert [(line[0], line[1], line[3]) for line in lines] == [("1", "1", "20"), ("2", "2", "20")]
    weights = 3 / 50, 2 / 50  # a node of no samples is summed over minibatches: CNTK's log of FCN
    for epoch, path in ((1, "net.dnn.1"), (2, "net.dnn")):
        (trained,) = re.findall(rf"Finished Epoch\[ {epoch} of 2\]: \[Training\] " + nodes.replace("N", "50"), log)
        (tested,) = re.findall(rf"Finished Epoch\[ {epoch} of 2\]: \[Validate\] " + nodes.replace("N", "50"), log)
        loss, error, size, mean = expected(path, "cv.ctf")
        tested = np.array(tested, float)
        np.testing.assert_allclose(tested, (loss, error, size * weights[0], mean), rtol=1e-6, atol=1e-8)
        assert float(trained[3]) == pytest.approx(expected(path, "data.ctf")[3], rel=1e-6)  # of this epoch
        assert all(math.isfinite(float(value)) for value in trained)
    final = re.findall(r"Final Results: Minibatch\[1-2\]: errs = (.*)% \* 50; topErrs = 0.000% \* 50; size = (.*) "
                       r"\* 50; root = .* \* 50; mean = (.*) \* 1; ce = (.*) \* 50; perplexity = (.*)", log)
    error, size, mean, loss, perplexity = map(float, final[-1])
    size /= weights[1]
    np.testing.assert_allclose((loss, error, size, mean), expected("net.dnn", "data.ctf"), rtol=1e-6)
    assert perplexity == pytest.approx(math.exp(loss), rel=1e-6)


ADJUSTED = ("Train=[SGD=[maxEpochs=4;learningRatesPerSample=3;autoAdjust=[autoAdjustLR=adjustAfterEpoch;"
            "learnRateDecreaseFactor=0.01]]]")


def losses(log):
    """(epoch, loss on the validation data, rate) of each epoch in the log."""
    line = r"Finished Epoch\[ (\d) of 4\]: \[Training\].*totalSamplesSeen = (\d+); learningRatePerSample = (\S+);"
    validated = re.findall(r"\[Validate\] ce = (\S+) ", log)
    return [(int(e), int(n), float(r), float(v)) for (e, n, r), v in zip(re.findall(line, log), validated, strict=True)]


def test_an_epoch_that_is_worse_is_repeated_with_a_smaller_rate(run):
    log = run(ADJUSTED)
    epochs = losses(log)
    assert all(samples == 50 * epoch for epoch, samples, _, _ in epochs)
    rate, best, repeats = 3.0, math.inf, 0
    for (epoch, _, used, loss), following in zip(epochs, [*epochs[1:], (5,)], strict=True):
        assert used == pytest.approx(rate, rel=1e-6)
        if loss > best:
            repeats, rate = repeats + 1, rate * 0.01
        assert following[0] == (epoch if loss > best else epoch + 1)
        best = min(best, loss)
    assert repeats >= 1
    path = re.escape("net.dnn.")
    assert len(re.findall(
        rf"Loading \(rolling back to\) previous model with best training-criterion value: {path}(\d)\.\n"
        r"learnRatePerSample reduced to \S+\nSGD: revoke back to and update checkpoint file for epoch \1\n\n"
        r"Starting Epoch \d: ", log)) == repeats
    assert expected("net.dnn", "cv.ctf")[0] == pytest.approx(best, rel=1e-6)


def test_training_ends_when_repeated_epochs_have_too_small_a_rate(run, tmp_path):
    log = run(ADJUSTED, "Train=[SGD=[minLearningRatePerSample=2]]")
    (epoch,) = re.findall(r"Learn Rate Per Sample for Epoch\[(\d)\] = \S+ is less than minLearningRatePerSample 2\. "
                          r"Training complete\.\n", log)
    assert losses(log)[-1][0] == int(epoch) and (tmp_path / "net.dnn").is_file()
    assert not (tmp_path / f"net.dnn.{epoch}").exists()


SEARCH = ("Train=[SGD=[maxEpochs={};epochSize=50;minibatchSize=4;numMBsToShowResult=2;firstMBsToShowResult=0;{};"
          "autoAdjust=[{}]]]")


def of_searches(log, epoch):
    """The lines of searches before an epoch, with the number of samples and without values of criteria."""
    start = log.index(f"\nSGD: Saving checkpoint model 'net.dnn.{epoch - 1}'")
    end = log.index(f"\nStarting Epoch {epoch}:")
    lines = [line for line in log[start:end].splitlines()[2:] if line and "Starting" not in line]
    return [re.sub(r"(?<= )\d+\.\d{8}\b(?!;)|; errs.*?(?=; learn|$)", lambda m: "" if m[0][0] == ";" else "N", line)
            for line in lines]


def test_a_sufficient_rate_is_searched_as_in_the_log_of_ParallelBMWithAdjustLR(run):
    """After the listed rates from 1 / (8 √4) on; then from the largest that was found, divided by 0.618."""
    search = "autoAdjustLR=searchBeforeEpoch;numSamples4Search=12"
    log = run(SEARCH.format(4, "learningRatesPerSample=0.05:0.01", search))
    assert of_searches(log, 2) == []
    spans = "   1-   2, 16.00%", "   3-   4, 32.00%"
    minibatches = [f"Search: Epoch[ 3 of 4]-Minibatch[{span}]: ce = N * 8" for span in spans]
    *lines, found = of_searches(log, 3)
    without, *tried = map(float, re.findall(r"Mini-Epoch\[3\]: ce = (\S+)", log))
    assert lines == [
        line for i in range(len(tried) + 1) for line in (
            *(f"  {'' if i else 'Base'}AdaptiveLearnRate{each}" for each in minibatches),
            " Finished Mini-Epoch[3]: ce = N * 16; learningRatePerSample = "
            f"{0.0625 / float(np.float32(0.618)) * 0.618**i if i else 0:.8g}; minibatchSize = 4")
    ]
    last = float(re.findall(r"Epoch\[ 2 of 4\]: \[Training\] ce = (\S+)", log)[0])
    rate, base = map(float, re.findall(r"^ SearchForBestLearnRate Epoch\[3\]: Best learningRatePerSample = (\S+), "
                                       r"baseCriterion=(\S+)$", found)[0])
    assert base == pytest.approx(without, rel=1e-6) and without > last and tried[-1] <= base
    assert f"Starting Epoch 3: learning rate per sample = {rate:f}" in log
    following = re.findall(r"Mini-Epoch\[4\]: .* learningRatePerSample = (\S+);", log)[1]
    assert float(following) == pytest.approx(rate / 0.618, rel=2e-7)


def test_a_rate_that_is_not_sufficient_is_reduced_by_a_factor_of_0618(run):
    """From 200 on, which is a rate of the second search: the loss of these data rises."""
    log = run(SEARCH.format(2, "learningRatesPerSample=1;minibatchSize=1", "autoAdjustLR=searchBeforeEpoch;"
                            "numBestSearchEpoch=0;numSamples4Search=40"))
    base = [float(value) for value in re.findall("baseCriterion=(.*)", log)]
    for epoch in (1, 2):
        tried = re.findall(rf"Mini-Epoch\[{epoch}\]: ce = (\S+) .* learningRatePerSample = (\S+);", log)[1:]
        losses, rates = ([float(each[i]) for each in tried] for i in range(2))
        assert min([math.inf, *losses[:-1]]) > base[epoch - 1] >= losses[-1]
        assert rates == pytest.approx([rates[0] * 0.618**i for i in range(len(rates))], rel=1e-6)
    without = float(re.findall(r"Mini-Epoch\[2\]: ce = (\S+)", log)[0])
    last = float(re.findall(r"Epoch\[ 1 of 2\]: \[Training\] ce = (\S+)", log)[0])
    share = math.sqrt(40 / 50)
    assert base[1] == pytest.approx((1 - share) * without + share * last, rel=1e-6) and last > without


def test_sizes_are_searched_as_in_the_log_of_AutoMBScaling(run):
    search = "autoAdjustMinibatch=true;numMiniBatch4LRSearch=3;minibatchSearchCriterionErrorMargin={}"
    log = run(SEARCH.format(3, "learningRatesPerSample=0.05", search.format(1000)))
    assert "WARNING: 'numMiniBatch4LRSearch' is deprecated, please remove it and use 'numSamples4Search' instead" in log
    begin = " AdaptiveMinibatchSearch Epoch[2]: "
    spans = {4: ("   1-   2, 16.00%", "   3-   4, 32.00%"), 8: ("   1-   2, 32.00%",)}

    def tried(size, title="AdaptiveMinibatchSearch"):
        return [
            f"{begin}Evaluating trial minibatchSize={size} (search range: 4..1048576)...",
            *(f"  {title}: Epoch[ 2 of 3]-Minibatch[{span}]: ce = N * {2 * size}" for span in spans[size]),
            f" Finished Mini-Epoch[2]: ce = N * 16; learningRatePerSample = 0.050000001; minibatchSize = {size}",
        ]

    keep = f"{begin}Keep searching... epochCriterion = N vs. baseCriterion = N"
    *lines, found = of_searches(log, 2)
    assert lines == [
        " Before Epoch[2], previous minibatchSize 4 is considered invalid -> resetting.",
        f"{begin}Evaluating minibatchSizes 4..1048576", *tried(4, "BaseAdaptiveMinibatchSearch"),
        f"{begin}Computed baseCriterion N for minibatchSize=4", *tried(4), keep, *tried(8), keep,
    ]
    assert found == f"{begin}Search successful. New minibatchSize is 8. epochCriterion = N vs baseCriterion = N"
    assert "\n AdaptiveMinibatchSearch Epoch[3]: Evaluating minibatchSizes 8..16\n" in log
    base, same = re.findall(r"Mini-Epoch\[2\]: ce = (\S+)", log)[:2]
    assert base == same


def test_a_size_whose_loss_is_above_the_margin_is_not_taken(run):
    log = run(SEARCH.format(2, "learningRatesPerSample=0.3;minibatchSize=1",
                            "autoAdjustMinibatch=true;numSamples4Search=40"))
    base, *losses = map(float, re.findall(r"Mini-Epoch\[2\]: ce = (\S+)", log))
    assert max(losses[:-1]) <= 1.01 * base < losses[-1]
    assert f" Epoch[2]: Search successful. New minibatchSize is {2 ** (len(losses) - 2)}. epochCriterion = " in log


def test_the_best_model_by_each_criterion_is_kept(run):
    log = run("saveBestModelPerCriterion=true", "Train=[SGD=[maxEpochs=5;learningRatesPerSample=3]]")
    validated = re.findall(r"\[Validate\] ce = (\S+) .*errs = (\S+)% .*\nBest epoch per criterion so far: \[Validate\] "
                           r"ce = (\S+) \(Epoch (\d)\); errs = (\S+) \(Epoch (\d)\); .*\nSGD: Saving", log)
    assert len(validated) == 5
    ce = [float(line[0]) for line in validated]
    best = ce.index(min(ce)) + 1
    assert [int(line[3]) for line in validated] == [ce.index(min(ce[:n])) + 1 for n in range(1, 6)]
    path = f"net.dnn.{best}" if best < 5 else "net.dnn"
    assert f"Best epoch for criterion 'ce' is {best} and model {path} copied to net.dnn_ce\n" in log
    assert expected("net.dnn_ce", "cv.ctf")[0] == pytest.approx(min(ce), rel=1e-6)
    assert Path("net.dnn_errs").is_file()


def test_a_learning_rate_multiplier_scales_the_updates(run):
    """Without momentum, the first update of W is twice as large."""
    builder = CONFIG.replace("(2:2), init=", "(2:2), learningRateMultiplier=$rate$, init=")
    Path("a.cntk").write_text(builder)
    change = []
    for rate in (1, 2):
        run(f"rate={rate}", "Train=[SGD=[maxEpochs=1;minibatchSize=50]]", f"modelPath={rate}.dnn")
        model = load_model(f"{rate}.dnn")
        change.append([model.find_by_name(name).value for name in ("W", "b")])
    np.testing.assert_allclose(change[1][0] - 0.5, 2 * (change[0][0] - 0.5), rtol=1e-5)
    np.testing.assert_array_equal(change[1][1], change[0][1])


def test_nothing_is_printed_outside_of_the_log_with_a_trace_level(run, capfd):
    assert main(["configFile=a.cntk", "traceLevel=1", "Train=[traceLevel=1;SGD=[traceLevel=1]]"]) == 0
    assert capfd.readouterr().out == ""


def test_the_model_path_may_stand_in_the_sgd_block(run, tmp_path):
    Path("a.cntk").write_text(CONFIG.replace('modelPath = "net.dnn"', "").replace(
        "SGD = [", 'SGD = [ modelPath = "in/sgd.dnn" ;'))
    log = run("Train=[SGD=[maxEpochs=2]]")
    assert "SGD: Saving checkpoint model 'in/sgd.dnn.1'" in log
    assert {path.name for path in (tmp_path / "in").iterdir() if path.suffix != ".ckp"} == {"sgd.dnn", "sgd.dnn.1"}
    assert "No further training is necessary." in run()


def test_the_sgd_block_may_stand_outside_of_the_command(run):
    """As in Speech/DNN/DiscriminativePreTraining, whose commands have models of their own."""
    settings = re.search(r"(?s)SGD = \[.*?\n    \]\n", CONFIG)[0]
    inner = CONFIG.replace(settings, 'modelPath = "command.dnn"')
    Path("a.cntk").write_text(inner.replace('modelPath = "net.dnn"', settings))
    run()
    assert Path("command.dnn").is_file()


def test_gradients_that_are_to_be_used_later_are_used_at_once_with_a_warning(run):
    parallel = "ParallelTrain=[parallelizationMethod=DataParallelSGD;DataParallelSGD=[{}]]"
    plain = run("parallelTrain=true", f"Train=[SGD=[{parallel.format('gradientBits=32')}]]", "modelPath=a.dnn")
    key = "useBufferedAsyncGradientAggregation=true"
    log = run("parallelTrain=true", f"Train=[SGD=[{parallel.format(key)}]]", "modelPath=b.dnn")
    assert "WARNING: useBufferedAsyncGradientAggregation = true: gradients are used in their own minibatch here." in log
    found, wanted = (re.findall(r"\[Training\] (.*?); total", text) for text in (log, plain))
    assert found == wanted and len(found) == 2


def test_asynchronous_training_adds_changes_at_once(run):
    """The keys of CNTK's page, and the line of its log of AsynchronousSGD, which has syncPeriod."""
    steps = "AdjustLearningRateAtBeginning=[adjustCoefficient=0.2;adjustNBMiniBatch=1024]"
    for period, further in (("syncPeriodPerWorker", f";{steps}"), ("syncPeriod", "")):
        method = f"parallelizationMethod=DataParallelASGD;DataParallelASGD=[{period}=40;usePipeline=true{further}]"
        log = run("parallelTrain=true", f"Train=[SGD=[ParallelTrain=[{method}]]]", "makeMode=false")
        assert ("\nStarting minibatch loop, DataParallelASGD training (myRank = 0, numNodes = 1, SamplesSyncToServer = "
                "40), distributed reading is ENABLED.\n") in log and "WARNING" not in log
    assert losses_of(log) == pytest.approx(losses_of(run("makeMode=false")), rel=1e-6)


def test_momentum_may_be_that_of_a_sample(run):
    """As in Speech/DNN/DiscriminativePreTraining: 0.999589 is logged as 2432.7 samples, and 0.900117 of 256."""
    plain = run(SAMPLES.format("momentumAsTimeConstant = 2432.7348"), "modelPath=a.dnn")
    log = run(SAMPLES.format("momentumPerSample = 0.999589"), "modelPath=b.dnn")
    assert "effective momentum = 0.991813  momentum as time constant = 2432.7 samples" in log and "WARNING" not in log
    assert losses_of(log) == pytest.approx(losses_of(plain), rel=1e-6)


def test_useAdagrad_is_the_rule_of_updates(run):
    """Source: CNTK's technical report, MSR-TR-2014-112."""
    plain = run(SAMPLES.format("gradUpdateType = adagrad"), "modelPath=a.dnn")
    log = run(SAMPLES.format("useAdagrad = true"), "modelPath=b.dnn")
    assert "WARNING" not in log and losses_of(log) == losses_of(plain)
    assert losses_of(log) != losses_of(run(SAMPLES.format("useAdagrad = false"), "modelPath=c.dnn"))


SAMPLES = "Train=[SGD=[momentumPerMB=...;{}]]"


def losses_of(log):
    return [float(loss) for loss in re.findall(r"\[Training\] ce = (\S+) ", log)]


def test_an_epoch_within_a_long_sequence_has_no_samples(run):
    """As in Speech/LSTM_CTC, whose log has epochs with '0.00000000 * 0'."""
    rows = Path("data.ctf").read_text().splitlines()
    Path("data.ctf").write_text("\n".join(f"{i // 25} {row}" for i, row in enumerate(rows)))
    log = run("Train=[SGD=[epochSize=10;maxEpochs=4]]")
    samples = re.findall(r"\[Training\] ce = (\S+) \* (\d+);.* totalSamplesSeen = (\d+);", log)
    assert [(int(n), int(total)) for _, n, total in samples] == [(25, 25), (0, 25), (25, 50), (0, 50)]
    assert [loss for loss, n, _ in samples if n == "0"] == ["0.00000000"] * 2


@pytest.mark.parametrize(("every", "lines"), [(1, 6), (0, 0)])
def test_losses_are_written_for_tensorboard(run, tmp_path, every, lines):
    pytest.importorskip("tensorboardX")
    log = run(f"tensorBoardLogDir={tmp_path}/board", f"tensorBoardNumMBsToLogResult={every}")
    written = events(tmp_path / "board")
    assert [value for _, tag, value in written if tag == "summary/avg_loss"] == pytest.approx(losses_of(log), rel=1e-6)
    assert len([tag for _, tag, _ in written if tag == "minibatch/avg_loss"]) == lines


def test_statistics_that_an_edit_adds_are_computed_before_training_and_those_of_the_model_are_kept(run, tmp_path):
    """As the manual of MEL says of its example, which normalizes the input of a trained model."""
    run("Train=[SGD=[maxEpochs=1]]")
    edit = """
        m = LoadModel("{}", format=cntk)
        centre = Mean(features) ; centered = Minus(features, centre)
        SetInput(z.PlusArgs[0], 1, centered)
        SaveModel("{}")
    """
    (tmp_path / "a.mel").write_text(edit.format("net.dnn", "between.dnn"))
    (tmp_path / "b.mel").write_text('m = LoadModel("between.dnn")\nSaveModel("new.dnn.0")')
    (tmp_path / "c.mel").write_text('m = LoadModel("new.dnn")\nSaveModel("last.dnn.0")')
    for name in "ab":
        run("command=Edit", f"Edit=[action=edit;editPath={name}.mel]")
    log = run("modelPath=new.dnn")
    assert "Precomputing --> 1 PreCompute nodes found." in log
    rows = np.array([re.findall(r"-?[\d.]+", row) for row in Path("data.ctf").read_text().splitlines()], float)
    (mean,) = (each.value for each in load_model("new.dnn").constants if each.name == "centre")
    np.testing.assert_allclose(mean, rows[:, :2].mean(0), rtol=1e-5)
    run("command=Edit", "Edit=[action=edit;editPath=c.mel]")
    assert "Precomputing" not in run("modelPath=last.dnn")


def test_parallel_epochs_end_with_another_minibatch_as_in_cntks_log_of_fcn(run):
    parallel = "ParallelTrain=[parallelizationMethod=DataParallelSGD;parallelizationStartEpoch=2]"
    log = run("parallelTrain=true", f"Train=[SGD=[{parallel};firstMBsToShowResult=0;numMBsToShowResult=1]]")
    lines = re.findall(r"Epoch\[ (\d) of 2\]-Minibatch\[ +\d- +(\d).*errs = (\S+) \* (\d+).*mean = (\S+) \* 1;", log)
    shown = [(number, size) for epoch, number, _, size, _ in lines if epoch == "2"]
    assert shown == [("1", "20"), ("2", "20"), ("3", "10"), ("4", "0")]
    assert lines[-1][2:] == ("0.000%", "0", lines[-2][4]) and lines[2][:2] == ("1", "3")


def test_the_seeds_of_parameters_count_on_through_the_commands_of_a_run(run):
    second = CONFIG[CONFIG.index("Train = ["):].replace("Train = [", "Again = [ modelPath = again.dnn", 1)
    Path("a.cntk").write_text(CONFIG + second[: second.index("Test = [")])
    run("command=Train:Again", "SGD=[]", *(f"{name}=[SGD=[learningRatesPerSample=0]]" for name in ("Train", "Again")))
    for name, seed in (("net", 1), ("again", 2)):
        expected = C.parameter(2, init=C.uniform(1, seed=seed)).value
        np.testing.assert_array_equal(load_model(f"{name}.dnn").find_by_name("b").value, expected)


def test_tests_read_the_data_in_the_order_that_the_reader_says(run):
    run()
    lines = [re.findall(r"Minibatch\[\d-\d\]: errs = \S+ \* (\d+).* ce = (\S+) \*", run(
        "command=Test", f"reader=[randomize={order}]", "Test=[minibatchSize=25;numMBsToShowResult=1]"
    ))[:2] for order in ("true", "false")]
    rows = [re.findall(r"-?[\d.]+", row) for row in Path("data.ctf").read_text().splitlines()]
    streams = {name: C.io.StreamDef(name, shape=2) for name in ("features", "labels")}
    source = C.io.MinibatchSource(C.io.CTFDeserializer("data.ctf", C.io.StreamDefs(**streams)), randomize=True)
    model = load_model("net.dnn")
    for shown, first in zip(lines, (None, np.array(rows[:25], np.float32)), strict=True):
        if first is None:
            data = source.next_minibatch(25)
            first = np.concatenate([data[source.streams[name]].asarray()[:, 0] for name in streams], axis=1)
        z = first[:, :2] @ model.find_by_name("W").value + model.find_by_name("b").value
        loss = (np.log(np.exp(z).sum(1)) - (z * first[:, 2:]).sum(1)).mean()
        assert float(shown[0][1]) == pytest.approx(loss, rel=1e-5)
    assert lines[0] != lines[1]


def test_a_description_is_no_unknown_key_where_training_goes_on_from_a_checkpoint(run, tmp_path):
    config = tmp_path / "a.cntk"
    config.write_text(config.read_text().replace("Builder = {", "Builder = (new ComputationNetwork {").replace(
        "mean)\n    }", "mean)\n    })"))
    run()
    (tmp_path / "net.dnn").unlink()
    log = run()
    assert "Loading network from 'net.dnn.1'" in log and "WARNING" not in log
