"""The devices that JAX sees, and advice where it does not see a GPU that is there."""

import os
import subprocess
import sys

import pytest

from cntkjax.engine.xla import devices
from cntkjax.engine.xla.devices import accelerators


@pytest.fixture
def with_gpu(tmp_path):
    """Runs Python where nvidia-smi reports a GPU that JAX cannot use; returns what it prints."""
    program = tmp_path / "nvidia-smi"
    program.write_text("""#!/bin/sh
        [ "$1" = -L ] && echo "GPU 0: NVIDIA H200 (UUID: GPU-1234)" || echo "NVIDIA H200, 550.54.15"
    """)
    program.chmod(0o755)

    def run(*arguments, platforms=""):
        environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JAX_PLATFORMS": platforms}
        result = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=100, check=True
        )
        return result.stdout + result.stderr

    return run


@pytest.mark.skipif(bool(accelerators()), reason="JAX uses an accelerator here")
@pytest.mark.parametrize("platforms, advice", [
    ("cpu", "JAX_PLATFORMS=cpu hides the GPU from JAX"), ("", 'JAX does not see the GPU: pip install "jax[cuda12]"'),
])
def test_doctor_explains_why_a_gpu_is_not_used(with_gpu, platforms, advice):
    lines = [line.strip() for line in with_gpu("-m", "cntkjax", "doctor", platforms=platforms).splitlines()]
    assert "NVIDIA: NVIDIA H200, driver 550.54.15" in lines and advice in lines


@pytest.mark.skipif(bool(accelerators()), reason="JAX uses an accelerator here")
def test_the_first_computation_says_once_that_a_gpu_is_not_used(with_gpu):
    script = "import cntk as C; [C.reduce_sum(C.constant([1] * n)).eval() for n in (2, 3)]"
    output = with_gpu("-W", "always", "-c", script)
    assert output.count("this machine has NVIDIA H200, but programs run on the CPU") == 1
    assert 'pip install "jax[cuda12]"' in output and "JAX_PLATFORMS=cpu" in output
    assert "NVIDIA" not in with_gpu("-W", "always", "-c", script, platforms="cpu")  # the user has chosen


def test_jax_without_a_cpu_has_a_default_device(monkeypatch):
    """`JAX_PLATFORMS=cuda` leaves none."""
    def fail():
        raise RuntimeError("Unknown backend cpu")

    device = devices.host()
    monkeypatch.setattr(devices, "accelerators", lambda: (device,))
    monkeypatch.setattr(devices, "hosts", fail)
    assert devices.default_device() is device
