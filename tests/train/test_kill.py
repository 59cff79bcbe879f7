"""Training that is killed repeatedly ends with the same parameters as without interruption."""

import os
import re
from pathlib import Path

import pytest

from tests.killing import assert_same_parameters, output_of


@pytest.mark.timeout(300)  # 20 seconds on an idle machine
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_training_killed_50_times_ends_with_the_same_parameters(tmp_path):
    output = output_of(Path(__file__).with_name("killed.py"), tmp_path, 50)
    killed, restored = map(int, re.findall(r"(\d+) (?:killed|restored)", output))
    assert killed == 50
    assert restored >= 30  # the others were killed while they started
    assert assert_same_parameters(tmp_path / "undisturbed", tmp_path / "killed") == 9
    assert sorted(f.name for f in (tmp_path / "killed").iterdir()) == ["model", "model.ckp", "trained.npz"]
