"""The processes that run programs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WAITING = """
import subprocess, sys
from pathlib import Path
from tests.random_graphs.processes import wait

process = subprocess.Popen([sys.executable, "-c", "input()"])
print("waiting", flush=True)
print(wait(process, Path(sys.argv[1]), 0.5))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="Windows stops no processes")
def test_a_comparison_that_was_stopped_goes_on(tmp_path):
    results = tmp_path / "results"
    results.touch()
    command = [sys.executable, "-c", WAITING, str(results)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as comparison:
        assert comparison.stdin and comparison.stdout
        assert comparison.stdout.readline() == "waiting\n"
        os.kill(comparison.pid, signal.SIGSTOP)
        print(file=comparison.stdin, flush=True)  # what it waits for ends meanwhile
        time.sleep(1)
        os.kill(comparison.pid, signal.SIGCONT)
        assert comparison.stdout.read() == "status 0\n"
