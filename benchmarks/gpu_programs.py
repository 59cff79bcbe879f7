"""python -m benchmarks gpu-programs: the kernels of training steps on an NVIDIA GPU, compiled without having one.

XLA's GPU compiler needs jax[cuda12] and no GPU or driver; nothing is executed or timed. Each network's first minibatch
is traced as for a GPU and compiled for a described one (gpu_targets/). Counted are the kernels that one step launches,
loops times their steps. Without a GPU nothing is autotuned: all products are calls of cuBLAS.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

from benchmarks.resources import HERE, parse_with_paths

TARGETS = HERE / "gpu_targets"
XLA_FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4,
         "s64": 8, "u64": 8, "f64": 8}  # fmt: skip
# At most so many kernels in a step on an H100; tests/benchmarks/test_gpu_programs.py holds them.
LIMITS = {
    "fcn5": 30, "alexnet": 41, "resnet56": 822, "lstm64": 358, "atis": 150, "bilstm": 1176, "attention": 837,
    "rnnstack": 420, "grouped": 23, "depthwise": 19,
}  # fmt: skip
NO_KERNEL = frozenset({
    "parameter", "constant", "bitcast", "get-tuple-element", "tuple", "after-all", "add-dependency", "opt-barrier",
    "copy-done", "async-done", "async-update", "partition-id", "replica-id", "domain",
})


# ---- reading a compiled program
@dataclass(frozen=True)
class Instruction:
    """One line of a computation in HLO's text."""

    name: str
    shape: str
    opcode: str
    attributes: str

    def called(self, *roles: str) -> list[str]:
        """The computations that it names in these roles."""
        return [name for role in roles for name in re.findall(rf"\b{role}=\{{?%?([\w.\-$]+)", self.attributes)]


