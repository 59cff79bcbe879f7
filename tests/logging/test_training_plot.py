"""Plots of training: the figures of logs and of results, and the panels that show them."""

import numpy as np
import pytest

import cntk as C
from cntkjax.logging._training_plot import curves_of

pytest.importorskip("matplotlib", reason="matplotlib is the extra 'plot'")


def train(path, freq, metric_is_pct=True):
    """Twelve minibatches of 8 in two epochs with two rates; the averages that were printed, by minibatch."""
    x, y = C.input_variable(2), C.input_variable(2)
    z = C.layers.Dense(2, init=0.1)(x)
    rates = C.learning_parameter_schedule([0.1, 0.02], minibatch_size=C.learners.IGNORE, epoch_size=48)
    printer = C.logging.ProgressPrinter(freq=freq, log_to_file=str(path), metric_is_pct=metric_is_pct, first=0)
    criteria = C.cross_entropy_with_softmax(z, y), C.classification_error(z, y)
    trainer = C.Trainer(z, criteria, [C.sgd(z.parameters, rates)], [printer])
    data, labels = np.float32([[1, 2]] * 6 + [[2, -1]] * 2), np.float32([[1, 0]] * 8)
    losses = []
    for i in range(12):
        trainer.train_minibatch({x: data, y: labels})
        losses.append(trainer.previous_minibatch_loss_average)
        if i % 6 == 5:
            trainer.summarize_training_progress()
    return losses


def test_a_log_of_minibatches_is_read(tmp_path):
    losses = train(tmp_path / "a.log", freq=1)
    curves = curves_of(tmp_path / "a.log")
    assert curves.samples == list(range(8, 97, 8)) and curves.in_percent
    np.testing.assert_allclose(curves.losses, losses, atol=1e-6)
    assert curves.rates == [(0, 0.1), (48, 0.02)]


def test_a_log_in_the_form_of_a_table_is_read(tmp_path):
    losses = train(tmp_path / "a.log", freq=0, metric_is_pct=False)
    curves = curves_of(tmp_path / "a.log")
    assert curves.samples == [8, 24, 32, 48]  # after 1 and 3 minibatches of each epoch, counted anew
    assert not curves.in_percent and curves.losses[0] == pytest.approx(losses[0], abs=5e-4)


def test_several_runs_are_drawn_with_their_names(tmp_path):
    train(tmp_path / "a.log", freq=2)
    train(tmp_path / "b.log", freq=3)
    figure = C.logging.plot_training({"a": tmp_path / "a.log", "b": tmp_path / "b.log"}, tmp_path / "runs.png")
    assert [axes.get_title() for axes in figure.axes] == ["loss", "metric [%]", "learning rate"]
    assert [line.get_label() for line in figure.axes[0].lines] == ["a", "b"]
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [6, 4]
    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")


def test_the_result_of_function_train_is_drawn():
    x = C.input_variable(2)
    criterion = C.squared_error(C.layers.Dense(1)(x), C.input_variable(1))
    printer = C.logging.ProgressPrinter(freq=2)
    learner = C.sgd(criterion.parameters, C.learning_parameter_schedule(0.01))
    data = np.ones((64, 2), np.float32), np.ones((64, 1), np.float32)
    trained = criterion.train(data, parameter_learners=[learner], minibatch_size=8, callbacks=[printer])
    figure = C.logging.plot_training(trained)
    assert figure.axes[0].lines[0].get_xdata()[-1] == 64


def test_a_file_without_figures_is_an_error_that_names_it(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing here\n")
    with pytest.raises(ValueError, match=r"notes.txt has no lines that a ProgressPrinter writes"):
        C.logging.plot_training(tmp_path / "notes.txt")
