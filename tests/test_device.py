"""CNTK's names for the devices of JAX. CNTK's behaviour was recorded on a machine without a GPU."""
import os
import shutil
import subprocess
import sys

import pytest

from cntkjax import device


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch):
    monkeypatch.setattr(device._Choice, "default", None)
    monkeypatch.setattr(device._Choice, "excluded", frozenset())
    monkeypatch.setattr(device._devices, "compute_on", lambda chosen: None)


class FakeAccelerator:
    platform, device_kind, compute_capability = "gpu", "Pretend 9000", "8.6"

    def memory_stats(self):
        return {"bytes_limit": 3 << 30}


@pytest.fixture
def two_accelerators(monkeypatch, tmp_path):
    fakes = (FakeAccelerator(), FakeAccelerator())
    monkeypatch.setattr(device._devices, "accelerators", lambda: fakes)
    locks = [device._devices.Lock(i) for i in (0, 1)]
    for i, lock in enumerate(locks):
        lock._path = str(tmp_path / f"{i}.lock")
    monkeypatch.setattr(device._devices, "lock", locks.__getitem__)
    yield fakes
    for lock in locks:
        lock.release()


@pytest.fixture
def another_process(tmp_path):
    """A function that lets another process hold the lock of an accelerator, until the end."""
    script = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); " \
             "print('held', flush=True); sys.stdin.read()"
    started = []

    def hold(number):
        process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / f"{number}.lock")],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        process.communicate()


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


def test_a_missing_accelerator_is_rejected(no_accelerator):
    with pytest.raises(ValueError, match=r"GPU device id \(0\) is invalid.*pip install"):
        device.gpu(0)


def test_the_error_shows_the_users_line(no_accelerator):
    with pytest.raises(ValueError, match=r"\[CALL STACK\]\ntest_device.py:\d+"):
        device.gpu(99999)


def test_the_first_accelerator_computes_by_default(two_accelerators):
    assert device.all_devices() == (device.gpu(0), device.gpu(1), device.cpu())
    assert device.use_default_device() == device.gpu(0)
    assert device.jax_device() is two_accelerators[0]
    assert device.jax_device(device.gpu(1)) is two_accelerators[1]
    with pytest.raises(ValueError, match=r"GPU device id \(2\) is invalid"):
        device.gpu(2)


def test_an_accelerator_reports_its_name(two_accelerators):
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


def test_a_device_that_another_process_reserved_is_not_chosen(two_accelerators, another_process):
    holder = another_process(0)
    assert device.gpu(0).is_locked() and not device.gpu(1).is_locked()
    assert not device.try_set_default_device(device.gpu(0))
    assert not device.try_set_default_device(device.gpu(0), True)
    assert device.use_default_device() == device.gpu(1)
    holder.communicate()
    assert not device.gpu(0).is_locked()
    assert device.try_set_default_device(device.gpu(0), acquire_device_lock=True)


def test_a_reservation_ends_when_another_device_is_taken(two_accelerators, tmp_path):
    check = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    def others_can_have_it():
        command = [sys.executable, "-c", check, str(tmp_path / "1.lock")]
        return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0

    assert device.try_set_default_device(device.gpu(1), True)
    assert not others_can_have_it() and not device.gpu(1).is_locked(), "it is ours, so for us it is free"
    assert device.try_set_default_device(device.cpu())
    assert others_can_have_it()


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """The home of a user, and a folder for temporary files that others write to as well."""
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    temporary.chmod(0o1777)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(device._devices.tempfile, "gettempdir", lambda: str(temporary))
    return home, temporary


def mode(path):
    return path.stat().st_mode & 0o777


def test_locks_are_private_files_in_the_user_s_cache(folders):
    home, temporary = folders
    lock = device._devices.Lock(0)
    assert lock.acquire()
    (file,) = (home / ".cache" / "cntkjax" / "locks").iterdir()
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert not list(temporary.iterdir())
    lock.release()


