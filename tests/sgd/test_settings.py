"""The settings of a block, in a text or as arguments: each mistake is one sentence with line, column and key."""

import inspect
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.sgd import SGD, ConfigError
from cntkjax.sgd.keys import KEYS
from tests.sgd.tutorial import TUTORIAL


def test_the_tutorial_configuration():
    block = SGD.parse(TUTORIAL)
    rates = block["learningRatesPerSample"]
    assert [rates.at(epoch) for epoch in (0, 79, 80, 119, 120)] == [0.0078125] * 2 + [0.00078125] * 2 + [0.000078125]
    expected = {
        "epochSize": 50000, "maxEpochs": 160, "L2RegWeight": 1e-4, "numMBsToShowResult": 500,
        "parallelizationMethod": "dataParallelSGD", "distributedMBReading": True, "autoAdjustMinibatch": True,
        "minibatchSizeTuningFrequency": 10, "numMiniBatch4LRSearch": 200, "minibatchSizeTuningMax": 15000,
        "autoAdjustLR": "none", "learnRateDecreaseFactor": 0.618,
    }
    assert {name: block[name] for name in expected} == expected
    assert str(block["gradientBits"]) == "2:1"


def test_a_block_inherits_keys_of_the_blocks_around_it():
    """As CNTK's own configurations need, whose modelPath and traceLevel stand at the top."""
    text = "modelPath = top ; traceLevel = 1 ; maxEpochs = 9 ; minibatchSize = 8\n test = { maxEpochs = 5 }\n"
    text += "train = { maxEpochs = 7 ; f(x) = { epochSize = 4 }\n SGD = { minibatchSize = 16 } }"
    block = SGD.parse(text)
    assert (block["modelPath"], block["traceLevel"], block["maxEpochs"]) == ("top", 1, 7)
    assert (block["minibatchSize"].at(0), block["epochSize"]) == (16, 0)
    assert "maxEpochs = 7  # line 3, column 23" in block.describe()
    with pytest.raises(ConfigError, match="line 1, column 48.*maxEpochs takes a whole number"):
        SGD.parse(text.replace("maxEpochs = 9", "maxEpochs = x").replace("maxEpochs = 7 ;", ""))


def test_the_defaults_of_the_document_can_be_written_out():
    block = SGD.parse("""
        modelPath = ...
        parallelTrain = {
            dataParallelSGD = { gradientBits = (8*sizeof(precision)) # | 1 | 2
            }
            blockMomentumSGD = {
                blockSize = (120000 * #workers)
                blockMomentumAsTimeConstant = (-blockSize / log(1 - 1/#workers)) }
        }
    """)
    assert (block["modelPath"], block["gradientBits"].at(0), block["blockMomentumSGD.blockSize"]) == (None, 32, 120000)
    assert block["blockMomentumAsTimeConstant"] == 0  # of a single worker
    assert block["modelAveragingSGD.blockSize"] == 40000


def test_keys_are_inherited_by_blocks_inside():
    block = SGD.parse("numMiniBatch4LRSearch=7; parallelTrain = [ blockSize=9; blockMomentumSGD = [ blockSize = 5 ]]")
    assert (block["numMiniBatch4LRSearch"], block["modelAveragingSGD.blockSize"]) == (7, 9)
    assert block["blockMomentumSGD.blockSize"] == 5


def test_arguments_of_python():
    text = SGD.parse("minibatchSize = 128*2:1024; autoAdjust = { autoAdjustLR = searchBeforeEpoch }; useNAG = true")
    for block in (
        SGD(minibatchSize=[(2, 128), 1024], autoAdjust={"autoAdjustLR": "searchBeforeEpoch"}, useNAG=True),
        SGD(minibatchSize="128*2:1024", autoAdjustLR="SearchBeforeEpoch", useNAG="true"),
    ):
        assert {s.key.id: s.value for s in block.settings} == {s.key.id: s.value for s in text.settings}
    assert SGD(modelPath=Path("a#b/c"), clippingThresholdPerSample=np.inf)["modelPath"] == "a#b/c"
    assert SGD.parse("maxEpochs = 3", maxEpochs=5)["maxEpochs"] == 5
    assert [SGD.parse(f"useNAG = {text}")["useNAG"] for text in ("T", "1", "yes", "0", "F")] == [True] * 3 + [False] * 2


