"""A run that is killed and started again ends as one that was not: rates, sizes, history and parameters."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from cntkjax.sgd import SGD

from .problems import X, Y, regression

HERE = Path(__file__).parent


@pytest.mark.timeout(300)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_runs_that_are_killed_end_with_the_same_parameters(tmp_path):
    run = [sys.executable, HERE / "restarted.py", tmp_path, "6"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(run, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(int(killed) >= 3 for killed in re.findall(r"(\d+) killed", done.stdout))
    for name in ("searched", "adjusted"):
        straight, killed = tmp_path / f"{name}_undisturbed", tmp_path / f"{name}_killed"
        assert json.loads((killed / "history.json").read_text()) == json.loads((straight / "history.json").read_text())
        with np.load(straight / "trained.npz") as a, np.load(killed / "trained.npz") as b:
            for key in a.files:
                np.testing.assert_array_equal(a[key], b[key], err_msg=f"{name} {key}")
        assert sorted(f.name for f in killed.iterdir()) == sorted(f.name for f in straight.iterdir())


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


def test_a_checkpoint_of_something_else_is_an_error(tmp_path):
    loss = regression()
    trainer = C.Trainer(None, (loss, None), [C.sgd(loss.parameters, 0.1)])
    trainer.save_checkpoint(str(tmp_path / "m.1"))
    with pytest.raises(ValueError, match=r"m\.1' was not written by an SGD block: change modelPath"):
        SGD(learningRatesPerSample=0.01, maxEpochs=1, modelPath=tmp_path / "m").train(loss, (X, Y), progress_writers=[])
