"""The doctor reports the device, the versions, and how to install what is missing."""

import importlib.util
import subprocess
import sys

import jax

from cntkjax.cli import _doctor, main


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
