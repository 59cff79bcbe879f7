"""The model of data-parallel training against formulas, published figures, the compiled program, and real links."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks import scaling, scaling_networks
from benchmarks.resources import HERE
from benchmarks.scaling_model import (
    MODES,
    Link,
    Machine,
    Network,
    Topology,
    all_reduce,
    bytes_sent,
    efficiency,
    exchange_seconds,
    step_seconds,
)

FREE = Machine({})
ONE_HOST = Topology("", 64, Link(1e9, 1e-5), Link(1, 1))
FLAT = Topology("", 1, Link(1, 1), Link(1e9, 1e-5))


def test_a_ring_moves_twice_the_message_and_takes_twice_as_many_messages_as_there_are_others():
    assert all_reduce(8e6, ONE_HOST, 4) == pytest.approx(2 * 3 / 4 * 8e6 / 1e9 + 2 * 3 * 1e-5)
    assert all_reduce(8e6, FLAT, 4) == pytest.approx(all_reduce(8e6, ONE_HOST, 4))
    assert all_reduce(8e6, FLAT, 1) == 0


def test_small_messages_take_the_logarithm_of_the_number_of_devices():
    assert all_reduce(4, ONE_HOST, 64) == pytest.approx(2 * 6 * 1e-5, rel=1e-3)


def test_between_hosts_only_what_the_host_must_send_travels():
    hosts = Topology("", 8, Link(1e12, 0), Link(1e9, 0))
    assert all_reduce(8e6, hosts, 32) == pytest.approx(2 * 3 / 4 * 8e6 / 1e9, rel=0.01)
    with pytest.raises(ValueError, match="12 devices do not fill hosts of 8"):
        all_reduce(8e6, hosts, 12)


def test_overlapped_communication_costs_what_the_backward_pass_does_not_hide():
    network = Network("", 1, 0.3, 100_000_000, 1000, 0)
    exchange = exchange_seconds(network, "32", FLAT, 2)
    assert step_seconds(network, "32", FLAT, 2, FREE, overlap=True) == pytest.approx(0.3 + exchange - 0.2)
    assert efficiency(network, "blocks", FLAT, 2, FREE) > efficiency(network, "1", FLAT, 2, FREE)


def test_the_example_of_microsofts_slides():
    """160 million parameters, 1/7 s for 1024 samples, 6 GB/s: an exchange takes 1/9 s; 2 GPUs are slower than one."""
    whole, link = Network("", 1024, 1 / 7, 160_000_000, 20_000, 0), Topology("", 2, Link(6e9, 1e-5), Link(1, 1))
    assert exchange_seconds(whole, "32", link, 2) == pytest.approx(1 / 9, rel=0.05)
    half = replace(whole, samples=512, seconds=1 / 14)
    assert step_seconds(half, "32", link, 2, FREE) > whole.seconds
    assert step_seconds(half, "1", link, 2, FREE) < 0.55 * whole.seconds


@pytest.mark.parametrize("make, millions", [
    (scaling_networks.fcn5, 13.7), (scaling_networks.resnet50, 25.6), (scaling_networks.vgg16, 138.4),
])
def test_networks_have_their_published_sizes(make, millions):
    assert make().values / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize("workers", [2, 4])
def test_the_model_sends_what_the_compiled_program_sends(workers):
    script = HERE.parent / "tests" / "parallel" / "traffic.py"
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "JAX_PLATFORMS": "cpu"}
    printed = subprocess.run(
        [sys.executable, script, str(workers)], capture_output=True, text=True, check=True, env=environment
    ).stdout
    for bits, sent in json.loads(printed.splitlines()[-1]).items():
        if "divided" in bits:
            continue  # the simulator has no divided state
        assert bytes_sent(scaling_networks.fcn5(), bits, workers) == pytest.approx(sent, rel=0.01)


def test_every_network_scales_worse_over_slower_links_and_the_tables_say_so(capsys):
    scaling.main([])
    table = capsys.readouterr().out
    assert all(topology.name in table for topology in scaling.TOPOLOGIES.values())
    for make in scaling_networks.NETWORKS:
        network = make()
        assert table.count(f"| {network.name} | 1024 |") == 3
        for mode in MODES:
            fast, medium, slow = (
                efficiency(network, mode, topology, 256, scaling_networks.H100)
                for topology in scaling.TOPOLOGIES.values()
            )
            assert 1 > fast > medium > slow > 0
