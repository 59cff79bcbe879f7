"""A process forked from one that has run programs."""

import os
import subprocess
import sys

import pytest

FORKED = """
import os, signal, warnings
import numpy as np
import cntk as C

warnings.simplefilter("ignore", RuntimeWarning)  # JAX's own, of the fork
x = C.input_variable(3)
z = C.reduce_sum(x)
data = np.ones((2, 3), np.float32)
z.eval({x: data})
if os.fork() == 0:
    signal.alarm(60)
    print("compiled before:", z.eval({x: data}).tolist(), flush=True)
    try:
        C.times(np.ones((3, 2), np.float32), np.ones((2, 2), np.float32)).eval()
    except RuntimeError as error:
        print("not compiled before:", error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_process_reports_that_it_cannot_compile_instead_of_hanging():
    process = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=True)
    assert "compiled before: [3.0, 3.0]" in process.stdout
    assert "get_context('spawn')" in process.stdout
