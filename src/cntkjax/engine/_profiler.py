"""JAX's profiler, whose traces open in TensorBoard, XProf or Perfetto."""
from __future__ import annotations


def start_trace(directory: str) -> None:
    """Record everything from now on; the files go below ``directory``."""
    import jax

    jax.profiler.start_trace(directory)


def stop_trace() -> None:
    """Stop recording and write the files."""
    import jax

    jax.profiler.stop_trace()
