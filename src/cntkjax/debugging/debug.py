"""Switches that help to find what is wrong."""
from __future__ import annotations

import warnings
from typing import Any

from ..graph.seed import set_fixed_random_seed
from ..graph.settings import Settings
from ..ops import output_variable
from ..ops._user_functions import UserFunction, user_function
from ..ops.functions import CloneMethod
from ._stepping import DEBUG_USAGE, _DebugNode, debug_model

__all__ = [
    "DEBUG_USAGE", "CloneMethod", "UserFunction", "_DebugNode", "debug_model", "force_deterministic", "output_variable",
    "save_as_legacy_model", "set_checked_mode", "set_computation_network_trace_level", "set_node_timing",
    "user_function",
]


def force_deterministic(seed: int) -> None:
    """Give everything this seed, and use only algorithms that give the same bits each time.

    Errors: TypeError if ``seed`` is no integer, OverflowError if it is negative or has more than 64 bits.

    Example:
        >>> force_deterministic(1)
    """
    set_fixed_random_seed(seed)
    Settings.deterministic = True


def set_checked_mode(enable: bool) -> None:
    """Whether every result is searched for NaN; an error then names the operation. It makes everything slower.

    Errors: TypeError if ``enable`` is no bool.

    Example:
        >>> set_checked_mode(False)
    """
    Settings.checked = _flag("set_checked_mode", enable)


def set_computation_network_trace_level(level: int) -> None:
    """From level 1 on, tell on stderr what a program is made of and how long it took whenever one is compiled.

    That is for each new graph, and again for new shapes of data: so it also tells why training waits. CNTK prints its
    own network's internals.

    Errors: TypeError if ``level`` is no integer.

    Example:
        >>> set_computation_network_trace_level(0)
    """
    if not isinstance(level, int):
        raise TypeError(f"set_computation_network_trace_level() needs an int, not {level!r}")
    Settings.trace_level = level


def set_node_timing(enable: bool) -> None:
    """Whether each operation is run and timed by itself, before the minibatch is computed as a whole.

    ``print_node_timing`` of a Function or a Trainer tells what was measured. XLA makes one program of all operations,
    so that the times are those of operations alone, and together more than the minibatch takes. A recurrent loop is
    timed as one, under its first delay. Graphs with Python code of users are not timed. CNTK cannot switch it off.

    Errors: TypeError if ``enable`` is no bool.

    Example:
        >>> import cntkjax as C
        >>> x = C.input_variable(2)
        >>> set_node_timing(True)
        >>> f = C.tanh(x)
        >>> value = f.eval({x: [[1, 2]]})
        >>> set_node_timing(False)
        >>> f.print_node_timing()
        Tanh... forward avg 0.0...s, backward avg 0.000000s (fwd# 1|bwd# 0)
    """
    Settings.timed = _flag("set_node_timing", enable)


def _flag(function: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{function}() needs True or False, not {value!r}")
    return value


def save_as_legacy_model(root_op: Any, filename: str) -> None:
    """Save a model in the format of CNTK 2, with a warning: that of CNTK 1, which CNTK writes, only CNTK can read.

    Example:
        >>> import os, tempfile, warnings
        >>> import cntkjax as C
        >>> with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action='ignore'):
        ...     save_as_legacy_model(C.constant(1) + 2, os.path.join(folder, 'model'))
        ...     C.load_model(os.path.join(folder, 'model')).eval().item()
        3.0
    """
    warnings.warn(
        f"save_as_legacy_model writes '{filename}' in the format of CNTK 2, not in that of CNTK 1", stacklevel=2
    )
    root_op.save(filename)
