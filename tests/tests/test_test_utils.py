"""Names that CNTK's notebooks and scripts import from ``cntk.tests`` and ``cntk.ops.tests``."""
import numpy as np
import pytest

import cntkjax as C
from cntkjax import device
from cntkjax.ops.tests import ops_test_utils
from cntkjax.tests import test_utils


@pytest.fixture(autouse=True)
def chosen(monkeypatch):
    """The devices that were set as the default."""
    devices = []
    monkeypatch.setattr(device, "try_set_default_device", devices.append)
    monkeypatch.setattr(device._devices, "accelerators", lambda: ())
    return devices


def test_the_environment_names_the_device(monkeypatch, chosen):
    monkeypatch.setenv("TEST_DEVICE", "cpu")
    test_utils.set_device_from_pytest_env()
    assert chosen == [device.cpu()]


def test_the_accelerator_must_exist(monkeypatch):
    monkeypatch.setenv("TEST_DEVICE", "gpu")
    with pytest.raises(ValueError, match="GPU device id"):
        test_utils.set_device_from_pytest_env()


def test_without_the_variable_nothing_changes(monkeypatch, chosen):
    monkeypatch.delenv("TEST_DEVICE", raising=False)
    test_utils.set_device_from_pytest_env()
    assert chosen == []


def test_numbers_of_devices_are_those_of_cntk_1():
    assert ops_test_utils.cntk_device(-1) == device.cpu()
    with pytest.raises(ValueError, match="GPU device id"):
        ops_test_utils.cntk_device(0)


def test_helper_compares_values_and_gradients():
    x = C.input_variable(2, needs_gradient=True)
    data = {x: np.ones((1, 2), np.float32)}
    ops_test_utils.unittest_helper(x * 2, data, [[2, 2]], {x: [[2, 2]]})
    for values, gradients in [([[2, 3]], None), ([[[2, 2]]], None), ([[2, 2]], {x: [[2, 3]]})]:
        with pytest.raises(AssertionError):
            ops_test_utils.unittest_helper(x * 2, data, values, gradients)


def test_lists_of_arrays_agree_in_any_order():
    ones, zeros = np.ones(2), np.zeros(2)
    assert ops_test_utils.compare_lists_of_np_arrays([ones, zeros], [zeros, ones + 1e-7])
    assert not ops_test_utils.compare_lists_of_np_arrays([ones], [ones, ones])
    assert not ops_test_utils.compare_lists_of_np_arrays([ones], [zeros])
