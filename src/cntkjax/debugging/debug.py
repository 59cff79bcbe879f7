"""Settings that help to debug a model."""
from __future__ import annotations

from .._typing import FileName
from .._user_code import warn
from ..engine.run.compilations import CompilationReport, report
from ..graph.arguments import public
from ..graph.seed import set_fixed_random_seed
from ..graph.settings import Settings
from ..ops import output_variable
from ..ops._user_functions import UserFunction, user_function
from ..ops.functions import CloneMethod, Function
from ._stepping import DEBUG_USAGE, _DebugNode, debug_model

__all__ = [
    "DEBUG_USAGE", "CloneMethod", "UserFunction", "_DebugNode", "compilation_report", "debug_model",
    "force_deterministic", "output_variable", "save_as_legacy_model", "set_checked_mode",
    "set_computation_network_trace_level", "set_node_timing", "user_function",
]


@public
def force_deterministic(seed: int) -> None:
    """Seed all random numbers, and use only deterministic algorithms: runs are identical bit by bit.

    Errors: TypeError if ``seed`` is no integer, OverflowError if it is negative or has more than 64 bits.

    >>> force_deterministic(1)
    """
    set_fixed_random_seed(seed)
    Settings.deterministic = True


@public
def set_checked_mode(enable: bool) -> None:
    """Check every result for NaN if enabled; an error names the operation. Computation is slower.

    Errors: TypeError if ``enable`` is no bool.

    >>> set_checked_mode(False)
    """
    Settings.checked = _flag("set_checked_mode", enable)


@public
def set_computation_network_trace_level(level: int) -> None:
    """Set how much is reported about programs: from level 1 on, each compilation is reported on stderr.

    A report lists the content of the program and the time of its compilation. Programs are compiled for each new graph,
    and again for new shapes of data, so reports also explain why training waits. CNTK prints internals of its own
    network instead.

    Errors: TypeError if ``level`` is no integer.

    >>> set_computation_network_trace_level(0)
    """
    if not isinstance(level, int):
        raise TypeError(f"set_computation_network_trace_level() needs an int, not {level!r}")
    Settings.trace_level = level


@public
def set_node_timing(enable: bool) -> None:
    """Run and time each operation separately if enabled, before a minibatch is computed as a whole.

    ``print_node_timing`` of a Function or a Trainer reports the times. As XLA fuses all operations into one program,
    they add up to more than the minibatch takes. A recurrent loop is timed as one operation, under its first delay.
    Graphs with Python code of users are not timed. CNTK cannot disable timing.

    Units: seconds, averaged over the runs of each operation.

    Errors: TypeError if ``enable`` is no bool.

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


@public
def compilation_report() -> CompilationReport:
    """How much of this process's time was compilation: a record with totals and all programs, which prints as a table.

    An extension of CNTK. Programs that an earlier process has compiled are loaded, which takes a fraction of the time.

    Units: seconds.

    >>> import cntkjax as C
    >>> value = C.tanh([1, 2]).eval()
    >>> report = compilation_report()
    >>> 0 < report.waited < report.elapsed
    True
    >>> "programs were compiled" in str(report)
    True
    """
    return report()


def _flag(function: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{function}() needs True or False, not {value!r}")
    return value


@public
def save_as_legacy_model(root_op: Function, filename: FileName) -> None:
    """Save a model in the format of CNTK 2, with a warning: the format of CNTK 1 can only be read, not written.

    Errors: those of ``Function.save``.

    >>> import os, tempfile, warnings
    >>> import cntkjax as C
    >>> with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action='ignore'):
    ...     save_as_legacy_model(C.constant(1) + 2, os.path.join(folder, 'model'))
    ...     C.load_model(os.path.join(folder, 'model')).eval().item()
    3.0
    """
    warn(
        f"save_as_legacy_model writes '{filename}' in the format of CNTK 2, not in that of CNTK 1; call save() to "
        "avoid this warning",
    )
    root_op.save(filename)
