"""Several devices of one process train as one of them does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .devices import GUARDED_STEPS, NETWORKS

SCRIPT = Path(__file__).with_name("devices.py")
TRAINING = "the training step for minibatches of up to "


def process(*arguments, **variables):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(SCRIPT.parents[2] / "src")} | variables
    ended = subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return ended


def run(*arguments, **variables):
    return json.loads(process(*arguments, **variables).stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def runs():
    return {devices: run(devices) for devices in (1, 3)}


@pytest.mark.parametrize("network", NETWORKS)
def test_parameters_and_losses_are_those_of_one_device(runs, network):
    assert runs[3]["devices"] == 3
    learned, expected = (np.array(runs[n]["learned"][network]) for n in (3, 1))
    np.testing.assert_allclose(learned, expected, rtol=1e-5, atol=2e-6)


def test_each_device_computes_a_share_of_the_minibatch(runs):
    programs = [text.removeprefix(TRAINING) for text in runs[3]["programs"] if text.startswith(TRAINING)]
    assert programs[0] == "6"


def test_steps_end_where_xla_has_few_threads_for_the_devices():
    """With three threads for two devices XLA's queue, once it is full, leaves one, which waits for another for ever."""
    assert np.isfinite(run(2, "far_ahead", PJRT_NPROC="3"))


def test_a_step_copies_nothing_between_devices_and_sends_few_arrays_to_each():
    """Also where layers stay as they are, and trainers take turns. The error of a copy is that of jax's guard."""
    sent = process(2, "in_turns").stderr.count("host-to-device transfer")
    assert 0 < sent <= GUARDED_STEPS * 2 * 3
