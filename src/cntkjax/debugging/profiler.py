"""Where the time goes: CNTK's profiler functions, on JAX's profiler.

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

from cntkjax.engine import _profiler

__all__ = ["start_profiler", "stop_profiler", "enable_profiler", "disable_profiler"]


class _State:
    directory: str | None = None
    recording: bool = False


def start_profiler(dir: str = "profiler", sync_gpu: bool = True, reserve_mem: int = 32 * 1024 * 1024) -> None:
    """Prepare to profile into the folder ``dir``; ``enable_profiler`` then begins to record.

    Each recording is a trace below ``dir``, which TensorBoard, XProf and Perfetto show. ``sync_gpu`` and
    ``reserve_mem`` steer CNTK's own profiler; JAX's needs neither.

    Errors: RuntimeError if profiling has been started already.
    """
    if _State.directory is not None:
        raise RuntimeError(f"the profiler runs already, into '{_State.directory}'; call stop_profiler() first")
    os.makedirs(dir, exist_ok=True)
    _State.directory = dir


def enable_profiler() -> None:
    """Begin to record; without ``start_profiler`` before it, do nothing."""
    if _State.directory is not None and not _State.recording:
        _profiler.start_trace(_State.directory)
        _State.recording = True


def disable_profiler() -> None:
    """Stop recording, if that was going on, and write the trace."""
    if _State.recording:
        _State.recording = False
        _profiler.stop_trace()


def stop_profiler() -> None:
    """End profiling, and write the trace if it was recording."""
    disable_profiler()
    _State.directory = None
