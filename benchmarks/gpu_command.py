"""The command lines of gpu-programs and gpu-scaling: each program is compiled in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.resources import HERE, parse_with_paths

TARGETS = HERE / "gpu_targets"
XLA_FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
Figures = Mapping[str, Any]


def run(
    tool: str, description: str | None, arguments: list[str], networks: Collection[str],
    figures: Callable[[argparse.Namespace], Figures], rows: Callable[[Iterator[Figures]], Iterator[str]],
    topologies: Sequence[str] = ("1x1x1",),
) -> None:
    """Print the `rows` of all networks, or of those that are named, with the `figures` of each on each topology."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {tool}", description=description)
    targets = sorted(path.stem for path in TARGETS.glob("*.txtpb"))
    parser.add_argument("--target", choices=targets, default="h100", help="the GPU; default: h100")
    parser.add_argument("--networks", nargs="+", choices=networks, default=list(networks), help="default: all")
    parser.add_argument("--one", choices=networks, help=argparse.SUPPRESS)
    parser.add_argument("--topology", choices=topologies, help=argparse.SUPPRESS)
    options = parse_with_paths(parser, arguments)
    if options.one:
        print(json.dumps(figures(options)), flush=True)
        os._exit(0)  # the described devices cannot be closed
    named = [name for name in options.networks if name != "atis" or options.atis]
    for line in rows(in_own_process(tool, options, n, topology) for n in named for topology in topologies):
        print(line, flush=True)


def in_own_process(tool: str, options: argparse.Namespace, network: str, topology: str = "1x1x1") -> Figures:
    """The figures of a network, from a new process. Errors: RuntimeError with the end of what it printed."""
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu", "CNTKJAX_CACHE_DIR": "", "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {XLA_FLAGS}",
        "PYTHONPATH": f"{HERE.parent / 'src'}:{HERE.parent}:{HERE}",
    }
    command = [sys.executable, "-m", "benchmarks", tool, "--target", options.target, "--one", network]
    command += ["--topology", topology, *(["--atis", str(options.atis)] if options.atis else [])]
    process = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parent)
    answer = [line for line in process.stdout.splitlines() if line.startswith("{")]
    if not answer:
        raise RuntimeError(f"{network}: {process.stderr.strip()[-2000:]}")
    return json.loads(answer[-1])


def description(options: argparse.Namespace) -> str:
    """What XLA has to know of the GPU."""
    return (TARGETS / f"{options.target}.txtpb").read_text()


def training(options: argparse.Namespace) -> Callable[[int], int]:
    """The function that trains the network on so many minibatches."""
    import cntk_networks  # plain scripts, for CNTK 2.7 too
    import gpu_networks

    build = (cntk_networks.NETWORKS | gpu_networks.NETWORKS)[options.one]
    return build(*([str(options.atis)] if options.one == "atis" else []))
