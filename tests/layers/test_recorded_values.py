"""Outputs and gradients of layers are those of CNTK 2.7 with the same weights, as recorded by cases.py."""

import json
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from tests.layers.cases import CASES, digest, numbers

RECORDED = json.loads((Path(__file__).parent / "numbers.json").read_text())


@pytest.mark.parametrize("call", CASES)
def test_outputs_and_gradients_are_those_of_cntk(call):
    computed, recorded = numbers(C, call), RECORDED[call]
    assert len(computed) == len(recorded)
    for values, (size, total, squares, waves) in zip(computed, recorded, strict=True):
        size_now, *now = digest(values)
        assert size_now == size
        scale = np.sqrt(squares * size)  # sums cancel: their error is relative to their terms
        np.testing.assert_allclose(now, [total, squares, waves], rtol=2e-5, atol=1e-5 * scale)


def test_all_cases_are_recorded():
    assert list(RECORDED) == list(CASES)
