"""Deep networks that are compiled on three sides."""

import importlib

import numpy as np
import pytest

from benchmarks import deep


@pytest.fixture
def shallow(monkeypatch):
    monkeypatch.setattr(deep, "LAYERS", 1)


@pytest.mark.parametrize("side", deep.SIDES)
def test_each_side_trains(side, shallow):
    step = importlib.import_module(f"benchmarks.{deep.SIDES[side]}").trained("transformer24")
    losses = [step() for _ in range(3)]
    assert losses[2] < losses[0] < 4


def test_the_first_step_is_measured_apart_from_later_ones():
    losses = iter([1.0] * (1 + deep.LATER))
    result = deep.measured(lambda: np.linalg.norm(np.ones((300, 300))) * next(losses))
    assert set(result) == {"first", "later"} and next(losses, None) is None