def test_a_lock_follows_no_links_and_changes_no_permissions(folders):
    home, temporary = folders
    victim = home / "diary.txt"
    victim.write_text("secret")
    victim.chmod(0o600)
    (temporary / "cntkjax-gpu0.lock").symlink_to(victim)  # the former folder of locks
    lock = device._devices.Lock(0)
    assert lock.acquire()
    lock.release()
    (file,) = (home / ".cache" / "cntkjax" / "locks").iterdir()
    file.unlink()
    file.symlink_to(victim)
    with pytest.raises(OSError, match=file.name):
        lock.acquire()
    assert (mode(victim), victim.read_text()) == (0o600, "secret")


@pytest.mark.parametrize("obstacle", ["link", "file", "writable by others"])
def test_locks_are_only_in_folders_of_this_user(folders, obstacle):
    home, temporary = folders
    (home / ".cache").write_text("not a folder")
    private = temporary / f"cntkjax-{os.geteuid()}"
    lock = device._devices.Lock(0)
    assert lock.acquire()
    lock.release()
    assert mode(private) == 0o700
    shutil.rmtree(private)
    if obstacle == "link":
        private.symlink_to(home)
    elif obstacle == "file":
        private.write_text("")
    else:
        private.mkdir()
        private.chmod(0o777)
    with pytest.raises(PermissionError, match=r"neither .*/locks nor .*/tmp/cntkjax-\d+ is a folder that this user"):
        device._devices.Lock(0).acquire()
    assert not [path for path in home.iterdir() if path.name.endswith(".lock")]


def test_the_default_device_is_where_jax_computes():
    script = """
import jax, cntkjax as C
from cntkjax.engine.xla import devices as _devices
_devices.accelerators = lambda: tuple(jax.devices("cpu")[1:])
C.try_set_default_device(C.gpu(1))
x = C.input_variable(1)
w = C.parameter((1,), init=1)
assert (x * w).eval({x: [[2]]}) == 2
from cntkjax.graph.variable import value_of
assert value_of(w).devices() == {jax.devices("cpu")[2]}, value_of(w).devices()
C.try_set_default_device(C.gpu(0))
assert jax.numpy.ones(1).devices() == {jax.devices("cpu")[0]} and jax.config.jax_default_device is None
"""
    flags = {"PYTHONPATH": ":".join(sys.path), "XLA_FLAGS": "--xla_force_host_platform_device_count=3"}
    subprocess.run([sys.executable, "-c", script], check=True, env=flags)


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


def test_the_default_is_set_again_although_it_is_excluded(no_accelerator):
    device.try_set_default_device(device.cpu())
    device.set_excluded_devices(device.cpu())
    assert device.try_set_default_device(device.cpu())


def test_cntks_names_for_the_functions():
    descriptor = device.DeviceDescriptor
    assert descriptor.cpu_device() == device.cpu() and descriptor.all_devices() == device.all_devices()
    assert device.cpu().as_string() == "CPU"


def test_an_object_that_is_not_a_device_is_rejected():
    for wrong, error in ((None, ValueError), ([0], TypeError)):
        with pytest.raises(error, match="needs a"):
            device.set_excluded_devices(wrong)
    with pytest.raises(ValueError, match="needs a device such as"):
        device.try_set_default_device(None)
    with pytest.raises(TypeError, match="needs a device such as"):
        device.get_gpu_properties(0)
    with pytest.raises(OverflowError, match="start at 0"):
        device.gpu(-1)
    with pytest.raises(TypeError, match="number of a device"):
        device.gpu("a")
    with pytest.raises(TypeError, match="needs a device such as"):
        device.try_set_default_device("gpu")


def test_properties_of_an_accelerator(two_accelerators):
    properties = device.get_gpu_properties(device.gpu(1))
    assert (properties.device_id, properties.name, properties.total_memory) == (1, "Pretend 9000", 3072)
    assert (properties.version_major, properties.version_minor) == (8, 6)


def test_the_cpu_has_no_gpu_properties():
    with pytest.raises(ValueError, match="cannot be obtained for a CPU"):
        device.get_gpu_properties(device.cpu())
