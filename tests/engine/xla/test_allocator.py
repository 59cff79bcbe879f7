"""The memory of one step is reused in the next, and what compilations leave is returned: in page faults and pages."""

import ctypes
import os
import subprocess
import sys

import pytest

from cntkjax.engine.xla.allocator import _PROGRAMS, count_program, keep_freed_memory

SCRIPT = """
import resource
import cntkjax as C

model = C.tanh(C.parameter((17 << 20,), init=1))  # 68 MB: more than a thread's own arena of glibc holds
faults = []
for _ in range(41):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    model.eval()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sorted(faults)[20])  # of most steps: each thread that allocates buffers keeps its own, after its first one
"""


def faults(**environment):
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return int(process.stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="only glibc can be configured to keep memory")
def test_steps_reuse_buffers_without_page_faults():
    assert faults(CNTKJAX_KEEP_MEMORY="1") < 0.1 * faults(CNTKJAX_KEEP_MEMORY="0")


def test_glibc_is_left_alone_where_a_gpu_computes():
    script = "from cntkjax.engine.xla.allocator import keep_freed_memory; print(keep_freed_memory())"
    answers = {
        platforms: subprocess.run(
            [sys.executable, "-c", script], env=os.environ | {"JAX_PLATFORMS": platforms, "CNTKJAX_KEEP_MEMORY": "1"},
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for platforms in ("cuda,cpu", "cpu")
    }
    assert answers["cuda,cpu"] == "False"
    assert answers["cpu"] == ("True" if sys.platform.startswith("linux") else "False")


def resident():
    """Resident bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not keep_freed_memory(), reason="only glibc can be configured to keep memory")
def test_pages_between_small_pieces_that_stay_are_returned_after_some_programs():
    libc = ctypes.CDLL("libc.so.6")
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    pieces = [libc.malloc(10_000) for _ in range(10_000)]
    for piece in pieces:
        ctypes.memset(piece, 1, 10_000)
    for i, piece in enumerate(pieces):
        if i % 100:
            libc.free(piece)
    before = resident()
    for _ in range(_PROGRAMS):
        count_program()
    assert resident() < before - 80e6
    for piece in pieces[::100]:
        libc.free(piece)
