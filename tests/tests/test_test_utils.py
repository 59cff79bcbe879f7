"""Names that CNTK's notebooks import from ``cntk.tests``."""
import pytest

from cntkjax import device
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
