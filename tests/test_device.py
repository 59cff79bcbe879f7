"""Devices: CNTK's names for what JAX sees. What CNTK answers was recorded on a machine without a GPU."""
import subprocess
import sys

import pytest

from cntkjax import device


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch):
    monkeypatch.setattr(device._Choice, "default", None)
    monkeypatch.setattr(device._Choice, "excluded", frozenset())


class FakeAccelerator:
    platform, device_kind, compute_capability = "gpu", "Pretend 9000", "8.6"

    def memory_stats(self):
        return {"bytes_limit": 3 << 30}


@pytest.fixture
def two_accelerators(monkeypatch):
    fakes = (FakeAccelerator(), FakeAccelerator())
    monkeypatch.setattr(device._devices, "accelerators", lambda: fakes)
    return fakes


@pytest.fixture
def no_accelerator(monkeypatch):
    monkeypatch.setattr(device._devices, "accelerators", lambda: ())


def test_importing_the_module_does_not_import_jax():
    script = "import sys, cntkjax.graph.seed; before = 'jax' in sys.modules; import cntkjax.device; " \
             "assert before or 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_the_cpu_is_one_device():
    assert device.cpu() == device.cpu()
    assert hash(device.cpu()) == hash(device.cpu())
    assert (str(device.cpu()), device.cpu().id(), device.cpu().type()) == ("CPU", 0, device.DeviceKind.CPU)
    assert not device.cpu().is_locked()
    assert device.jax_device(device.cpu()).platform == "cpu"


def test_kinds_equal_cntk_s_numbers():
    assert [int(kind) for kind in device.DeviceKind] == [0, 1]
    assert str(device.DeviceKind.GPU) == "DeviceKind.GPU"
    assert device.cpu().type() != device.DeviceKind.GPU


def test_without_an_accelerator_the_cpu_computes(no_accelerator):
    assert device.all_devices() == (device.cpu(),)
    assert device.use_default_device() == device.cpu()


def test_an_accelerator_that_is_not_there_is_refused(no_accelerator):
    with pytest.raises(ValueError, match=r"GPU device id \(0\) is invalid.*pip install"):
        device.gpu(0)


def test_the_first_accelerator_computes_by_default(two_accelerators):
    assert device.all_devices() == (device.gpu(0), device.gpu(1), device.cpu())
    assert device.use_default_device() == device.gpu(0)
    assert device.jax_device() is two_accelerators[0]
    assert device.jax_device(device.gpu(1)) is two_accelerators[1]
    with pytest.raises(ValueError, match=r"GPU device id \(2\) is invalid"):
        device.gpu(2)


def test_an_accelerator_says_its_name(two_accelerators):
    assert str(device.gpu(1)) == "GPU[1] Pretend 9000"


def test_the_default_can_be_set(two_accelerators):
    assert device.try_set_default_device(device.gpu(1))
    assert device.use_default_device() == device.gpu(1)
    assert device.try_set_default_device(device.cpu())
    assert device.use_default_device() == device.cpu()


def test_the_cpu_cannot_be_locked(two_accelerators):
    assert device.try_set_default_device(device.gpu(0), True)
    assert not device.try_set_default_device(device.cpu(), acquire_device_lock=True)
    assert device.use_default_device() == device.gpu(0)


def test_excluded_devices_are_not_chosen(two_accelerators):
    device.set_excluded_devices([device.gpu(0)])
    assert not device.try_set_default_device(device.gpu(0))
    assert device.use_default_device() == device.gpu(1)


def test_an_excluded_device_that_is_the_default_stays(no_accelerator):
    device.try_set_default_device(device.cpu())
    device.set_excluded_devices([device.cpu()])
    assert device.use_default_device() == device.cpu()


def test_with_all_devices_excluded_there_is_no_default(no_accelerator):
    device.set_excluded_devices([device.cpu()])
    with pytest.raises(RuntimeError, match="every device is excluded"):
        device.use_default_device()


def test_something_that_is_no_device_is_refused():
    with pytest.raises(TypeError, match="needs a device such as"):
        device.try_set_default_device("gpu")


def test_properties_of_an_accelerator(two_accelerators):
    properties = device.get_gpu_properties(device.gpu(1))
    assert (properties.device_id, properties.name, properties.total_memory) == (1, "Pretend 9000", 3072)
    assert (properties.version_major, properties.version_minor) == (8, 6)


def test_the_cpu_has_no_gpu_properties():
    with pytest.raises(ValueError, match="cannot be obtained for a CPU"):
        device.get_gpu_properties(device.cpu())
