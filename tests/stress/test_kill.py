"""Training that is killed repeatedly ends with the same parameters as without interruption."""

import os
import re
from pathlib import Path

import pytest

from tests.killing import assert_same_parameters, output_of

from .training import LONGER

KILLS = 50 * LONGER


@pytest.mark.timeout(300 * LONGER)  # 20 seconds on an idle machine
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_training_that_is_killed_50_times_ends_with_the_same_parameters(tmp_path):
    output = output_of(Path(__file__).with_name("killed.py"), tmp_path, KILLS)
    killed, restored = map(int, re.findall(r"(\d+) (?:killed|restored)", output))
    assert killed == KILLS
    assert restored >= 0.6 * KILLS  # the others were killed while they started
    assert assert_same_parameters(tmp_path / "undisturbed", tmp_path / "killed") == 9
    assert sorted(f.name for f in (tmp_path / "killed").iterdir()) == ["model", "model.ckp", "trained.npz"]
