"""Debugging and profiling of models."""

from ._dump import dump_function, dump_signature
from .debug import (
    DEBUG_USAGE,
    CloneMethod,
    UserFunction,
    compilation_report,
    debug_model,
    force_deterministic,
    output_variable,
    save_as_legacy_model,
    set_checked_mode,
    set_computation_network_trace_level,
    set_node_timing,
    user_function,
)
from .profiler import disable_profiler, enable_profiler, start_profiler, stop_profiler

__all__ = [
    "DEBUG_USAGE", "CloneMethod", "UserFunction", "compilation_report", "debug_model", "disable_profiler",
    "dump_function", "dump_signature", "enable_profiler", "force_deterministic", "output_variable",
    "save_as_legacy_model", "set_checked_mode", "set_computation_network_trace_level", "set_node_timing",
    "start_profiler", "stop_profiler", "user_function",
]

