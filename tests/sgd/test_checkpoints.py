"""The files of a run: a checkpoint after each epoch, and what goes on from them."""

import numpy as np
import pytest

import cntkjax as C
from cntkjax.sgd import SGD
from tests.sgd.problems import RATE, X, Y, regression, trained


def test_modelPath_and_keepCheckPointFiles(tmp_path):
    loss = regression()
    trained(loss, **RATE, maxEpochs=3, modelPath=tmp_path / "a" / "m")
    assert sorted(f.name for f in (tmp_path / "a").iterdir()) == ["m", "m.1", "m.2", "m.3", "m.3.ckp"]
    model = C.load_model(tmp_path / "a" / "m")
    np.testing.assert_array_equal(model.find_by_name("w").value, loss.find_by_name("w").value)
    trained(**RATE, maxEpochs=2, modelPath=tmp_path / "b" / "m", keepCheckPointFiles=True)
    assert sorted(f.name for f in (tmp_path / "b").iterdir()) == ["m", "m.1", "m.1.ckp", "m.2", "m.2.ckp"]


def test_saveBestModelPerCriterion_keeps_the_epoch_that_is_best_on_validation_data(tmp_path):
    loss = regression()
    error = C.abs(C.minus(*loss.root_function.inputs[:2]), name="error")
    block = SGD(**RATE, maxEpochs=6, modelPath=tmp_path / "m", saveBestModelPerCriterion=True)
    history = block.train((loss, error), (X, Y), cv_source=(X[:6], -Y[:6]), progress_writers=[])
    names = {"loss": [e.cv_loss for e in history], "error": [e.cv_metric for e in history]}
    assert any(values.index(min(values)) < 5 for values in names.values())
    for name, values in names.items():
        best = values.index(min(values)) + 1
        assert history.best()[name].number == best
        copied, kept = (C.load_model(tmp_path / file) for file in (f"m_{name}", f"m.{best}"))
        np.testing.assert_array_equal(copied.find_by_name("w").value, kept.find_by_name("w").value)


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
