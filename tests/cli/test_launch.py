"""`cntkjax launch` starts workers that train as one process does, and ends all when one fails or it is ended."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cntkjax.cli import _launch, main

HERE = Path(__file__).parent
SCRIPT = HERE / "launched.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "JAX_PLATFORMS": "cpu"}


def launch(*arguments):
    """The launcher's process. Its two workers are those of launched.py."""
    command = [sys.executable, "-m", "cntkjax.cli", "launch", "-n", "2", *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(launcher):
    output, errors = launcher.communicate(timeout=200)
    return launcher.returncode, output, errors


def trained(folder):
    first, second = np.load(folder / "0.npy"), np.load(folder / "1.npy")
    np.testing.assert_array_equal(first, second)
    return first


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The parameters and the output of a run in which nothing fails."""
    folder = tmp_path_factory.mktemp("undisturbed")
    status, output, errors = finish(launch(SCRIPT, "train", folder))
    assert status == 0, errors
    return trained(folder), output


def test_workers_train_as_a_single_process(undisturbed, tmp_path):
    parameters, output = undisturbed
    assert "[0] worker 0 of 2 has finished\n" in output and "[1] worker 1 of 2 has finished\n" in output
    subprocess.run([sys.executable, SCRIPT, "train", tmp_path], env=ENVIRONMENT, check=True, capture_output=True)
    np.testing.assert_allclose(parameters, np.load(tmp_path / "0.npy"), rtol=1e-6)


def test_the_error_of_the_worker_that_fails_is_printed_last(tmp_path):
    status, _, errors = finish(launch(SCRIPT, "train", tmp_path, "raise"))
    assert status == 1
    report = errors[errors.index("cntkjax launch: worker 1 failed with exit status 1") :]
    assert "KeyError: 'no such field'" in report.splitlines()[-1]
    assert errors.count("[1] Traceback") == 1  # where it was printed: not a second time


def test_a_job_has_the_exit_status_of_the_worker_that_fails_and_logs_of_all(tmp_path):
    status, output, errors = finish(launch("--logs", tmp_path / "logs", SCRIPT, "train", tmp_path, "exit"))
    assert (status, output) == (3, "")
    assert errors.startswith("cntkjax launch: worker 1 failed with exit status 3")
    assert re.search(r"worker 1 \(on .*\) was killed or crashed", (tmp_path / "logs" / "worker-0.log").read_text())
    assert (tmp_path / "logs" / "worker-1.log").exists()


def test_a_restarted_job_ends_with_the_parameters_of_an_undisturbed_one(undisturbed, tmp_path):
    status, output, errors = finish(launch("--restarts", 1, SCRIPT, "train", tmp_path, "once"))
    assert status == 0, errors
    assert "worker 1 failed with SIGKILL" in errors and "restart 1 of 1" in errors and "[1] restored" in output
    np.testing.assert_array_equal(trained(tmp_path), undisturbed[0])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can kill processes with their parent; reads /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_worker_is_left_when_the_launcher_is_ended(number, tmp_path):
    launcher = launch("--restarts", 5, SCRIPT, "wait", tmp_path)
    lines = [launcher.stdout.readline() for _ in range(2)]
    processes = [line.split()[2:] for line in lines]
    children = [int(child) for _, child in processes]
    launcher.send_signal(number)
    try:
        status, _, _ = finish(launcher)
        assert status == (-number if number == signal.SIGKILL else 128 + number)
        assert not await_end([int(worker) for worker, _ in processes])
        assert number == signal.SIGKILL or not await_end(children)
    finally:
        for child in filter(is_running, children):
            os.kill(child, signal.SIGKILL)


def await_end(processes, seconds=20):
    """Those that are still running then."""
    deadline = time.monotonic() + seconds
    while any(map(is_running, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return list(filter(is_running, processes))


def is_running(process):
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="needs two cores, on Linux")
def test_workers_on_the_cpu_have_cores_of_their_own(tmp_path):
    """With a thread for each core in each worker, a minibatch takes up to 1.25 times as long."""
    script = tmp_path / "cores.py"
    script.write_text("import os; print(sorted(os.sched_getaffinity(0)))")
    status, output, errors = finish(launch(script))
    assert status == 0, errors
    first, second = (set(map(int, re.findall(r"\d+", line.partition("]")[2]))) for line in output.splitlines())
    assert not first & second and first | second == os.sched_getaffinity(0)


def test_launchers_on_two_hosts_start_the_workers_of_one_job(undisturbed, tmp_path):
    """Both hosts are this one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    hosts = ["--hosts", "first,second", "--coordinator", address]
    launchers = [launch(*hosts, "--host-index", index, SCRIPT, "train", tmp_path) for index in range(2)]
    for rank, launcher in enumerate(launchers):
        status, output, errors = finish(launcher)
        assert status == 0, errors
        assert f"[{rank}] worker {rank} of 2 has finished" in output
    np.testing.assert_array_equal(trained(tmp_path), undisturbed[0])


@pytest.mark.parametrize("arguments, message", [
    (["-n", "2", "missing.py"], "there is no file 'missing.py'; the working directory is"),
    (["-n", "2", str(HERE)], "is a folder"),
    (["-n", "0", str(SCRIPT)], "at least one worker"),
    (["-n", "3", "--hosts", "a,b", str(SCRIPT)], "cannot be divided evenly among 2 hosts: a,b"),
    (["-n", "4", str(SCRIPT)], "4 workers need a device each, but this host has 2"),
])
def test_options_that_cannot_work_are_an_error(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(_launch, "_visible_accelerators", lambda: 2)
    assert main(["launch", *arguments]) == 1
    assert message in capsys.readouterr().err
