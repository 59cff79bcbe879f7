"""python -m benchmarks.files [--megabytes 500]: loading and saving of a large model against plain input and output.

Loading, until the parameters are on the device, against reading the file and copying as many bytes there. Saving
against writing the bytes beside an older file, waiting until they are on the disk, and putting them in its place. And
how much memory either takes at the peak: loading holds the file and what is on the device.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np

import cntkjax as C
from cntkjax.engine.run.state import leaf_array

LAYERS = 8


def model(megabytes: float) -> C.Function:
    """A stack of products, its weights on the device."""
    side = int((megabytes * 2**20 / 4 / LAYERS) ** 0.5)
    values = np.random.default_rng(0).random((side, side), np.float32)
    made = C.input_variable(side, name="x")
    for i in range(LAYERS):
        made = C.times(made, C.parameter((side, side), init=values + i, name=f"W{i}"))
    on_device(made)
    return made


def on_device(function: C.Function) -> None:
    """Waits until all parameters are there."""
    for parameter in function.parameters:
        leaf_array(parameter).block_until_ready()


def seconds(run: Callable[[], Any]) -> float:
    """How long it takes; what it returns is freed afterwards."""
    begin = time.perf_counter()
    kept = run()
    taken = time.perf_counter() - begin
    del kept
    return taken


PEAK = """
import sys
from pathlib import Path
from benchmarks.files import C, model, on_device

def memory(kind):
    line = next(l for l in Path('/proc/self/status').read_text().splitlines() if l.startswith(kind))
    return int(line.split()[1]) / 1024

what, path, megabytes = sys.argv[1:]
function = model(float(megabytes) if what == 'save' else 1)
Path('/proc/self/clear_refs').write_text('5')  # the peak counts from here
before = memory('VmRSS')
if what == 'save':
    function.save(path)
else:
    on_device(C.load_model(path))
print(memory('VmHWM') - before)
"""


def peak(what: str, path: str, megabytes: float) -> float:
    """Megabytes of memory that loading or saving takes at the most, in a process of its own."""
    command = [sys.executable, "-c", PEAK, what, path, str(megabytes)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def compare(megabytes: float = 500, rounds: int = 5, folder: str | None = None) -> dict[str, float]:
    """Median seconds of each side, all taken by turns, and the memory of two of them."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path, plain = os.path.join(place, "m.model"), os.path.join(place, "plain")
        function = model(megabytes)
        function.save(path)
        data = Path(path).read_bytes()

        def read() -> Any:
            return jax.device_put(np.frombuffer(Path(path).read_bytes(), np.uint8), may_alias=False).block_until_ready()

        def load() -> Any:
            loaded = C.load_model(path)
            on_device(loaded)
            return loaded

        def write() -> None:
            with open(plain + ".new", "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(plain + ".new", plain)

        sides = {"read, copy": read, "load": load, "write": write, "save": lambda: function.save(path)}
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, run in sides.items():
                taken[name].append(seconds(run))
        found = {name: median(runs) for name, runs in taken.items()}
        return found | {f"peak of {what}": peak(what, path, megabytes) for what in ("load", "save")}


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where to write; default: the system's folder for temporary files")
    options = parser.parse_args()
    found = compare(options.megabytes, options.rounds, options.folder)
    print(f"{options.megabytes:g} MB, medians of {options.rounds} rounds")
    for name, value in found.items():
        print(f"{name:14} {value:8.3f} {'MB of memory' if name.startswith('peak') else 's'}")
    print(f"load / (read, copy): {found['load'] / found['read, copy']:.2f}")
    print(f"save / write: {found['save'] / found['write']:.2f}")


if __name__ == "__main__":
    main()
