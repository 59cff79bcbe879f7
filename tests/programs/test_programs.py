"""Programs written for CNTK 2.7 run here and compute the results recorded from it.

Source: recorded.json, written by record.py on CNTK 2.7 (CPU). Where CNTK itself stops with an error ("not implemented"
on its CPU), the program has to run and to give finite numbers.
"""

import importlib
import json
import math
from pathlib import Path

import pytest

from tests.programs.common import MODULES, PROGRAMS, summary

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "recorded.json").read_text())
for module in MODULES:
    importlib.import_module(f"tests.programs.{module}")

pytestmark = pytest.mark.filterwarnings("default")  # of old names that these scripts still use


def leaves(value, path):
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{path}.{key}")
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from leaves(part, f"{path}[{i}]")
    else:
        yield path, value


def scale_of(expected):
    sizes = [abs(v) for _, v in leaves(expected, "") if isinstance(v, float)]
    return max(sizes, default=0.0)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_program_computes_what_was_recorded_from_cntk(name):
    expected = RECORDED[name]
    results = {key: summary(value) for key, value in PROGRAMS[name]().items()}
    if "error" in expected:
        assert all(math.isfinite(v) for _, v in leaves(results, name) if isinstance(v, float))
        return
    assert results.keys() == expected.keys()
    for key in expected:
        reference, actual = dict(leaves(expected[key], key)), dict(leaves(results[key], key))
        texts = {path: value for path, value in reference.items() if not isinstance(value, (int, float))}
        assert {path: actual.pop(path, None) for path in texts} == texts
        rest = {path: value for path, value in reference.items() if path not in texts}
        assert actual == pytest.approx(rest, rel=2e-4, abs=2e-5 + 1e-5 * scale_of(expected[key]))
