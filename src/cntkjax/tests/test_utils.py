"""Helpers that published CNTK scripts and notebooks import."""
from __future__ import annotations

import os

import numpy as np

from .. import device

AA = np.asarray
PRECISION_TO_TYPE = {"float": np.float32, "double": np.float64}
TOLERANCE_ABSOLUTE = 1e-6


def set_device_from_pytest_env() -> None:
    """Compute on the device that the environment variable TEST_DEVICE names: ``cpu``, or anything else for the first
    accelerator. Without the variable nothing changes; CNTK's tutorials call this first.

    Errors: ValueError if there is no accelerator.

    >>> set_device_from_pytest_env()
    """
    if wanted := os.environ.get("TEST_DEVICE"):
        device.try_set_default_device(device.cpu() if wanted == "cpu" else device.gpu(0))
