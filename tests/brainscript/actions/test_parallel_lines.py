"""What is logged about training on several workers: the lines of CNTK's logs, in which there were two."""

import pytest

from cntkjax.brainscript.actions import parallel_lines
from cntkjax.brainscript.actions.sgd_block import settings_of
from cntkjax.brainscript.log import Log
from cntkjax.configuration import load
from cntkjax.sgd import SGD

MERGING = ("Parallel training (2 workers) using BlockMomentumSGD with block momentum = 0.5000, block momentum time "
           "constant (per worker) = 2954.6394, block learning rate = 1.0000, block size per worker = 2048 samples, "
           "using Nesterov-style block momentum, resetting SGD momentum after sync.")  # Speech/DNN/ParallelBM
READING = ", distributed reading is ENABLED"
SUMMING = ", DataParallelSGD training (myRank = 1, numNodes = 2, numGradientBits = {})"


@pytest.mark.parametrize(("block", "expected"), [
    ("parallelizationMethod = none", ("", "", "")),
    ("parallelizationMethod = DataParallelSGD ; DataParallelSGD = [ gradientBits = 2:1 ]",
     ("Initializing dataParallelSGD for 2-bit quantization.", "", SUMMING.format(1) + READING)),
    ("parallelizationMethod = DataParallelSGD ; distributedMBReading = false",
     ("Initializing dataParallelSGD with FP32 aggregation.", "", SUMMING.format(32))),
    ("parallelizationMethod = BlockMomentumSGD ; BlockMomentumSGD = [ blockSize = 4096 ]", ("", MERGING, READING)),
    ("parallelizationMethod = ModelAveragingSGD", ("", "Parallel training (2 workers) using ModelAveraging", READING)),
])
def test_lines_are_those_of_cntk(monkeypatch, block, expected):
    monkeypatch.setattr(parallel_lines.workers, "size", lambda: 2)
    monkeypatch.setattr(parallel_lines.workers, "rank", lambda: 1)
    text = f"maxEpochs = 3 ; learningRatesPerMB = 1 ; ParallelTrain = [ parallelizationStartEpoch = 2 ; {block} ]"
    settings = SGD.parse(text).settings
    assert (parallel_lines.initialization(settings), *parallel_lines.methods(settings, 2)) == expected
    assert parallel_lines.methods(settings, 1) == ("", "")


@pytest.mark.parametrize("block", [
    "BlockMomentumSGD;BlockMomentumSGD=[blockSizePerWorker=2048]",
    "BlockMomentumSGD;BlockMomentumSGD=[syncPeriod=1024*2]",
    "ModelAveragingSGD;ModelAveragingSGD=[SyncFrequencyInFrames=2048]",
])
def test_sizes_of_blocks_may_be_those_of_a_worker(monkeypatch, block, capfd):
    monkeypatch.setattr(parallel_lines.workers, "size", lambda: 2)
    train = load(["parallelTrain=true", f"SGD=[maxEpochs=3;ParallelTrain=[parallelizationMethod={block}]]"])
    settings = settings_of(train, "m.dnn", Log())
    method = settings["parallelizationMethod"]
    assert settings[f"{method}.blockSize"] == 4096 and "WARNING" not in capfd.readouterr().err
