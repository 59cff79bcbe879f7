"""Model files of CNTK 2.7 load, and have its outputs, parameters and gradients (tests/golden/models)."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cntkjax as C

MODELS = Path(__file__).resolve().parents[1] / "golden" / "models"
ENTRIES = {entry["name"]: entry for entry in json.loads((MODELS / "index.json").read_text())["models"]}
COMPUTED = [name for name, e in ENTRIES.items() if e.get("deterministic") and "repeat" not in e]


def stored(arrays, entry):
    """Values in the layout of golden/README.md."""

    def array(key):
        if not entry["layout"].startswith("sparse"):
            return arrays[key]
        data, indices, pointers, shape = (arrays[f"{key}_{part}"] for part in ("data", "indices", "indptr", "shape"))
        return csr_matrix((data, indices, pointers), shape)

    if entry["layout"].endswith("sequences"):
        return [array(f"{entry['key']}_s{i}") for i in range(entry["count"])]
    return array(entry["key"])


@pytest.fixture
def model(request, monkeypatch):
    """A function, its entry, its arrays, and data for its arguments."""
    monkeypatch.syspath_prepend(MODELS)
    importlib.import_module("user_functions")  # of the model user_function
    entry = ENTRIES[request.param]
    function, arrays = C.load_model(MODELS / entry["file"]), np.load(MODELS / entry["data"])
    fed = {a: stored(arrays, e) for a, e in zip(function.arguments, entry["arguments"], strict=True)}
    return function, entry, arrays, fed


def assert_close(actual, expected):
    """`expected`: an array, or one for each sequence."""
    pairs = zip(actual, expected, strict=True) if isinstance(expected, list) else [(actual, expected)]
    for a, e in pairs:
        tolerance = 1e-5 if e.dtype == np.float32 else 1e-9
        a = a.toarray() if hasattr(a, "toarray") else a
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance * max(1, np.abs(e).max()))


@pytest.mark.parametrize("model", COMPUTED, indirect=True)
def test_values_and_parameters_are_those_of_cntk(model):
    function, entry, arrays, fed = model
    for mine, theirs in zip(function.parameters, entry["parameters"], strict=True):
        np.testing.assert_array_equal(mine.value, arrays[theirs["value_key"]])
    values = function.eval(fed)
    values = [values[v] for v in function.outputs] if len(function.outputs) > 1 else [values]
    for value, output in zip(values, entry["outputs"], strict=True):
        assert_close(value, stored(arrays, output))


@pytest.mark.parametrize("model", [name for name in COMPUTED if "gradient" in ENTRIES[name]], indirect=True)
def test_gradients_are_those_of_cntk(model):
    function, entry, arrays, fed = model
    gradient = entry["gradient"]
    root = function.outputs[gradient["of_output"]]
    loss = C.combine([root]) if root.shape == () else C.reduce_sum(root, axis=C.Axis.all_static_axes())
    by_uid = {e["uid"]: p for p, e in zip(function.parameters, entry["parameters"], strict=True)}
    wrt = [by_uid[e["uid"]] for e in gradient["wrt"]]
    needed = {v: data for v, data in fed.items() if v in loss.arguments}
    values = loss.grad(needed, wrt=wrt, as_numpy=True)
    values = values if len(wrt) > 1 else {wrt[0]: values}
    for v, e in zip(wrt, gradient["wrt"], strict=True):
        assert_close(values[v], arrays[e["key"]])
