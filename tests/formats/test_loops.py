"""Models with recurrent loops of all forms, as CNTK 2.7 saved them (loops/record.py), compute what they do in CNTK."""

import json
from pathlib import Path

import numpy as np
import pytest

import cntkjax as C
from tests.formats.loops.forms import FORMS, results

FOLDER = Path(__file__).resolve().parent / "loops"
RECORDED = json.loads((FOLDER / "results.json").read_text())


def assert_equal(actual, name):
    expected = RECORDED[name]
    assert actual.keys() == expected.keys()
    for variable, value in expected.items():
        for a, e in zip(actual[variable], value, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6, err_msg=variable)


@pytest.mark.parametrize("name", FORMS)
def test_loops_that_cntk_saved_have_its_values_and_gradients(name):
    assert_equal(results(C, C.load_model(FOLDER / f"{name}.model")), name)


@pytest.mark.parametrize("name", FORMS)
def test_loops_that_are_built_here_are_saved_and_loaded_with_the_same_numbers(name, tmp_path):
    f = FORMS[name](C)
    f.save(tmp_path / "model")
    loaded = C.load_model(tmp_path / "model")
    assert (loaded.shape, loaded.dynamic_axes) == (f.shape, f.dynamic_axes)
    assert_equal(results(C, loaded), name)
