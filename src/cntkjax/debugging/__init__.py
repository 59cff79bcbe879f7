"""Finding out what is wrong, and where the time goes."""
from .debug import (
    DEBUG_USAGE,
    debug_model,
    force_deterministic,
    save_as_legacy_model,
    set_checked_mode,
    set_computation_network_trace_level,
    set_node_timing,
)
from .profiler import disable_profiler, enable_profiler, start_profiler, stop_profiler

__all__ = [
    "DEBUG_USAGE", "debug_model", "disable_profiler", "enable_profiler", "force_deterministic",
    "save_as_legacy_model", "set_checked_mode", "set_computation_network_trace_level", "set_node_timing",
    "start_profiler", "stop_profiler",
]
