"""JAX's persistent compilation cache, for this package's programs only.

The directory is `CNTKJAX_CACHE_DIR` (set it to '' to turn the cache off), by default `~/.cache/cntkjax/xla`. If the
user has set JAX's own cache directory, that one is used. JAX's settings are changed only while one of this package's
programs compiles.
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


def directory(kind: str = "xla") -> str:
    """The directory of compiled programs, or of another kind of files; '' if the cache is off."""
    chosen = os.environ.get("CNTKJAX_CACHE_DIR")
    if chosen is None:
        return str(Path.home() / ".cache" / "cntkjax" / kind)
    return chosen if kind == "xla" or not chosen else os.path.join(chosen, kind)


@contextmanager
def persistent() -> Iterator[None]:
    """A scope in which compiled programs are looked up in the cache and stored there."""
    path = directory()
    if not path or jax.config.values.get("jax_compilation_cache_dir"):
        yield
        return
    settings = {
        "jax_compilation_cache_dir": path,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_enable_xla_caches": "none",
    }
    with _LOCK:
        before = {name: getattr(jax.config, name) for name in settings}
        for name, value in settings.items():
            jax.config.update(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()
