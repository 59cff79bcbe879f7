"""A run that is killed and started again ends as one that was not: rates, sizes, history and parameters."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.killing import assert_same_parameters, output_of


@pytest.mark.timeout(300)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_runs_that_are_killed_end_with_the_same_parameters(tmp_path):
    output = output_of(Path(__file__).with_name("restarted.py"), tmp_path, 6)
    assert all(int(killed) >= 3 for killed in re.findall(r"(\d+) killed", output))
    for name in ("searched", "adjusted"):
        straight, killed = tmp_path / f"{name}_undisturbed", tmp_path / f"{name}_killed"
        assert json.loads((killed / "history.json").read_text()) == json.loads((straight / "history.json").read_text())
        assert_same_parameters(straight, killed)
