"""A run that is killed and started again ends as one that was not: rates, sizes, history and parameters."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.sgd import SGD
from tests.killing import assert_same_parameters, output_of

from .problems import X, Y, regression, trained


@pytest.mark.timeout(300)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_runs_that_are_killed_end_with_the_same_parameters(tmp_path):
    output = output_of(Path(__file__).with_name("restarted.py"), tmp_path, 6)
    assert all(int(killed) >= 3 for killed in re.findall(r"(\d+) killed", output))
    for name in ("searched", "adjusted"):
        straight, killed = tmp_path / f"{name}_undisturbed", tmp_path / f"{name}_killed"
        assert json.loads((killed / "history.json").read_text()) == json.loads((straight / "history.json").read_text())
        assert_same_parameters(straight, killed)


def test_a_finished_run_trains_no_more_and_a_longer_one_goes_on(tmp_path):
    def train(epochs):
        loss = regression()
        block = SGD(learningRatesPerSample=0.01, minibatchSize=4, maxEpochs=epochs, modelPath=tmp_path / "m")
        return block.train(loss, (X, Y), progress_writers=[]), loss.parameters[0].value

    first, weights = train(2)
    again, same = train(2)
    assert again == first
    np.testing.assert_array_equal(same, weights)
    longer, _ = train(4)
    assert longer.epochs[:2] == first.epochs and len(longer) == 4


def test_a_run_says_from_what_it_goes_on(tmp_path, capsys):
    for epochs in (1, 3):
        block = SGD(learningRatesPerSample=0.01, minibatchSize=4, maxEpochs=epochs, modelPath=tmp_path / "m")
        block.train(regression(), (X, Y), cv_source=(X, Y))
    first, second = capsys.readouterr().out.split("Restored from ")
    assert second.startswith(f"{tmp_path}/m.1, which has 1 of 3 epochs\n")
    assert "Finished Epoch[1 of 1]" in first and "Finished Evaluation [1]" in first
    assert "Finished Epoch[2 of 3]" in second and "Finished Evaluation [2]" in second


def test_a_checkpoint_of_something_else_is_an_error(tmp_path):
    loss = regression()
    trainer = C.Trainer(None, (loss, None), [C.sgd(loss.parameters, 0.1)])
    trainer.save_checkpoint(str(tmp_path / "m.1"))
    with pytest.raises(ValueError, match=r"m\.1' was not written by an SGD block: change modelPath"):
        trained(loss, modelPath=tmp_path / "m", learningRatesPerSample=0.01)
