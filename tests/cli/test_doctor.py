"""The doctor reports the device, the versions, and how to install what is missing."""

import importlib.util
import os
import re
import subprocess
import sys

import jax
import pytest

from cntkjax.cli import _compilations, _doctor, main
from cntkjax.engine.run.compilations import Compilation
from cntkjax.engine.xla import nvidia
from cntkjax.engine.xla.devices import accelerators


def test_doctor_reports_devices_and_versions_and_runs_a_network(capsys):
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    assert f"jax {jax.__version__}" in output and "CPU" in output and "(the default)" in output
    assert "a small network was compiled and run" in output


def test_doctor_has_the_pip_command_for_missing_packages(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(_doctor, "find_spec", lambda name: None if name == "mpi4py" else find_spec(name))
    line = next(line for line in _doctor.lines() if "mpi4py" in line)
    assert line.strip() == 'mpi4py is missing; for training over several processes: pip install "cntkjax[mpi]"'


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


def test_the_driver_lists_gpus_in_proc(tmp_path):
    for number, model in enumerate(["NVIDIA A100-SXM4-80GB", "NVIDIA L4"]):
        folder = tmp_path / "proc" / "driver" / "nvidia" / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 12\n")
    assert nvidia.gpus(tmp_path) == ["NVIDIA A100-SXM4-80GB", "NVIDIA L4"]


def test_python_m_cntkjax_runs_the_command():
    run = subprocess.run([sys.executable, "-m", "cntkjax", "--help"], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0 and "doctor" in run.stdout


def test_doctor_shows_the_stored_programs_and_clears_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path))
    for _ in range(2):  # the first report counts before its small network is stored
        main(["doctor"])
    line = next(line for line in capsys.readouterr().out.splitlines()[::-1] if "stored for later processes" in line)
    files = list(tmp_path.glob("*.program"))
    assert line.strip().startswith(f"{len(files)} stored") and "of at most 2000 MB" in line and str(tmp_path) in line
    assert main(["doctor", "--clear-cache"]) == 0
    assert capsys.readouterr().out.startswith(f"{len(files)} compiled programs, ")
    assert not list(tmp_path.glob("*.program"))


def test_doctor_says_that_the_cache_is_off(monkeypatch, capsys):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    assert main(["doctor", "--clear-cache"]) == 0
    assert "not stored for later processes" in capsys.readouterr().out


SCRIPT = """
import sys

import numpy as np

import cntkjax as C

assert sys.argv[1:] == ["--epochs", "3"]
x, w = C.input_variable(3), C.parameter(3)
loss = C.reduce_sum(C.square(x * w))
trainer = C.Trainer(loss, (loss, None), [C.sgd([w], 0.1)])
for count in (2, 900):
    trainer.train_minibatch({x: np.ones((count, 3), np.float32)})
"""


def test_the_compilations_of_a_script_are_listed_with_its_lines(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_compilations, "_SHORT", 0.0)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert main(["doctor", "--compile", str(script), "--epochs", "3"]) == 0
    output = capsys.readouterr().out
    line = r"s  the training step for minibatches of up to 900: \w+, \d+ operations, first needed at train.py:13"
    assert re.search(line, output)
    assert "one of 2 programs for minibatches of other sizes" in output


def test_large_graphs_get_advice():
    large = Compilation("the training step", 9.0, False, False, 5000, "train.py:3", 9.0)
    small = Compilation("an evaluation", 0.1, True, False, 5)
    text = "\n".join(_compilations.lines([small, large]))
    assert text.index("train.py:3") < text.index("C.layers.Recurrence") < text.index("an evaluation: loaded")


def test_a_script_that_is_missing_is_an_error(capsys):
    assert main(["doctor", "--compile"]) != 0
    assert "cntkjax doctor --compile train.py" in capsys.readouterr().err
