"""Values of traced nodes in the log of a training."""

import re

import numpy as np
import pytest

from cntkjax.brainscript.command_line import main

CONFIG = """
command = Train ; modelPath = "net.dnn"
reader = [
    readerType = "CNTKTextFormatReader" ; file = "data.ctf" ; randomize = false
    input = [ x = [ dim = 3 ; format = "sparse" ] ; labels = [ dim = 2 ; format = "dense" ] ]
]
Train = [
    action = "train"
    BrainScriptNetworkBuilder = {
        x = SparseInput {3} ; labels = Input {2}
        W = ParameterTensor {(2:3), init="fromLiteral", initFromLiteral="1 2 3
4 5 6"}
        words = Trace (x, say="words", logFirst=1, format=[ type = "category" ])
        z = Trace (W * words, say="scores", logFirst=1, logFrequency=3, logGradientToo=true, onlyUpToRow=1, onlyUpToT=2,
                   format=[ type = "real" ; transpose = true ; precisionFormat = ".2" ])
        state = PastValue (2, sum) ; sum = Trace (z + state, say="sums", logFirst=1, logGradientToo=true, onlyUpToT=1)
        ce = CrossEntropyWithSoftmax (labels, z) ; both = ReduceSum (sum)
        featureNodes = (x) ; labelNodes = (labels) ; criterionNodes = (ce) ; evaluationNodes = (both)
    }
    SGD = [ minibatchSize = 5 ; maxEpochs = 1 ; learningRatesPerSample = 1e-8 ; momentumPerMB = 0 ]
]
"""
SENTENCES = (
    "{0} |x 0:1 |labels 1 0\n{0} |x 2:1 |labels 0 1\n{0} |x 1:1 |labels 0 1\n"
    "{1} |x 1:1 |labels 1 0\n{1} |x 0:1 |labels 0 1\n"
)
DATA = SENTENCES.format(0, 1) + SENTENCES.format(2, 3)
LINES = re.compile(r"^([\w, ]+, minibatch \d+):\n((?:[-\d.].*\n|grad.*\n)+)", re.MULTILINE)


@pytest.fixture
def traced(tmp_path, capfd, monkeypatch):
    """What follows the title of each trace, in a run with these arguments."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.cntk").write_text(CONFIG)
    (tmp_path / "data.ctf").write_text(DATA)

    def run(*arguments):
        assert main(["configFile=a.cntk", *arguments]) == 0
        log = capfd.readouterr().err
        return {title: text.splitlines() for title, text in LINES.findall(log)}

    return run


def test_values_are_logged_in_the_first_minibatches_and_in_every_nth(traced):
    found = traced("Train=[SGD=[maxEpochs=3]]")
    assert [title for title in found if "scores z" in title] == [f"scores z, minibatch {n}" for n in (1, 3, 6)]
    assert found["words words, minibatch 1"] == ["0", "2", "1", "1", "0"]
    assert found["scores z, minibatch 1"] == ["1.00", "3.00", "2.00", "1.00"]  # a value of a sample, two of a sequence


def test_gradients_are_those_of_the_criterion(traced):
    scores = np.array([[1, 4], [3, 6], [2, 5], [1, 4]])  # of the steps that are shown
    labels = np.array([[1, 0], [0, 1], [1, 0], [0, 1]])
    softmax = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    shown = traced()["scores, gradient of z, minibatch 1"]
    np.testing.assert_allclose(np.array(shown, float), (softmax - labels)[:, 0], atol=0.006)


def test_a_node_in_a_loop_has_values_but_no_gradients(traced):
    found = traced("Train=[SGD=[trainCriterionNodeName=both;evalCriterionNodeName=ce]]")
    assert found["sums sum, minibatch 1"] == ["1.100000 4.100000", "2.100000 5.100000"]
    assert "is computed inside a recurrent loop" in found["sums, gradient of sum, minibatch 1"][0]


def test_keys_of_the_block_trace_nodes_in_each_minibatch(traced):
    found = traced("Train=[SGD=[traceNodeNamesReal=W:labels;traceNodeNamesCategory=z;traceNodeNamesSparse=x]]")
    assert found["Trace W, minibatch 2"] == ["1.000000 4.000000 2.000000 5.000000 3.000000 6.000000"]
    assert found["Trace labels, minibatch 1"][0] == "1.000000 0.000000"
    assert found["Trace z, minibatch 2"] == ["1"] * 5
    assert found["Trace x, minibatch 2"] == ["0:1", "2:1", "1:1", "1:1", "0:1"]


def test_a_training_that_goes_on_traces_as_before(traced, tmp_path):
    traced()
    (tmp_path / "net.dnn").unlink()
    found = traced("Train=[SGD=[maxEpochs=2]]")
    assert found["scores z, minibatch 1"] == ["1.00", "3.00", "2.00", "1.00"]
