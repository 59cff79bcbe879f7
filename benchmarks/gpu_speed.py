"""python -m benchmarks --device gpu: what each side reaches of a GPU's peak, and the memory it takes.

Peaks are those of the described GPUs (gpu_targets/): of float32 arithmetic without tensor cores, two operations for
each multiplication and addition. All sides are credited with the same operations, which an exact implementation needs.
Bytes are those that the kernels of a JAX side's program read and write, loops times their steps; of PyTorch they are
not known. Caches serve a part of them, so more than the peak of the memory is possible.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.compare import Result
from benchmarks.report import LABELS, TITLES
from benchmarks.resources import HERE

NO_GPU = 'There is no GPU here: JAX sees only {}. On a machine with an NVIDIA GPU: pip install "jax[cuda12]"'
# Operations of the products and convolutions of one minibatch, forward and backward, in 10^9: counted in the programs
# of hand-written JAX where there are any, otherwise in this package's. ATIS and the following ones: with padding.
GIGA_OPERATIONS = {
    "fcn5": 77.6, "alexnet": 15.2, "resnet56": 24.1, "lstm64": 44.3, "lstm256": 177.4, "atis": 2.4, "attention": 3.7,
    "bilstm": 8.3, "decoding": 1.0,
}


@dataclass(frozen=True)
class Peak:
    """What a GPU does at most. Units: operations and bytes per second, bytes."""

    name: str
    operations: float
    bandwidth: float
    memory: int


def peaks(folder: Path = HERE / "gpu_targets") -> list[Peak]:
    """The described GPUs."""
    return [_peak(path.read_text()) for path in sorted(folder.glob("*.txtpb"))]


def _peak(text: str) -> Peak:
    number = {name: float(value) for name, value in re.findall(r"(\w+): ([\d.]+)\b", text)}
    name = re.search(r'device_description_str: "(.*)"', text)
    operations = 2e9 * number["clock_rate_ghz"] * number["core_count"] * number["fpus_per_core"]
    return Peak(name[1] if name else "", operations, number["memory_bandwidth"], int(number["device_memory_size"]))


def peak_of(device: str) -> Peak | None:
    """That of the described GPU with the same model name; None if there is none."""
    model = re.search(r"\b(H100|H200|A100|L4)\b", device)
    return next((p for p in peaks() if model and re.search(rf"\b{model[1]}\b", p.name)), None)


def device_in_use() -> tuple[str, str]:
    """JAX's platform and the kind of its device, asked in another process: a GPU's memory is left to the sides."""
    script = "import jax, json; d = jax.devices()[0]; print(json.dumps([d.platform, d.device_kind]))"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    platform, kind = json.loads(process.stdout.splitlines()[-1])
    return platform, kind


def rows(networks: Mapping[str, Mapping[str, Result]], peak: Peak | None) -> Iterator[str]:
    """A table: for each network and side the time, operations and bytes per second, percent of peaks, and memory."""
    yield "| network | side | ms a minibatch | 10^12 operations/s | % of peak | GB/s | % of peak | MB in use, at most |"
    yield "|---|---|---|---|---|---|---|---|"
    for network, results in networks.items():
        for side, result in results.items():
            if "milliseconds" in result:
                cells = figures(result, GIGA_OPERATIONS.get(network), peak)
                yield f"| {TITLES[network]} | {LABELS[side]} | {' | '.join(cells)} |"


def figures(result: Result, giga_operations: float | None, peak: Peak | None) -> list[str]:
    """The cells of a side: empty where something is not known."""
    milliseconds = median(result["milliseconds"])
    rate = giga_operations / milliseconds * 1e12 if giga_operations else None
    share = f"{rate / peak.operations:.1%}" if rate and peak else ""
    bandwidth = result["bytes"] / milliseconds * 1e3 if result.get("bytes") else None
    share_of_bytes = f"{bandwidth / peak.bandwidth:.1%}" if bandwidth and peak else ""
    moved = [f"{bandwidth / 1e9:,.1f}" if bandwidth else "", share_of_bytes]
    memory = f"{result['memory'] / 1e6:,.0f}" if result.get("memory") else ""
    return [f"{milliseconds:.2f}", f"{rate / 1e12:.2f}" if rate else "", share, *moved, memory]
