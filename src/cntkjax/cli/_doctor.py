"""``cntkjax doctor``: reports devices, versions and missing packages."""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

import numpy as np

from .. import _best_effort, device, layers, ops
from ..engine.xla import cache, nvidia
from ._compilations import run_script

REQUIRED = ("jax", "jaxlib", "numpy", "optax")
OPTIONAL = (  # distribution, module, purpose, extra
    ("onnx", "onnx", "ONNX models", "onnx"),
    ("flatbuffers", "flatbuffers", "StableHLO files", "stablehlo"),
    ("uvicorn", "uvicorn", "cntkjax serve", "serve"),
    ("flax", "flax", "flax modules", "flax"),
    ("pillow", "PIL", "images", "images"),
    ("opencv-python-headless", "cv2", "images", "images"),
    ("mpi4py", "mpi4py", "training over several processes", "mpi"),
    ("onednn-cpu-gomp", "numba", "convolutions by oneDNN with CNTKJAX_ONEDNN=1", "onednn"),
    ("tensorboardX", "tensorboardX", "TensorBoardProgressWriter", "tensorboard"),
    ("matplotlib", "matplotlib", "pictures of graphs", "plot"),
)
_MOST_FAILURES = 10


def run(options: argparse.Namespace) -> None:
    """Print the report, clear the cache of compiled programs, or run a script and print what it compiles.

    Errors: those of the script.
    """
    if options.compile is not None:
        run_script(options.compile)
        return
    for line in _cleared() if options.clear_cache else lines():
        print(line, flush=True)


def lines() -> Iterator[str]:
    """The report, line by line.

    Errors: those of evaluating a small network, which is done last.
    """
    yield f"cntkjax {_version('cntkjax')}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield "  " + ", ".join(f"{name} {_version(name)}" for name in REQUIRED)
    yield "devices"
    default = device.use_default_device()
    for each in device.all_devices():
        yield f"  {each!r}{' (the default)' if each == default else ''}"
    yield from (f"  {line}" for line in _accelerator_advice())
    yield "optional packages"
    for distribution, module, purpose, extra in OPTIONAL:
        if find_spec(module):
            yield f"  {distribution} {_version(distribution)}: {purpose}"
        else:
            yield f'  {distribution} is missing; for {purpose}: pip install "cntkjax[{extra}]"'
    yield "compiled programs"
    yield f"  {_cache()}"
    started = time.perf_counter()
    network = layers.Dense(2)(ops.input_variable(3))
    network.eval(np.ones((4, 3), np.float32))
    yield f"  a small network was compiled and run in {time.perf_counter() - started:.2f} s"
    yield "work ahead of time and for speed"
    yield from (f"  {line}" for line in _failures())


def _failures() -> Iterator[str]:
    """What went wrong lately without any effect but on speed."""
    kept = _best_effort.kept_failures() or _best_effort.failures
    if not kept:
        yield "nothing has failed"
    for failure in kept[-_MOST_FAILURES:]:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(failure.time))
        yield f"{when}: could not {failure.work}; instead, {failure.instead}. {failure.error.splitlines()[0]}"


def _cleared() -> Iterator[str]:
    store = cache.store()
    if store is None:
        yield _cache()
        return
    usage = store.clear()
    _best_effort.forget_failures()
    yield f"{usage.entries} compiled programs, {usage.size / 1e6:.0f} MB, were removed from {store.folder}"


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _accelerator_advice() -> Iterator[str]:
    """NVIDIA GPUs, their driver, and what to do if JAX does not use them."""
    program = shutil.which("nvidia-smi")
    query = ["--query-gpu=name,driver_version", "--format=csv,noheader"]
    result = subprocess.run([program, *query], capture_output=True, text=True, check=False) if program else None
    cards = [card.strip() for card in result.stdout.splitlines()] if result and result.returncode == 0 else []
    pairs = [card.rpartition(", ") for card in cards if card]
    names = [f"{name}, driver {driver}" for name, _, driver in pairs] or nvidia.gpus()
    yield from (f"NVIDIA: {name}" for name in names)
    if names and (advice := nvidia.advice()):
        yield advice


def _cache() -> str:
    """Where compiled programs are stored, or why they are not."""
    store = cache.store()
    if store is None:
        return "not stored for later processes: the folder cannot be used, or the environment turns it off"
    usage = store.usage()
    size, limit = usage.size / 1e6, store.limit / 1e6
    return f"{usage.entries} stored for later processes, {size:.0f} of at most {limit:.0f} MB, in {store.folder}"


__all__ = ["lines", "run"]
