"""Builds a wheel and an sdist, and uses them in new virtual environments, as a user would: `make check-wheel`.

Each Python from 3.11 to 3.14 that is found on the PATH or below ~/.pyenv is taken, with the oldest jax that
pyproject.toml allows and with the newest; the sdist with the first Python only. With the first Python, too, the code
of each page of the documentation runs where only what the page says is installed, and each extra is used.
An extra argument is a Python to use instead of these; with --pages only the pages and extras are checked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "docs" / "site"))

import executed  # noqa: E402

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


EXTRAS = {  # code that uses an extra which no page uses
    "images": """
import os, tempfile
import cv2, numpy as np, cntk as C
with tempfile.TemporaryDirectory() as folder:
    cv2.imwrite(os.path.join(folder, "a.png"), np.full((4, 4, 3), 7, np.uint8))
    with open(os.path.join(folder, "map.txt"), "w") as file:
        print(os.path.join(folder, "a.png"), 0, sep="\\t", file=file)
    image = C.io.StreamDef("image", transforms=[C.io.transforms.scale(width=4, height=4, channels=3)])
    streams = C.io.StreamDefs(x=image, y=C.io.StreamDef("label", shape=1))
    source = C.io.MinibatchSource(C.io.ImageDeserializer(file.name, streams), randomize=False, max_sweeps=1)
    assert (source.next_minibatch(1)[source.streams.x].asarray() == 7).all()
""",
    "tensorboard": """
import tempfile, pathlib, cntk as C
with tempfile.TemporaryDirectory() as folder:
    writer = C.logging.TensorBoardProgressWriter(freq=1, log_dir=folder)
    writer.write_value("loss", 1.0, 1)
    writer.close()
    assert list(pathlib.Path(folder).iterdir())
""",
}
TOOLS = {"benchmarks", "browser", "docs", "test"}  # extras for work on the package itself, in a clone


def run(*command: object, PATH: str = os.environ["PATH"], **options: object) -> None:
    """Run a command in an environment without this checkout; its failure ends this program."""
    hidden = "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"
    environment = {k: v for k, v in os.environ.items() if k not in hidden} | {"PATH": PATH, "MPLBACKEND": "Agg"}
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


def check_pages(python: Path, wheel: Path, folder: Path) -> None:
    """Run the pages, and use the extras, each where only what it says is installed.

    One environment has the package; each set of requirements is installed in one that sees its packages.
    """
    run(python, "-m", "venv", folder / "base")
    run(folder / "base" / "bin" / "python", "-m", "pip", "install", "-q", wheel)
    pages: dict[tuple[str, ...], list[Path]] = {}
    for page in [*executed.PAGES, *executed.TUTORIALS]:
        pages.setdefault(tuple(executed.requirements(page.read_text("utf-8"))), []).append(page)
    for extra in EXTRAS:
        pages.setdefault((f"cntkjax[{extra}]",), [])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    used = {name for requirements in pages for text in requirements for name in extras_in(text)}
    if unused := set(project["optional-dependencies"]) - TOOLS - used:
        raise SystemExit(f"no page uses the extras {unused}: add code that does to EXTRAS")
    for number, (requirements, of_these) in enumerate(pages.items()):
        programs = [[ROOT / "docs" / "site" / "executed.py", page] for page in of_these]
        programs += [["-c", EXTRAS[name]] for text in requirements for name in extras_in(text) if name in EXTRAS]
        environment = extended(python, folder / "base", folder / f"extended{number}", wheel, requirements)
        for program in programs:
            print(*requirements, program[-1] if program[0] != "-c" else "", flush=True)
            with tempfile.TemporaryDirectory(dir=folder) as place:
                path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
                run(environment / "bin" / "python", *program, cwd=place, stdout=subprocess.DEVNULL, PATH=path)
        shutil.rmtree(environment)
    check_serving(python, folder)


def extras_in(requirement: str) -> list[str]:
    """The extras of this package in a requirement."""
    match = re.fullmatch(r"cntkjax\[(.*)\]", requirement)
    return match[1].split(",") if match else []


def extended(python: Path, base: Path, folder: Path, wheel: Path, requirements: Sequence[str]) -> Path:
    """An environment with requirements, which sees the packages of another one."""
    run(python, "-m", "venv", folder)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "base.pth").write_text(str(next(base.glob("lib/python*/site-packages"))))
    if requirements:
        names = [text.replace("cntkjax", str(wheel), 1) if extras_in(text) else text for text in requirements]
        run(folder / "bin" / "python", "-m", "pip", "install", "-q", *names)
    return folder


def check_serving(python: Path, folder: Path) -> None:
    """A StableHLO file is served as docs/serving.md says, without this package."""
    page = (ROOT / "docs" / "serving.md").read_text("utf-8")
    environment, place = folder / "serving", folder / "served"
    place.mkdir()
    base = folder / "base" / "bin" / "python"
    run(base, "-m", "pip", "install", "-q", "flatbuffers")
    program = "import cntk as C; C.relu(C.input_variable(784)).export_stablehlo('m.stablehlo')"
    run(base, "-c", program, cwd=place)
    run(python, "-m", "venv", environment)
    (packages,) = re.findall(r"`pip install (jax [^`]*)`", page)
    run(environment / "bin" / "python", "-m", "pip", "install", "-q", *packages.split())
    (code,) = (block for _, block in executed.blocks(page) if "another process" in block)
    run(environment / "bin" / "python", "-c", code, cwd=place)


def main(pythons: list[Path], only_pages: bool) -> None:
    """Build and check everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT, stdout=subprocess.DEVNULL)
        wheel, sdist = next(folder.glob("dist/*.whl")), next(folder.glob("dist/*.tar.gz"))
        check_pages(pythons[0], wheel, folder)
        if only_pages:
            return
        for python in pythons:
            for requirements in (oldest_jax(), ""):
                check(python, wheel, requirements, folder)
        check(pythons[0], sdist, "", folder)
        print(f"{wheel.name} and {sdist.name} install and work")


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:] if argument != "--pages"]
    main(paths or interpreters(), "--pages" in sys.argv)
