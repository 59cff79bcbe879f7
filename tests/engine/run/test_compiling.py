"""The compilation of a function: the options that it gets, and what is kept of tracing it."""

import functools
import gc

import jax
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr

import cntkjax as C
from cntkjax.engine.run import compiling
from cntkjax.engine.xla import compiler
from cntkjax.engine.xla.work import operations


@pytest.mark.parametrize("size, count, expected", [(20, 5, "small"), (21, 5, "compiler"), (10, 11, "compiler")])
def test_the_options_depend_on_what_a_program_computes_alone(monkeypatch, size, count, expected):
    """Not on whether it is needed now or compiled in the background, so that training resumes bit for bit."""
    monkeypatch.setattr(compiling, "_SMALL_ELEMENTS", 100)
    monkeypatch.setattr(compiling, "_SMALL_OPERATIONS", 10)
    traced = jax.jit(lambda x: functools.reduce(lambda y, _: jax.lax.sin(y), range(count), x)).trace(np.ones(size, "f"))
    assert compiling._choice_for(traced.jaxpr.jaxpr, count).thorough == getattr(compiler, f"{expected}_options")()


def test_the_operations_of_a_program_are_counted_once(monkeypatch):
    counts = []
    monkeypatch.setattr(compiling, "operations", lambda jaxpr: counts.append(operations(jaxpr)) or counts[-1])
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    before = len(C.debugging.compilation_report().programs)
    x = C.input_variable(7)
    C.reduce_sum(C.tanh(x) * x).grad({x: np.ones((2, 7))}, wrt=[x])
    assert len(counts) == len(C.debugging.compilation_report().programs) - before == 1


def test_functions_that_were_traced_within_programs_are_forgotten(monkeypatch):
    monkeypatch.setattr(compiling, "_KEPT_TRACES", 1)
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    before = number_of_traces()
    for n in range(1, 41):
        C.reduce_sum(C.constant(1, shape=(n, 3)), axis=0).eval()
    assert number_of_traces() - before < 20


def number_of_traces():
    gc.collect()
    return sum(type(o) is ClosedJaxpr for o in gc.get_objects())
