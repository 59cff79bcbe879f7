"""Training that is killed repeatedly ends with the same parameters as without interruption."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.timeout(300)  # 20 seconds on an idle machine
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_training_killed_50_times_ends_with_the_same_parameters(tmp_path):
    here = Path(__file__).parent
    run = [sys.executable, here / "killed.py", tmp_path, "50"]
    environment = {**os.environ, "PYTHONPATH": str(here.parents[1] / "src"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(run, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    killed, restored = map(int, re.findall(r"(\d+) (?:killed|restored)", done.stdout))
    assert killed == 50
    assert restored >= 30  # the others were killed while they started
    ends = []
    for name in ("undisturbed", "killed"):
        with np.load(tmp_path / name / "trained.npz") as npz:
            ends.append(dict(npz))
    straight, broken = ends
    assert len(straight) == 9
    for name in straight:
        np.testing.assert_array_equal(straight[name], broken[name])
    assert sorted(f.name for f in (tmp_path / "killed").iterdir()) == ["model", "model.ckp", "trained.npz"]
