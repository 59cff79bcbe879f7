"""`cntkjax launch --hosts` starts workers on several hosts, with ssh; here all hosts are this one."""

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest

from cntkjax.cli import main
from cntkjax.cli._hosts import Host, hosts_of

from .test_launch import ENVIRONMENT, SCRIPT, await_end, finish, trained

HOSTS = "127.0.0.2,127.0.0.3"  # addresses of this machine, which it does not know to be its own


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """What stands for ssh: a shell with an environment of its own."""
    path = tmp_path_factory.mktemp("bin") / "ssh"
    path.write_text('#!/bin/sh\nshift 2\nexec env -i PATH="$PATH" HOME="$HOME" sh -c "$*"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    """The ssh command of a server that runs during the tests."""
    server = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if server is None or shutil.which("ssh") is None:
        pytest.skip("OpenSSH's server and client are not installed (apt-get install openssh-server)")
    folder = tmp_path_factory.mktemp("ssh")
    folder.chmod(0o700)
    for key in "host", "user":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    if os.getuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # sshd insists on it
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    options = [
        f"HostKey={folder / 'host'}", f"AuthorizedKeysFile={folder / 'user.pub'}", "StrictModes=no", "UsePAM=no",
        "PidFile=none", f"Port={port}", "ListenAddress=127.0.0.2", "ListenAddress=127.0.0.3",
    ]
    command = [server, "-D", "-e", "-f", "/dev/null", *(word for option in options for word in ("-o", option))]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        await_listening(port, process, folder / "log")
        yield (
            f"ssh -F none -p {port} -i {folder / 'user'} -l {getpass.getuser()} -o StrictHostKeyChecking=no "
            f"-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        )
    finally:
        process.terminate()
        process.wait()


def await_listening(port, process, log):
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        try:
            return socket.create_connection(("127.0.0.3", port)).close()
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"sshd does not listen: {log.read_text()}")


def launch(ssh, *arguments, hosts=HOSTS):
    command = [
        sys.executable, "-m", "cntkjax.cli", "launch", "-n", "2", "--hosts", hosts, "--ssh", ssh, *map(str, arguments)
    ]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(params=["a shell", "sshd"])
def ssh(request):
    return request.getfixturevalue({"a shell": "shell", "sshd": "sshd"}[request.param])


def test_workers_on_two_hosts_train_as_a_single_process(ssh, tmp_path):
    status, output, errors = finish(launch(ssh, SCRIPT, "train", tmp_path))
    assert status == 0, errors
    for rank in range(2):
        assert f"[{rank}] worker {rank} of 2 has finished\n" in output
    assert "\0" not in output
    subprocess.run([sys.executable, SCRIPT, "train", tmp_path], env=ENVIRONMENT, check=True, capture_output=True)
    np.testing.assert_allclose(trained(tmp_path), np.load(tmp_path / "0.npy"), rtol=1e-6)


def test_when_a_worker_fails_those_on_all_hosts_end_and_its_error_is_printed_last(shell, tmp_path):
    status, _, errors = finish(launch(shell, SCRIPT, "train", tmp_path, "raise"))
    assert status == 1
    report = errors[errors.rindex("cntkjax launch: worker 1 failed with exit status 1") :]
    assert "KeyError: 'no such field'" in report.splitlines()[-1]
    assert re.search(r"\[0\] .*worker 1 .* raised KeyError", errors)  # as an exception, or as the reason of its end


def test_all_hosts_start_again_after_a_failure(shell, tmp_path):
    (tmp_path / "other").mkdir()
    assert finish(launch(shell, SCRIPT, "train", tmp_path / "other"))[0] == 0
    status, output, errors = finish(launch(shell, "--restarts", 1, SCRIPT, "train", tmp_path, "once"))
    assert status == 0, errors
    assert "worker 1 failed with SIGKILL" in errors and "[1] restored" in output
    np.testing.assert_array_equal(trained(tmp_path), trained(tmp_path / "other"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("ssh, number", [("a shell", signal.SIGTERM), ("sshd", signal.SIGKILL)], indirect=["ssh"])
def test_no_worker_is_left_on_any_host_when_the_launcher_is_ended(ssh, number, tmp_path):
    launcher = launch(ssh, SCRIPT, "wait", tmp_path)
    lines = [launcher.stdout.readline() for _ in range(2)]
    processes = [int(word) for line in lines for word in line.split()[2:]]
    assert len(processes) == 4
    launcher.send_signal(number)
    status, _, _ = finish(launcher)
    assert status == (-number if number == signal.SIGKILL else 128 + number)
    assert not await_end(processes)


def test_a_host_that_cannot_be_reached_is_named(tmp_path):
    status, _, errors = finish(launch("sh -c 'echo no route >&2; exit 255'", SCRIPT, "train", tmp_path))
    assert status == 255
    assert "[127.0.0.2] no route\n" in errors
    assert errors.splitlines()[-2:] == ["cntkjax launch: host 127.0.0.2 failed with exit status 255", "no route"]


def test_options_that_only_one_host_finds_wrong_end_the_job(shell, tmp_path):
    """The second host has no such Python."""
    broken = tmp_path / "ssh"
    broken.write_text(f'#!/bin/sh\n[ "$1" = 127.0.0.3 ] && exec sh -c "no-such-python"\nexec {shell} "$@"\n')
    broken.chmod(0o755)
    status, _, errors = finish(launch(str(broken), SCRIPT, "train", tmp_path))
    assert status == 127
    assert "cntkjax launch: host 127.0.0.3 failed with exit status 127" in errors


def test_hosts_are_read_from_a_file_of_mpiexec(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# ours\nuser@node1 slots=4\n\nnode2:2  # MPICH's form\nnode3\n")
    assert hosts_of(None, file, None) == [Host("user@node1", 4), Host("node2", 2), Host("node3", 1)]
    assert hosts_of(None, file, 5) == [Host("user@node1", 4), Host("node2", 1)]
    assert Host("user@node1", 4).address == "node1"


@pytest.mark.parametrize("arguments, message", [
    (["--hosts", "a,b"], "give the number of workers: -n, or slots of the hosts, a:8"),
    (["-n", "7", "--hosts", "a:2,b:4"], "7 workers are more than the 6 slots of a:2,b:4"),
    (["-n", "2", "--hosts", "a:x"], "'a:x' is no host; write name, name:slots"),
    (["-n", "2", "--hosts", "a", "--hostfile", "b"], "give --hosts or --hostfile, not both"),
    (["-n", "2", "--hostfile", "missing"], "there is no file 'missing'; the working directory is"),
    (["-n", "2", "--hosts", "a,b", "--host-index", "2"], "--host-index 2: there are 2 hosts, counted from 0"),
    (["-n", "2", "--hosts", "a,b", "--host-index", "0"], "--coordinator a:PORT"),
])
def test_hosts_that_do_not_fit_together_are_an_error(arguments, message, capsys):
    assert main(["launch", *arguments, str(SCRIPT)]) == 1
    assert message in capsys.readouterr().err
