"""python -m benchmarks scaling: what data-parallel training gains on 8 to 1,024 GPUs, predicted.

For each network and topology: throughput and efficiency with gradients in 32, 16 and 1 bits and with block momentum,
from the time of a step on one GPU, the bytes of the exchange, and the links; scaling_model.py has the model,
scaling_networks.py where the times come from. With --links the model is checked: FCN5 is trained by 2 and 4 workers
on hosts that are network namespaces of this machine, joined by links of 1 Gbit/s and 100 Mbit/s. Units: samples/s.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from benchmarks import scaling_networks
from benchmarks.links import Links, links, why_not
from benchmarks.resources import HERE
from benchmarks.scaling_model import (
    MODES,
    Link,
    Machine,
    Mode,
    Network,
    Topology,
    bytes_sent,
    exchange_seconds,
    step_seconds,
)
from benchmarks.scaling_worker import BLOCK

DEVICES = 8, 64, 256, 1024
TOPOLOGIES = {
    "infiniband": Topology("8 GPUs a host, NVLink; 400 Gbit/s a GPU", 8, Link(360e9, 3e-6), Link(8 * 45e9, 8e-6)),
    "ethernet": Topology("8 GPUs a host, NVLink; 100 Gbit/s a host", 8, Link(360e9, 3e-6), Link(11e9, 30e-6)),
    "slow": Topology("8 GPUs a host, NVLink; 10 Gbit/s a host", 8, Link(360e9, 3e-6), Link(1.1e9, 50e-6)),
}
SPEEDS = 1e9, 1e8  # bits per second
PAYLOAD = 1448 / 1514  # of TCP in the bytes that tc counts
LABELS: dict[Mode, str] = {"32": "32 bits", "16": "16 bits", "1": "1 bit", "blocks": "block momentum"}


def predictions(networks: Sequence[Network], topology: Topology, machine: Machine) -> Iterator[str]:
    """A table, line by line."""
    heads = ["32 bits", "32, overlapped", "16 bits", "1 bit", "block momentum"]
    yield f"| network | GPUs | {' | '.join(heads)} |"
    yield "|" + "---|" * (2 + len(heads))
    for network in networks:
        for devices in DEVICES:
            seconds = [step_seconds(network, mode, topology, devices, machine) for mode in MODES]
            seconds.insert(1, step_seconds(network, "32", topology, devices, machine, overlap=True))
            rates = (f"{devices * network.samples / s:,.0f} ({network.seconds / s:.0%})" for s in seconds)
            yield f"| {network.name} | {devices} | {' | '.join(rates)} |"


# ---- the check


class Measured(NamedTuple):
    """What a minibatch takes: seconds, and the bytes that leave a worker's host on the wire."""

    seconds: float
    sent: float


class Workers:
    """Workers of scaling_worker.py, one on each host, until the block ends."""

    def __init__(self, hosts: Links) -> None:
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{HERE.parent / 'src'}:{HERE.parent}",
            "CNTKJAX_WORKER_TIMEOUT": "120",
        }
        self._processes = hosts.start([sys.executable, "-m", "benchmarks.scaling_worker"], environment)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()  # of all, since they wait for each other
            if kind is not None:
                process.kill()
        for process in self._processes:
            with process:  # which closes its pipes
                process.wait()

    def train(self, mode: Mode, minibatches: int) -> Measured:
        """What a minibatch takes. Errors: RuntimeError if a worker fails, which has printed why."""
        for process in self._processes:
            assert process.stdin is not None
            print(json.dumps([mode, minibatches]), file=process.stdin, flush=True)
        answers = [_answer(process) for process in self._processes]
        return Measured(*(max(column) / minibatches for column in zip(*answers, strict=True)))


def measure(hosts: Links, workers: int, rounds: int) -> dict[tuple[Mode, float | None], Measured]:
    """What a minibatch takes, by the kind of exchange and the speed of the links: medians of interleaved rounds."""
    times: dict[tuple[Mode, float | None], list[Measured]] = {}
    with Workers(hosts) as job:
        for mode in MODES:
            job.train(mode, BLOCK)  # compile
        for mode in MODES * rounds:
            for speed in (None, *SPEEDS):
                hosts.limit(speed)
                times.setdefault((mode, speed), []).append(job.train(mode, BLOCK if mode == "blocks" else 2))
                print(f"{workers} workers, {mode}, {speed}: {times[mode, speed]}", file=sys.stderr, flush=True)
        hosts.limit(None)
    return {key: Measured(*map(median, zip(*of_key, strict=True))) for key, of_key in times.items()}


def _answer(process: subprocess.Popen[str]) -> list[float]:
    """The next list that a worker prints; other libraries print lines too."""
    assert process.stdout is not None
    for line in process.stdout:
        try:
            return json.loads(line)
        except ValueError:
            continue
    raise RuntimeError("a worker has failed; its error is printed above")


def check(workers: int, measured: dict[tuple[Mode, float | None], Measured]) -> Iterator[str]:
    """Rows of a table: each kind of exchange over each link, measured and predicted from the step without a limit."""
    for speed in SPEEDS:
        slow = {mode: predicted_seconds(mode, speed, workers, measured) for mode in MODES}
        for mode in MODES:
            seconds, sent = measured[mode, speed]
            gain, expected = measured["32", speed].seconds / seconds, slow["32"] / slow[mode]
            counted = bytes_sent(scaling_networks.fcn5(), mode, workers) / (BLOCK if mode == "blocks" else 1)
            yield (
                f"| {workers} | {speed / 1e6:,.0f} Mbit/s | {LABELS[mode]} | {sent / 1e6:.2f} MB | "
                f"{counted / 1e6:.2f} MB | {seconds:.2f} s | {slow[mode]:.2f} s | "
                f"{gain:.2f} | {expected:.2f} | {gain / expected - 1:+.0%} |"
            )


def predicted_seconds(
    mode: Mode, speed: float, workers: int, measured: dict[tuple[Mode, float | None], Measured]
) -> float:
    """Seconds of a minibatch of FCN5: what it takes without a limit, and what the exchange takes over the links."""
    topology = Topology("", 1, Link(1e12, 0), Link(speed / 8 * PAYLOAD, 1e-4))
    network = replace(scaling_networks.fcn5(), seconds=measured[mode, None].seconds)
    return network.seconds + exchange_seconds(network, mode, topology, workers) / (BLOCK if mode == "blocks" else 1)


def main(arguments: list[str]) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scaling", description=__doc__)
    parser.add_argument("--topology", choices=TOPOLOGIES, nargs="+", default=list(TOPOLOGIES), help="default: all")
    parser.add_argument("--links", type=int, nargs="*", metavar="N", help="check with so many workers; default: 2 4")
    parser.add_argument("--rounds", type=int, default=3, help="of --links; default: 3")
    options = parser.parse_args(arguments)
    if options.links is None:
        networks = [make() for make in scaling_networks.NETWORKS]
        for name in options.topology:
            print(TOPOLOGIES[name].name, *predictions(networks, TOPOLOGIES[name], scaling_networks.H100), sep="\n")
        return
    if reason := why_not():
        parser.error(f"--links {reason}")
    heads = [
        "workers", "link", "exchange", "sent by each", "in the program", "minibatch", "predicted", "gain over 32 bits",
        "predicted", "difference",
    ]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for workers in options.links or (2, 4):
        with links(workers) as hosts:
            print(*check(workers, measure(hosts, workers, options.rounds)), sep="\n", flush=True)
