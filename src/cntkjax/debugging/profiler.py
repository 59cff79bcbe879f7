"""Where the time goes: CNTK's profiler functions, with JAX's profiler beside them.

Example:
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     start_profiler(folder)
    ...     stop_profiler()
    ...     os.listdir(folder)
    []
"""
from __future__ import annotations

import os

from ..engine.run import profiler as _profiler

__all__ = ["start_profiler", "stop_profiler", "enable_profiler", "disable_profiler"]


class _State:
    directory: str | None = None
    recording: bool = False


def start_profiler(dir: str = "profiler", sync_gpu: bool = True, reserve_mem: int = 32 * 1024 * 1024) -> None:
    """Prepare to profile into the folder ``dir``; ``enable_profiler`` then begins to record.

    ``stop_profiler`` writes ``<time>_detail_.json`` there, which opens in chrome://tracing and https://ui.perfetto.dev,
    and ``<time>_summary_.txt``: each program (a minibatch is one), and with ``set_node_timing(True)`` each operation,
    forward and backward. While it records, programs are waited for. JAX's own trace of what happens inside them lies
    below ``plugins`` for TensorBoard and XProf. ``sync_gpu`` and ``reserve_mem`` have nothing to steer here.

    Errors: RuntimeError if profiling has been started already.
    """
    if _State.directory is not None:
        raise RuntimeError(f"the profiler runs already, into '{_State.directory}'; call stop_profiler() first")
    os.makedirs(dir, exist_ok=True)
    _State.directory = dir
    _profiler.start()


def enable_profiler() -> None:
    """Begin to record; without ``start_profiler`` before it, do nothing."""
    if _State.directory is not None and not _State.recording:
        _profiler.start_trace(_State.directory)
        _profiler.set_enabled(True)
        _State.recording = True


def disable_profiler() -> None:
    """Stop recording, if that was going on; ``enable_profiler`` goes on with it."""
    if _State.recording:
        _State.recording = False
        _profiler.set_enabled(False)
        _profiler.stop_trace()


def stop_profiler() -> None:
    """End profiling, and write the files."""
    disable_profiler()
    if _State.directory is not None:
        _profiler.finish(_State.directory)
    _State.directory = None
