"""The memory of one step is reused in the next: counted in page faults, in a separate process."""

import os
import subprocess
import sys

import pytest

from cntkjax.engine.xla.allocator import keep_freed_memory

SCRIPT = """
import resource
import cntkjax as C

model = C.tanh(C.parameter((17 << 20,), init=1))  # 68 MB: more than a thread's own arena of glibc holds
for _ in range(20):  # each thread that allocates buffers keeps its own
    model.eval()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    model.eval()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
"""


def faults(**environment):
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return int(process.stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="only glibc can be configured to keep memory")
def test_steps_reuse_buffers_without_page_faults():
    assert faults(CNTKJAX_KEEP_MEMORY="1") < 0.1 * faults(CNTKJAX_KEEP_MEMORY="0")
