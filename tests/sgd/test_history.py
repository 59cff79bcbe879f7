"""The history of a training: drawn, and as text."""

import math

import numpy as np
import pytest

from cntkjax.sgd import History
from tests.sgd.problems import epochs_of, searched


def test_history_is_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    history = searched(0.01)[1]
    figure = history.plot(tmp_path / "h.svg")
    loss, rate, size = figure.axes
    np.testing.assert_allclose(loss.lines[0].get_ydata(), history.losses)
    np.testing.assert_allclose(rate.lines[-1].get_ydata(), history.rates)
    np.testing.assert_allclose(size.lines[0].get_ydata(), [10, 10, 10])
    assert [label.get_text() for label in size.get_yticklabels()] == ["10"]  # sizes are read as numbers
    assert (tmp_path / "h.svg").stat().st_size > 1000


def test_history_survives_text():
    history = History(epochs_of([1.0, math.inf], cv_loss=[0.1, None], trials=[((0.1, math.inf),), ()]))
    assert History.from_text(history.to_text()) == history
