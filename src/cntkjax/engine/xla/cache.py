"""jax's persistent compilation cache for this package's programs alone.

The directory is `CNTKJAX_CACHE_DIR` (set it to '' to turn the cache off), by default `~/.cache/cntkjax/xla`. A user who
has set jax's own cache directory gets that one. jax's settings are changed only while one of our programs compiles.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

_LOCK = threading.RLock()


def directory() -> str:
    """Where compiled programs are kept; '' if nowhere."""
    return os.environ.get("CNTKJAX_CACHE_DIR", str(Path.home() / ".cache" / "cntkjax" / "xla"))


@contextmanager
def persistent() -> Iterator[None]:
    """A scope in which what is compiled is looked up in the cache and stored there."""
    path = directory()
    if not path or jax.config.values.get("jax_compilation_cache_dir"):
        yield
        return
    ours = {
        "jax_compilation_cache_dir": path,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_enable_xla_caches": "none",
    }
    with _LOCK:
        before = {name: getattr(jax.config, name) for name in ours}
        for name, value in ours.items():
            jax.config.update(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()
