"""Hosts that are network namespaces of this machine, joined by links of a chosen speed: Linux, root, ip and tc.

Each host has one interface; tc's token bucket limits what it sends and what it receives.
Nothing outside the namespaces is changed, and they are gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_PORT = 29400
_BUCKET = 0.004  # seconds of traffic: a tick of the kernel


def why_not() -> str:
    """Why this machine cannot make links; '' if it can."""
    if not hasattr(os, "geteuid") or os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        return "needs Linux, root, and ip and tc (apt-get install iproute2)"
    name = f"cj{os.getpid()}t"
    if _run("ip", "netns", "add", name, check=False):
        return "this machine allows no network namespaces"
    refused = _run("ip", "-n", name, "link", "add", "name", "switch", "type", "bridge", check=False)
    _run("ip", "netns", "del", name)
    return "this machine allows no bridges" if refused else ""


class Links:
    """Some hosts at a switch."""

    def __init__(self, hosts: int, folder: Path) -> None:
        self._names = [f"cj{os.getpid()}h{i}" for i in range(hosts)]
        self._switch = f"cj{os.getpid()}s"
        self._folder = folder

    def make(self) -> None:
        """Make the namespaces."""
        _run("ip", "netns", "add", self._switch)
        _ip(self._switch, "link add name switch type bridge")
        _ip(self._switch, "link set switch up")
        for i, name in enumerate(self._names):
            _run("ip", "netns", "add", name)
            _ip(name, f"link add name eth0 type veth peer name port{i} netns {self._switch}")
            _ip(name, f"addr add {_address(i)}/24 dev eth0")
            for namespace, device in (name, "lo"), (name, "eth0"), (self._switch, f"port{i}"):
                _ip(namespace, f"link set {device} up")
            _ip(self._switch, f"link set port{i} master switch")
            # Gloo listens at the address of the host's own name
            (self._folder / name).write_text(f"127.0.0.1 localhost\n{_address(i)} {socket.gethostname()}\n")

    def remove(self) -> None:
        """Remove the namespaces, and so the links in them."""
        for name in [*self._names, self._switch]:
            _run("ip", "netns", "del", name, check=False)

    def limit(self, bits_per_second: float | None) -> None:
        """The speed of each link, in each direction; None for no limit."""
        for i, name in enumerate(self._names):
            for namespace, device in (name, "eth0"), (self._switch, f"port{i}"):
                _run("tc", "-n", namespace, "qdisc", "del", "dev", device, "root", check=False)
                if bits_per_second is not None:
                    bucket = f"rate {bits_per_second:.0f}bit burst {max(bits_per_second * _BUCKET / 8, 1 << 16):.0f}b"
                    _run(*f"tc -n {namespace} qdisc add dev {device} root tbf {bucket} latency 1s".split())

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> list[subprocess.Popen[str]]:
        """Start a worker on each host, whose output is piped, and its input too."""
        return [
            subprocess.Popen(
                ["ip", "netns", "exec", name, "sh", "-c", f'mount --bind {self._folder / name} /etc/hosts && exec "$@"',
                 "sh", *command],
                env={**environment, "CNTKJAX_COORDINATOR": f"{_address(0)}:{_PORT}", "CNTKJAX_RANK": str(rank),
                     "CNTKJAX_SIZE": str(len(self._names))},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            ) for rank, name in enumerate(self._names)
        ]


@contextmanager
def links(hosts: int) -> Iterator[Links]:
    """The links of so many hosts, for as long as the block runs. Errors: OSError if this machine does not allow it."""
    with tempfile.TemporaryDirectory() as folder:
        result = Links(hosts, Path(folder))
        try:
            result.make()
            yield result
        finally:
            result.remove()


def _address(host: int) -> str:
    return f"10.211.55.{host + 1}"  # inside the namespaces only


def _ip(namespace: str, command: str) -> None:
    _run("ip", "-n", namespace, *command.split())


def _run(*command: str, check: bool = True) -> int:
    """Errors: OSError if the command fails and `check` is set."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.returncode