def instructions(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """The instructions of each computation in a program's text, and the name of the computation it begins with."""
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-$]+) \(.*\{\s*$", line):
            current = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif current is not None and (body := re.match(r"\s+(?:ROOT )?%?([\w.\-$]+) = (.*)", line)):
            shape, rest = _split_shape(body[2])
            opcode, _, attributes = rest.partition("(")
            current.append(Instruction(body[1], shape, opcode, attributes))
    return computations, entry


def _split_shape(text: str) -> tuple[str, str]:
    """A shape, which may be a nested tuple, and what follows it."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and character == " ":
            return text[:i], text[i + 1 :]
    return text, ""


def size_of(shape: str) -> int:
    """Bytes of all arrays in a shape."""
    arrays = re.findall(r"\b([a-z]\w*)\[([\d,]*)\]", shape)
    return sum(BYTES.get(kind, 0) * prod(map(int, filter(None, dims.split(",")))) for kind, dims in arrays)


@dataclass(frozen=True)
class Kernels:
    """What one step launches. `kinds`: by kind; `loops`: kernels of one step of each loop, and its number of steps."""

    kinds: Counter[str]
    loops: list[tuple[int, int | None]]
    written: int

    @property
    def count(self) -> int:
        """All launches of a step."""
        return sum(self.kinds.values())


def kernels(text: str) -> Kernels:
    """The kernels of a compiled program. Units: `written`, bytes of the results of all kernels."""
    computations, entry = instructions(text)
    result = Kernels(Counter(), [], 0)
    written = 0

    def walk(name: str, times: int) -> int:
        nonlocal written
        launched = 0
        for instruction in computations[name]:
            if instruction.opcode == "while":
                trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', instruction.attributes)
                steps = int(trips[1]) if trips else 1
                roles = ("body",) if trips else ("body", "condition")
                inside = sum(walk(inner, times * steps) for inner in instruction.called(*roles))
                result.loops.append((inside, steps if trips else None))
                launched += inside * steps
            elif instruction.opcode in ("call", "async-start", "conditional"):
                roles = ("to_apply", "calls", "true_computation", "false_computation", "branch_computations")
                launched += max((walk(inner, times) for inner in instruction.called(*roles)), default=0)
            elif kind := kind_of(instruction, computations):
                launched += 1
                result.kinds[kind] += times
                written += size_of(instruction.shape) * times
        return launched

    walk(entry, 1)
    return Kernels(result.kinds, result.loops, written)


def kind_of(instruction: Instruction, computations: dict[str, list[Instruction]]) -> str:
    """What kind of kernel an instruction launches; '' for none."""
    if instruction.opcode in NO_KERNEL or instruction.opcode.endswith("-done"):
        return ""
    if instruction.opcode == "custom-call":
        target = re.search(r'custom_call_target="([^"]*)"', instruction.attributes)
        name = target[1] if target else ""
        if "allback" in name:
            return "callback"
        return "convolution" if "cudnn$conv" in name else "product" if "cublas" in name or "gemm" in name else "library"
    if instruction.opcode != "fusion":
        return instruction.opcode
    inside = {i.opcode for name in instruction.called("calls") for i in computations.get(name, [])}
    for opcode, kind in (("scatter", "scatter"), ("reduce", "reduction"), ("dynamic-update-slice", "store")):
        if opcode in inside:
            return kind
    return "elementwise"


# ---- compiling
def compiled_step(network: str, target: Path, atis: Path | None) -> dict[str, object]:
    """Compile the first step of a network for a GPU; the figures of its program."""
    import cntk_networks  # plain scripts, for CNTK 2.7 too
    import gpu_networks
    import jax
    from jax.experimental import topologies

    from cntkjax.engine.run.ahead_of_time import TracedForAnotherDevice, tracing_for
    from cntkjax.engine.run.transfers import Sent

    topology = topologies.get_topology_desc(
        platform="cuda", topology_name="", target_config=target.read_text(), topology="1x1x1"
    )
    sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])
    run = (cntk_networks.NETWORKS | gpu_networks.NETWORKS)[network](*([str(atis)] if network == "atis" else []))
    try:
        with tracing_for("gpu", sharding):
            run(1)
    except TracedForAnotherDevice as traced:
        step = traced
    begin = time.perf_counter()
    program = step.traced.lower().compile()
    seconds = time.perf_counter() - begin
    text = program.as_text() or ""
    counted, memory = kernels(text), program.memory_analysis()
    inputs = jax.tree.leaves(step.inputs, is_leaf=lambda x: isinstance(x, Sent))
    return {
        "network": network, "kernels": counted.count, "kinds": dict(counted.kinds.most_common()),
        "loops": counted.loops,
        "written_mb": round(counted.written / 1e6, 1), "temporary_mb": round(memory.temp_size_in_bytes / 1e6, 1),
        "host_arrays": sum(x.arrays_sent for x in inputs if isinstance(x, Sent)),
        "float64": len(re.findall(r"\bf64\[", text)), "compile_s": round(seconds, 1),
    }  # fmt: skip


def in_own_process(
    network: str, options: argparse.Namespace, tool: str = "gpu-programs", *arguments: str
) -> dict[str, object]:
    """The figures of a network, from a new process. Errors: RuntimeError with the end of what it printed."""
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu", "CNTKJAX_CACHE_DIR": "", "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {XLA_FLAGS}",
        "PYTHONPATH": f"{HERE.parent / 'src'}:{HERE.parent}:{HERE}",
    }  # fmt: skip
    command = [sys.executable, "-m", "benchmarks", tool, "--target", options.target, "--one", network, *arguments]
    command += ["--atis", str(options.atis)] if options.atis else []
    process = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parent)
    answer = [line for line in process.stdout.splitlines() if line.startswith("{")]
    if not answer:
        raise RuntimeError(f"{network}: {process.stderr.strip()[-2000:]}")
    return json.loads(answer[-1])


def rows(results: Iterator[dict[str, object]]) -> Iterator[str]:
    """A table of the figures, row by row."""
    yield "| network | kernels | at most | kinds | MB written | MB temporary | host arrays | seconds to compile |"
    yield "|---|---|---|---|---|---|---|---|"
    for r in results:
        kinds = ", ".join(f"{n} {kind}" for kind, n in r["kinds"].items())  # type: ignore[attr-defined]
        yield (
            f"| {r['network']} | {r['kernels']} | {LIMITS[str(r['network'])]} | {kinds} | {r['written_mb']} | "
            f"{r['temporary_mb']} | {r['host_arrays']} | {r['compile_s']} |"
        )


def main(arguments: list[str]) -> None:
    """Print the table of all networks, or of those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu-programs", description=__doc__)
    targets = sorted(path.stem for path in TARGETS.glob("*.txtpb"))
    parser.add_argument("--target", choices=targets, default="h100", help="the GPU; default: h100")
    parser.add_argument("--networks", nargs="+", choices=LIMITS, default=list(LIMITS), help="default: all")
    parser.add_argument("--one", choices=LIMITS, help=argparse.SUPPRESS)
    options = parse_with_paths(parser, arguments)
    if options.one:
        print(json.dumps(compiled_step(options.one, TARGETS / f"{options.target}.txtpb", options.atis)), flush=True)
        os._exit(0)  # the described device cannot be closed
    networks = [name for name in options.networks if name != "atis" or options.atis]
    for line in rows(in_own_process(network, options) for network in networks):
        print(line, flush=True)
