"""Arguments that cannot be: every public function, class and method gets them, one at a time in a call that is valid.

The result is an object or an error of the package's own, of a type that scripts expect, which names the function, the
argument or its value. What the package accepts is no part of this test: test_mistakes.py holds single cases.
"""

import gc
import importlib
import inspect
import io
import signal
import sys
from contextlib import suppress

import numpy as np
import pytest

from cntkjax.debugging import stop_profiler
from cntkjax.graph.arguments import is_checked
from cntkjax.logging import get_trace_level
from cntkjax.logging._tensorboard import _EventFile
from cntkjax.logging._trace_level import _TraceLevelState

from . import calls
from .calls import CALLS, C

IMPOSSIBLE = {
    "None": lambda: None,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-3": lambda: -3,
    "0": lambda: 0,
    "2.5": lambda: 2.5,
    "2**40": lambda: 2**40,
    "2**70": lambda: 2**70,
    "'b'": lambda: "b",
    "''": lambda: "",
    "()": lambda: (),
    "too long": lambda: [1] * 7,
    "[None]": lambda: [None],
    "{'a': 1}": lambda: {"a": 1},
    "object()": object,
    "objects": lambda: np.array([object(), None]),
    "empty array": lambda: np.zeros(0, np.float32),
    "function": lambda: len,
    "axis": C.Axis.default_batch_axis,
    "sequences": lambda: C.sequence.input_variable(5),
}
EXPECTED = (ValueError, TypeError, RuntimeError, OSError, OverflowError)
LOOKUPS = (IndexError, KeyError)  # of items, where Python's protocol asks for them
SECONDS = 5  # of processor time, for one call
LENGTHS = ("max_epochs", "epoch_size", "max_samples")  # of training, which may be long
CALLED = {"__call__": "variable", "__matmul__": "times", "__getitem__": "["}  # what messages call special methods
POSITIONAL = ("custom_op", "output_shape", "output_data_type")  # before operands of any number


pytestmark = pytest.mark.filterwarnings("ignore")  # of writers that were left open, when they are collected


class Endless(BaseException):
    """A call that takes too long."""


def function_of(path):
    """The function or bound method that a path names, in CNTK's package or among the objects of `calls`."""
    try:
        return eval("C." + path, vars(calls))
    except (NameError, AttributeError):
        return eval(path, vars(calls))


def call(path, **replaced):
    arguments = CALLS[path]() | replaced
    positional = [arguments.pop(k) for k in sorted(arguments) if k[0] == "*"]
    if POSITIONAL[0] in arguments:
        positional = [arguments.pop(k) for k in POSITIONAL] + positional
    return function_of(path)(*positional, **arguments)


def arguments_of(path):
    parameters = inspect.signature(function_of(path)).parameters.values()
    optional = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return dict.fromkeys([*CALLS[path](), *optional])


def complaint(path, name, value):
    """What is wrong with what a call says about an impossible argument; None if nothing is."""
    try:
        call(path, **{name: value})
        return None
    except Endless:
        return "it does not end"
    except Exception as error:
        message = str(error)
        expected = (*EXPECTED, *LOOKUPS) if "__getitem__" in path or "input_map" in name else EXPECTED
        if not isinstance(error, expected) or isinstance(error, RecursionError):
            return f"{type(error).__name__}: {message}"
        function = path.rpartition(".")[2].partition("(")[0]
        function = CALLED.get(function, function)
        names = (function, name.strip("*"), repr(value)[:20], type(value).__name__, str(value))
        is_named = any(n and n.lower() in message.lower() for n in names)
        return None if is_named else f"{type(error).__name__} names nothing: {message}"


def interrupt(number, frame):
    raise Endless


@pytest.mark.parametrize("path", CALLS)
def test_impossible_arguments_are_errors_that_name_them(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(_TraceLevelState, "level", get_trace_level())
    signal.signal(signal.SIGPROF, interrupt)
    complaints = []
    try:
        call(path)
        for name in arguments_of(path):
            for label, make in IMPOSSIBLE.items():
                if path.endswith(".train") and name in LENGTHS and label == "2**40":
                    continue
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                problem = complaint(path, name, make())
                complaints += [f"{name} = {label}: {problem}"] if problem else []
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        stop_profiler()
        if "TensorBoard" in path:
            for writer in [o for o in gc.get_objects() if isinstance(o, _EventFile)]:
                with suppress(ValueError):  # closed before
                    writer.events.close()  # or it would warn in the test in which it is collected
        gc.collect()  # writers that were left open warn when they are collected
    assert not complaints, "\n".join(complaints)


PUBLIC = (
    "", "ops.sequence", "random", "layers", "losses", "metrics", "learners", "io", "io.transforms", "logging",
    "logging.graph", "debugging", "train", "train.distributed", "eval", "initializer", "misc", "device",
    "default_options",
)
LEFT_OUT = {
    "created by the package": "DeviceDescriptor DistributedLearner IterableSource Record default_override_or",
    "takes anything: what it is made from checks it": "Function Learner get_default_override",
    "needs an accelerator, or changes it for the process": "gpu get_gpu_properties set_matmul_precision",
    "needs lattice files": "lattice_sequence_with_softmax",
    "draws a picture: tests/logging": "plot_training",
    "has no arguments": (
        "mpi_communicator compilation_report disable_profiler enable_profiler stop_profiler get_trace_level"
    ),
    "another name of a function in the table, or a helper": "input associative_multi_arg",
}


def test_every_public_function_is_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where what methods belong to is made
    called = {getattr(f, "__func__", f) for f in map(function_of, CALLS)}
    called.add(C.learners.sgd)  # `C.sgd` is a package that calls it, once cntkjax.sgd is imported
    left_out = set(" ".join(LEFT_OUT.values()).split())
    missing = set()
    for name in PUBLIC:
        module = importlib.import_module("cntkjax" + ("." + name if name else ""))
        for public, thing in vars(module).items():
            function = thing.__init__ if inspect.isclass(thing) else thing
            if public[0] != "_" and not inspect.ismodule(thing) and is_checked(function) and thing not in called:
                missing.add(public)
    assert missing - left_out == set()


def test_the_arguments_of_every_public_function_are_checked():
    """Of those that the package has itself, `from .file import *` and CNTK's further names for them included."""
    unchecked = set()
    for name in PUBLIC:
        module = importlib.import_module(f"cntkjax.{name}".rstrip("."))
        functions = [getattr(module, public) for public in getattr(module, "__all__", ())]
        unchecked |= {
            f"{name}.{f.__name__}" for f in functions
            if inspect.isfunction(f) and f.__module__.startswith(module.__name__) and not is_checked(f)
        }
    assert unchecked == set()
