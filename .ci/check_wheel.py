"""Builds a wheel and an sdist, and uses them in new virtual environments, as a user would: `make check-wheel`.

Each Python from 3.11 to 3.14 that is found on the PATH or below ~/.pyenv is taken, with the oldest jax that
pyproject.toml allows and with the newest; the sdist with the first Python only.
An extra argument is a Python to use instead of these.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")

SMOKE_TEST = """
import os, sys, tempfile
import numpy as np
import cntk as C
assert "site-packages" in C.__file__, C.__file__
x, y = C.sequence.input_variable(3), C.input_variable(2)
model = C.layers.Sequential([C.layers.Recurrence(C.layers.LSTM(5)), C.sequence.last, C.layers.Dense(2)])(x)
loss = C.cross_entropy_with_softmax(model, y)
trainer = C.Trainer(model, (loss, C.classification_error(model, y)), [C.adam(model.parameters, 0.2, 0.9)])
rng = np.random.default_rng(0)
data = [rng.normal(size=(n, 3)).astype(np.float32) for n in (4, 2, 7, 3)]
labels = np.eye(2, dtype=np.float32)[[0, 1, 1, 0]]
losses = []
for _ in range(60):
    trainer.train_minibatch({x: data, y: labels})
    losses.append(trainer.previous_minibatch_loss_average)
assert losses[-1] < 0.7 * losses[0], losses
with tempfile.TemporaryDirectory() as folder:
    model.save(os.path.join(folder, "a.model"))
    again = C.load_model(os.path.join(folder, "a.model"))
np.testing.assert_array_equal(again.eval({again.arguments[0]: data}), model.eval({x: data}))
import jax
print("ok: python %d.%d, jax %s, numpy %s" % (*sys.version_info[:2], jax.__version__, np.__version__))
"""


def run(*command: object, **options: object) -> None:
    """Run a command in an environment without this checkout; its failure ends this program."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    subprocess.run([str(part) for part in command], check=True, env=environment, **options)  # type: ignore[call-overload]


def interpreters() -> list[Path]:
    """One Python of each version, as far as they are installed."""
    pythons = []
    for version in VERSIONS:
        pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}*/bin/python"))
        on_path = shutil.which(f"python{version}")
        if pyenv or on_path:
            pythons.append(pyenv[-1] if pyenv else Path(str(on_path)))
        else:
            print(f"python {version}: not installed, not checked")
    return pythons


def oldest_jax() -> str:
    """The requirement for the oldest jax that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = {re.split(">=", d)[0]: re.split(">=", d)[1] for d in project["dependencies"] if d.startswith("jax")}
    return " ".join(f"{name}=={version}" for name, version in lowest.items())


def check(python: Path, package: Path, requirements: str, folder: Path) -> None:
    """Install a package in a new environment and use it, away from the checkout."""
    environment = folder / f"venv-{python.parent.parent.name}-{package.suffix[1:]}-{len(requirements)}"
    run(python, "-m", "venv", environment)
    venv_python = environment / "bin" / "python"
    run(venv_python, "-m", "pip", "install", "-q", package, *requirements.split())
    run(venv_python, "-c", SMOKE_TEST, cwd=folder)
    with (folder / "doctor.txt").open("w") as output:
        run(environment / "bin" / "cntkjax", "doctor", cwd=folder, stdout=output)
    shutil.rmtree(environment)


def main(pythons: list[Path]) -> None:
    """Build and check everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT, stdout=subprocess.DEVNULL)
        wheel, sdist = next(folder.glob("dist/*.whl")), next(folder.glob("dist/*.tar.gz"))
        for python in pythons:
            for requirements in (oldest_jax(), ""):
                check(python, wheel, requirements, folder)
        check(pythons[0], sdist, "", folder)
        print(f"{wheel.name} and {sdist.name} install and work")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]] or interpreters())
