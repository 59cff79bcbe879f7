"""Runs a smoke set of tests on several versions of jax, each in a new environment: `make check-jax`.

These are the oldest that pyproject.toml allows, the newest, and a pre-release if there is a newer one. Arguments are
tests to run instead of the smoke set.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from check_wheel import ROOT, oldest_jax

SMOKE = (
    "tests/engine/xla/test_private_names.py", "tests/test_best_effort.py", "tests/engine/xla/test_compiler.py",
    "tests/engine/run/test_stored_executables.py", "tests/engine/run/test_program.py", "tests/engine/lower",
    "tests/test_dropin.py",
)
VERSION = "import jax, jaxlib; print(jax.__version__, jaxlib.__version__)"


def pip(python: Path, *arguments: str) -> None:
    """Run pip in an environment."""
    subprocess.run([python, "-m", "pip", "-q", "install", *arguments], check=True)


def environment(folder: Path, name: str, *requirements: str) -> tuple[Path, str]:
    """The Python of a new environment that has this checkout and a version of jax, and that version."""
    subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
    python = folder / name / "bin" / "python"
    pip(python, "-e", f"{ROOT}[test]", *requirements)
    return python, subprocess.run([python, "-c", VERSION], check=True, capture_output=True, text=True).stdout.strip()


def passes(python: Path, folder: Path, tests: list[str]) -> bool:
    """Whether the tests pass in an environment, with a store of compiled programs of its own."""
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    variables["CNTKJAX_CACHE_DIR"] = str(folder / "cache")
    return subprocess.run([python, "-m", "pytest", "-q", *tests], cwd=ROOT, env=variables, check=False).returncode == 0


def main(tests: list[str]) -> int:
    """Check every version; returns the number of those that fail."""
    with tempfile.TemporaryDirectory() as name:
        folder, checked, failed = Path(name), set(), []
        kinds = {"oldest": oldest_jax().split(), "newest": [], "pre-release": ["--pre", "--upgrade", "jax", "jaxlib"]}
        for kind, requirements in kinds.items():
            python, version = environment(folder, re.sub(r"\W", "-", kind), *requirements)
            if version in checked:
                print(f"{kind}: jax {version}, which has been checked")
                continue
            checked.add(version)
            works = passes(python, folder, tests)
            print(f"{kind}: jax {version} {'works' if works else 'FAILS'}", flush=True)
            failed += [version] * (not works)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(SMOKE)))
