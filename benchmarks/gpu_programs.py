"""python -m benchmarks gpu-programs: the kernels of training steps on an NVIDIA GPU, compiled without having one.

XLA's GPU compiler needs jax[cuda12] and no GPU or driver; nothing is executed or timed. Each network's first minibatch
is traced as for a GPU and compiled for a described one (gpu_targets/). Counted are the kernels that one step launches,
loops times their steps. Without a GPU nothing is autotuned: all products are calls of cuBLAS.
"""

from __future__ import annotations

import os
import re
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from benchmarks import gpu_command
from benchmarks.hlo import kernels


class Limit(NamedTuple):
    """The most that a step on an H100 may launch and move; tests/benchmarks/test_gpu_programs.py holds it."""

    kernels: int
    megabytes: int


LIMITS = {
    "fcn5": Limit(30, 744), "alexnet": Limit(39, 265), "resnet56": Limit(822, 1319), "lstm64": Limit(350, 2467),
    "atis": Limit(144, 380), "bilstm": Limit(1176, 1490), "attention": Limit(672, 890), "rnnstack": Limit(338, 1609),
    "grouped": Limit(23, 354), "depthwise": Limit(19, 354),
}


def compiled_step(options: Namespace) -> dict[str, Any]:
    """Compile the first step of a network for a GPU; the figures of its program."""
    import jax
    from jax.experimental import topologies

    from benchmarks.tracing import trace_for
    from cntkjax.engine.run.transfers import Sent

    topology = topologies.get_topology_desc(
        platform="cuda", topology_name="", target_config=gpu_command.description(options), topology="1x1x1"
    )
    sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])
    train = gpu_command.training(options)
    step = trace_for("gpu", sharding, partial(train, 1))
    begin, cpu_begin = time.perf_counter(), sum(os.times()[:4])  # ptxas is a process of its own
    program = step.traced.lower().compile()
    seconds, cpu_seconds = time.perf_counter() - begin, sum(os.times()[:4]) - cpu_begin
    text = program.as_text() or ""
    counted, memory = kernels(text), program.memory_analysis()
    inputs = jax.tree.leaves(step.inputs, is_leaf=lambda x: isinstance(x, Sent))
    return {
        "network": options.one, "kernels": counted.count, "kinds": dict(counted.kinds.most_common()),
        "loops": counted.loops,
        "mb": round(counted.bytes / 1e6, 1), "temporary_mb": round(memory.temp_size_in_bytes / 1e6, 1),
        "host_arrays": sum(x.arrays_sent for x in inputs if isinstance(x, Sent)),
        "float64": len(re.findall(r"\bf64\[", text)), "compile_s": round(seconds, 1),
        "compile_cpu_s": round(cpu_seconds, 1),
    }


def rows(results: Iterator[Mapping[str, Any]]) -> Iterator[str]:
    """A table of the figures, row by row."""
    yield "| network | kernels | at most | kinds | MB | at most | MB temporary | host arrays | s to compile | CPU s |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for r in results:
        limit, kinds = LIMITS[r["network"]], ", ".join(f"{n} {kind}" for kind, n in r["kinds"].items())
        yield (
            f"| {r['network']} | {r['kernels']} | {limit.kernels} | {kinds} | {r['mb']} | {limit.megabytes} | "
            f"{r['temporary_mb']} | {r['host_arrays']} | {r['compile_s']} | {r['compile_cpu_s']} |"
        )


def main(arguments: list[str]) -> None:
    """Print the table of all networks, or of those that are named."""
    gpu_command.run("gpu-programs", __doc__, arguments, LIMITS, compiled_step, rows)