@pytest.mark.parametrize(("text", "place", "message"), [
    ("maxEpochs = 3\n  minibatchSze = 5", "line 2, column 3", "no key minibatchSze; did you mean minibatchSize?"),
    ("autoAdjust = {\n maxEpochs = 3 }", "line 2, column 2", "autoAdjust has no key maxEpochs: it belongs in SGD"),
    ("dataParallelSGD = { }", "line 1, column 1", "no block dataParallelSGD in SGD; it belongs in parallelTrain"),
    ("autoAdust = { autoAdjustLR = none }", "line 1, column 1", "no block autoAdust; did you mean autoAdjust?"),
    ("parallelTrain = {\n autoAdjust = {} }", "line 2, column 2", "there is no block autoAdjust in parallelTrain; it "
     "belongs in SGD"),
    ("maxEpochs = x", "line 1, column 13", "'x' is no number. maxEpochs takes a whole number"),
    ("maxEpochs = 4 momentumPerMB = 0.9", "line 1, column 29", "put it after a ; or on the next line. maxEpochs takes"),
    ("maxEpochs = 0", "line 1, column 13", "maxEpochs takes a whole number, such as 256 or 4*1024, at least 1"),
    ("maxEpochs = 2.5", "line 1, column 13", "maxEpochs = 2.5 is no whole number, or too large. maxEpochs takes"),
    ("minibatchSize = 64*1.5", "line 1, column 19", "the factor after * is a number of epochs, not 1.5"),
    ("dropoutRate = 0.5:1", "line 1, column 15", "at least 0 and below 1"),
    ("useNAG = maybe", "line 1, column 10", "useNAG takes true or false"),
    ("autoAdjust={autoAdjustLR=serchBeforeEpoch}", "line 1, column 26", "did you mean searchBeforeEpoch. autoAdjustLR "
     "takes one of none, searchBeforeEpoch, adjustAfterEpoch"),
    ("learningRatesPerSample = 0.1\nlearningRatesPerMB = 1", "line 2, column 22", "exclude each other: give one"),
    ("momentumPerMB = 0.9; momentumAsTimeConstant = 9", "line 1, column 17", "exclude each other: give one of them"),
    ("useNAG = true; gradUpdateType = adagrad", "line 1, column 10", "useNAG = true is for plain gradients"),
    ("maxEpochs = 1; MaxEpochs = 2", "line 1, column 16", "maxEpochs is given twice, first at line 1, column 1"),
    ("SGD = {\n maxEpochs = 3", "line 1, column 7", "{ is not closed; add } where the block ends"),
    ("SGD = [ maxEpochs = 3 }", "line 1, column 23", "} closes [ of line 1; expected ]"),
    ("SGD = { }\nSGD = { }", "line 2, column 1", "there are 2 SGD blocks"),
    ("maxEpochs 3", "line 1, column 1", "expected key = value, not 'maxEpochs 3'"),
    ("maxEpochs =", "line 1, column 1", "maxEpochs has no value"),
    ("modelPath = \"a", "line 1, column 13", "the quote \" is not closed"),
    ("modelPath = $there$", "line 1, column 13", "$there$ is not defined"),
    ("epoch = 3\nSGD = { maxEpochs = $epochs$ }", "line 2, column 21", "$epochs$ is not defined; did you mean $epoch$"),
    ("n = $m$\nm = $n$\nSGD = { maxEpochs = $n$ }", "line", "refers to itself"),
    ("maxEpochs = maxEpochs", "line 1, column 13", "maxEpochs refers to itself"),
    ("maxEpochs = 1/0", "line 1, column 14", "division by zero"),
    ("maxEpochs = 2^9999", "line 1, column 14", "this cannot be computed"),
    ("maxEpochs = " + "(" * 1000 + "1" + ")" * 1000, "line 1, column 54", "more than 40 nested parentheses"),
    ("autoAdjust = {" * 1000 + "}" * 1000, "line 1, column 15", "there is no block autoAdjust in autoAdjust"),
    ("autoAdjustMinibatch = true; minibatchSize = 64; minibatchSizeTuningMax = 32", "line 1, column 74",
     "minibatchSizeTuningMax = 32 is smaller than minibatchSize = 64"),
])
def test_mistakes(text, place, message):
    with pytest.raises(ConfigError) as error:
        SGD.parse(text)
    assert place in str(error.value.place) and message in error.value.problem


@pytest.mark.parametrize(("arguments", "message"), [
    ({"minibatchSze": 5}, "argument minibatchSze, line 1, column 1: SGD has no key minibatchSze; did you mean"),
    ({"maxEpochs": 2.5}, "argument maxEpochs, line 1, column 1: maxEpochs = 2.5 is no whole number"),
    ({"maxEpochs": object()}, "argument maxEpochs: <object object"),
    ({"autoAdjust": {"gradientBits": 2}}, "it belongs in dataParallelSGD"),
    ({"L2RegWeight": float("nan")}, "'nan' is no number"),
])
def test_mistakes_in_arguments(arguments, message):
    with pytest.raises(ConfigError, match=message.split("<")[0].replace("?", r"\?")):
        SGD(**arguments)


def test_the_package_is_still_the_learner():
    """`import cntkjax.sgd` binds the package where scripts call the learner."""
    w = C.parameter((2,), init=1)
    assert C.sgd([w], 0.1).update({w: np.array([4, -8], np.float32)}, 4)
    np.testing.assert_allclose(w.value, [0.9, 1.2])
    assert inspect.signature(C.sgd) == inspect.signature(C.learners.sgd) and C.sgd.SGD is SGD


def test_description_tells_every_value_and_parses_to_the_same_block():
    block = SGD.parse(TUTORIAL, momentumAsTimeConstant="20000*10:2500")
    again = SGD.parse(block.describe())
    assert {s.key.id: s.value for s in again.settings} == {s.key.id: s.value for s in block.settings}
    assert "learningRatesPerSample = 0.0078125*80:0.00078125*40:7.8125e-05  # line 5, column 30" in block.describe()
    assert "learnRateDecreaseFactor = 0.618  # default" in block.describe()
    assert all(f"{key.name} = " in block.describe() for key in KEYS)
