"""NVIDIA GPUs of this machine that JAX does not use, and what to do about it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from ..._user_code import warn
from .devices import accelerators
from .versions import option

INSTALL = 'pip install "jax[cuda12]"'


def gpus(root: Path = Path("/")) -> list[str]:
    """The names of this machine's NVIDIA GPUs, as the driver tells them; `root`: the folder that has proc."""
    names = []
    for file in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        facts = dict(line.split(":", 1) for line in file.read_text(errors="replace").splitlines() if ":" in line)
        names.append(facts.get("Model", "a GPU").strip())
    return names or _listed_by_program()


def _listed_by_program() -> list[str]:
    """The names that nvidia-smi prints; under WSL there is no folder of GPUs in /proc."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        answer = subprocess.run([program, "-L"], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = answer.stdout.splitlines() if answer.returncode == 0 else []
    return [line.partition(":")[2].partition("(UUID")[0].strip() for line in lines if line.startswith("GPU ")]


def advice() -> str:
    """What makes JAX use the GPUs of this machine; '' if it uses one, or was told not to."""
    platforms = option("jax_platforms") or os.environ.get("JAX_PLATFORMS")
    if accelerators():
        return ""
    if sys.platform == "win32":
        return "JAX has no GPU on native Windows: run this under WSL2"
    if platforms:
        return f"JAX_PLATFORMS={platforms} hides the GPU from JAX"
    return f"JAX does not see the GPU: {INSTALL}"


@cache
def warn_of_unused_gpus() -> None:
    """Warn once if this machine has a GPU, and JAX computes on the CPU without having been told so."""
    text = advice()
    if INSTALL in text and (names := gpus()):
        warn(
            f"this machine has {', '.join(names)}, but programs run on the CPU. {text}; or set JAX_PLATFORMS=cpu",
            RuntimeWarning,
        )


__all__ = ["INSTALL", "advice", "gpus", "warn_of_unused_gpus"]
