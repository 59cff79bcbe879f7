"""The public names of CNTK 2.7, with their parameters and defaults."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[2] / "shared" / "api" / "check.py"


@pytest.mark.skipif(not CHECK.exists(), reason="needs the list of CNTK's names in ../shared/api")
def test_every_public_name_of_cntk_exists_with_its_parameters():
    process = subprocess.run([sys.executable, CHECK], capture_output=True, text=True)
    *_, score = process.stdout.splitlines()
    differing = [line for line in process.stdout.splitlines() if line.startswith(("missing", "different"))]
    assert not differing and "2452/2452" in score, score
