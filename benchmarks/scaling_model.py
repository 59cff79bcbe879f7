"""How fast data-parallel training is on many devices, from the time of a step on one and what has to travel.

Messages take α + n / B: a latency, and a time for each byte. The collectives cost what the literature says: ring
all-reduce (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations"), binary
trees, whose messages are pipelined (Sanders, Speck and Träff 2009, "Two-tree algorithms for full bandwidth broadcast,
reduction and scan"), pairwise all-to-all and ring all-gather (Thakur, Rabenseifner and Gropp 2005, "Optimization of
collective communication operations in MPICH"). Between hosts of several devices an all-reduce is done in three stages:
reduce-scatter in each host, all-reduce of each part between the hosts, all-gather in each host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Mode = Literal["32", "16", "1", "blocks"]
MODES: tuple[Mode, ...] = ("32", "16", "1", "blocks")
BLOCK = 50
"""Minibatches of each worker in a block of block momentum, unless another number is given."""


@dataclass(frozen=True)
class Link:
    """Units: `bandwidth`, bytes per second in each direction; `latency`, seconds for a message."""

    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Topology:
    """Hosts of some devices. `inside`: between two devices of a host; `between`: of a host, for all its devices."""

    name: str
    devices: int
    inside: Link
    between: Link


@dataclass(frozen=True)
class Network:
    """What a minibatch costs on one device, and what has to travel.

    Units: `seconds` of a step on one device, of which `backward` is the share that communication may overlap with;
           `values`, of all parameters; `columns`, those of the parameters whose gradients travel in 1 bit; `small`,
           values that travel in 32 bits even then; `samples` of a minibatch on each device.
    """

    name: str
    samples: int
    seconds: float
    values: int
    columns: int
    small: int
    backward: float = 2 / 3


@dataclass(frozen=True)
class Machine:
    """How fast a device quantizes. Units: `quantization`, seconds for a value, both directions and stages together."""

    quantization: dict[Mode, float]


def message_bytes(network: Network, mode: Mode) -> tuple[float, float]:
    """What an exchange has to move, in bytes: by all-reduce, and in stripes (all-to-all, then all-gather)."""
    if mode == "16":
        return 0.0, 2.0 * network.values
    if mode == "1":  # a sign for each value, two float32 for each column
        return 4.0 * network.small, (network.values - network.small) / 8 + 8.0 * network.columns
    return 4.0 * network.values, 0.0


def bytes_sent(network: Network, mode: Mode, devices: int) -> float:
    """Bytes that leave a device in one exchange, as they are counted in the compiled program."""
    whole, stripes = message_bytes(network, mode)
    return 2 * (devices - 1) / devices * (whole + stripes)


def exchange_seconds(network: Network, mode: Mode, topology: Topology, devices: int) -> float:
    """The time of an exchange of all gradients, or models."""
    whole, stripes = message_bytes(network, mode)
    seconds = all_reduce(whole, topology, devices)
    if stripes:
        seconds += all_to_all(stripes, topology, devices) + all_gather(stripes, topology, devices)
    return seconds


def step_seconds(
    network: Network, mode: Mode, topology: Topology, devices: int, machine: Machine, *, overlap: bool = False,
    block: int = BLOCK,
) -> float:
    """The mean time of a minibatch. `overlap`: gradients travel while those of other layers are computed."""
    if devices == 1:
        return network.seconds
    exchange = exchange_seconds(network, mode, topology, devices)
    exchange += machine.quantization.get(mode, 0.0) * network.values
    if mode == "blocks":
        return network.seconds + exchange / block
    hidden = min(exchange, network.backward * network.seconds) if overlap else 0.0
    return network.seconds + exchange - hidden


def efficiency(network: Network, mode: Mode, topology: Topology, devices: int, machine: Machine, **how: bool) -> float:
    """Throughput of each device, relative to that of one alone."""
    return network.seconds / step_seconds(network, mode, topology, devices, machine, **how)


# ---- collectives


def all_reduce(size: float, topology: Topology, devices: int) -> float:
    """Seconds to sum messages of `size` bytes over all devices, by the fastest of the known ways."""
    if devices == 1 or not size:
        return 0.0
    hosts, local = hosts_of(topology, devices)
    if hosts == 1:
        return min(ring_all_reduce(size, topology.inside, devices), tree_all_reduce(size, topology.inside, devices))
    share = Link(topology.between.bandwidth / local, topology.between.latency)
    stages = min(ring_all_reduce(size / local, share, hosts), tree_all_reduce(size / local, share, hosts))
    return stages + 2 * ring_stage(size, topology.inside, local)


def ring_all_reduce(size: float, link: Link, members: int) -> float:
    """A reduce-scatter and an all-gather around a ring: the least that has to travel, in 2 (p - 1) messages."""
    return 2 * ring_stage(size, link, members)


def ring_stage(size: float, link: Link, members: int) -> float:
    """A reduce-scatter or an all-gather of `size` bytes in all."""
    return (members - 1) * (link.latency + size / members / link.bandwidth)


def tree_all_reduce(size: float, link: Link, members: int) -> float:
    """Two binary trees, each of which reduces and broadcasts one half, in pieces that follow each other."""
    return 2 * math.ceil(math.log2(members)) * link.latency + 2 * size / link.bandwidth


def all_to_all(size: float, topology: Topology, devices: int) -> float:
    """Seconds in which each device sends each other one its part of `size` bytes."""
    hosts, local = hosts_of(topology, devices)
    part = size / devices
    inside = (local - 1) * (topology.inside.latency + part / topology.inside.bandwidth)
    if hosts == 1:
        return inside
    others = devices - local
    return inside + others * (topology.between.latency + local * part / topology.between.bandwidth)


def all_gather(size: float, topology: Topology, devices: int) -> float:
    """Seconds in which each device gets `size` bytes, a part of them from each device, around a ring through all."""
    hosts, _ = hosts_of(topology, devices)
    if hosts == 1:
        return ring_stage(size, topology.inside, devices)
    latency = hosts * topology.between.latency + (devices - hosts) * topology.inside.latency
    return latency + (devices - 1) / devices * size / topology.between.bandwidth


def hosts_of(topology: Topology, devices: int) -> tuple[int, int]:
    """The number of hosts, and of devices in each. Errors: ValueError if they would not be full."""
    if devices <= topology.devices:
        return 1, devices
    if devices % topology.devices:
        raise ValueError(f"{devices} devices do not fill hosts of {topology.devices}")
    return devices // topology.devices, topology.devices
