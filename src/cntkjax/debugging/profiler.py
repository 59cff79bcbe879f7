"""CNTK's profiler functions, which also run JAX's profiler.

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
from ..graph.arguments import public
from ..graph.errors import UnwritableFileError

__all__ = ["start_profiler", "stop_profiler", "enable_profiler", "disable_profiler"]


class _Profiler:
    directory: str | None = None
    recording: bool = False


@public
def start_profiler(dir: str = "profiler", sync_gpu: bool = True, reserve_mem: int = 32 * 1024 * 1024) -> None:
    """Prepare profiling; ``enable_profiler`` starts recording.

    ``stop_profiler`` writes ``<time>_detail_.json``, which can be opened in chrome://tracing and
    https://ui.perfetto.dev, and ``<time>_summary_.txt``. They list each program (a minibatch is one), and with
    ``set_node_timing(True)`` each operation, forward and backward. While recording, each program is waited for. JAX's
    own trace of the programs is written below ``plugins``, for TensorBoard and XProf.

    Args:
        dir: folder for the files
        sync_gpu: accepted; has no effect
        reserve_mem: accepted; has no effect

    Errors: RuntimeError if profiling was started already, or the folder cannot be created.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     start_profiler(folder)
    ...     stop_profiler()
    """
    if _Profiler.directory is not None:
        raise RuntimeError(f"the profiler is running already, in '{_Profiler.directory}'; call stop_profiler() first")
    try:
        os.makedirs(dir, exist_ok=True)
    except OSError as error:
        raise UnwritableFileError(error.errno, error.strerror, dir) from error
    _Profiler.directory = dir
    _profiler.start()


@public
def enable_profiler() -> None:
    """Start or resume recording; has no effect before ``start_profiler``.

    >>> enable_profiler()
    """
    if _Profiler.directory is not None and not _Profiler.recording:
        _profiler.start_trace(_Profiler.directory)
        _profiler.set_enabled(True)
        _Profiler.recording = True


@public
def disable_profiler() -> None:
    """Pause recording; ``enable_profiler`` resumes it.

    >>> disable_profiler()
    """
    if _Profiler.recording:
        _Profiler.recording = False
        _profiler.set_enabled(False)
        _profiler.stop_trace()


@public
def stop_profiler() -> None:
    """End profiling, and write the files.

    >>> stop_profiler()
    """
    disable_profiler()
    if _Profiler.directory is not None:
        _profiler.finish(_Profiler.directory)
    _Profiler.directory = None
