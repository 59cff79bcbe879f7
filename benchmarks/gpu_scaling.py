"""python -m benchmarks gpu-scaling: training steps of 8 NVIDIA GPUs, in one host and in 8, compiled without having any.

As gpu-programs. Each GPU has a minibatch of its own; what one sends is the sum of all operands of its collectives. A
kernel belongs to the backward pass if it computes gradients. An all-reduce is hidden by the kernels of the backward
pass that stand, in XLA's schedule, between its start and the point where its result is needed.
"""

from __future__ import annotations

import re
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from benchmarks import gpu_command
from benchmarks.gpu_programs import LIMITS
from benchmarks.hlo import Instruction, instructions, kind_of, size_of

TOPOLOGIES = {"1x1x8": "1 host", "1x8x1": "8 hosts"}  # slices x hosts x GPUs of each


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


def compiled_step(options: Namespace) -> dict[str, Any]:
    """Compile the first step of a network for 8 GPUs; the figures of its program."""
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from benchmarks.tracing import trace_for
    from cntkjax.engine.run.devices import AXIS, Devices
    from cntkjax.engine.xla.compiler import collective_options
    from cntkjax.engine.xla.platform import lowering_for
    from cntkjax.parallel.gradients import DataParallel, GradientExchange
    from cntkjax.train._distributed_training import DistributedTraining

    described = topologies.get_topology_desc(
        platform="cuda", topology_name="", target_config=gpu_command.description(options), topology=options.topology
    )
    devices = Devices(Mesh(np.array(described.devices), AXIS))
    devices.local = list(described.devices[:1])  # the others are those of other workers

    def begin(self: DistributedTraining, number: int, ends_sweep: bool, samples_seen: int) -> GradientExchange:
        return GradientExchange(self.learners, [DataParallel()] * len(self.learners), devices)

    DistributedTraining.begin = begin  # type: ignore[method-assign, assignment]
    train = gpu_command.training(options)
    step = trace_for("gpu", NamedSharding(devices.mesh, PartitionSpec()), partial(train, 1))
    begin_time = time.perf_counter()
    with lowering_for("gpu"):
        program = step.traced.lower().compile(collective_options())
    text = program.as_text() or ""
    reduces = all_reduces(text)
    gathered = sum(size_of(shape) for shape in re.findall(r"= (\S+) all-gather-done\(", text))
    return {
        "network": options.one, "topology": options.topology, "all_reduces": [list(a) for a in reduces],
        "gathered_mb": round(gathered / 1e6, 1),
        "compile_s": round(time.perf_counter() - begin_time, 1),
    }


def rows(results: Iterator[Mapping[str, Any]]) -> Iterator[str]:
    """A table of the figures, row by row."""
    yield (
        "| network | 8 GPUs in | all-reduces | MB | before the backward pass ends | MB of these | hidden by kernels | "
        "seconds to compile |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for r in results:
        reduces = [AllReduce(*a) for a in r["all_reduces"]]
        early = [a for a in reduces if a.meanwhile]
        hidden = ", ".join(str(a.meanwhile) for a in early)
        yield (
            f"| {r['network']} | {TOPOLOGIES[r['topology']]} | {len(reduces)} | "
            f"{sum(a.bytes for a in reduces) / 1e6:.1f} | {len(early)} | "
            f"{sum(a.bytes for a in early) / 1e6:.1f} | {hidden} | {r['compile_s']} |"
        )


def main(arguments: list[str]) -> None:
    """Print the table of all networks, or of those that are named."""
    gpu_command.run("gpu-scaling", __doc__, arguments, LIMITS, compiled_step, rows, list(TOPOLOGIES))
