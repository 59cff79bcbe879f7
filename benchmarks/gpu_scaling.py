"""python -m benchmarks gpu-scaling: training steps of 8 NVIDIA GPUs, in one host and in 8, compiled without having any.

As gpu-programs. Each GPU has a minibatch of its own; what one sends is the sum of all operands of its collectives. A
kernel belongs to the backward pass if it computes gradients. An all-reduce is hidden by the kernels of the backward
pass that stand, in XLA's schedule, between its start and the point where its result is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.gpu_programs import LIMITS, TARGETS, Instruction, in_own_process, instructions, kind_of, size_of
from benchmarks.resources import parse_with_paths

TOPOLOGIES = {"1 host": "1x1x8", "8 hosts": "1x8x1"}  # slices x hosts x GPUs of each


class AllReduce(NamedTuple):
    """One of a program. `remaining`: kernels of the backward pass after its start; `meanwhile`: before its end."""

    bytes: int
    remaining: int
    meanwhile: int


def all_reduces(text: str) -> list[AllReduce]:
    """The all-reduces of a compiled program, in the order in which they start."""
    computations, entry = instructions(text)
    schedule = computations[entry]
    backward = [i for i, kernel in enumerate(schedule) if _is_of_backward_pass(kernel, computations)]
    ends = {_operand(done): i for i, done in enumerate(schedule) if done.opcode == "all-reduce-done"}
    starts = [(i, start) for i, start in enumerate(schedule) if start.opcode == "all-reduce-start"]
    return [
        AllReduce(
            size_of(start.shape), sum(i < b for b in backward), sum(i < b < ends[start.name] for b in backward)
        )
        for i, start in starts
    ]


def _operand(instruction: Instruction) -> str:
    return re.match(r"%?([\w.\-]+)", instruction.attributes)[1]  # type: ignore[index]


def _is_of_backward_pass(instruction: Instruction, computations: dict[str, list[Instruction]]) -> bool:
    is_kernel = instruction.opcode == "while" or kind_of(instruction, computations)
    return bool(is_kernel) and "transpose(jvp" in instruction.attributes and "all-reduce" not in instruction.opcode


def compiled_step(network: str, target: Path, topology: str, atis: Path | None) -> dict[str, object]:
    """Compile the first step of a network for 8 GPUs; the figures of its program."""
    import cntk_networks  # plain scripts, for CNTK 2.7 too
    import gpu_networks
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from cntkjax.engine.run.ahead_of_time import TracedForAnotherDevice, tracing_for
    from cntkjax.engine.run.devices import AXIS, Devices
    from cntkjax.engine.xla.compiler import collective_options
    from cntkjax.parallel.gradients import DataParallel, GradientExchange
    from cntkjax.train._distributed_training import DistributedTraining

    described = topologies.get_topology_desc(
        platform="cuda", topology_name="", target_config=target.read_text(), topology=topology
    )
    devices = Devices(Mesh(np.array(described.devices), AXIS))
    devices.local = list(described.devices[:1])  # the others are those of other workers

    def begin(self: DistributedTraining, number: int, ends_sweep: bool, samples_seen: int) -> GradientExchange:
        return GradientExchange(self.learners, [DataParallel()] * len(self.learners), devices)

    DistributedTraining.begin = begin  # type: ignore[method-assign, assignment]
    run = (cntk_networks.NETWORKS | gpu_networks.NETWORKS)[network](*([str(atis)] if network == "atis" else []))
    try:
        with tracing_for("gpu", NamedSharding(devices.mesh, PartitionSpec())):
            run(1)
    except TracedForAnotherDevice as traced:
        step = traced
    begin_time = time.perf_counter()
    with tracing_for("gpu", NamedSharding(devices.mesh, PartitionSpec())):
        options = collective_options()
    program = step.traced.lower().compile(options)
    text = program.as_text() or ""
    reduces = all_reduces(text)
    gathered = sum(size_of(shape) for shape in re.findall(r"= (\S+) all-gather-done\(", text))
    return {
        "network": network, "all_reduces": [list(a) for a in reduces], "gathered_mb": round(gathered / 1e6, 1),
        "compile_s": round(time.perf_counter() - begin_time, 1),
    }  # fmt: skip


def rows(results: Iterator[tuple[str, dict[str, object]]]) -> Iterator[str]:
    """A table of the figures, row by row."""
    yield (
        "| network | 8 GPUs in | all-reduces | MB | before the backward pass ends | MB of these | hidden by kernels | "
        "seconds to compile |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for where, r in results:
        reduces = [AllReduce(*a) for a in r["all_reduces"]]  # type: ignore[attr-defined]
        early = [a for a in reduces if a.meanwhile]
        hidden = ", ".join(str(a.meanwhile) for a in early)
        yield (
            f"| {r['network']} | {where} | {len(reduces)} | {sum(a.bytes for a in reduces) / 1e6:.1f} | {len(early)} | "
            f"{sum(a.bytes for a in early) / 1e6:.1f} | {hidden} | {r['compile_s']} |"
        )


def main(arguments: list[str]) -> None:
    """Print the table of all networks, or of those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu-scaling", description=__doc__)
    targets = sorted(path.stem for path in TARGETS.glob("*.txtpb"))
    parser.add_argument("--target", choices=targets, default="h100", help="the GPU; default: h100")
    parser.add_argument("--networks", nargs="+", choices=LIMITS, default=list(LIMITS), help="default: all")
    parser.add_argument("--one", choices=LIMITS, help=argparse.SUPPRESS)
    parser.add_argument("--topology", choices=TOPOLOGIES.values(), help=argparse.SUPPRESS)
    options = parse_with_paths(parser, arguments)
    if options.one:
        target = TARGETS / f"{options.target}.txtpb"
        print(json.dumps(compiled_step(options.one, target, options.topology, options.atis)), flush=True)
        os._exit(0)  # the described devices cannot be closed
    networks = [name for name in options.networks if name != "atis" or options.atis]
    results = (
        (where, in_own_process(network, options, "gpu-scaling", "--topology", topology))
        for network in networks
        for where, topology in TOPOLOGIES.items()
    )
    for line in rows(results):
        print(line, flush=True)
