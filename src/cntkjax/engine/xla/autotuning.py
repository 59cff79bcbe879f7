"""What XLA:GPU has measured to choose kernels, kept for later processes.

For each product, convolution and some fusions XLA times several kernels, which takes seconds for a new program. It can
keep the results in a folder, in files that it trusts. Here that folder belongs to one process: it is filled from one
entry of the store of compiled programs (`cache.py`), which is checked as all entries are, and what is new goes there
after each compilation. An entry is for one kind of device, version of XLA and of the driver.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
import threading
from functools import cache
from pathlib import Path

from .cache import Store, store
from .compiler import known
from .descriptions import digest
from .environment import device_and_versions
from .platform import platform

OPTION = "xla_gpu_per_fusion_autotune_cache_dir"
_FILE = re.compile(r"[\w+=-][\w.+=-]*")  # the name of a file of XLA, and no other path


class Results:
    """The results for one kind of device, in a folder in which XLA reads and writes them."""

    def __init__(self, entries: Store, key: str) -> None:
        self._entries, self._key = entries, key
        self._lock = threading.Lock()
        self.folder = Path(tempfile.mkdtemp(prefix="cntkjax-autotuning-"))  # only this user may read and write it
        atexit.register(self._remove, os.getpid())
        self._stored = self._read()
        for name, content in self._stored.items():
            (self.folder / name).write_bytes(content.encode("latin-1"))

    def save(self) -> None:
        """Store what XLA has added; what other processes have stored meanwhile stays."""
        with self._lock:
            files = [path for path in self.folder.iterdir() if path.is_file() and path.name not in self._stored]
            if files:
                new = {path.name: path.read_bytes().decode("latin-1") for path in files}
                self._stored = self._read() | self._stored | new
                self._entries.write(self._key, json.dumps(self._stored).encode())

    def _read(self) -> dict[str, str]:
        content = self._entries.read(self._key)
        results = {} if content is None else json.loads(content)
        return {name: text for name, text in results.items() if _FILE.fullmatch(name)}

    def _remove(self, process: int) -> None:
        if os.getpid() == process:  # not in a forked one
            shutil.rmtree(self.folder, ignore_errors=True)


def results() -> Results | None:
    """Those for the device in use; None on a CPU, without a store, or if XLA has no such option any more."""
    entries = store()
    if platform() == "cpu" or entries is None or not known({OPTION: ""}):
        return None
    return _results(entries, digest("autotuning", device_and_versions()))


@cache
def _results(entries: Store, key: str) -> Results:
    return Results(entries, key)


__all__ = ["OPTION", "Results", "results"]
