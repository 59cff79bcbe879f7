"""python -m benchmarks.files [--megabytes 500]: loading and saving a large model compared with plain I/O.

Loading, until the parameters are on the device, is compared with reading the file and copying its bytes to the device;
saving with writing the bytes to a new file, syncing it to the disk, and renaming it to the old one. The peak memory of
both is measured too: loading holds the file and the parameters on the device.
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

import jax
import numpy as np

import cntkjax as C
from cntkjax.engine.run.state import leaf_array

LAYERS = 8


def model(megabytes: float) -> C.Function:
    """A stack of products, its weights on the device."""
    side = int((megabytes * 2**20 / 4 / LAYERS) ** 0.5)
    values = np.random.default_rng(0).random((side, side), np.float32)
    product = C.input_variable(side, name="x")
    for i in range(LAYERS):
        product = C.times(product, C.parameter((side, side), init=values + i, name=f"W{i}"))
    on_device(product)
    return product


def on_device(function: C.Function) -> None:
    """Wait until all parameters are on the device."""
    for parameter in function.parameters:
        leaf_array(parameter).block_until_ready()


def seconds(run: Callable[[], object]) -> float:
    """The duration of a call; its result is freed afterwards."""
    begin = time.perf_counter()
    result = run()
    duration = time.perf_counter() - begin
    del result
    return duration


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
    """Peak memory of loading or saving, in megabytes, measured in a process of its own."""
    command = [sys.executable, "-c", PEAK, what, path, str(megabytes)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def compare(megabytes: float = 500, rounds: int = 5, folder: str | None = None) -> dict[str, float]:
    """Median seconds of each side, in interleaved rounds, and the peak memory of loading and saving."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path, plain = os.path.join(place, "m.model"), os.path.join(place, "plain")
        function = model(megabytes)
        function.save(path)
        data = Path(path).read_bytes()

        def read() -> jax.Array:
            return jax.device_put(np.frombuffer(Path(path).read_bytes(), np.uint8), may_alias=False).block_until_ready()

        def load() -> C.Function:
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
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, run in sides.items():
                times[name].append(seconds(run))
        results = {name: median(runs) for name, runs in times.items()}
        return results | {f"peak of {what}": peak(what, path, megabytes) for what in ("load", "save")}


def main() -> None:
    """Run the comparison and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where to write; default: the system's folder for temporary files")
    options = parser.parse_args()
    results = compare(options.megabytes, options.rounds, options.folder)
    print(f"{options.megabytes:g} MB, medians of {options.rounds} rounds")
    for name, value in results.items():
        print(f"{name:14} {value:8.3f} {'MB of memory' if name.startswith('peak') else 's'}")
    print(f"load / (read, copy): {results['load'] / results['read, copy']:.2f}")
    print(f"save / write: {results['save'] / results['write']:.2f}")


if __name__ == "__main__":
    main()
