"""Runs the tests of packages that were ported, where their library is installed."""

import os
import subprocess
import sys

import pytest

# Keras 3 cannot be installed beside Keras 2, which other tests use: another Python may have it (`make test-ports`).
_PYTHONS = [sys.executable, os.environ.get("CNTKJAX_PORTS_PYTHON", "")]
_NEEDS = {"torch": "torch", "flax": "flax", "keras": "keras.ops", "cntk": "cntkjax"}  # Keras 2 has no `ops`


def _can_import(python, module):
    find = f"import importlib.util as u; raise SystemExit(u.find_spec({module.split('.')[0]!r}) is None)"
    if subprocess.run([python, "-c", find]).returncode:
        return False
    return "." not in module or not run(python, "-c", f"import {module}").returncode


def run(python, *arguments):
    """The finished process."""
    environment = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", **os.environ}
    return subprocess.run([python, *map(str, arguments)], capture_output=True, text=True, env=environment)


def python_with(target):
    """A Python that has the library of a target; the test is skipped where there is none."""
    for python in filter(None, _PYTHONS):
        if _can_import(python, _NEEDS[target]):
            return python
    pytest.skip(f"no Python with {target}: CNTKJAX_PORTS_PYTHON can name one")


def passed(folder, python=sys.executable):
    """The number of packages in a folder, all of which have passed their tests."""
    tests = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder)
    assert tests.returncode == 0, tests.stdout + tests.stderr
    return int(tests.stdout.split(" passed")[0].split()[-1])
