"""The compilation of a function: the options that it gets, and what is kept of tracing it."""

import functools
import gc
import os
import signal
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr

import cntkjax as C
from cntkjax._interrupts import awaited, deferred_interrupts
from cntkjax.engine.lower import nodes
from cntkjax.engine.run import compiling
from cntkjax.engine.xla import compiler
from cntkjax.engine.xla.background import beside
from cntkjax.engine.xla.memory import MemoryNeeds
from cntkjax.engine.xla.work import operations
from cntkjax.graph.errors import OutOfMemoryError


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


@pytest.mark.usefixtures("terminal_signals")
def test_an_interrupt_does_not_wait_for_what_xla_compiles():
    has_ended = threading.Event()
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        awaited(beside(has_ended.wait))
    has_ended.set()


@pytest.mark.usefixtures("terminal_signals")
def test_an_interrupt_while_a_program_is_traced_takes_effect_before_it_is_compiled():
    has_ended = threading.Event()
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        awaited(beside(has_ended.wait))
    has_ended.set()


@pytest.mark.usefixtures("terminal_signals")
def test_an_interrupt_takes_effect_between_the_nodes_of_a_graph_that_is_traced(monkeypatch):
    """Not within one: what jax does there is finished. The function is evaluated afterwards as if nothing had been."""
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    computed, compute = [], nodes.compute

    def interrupted(ctx, node, operands):
        os.kill(os.getpid(), signal.SIGINT)
        values = compute(ctx, node, operands)
        computed.append(node.op_name)
        return values

    x = C.input_variable(19)
    f = C.square(C.sin(x + 1))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(nodes, "compute", interrupted)
        f.eval({x: np.zeros((1, 19), np.float32)})
    assert len(computed) == 1
    np.testing.assert_allclose(f.eval({x: np.zeros((1, 19), np.float32)}), np.full((1, 19), np.sin(1) ** 2), rtol=1e-6)


@pytest.mark.parametrize("error, code", [("KeyboardInterrupt", -signal.SIGINT), ("SystemExit(3)", 3)])
def test_a_process_that_is_interrupted_does_not_wait_for_what_xla_compiles(error, code):
    """It ends as by the signal; any other end waits, since XLA must not be left in the midst of its work."""
    seconds = 600 if code < 0 else 0.5
    script = f"""
import sys, time
from cntkjax.engine.xla.background import beside
from cntkjax.engine.xla.memory import MemoryNeeds
beside(lambda: (time.sleep({seconds}), print("compiled")))
raise {error}
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (process.returncode, process.stdout.strip()) == (code, "" if code < 0 else "compiled")
    assert ("KeyboardInterrupt" in process.stderr) == (code < 0)


@pytest.fixture
def newly_compiled(monkeypatch):
    """Compiles tanh of vectors of a size where 1 TB is free of 2 TB."""
    monkeypatch.setattr(compiling, "memory", lambda device: MemoryNeeds(10**12, 2 * 10**12))
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")

    def evaluate(size):
        x = C.input_variable(size)
        return C.tanh(x * 2 + 1).eval({x: np.ones((1, size), np.float32)})

    return evaluate


def test_a_program_that_may_need_more_memory_than_is_free_says_so(monkeypatch, newly_compiled):
    monkeypatch.setattr(compiling, "_BYTES", 5 * 10**10)  # for each of some 30 operations
    with pytest.warns(UserWarning, match="compiling [0-9,]+ operations may take .* GB of memory, and 1000.0 GB are"):
        newly_compiled(11)


def test_a_program_that_needs_more_memory_than_there_is_is_refused(monkeypatch, newly_compiled):
    with monkeypatch.context() as patch:
        patch.setattr(compiling, "_BYTES", 10**12)
        with pytest.raises(OutOfMemoryError, match="and there are 2000.0 GB") as caught:
            newly_compiled(12)
    assert "evaluate or train parts of the graph one after the other" in str(caught.value)
    np.testing.assert_allclose(newly_compiled(12), np.full((1, 12), np.tanh(3)), rtol=1e-6)


def test_long_compilations_run_in_a_thread_of_their_own(monkeypatch):
    monkeypatch.setattr(compiling, "_LONG", 0)
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    threads = []
    compiled = compiling._compiled
    monkeypatch.setattr(compiling, "_compiled", lambda *a: threads.append(threading.current_thread()) or compiled(*a))
    x = C.input_variable(13, dtype=np.float64)
    values = C.tanh(x / 3).eval({x: np.ones((1, 13))})
    np.testing.assert_allclose(values, np.tanh(np.full((1, 13), 1 / 3)), rtol=1e-12)
    assert threads and threading.main_thread() not in threads


@pytest.mark.parametrize("is_enabled", [True, False])
def test_tracing_leaves_the_collection_of_garbage_as_it_was(monkeypatch, is_enabled):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    x, during = C.input_variable(17 + is_enabled), []
    bounded = compiling.bounded
    monkeypatch.setattr(compiling, "bounded", lambda traced: during.append(gc.isenabled()) or bounded(traced))
    if not is_enabled:
        gc.disable()
    try:
        C.tanh(x - 1).eval({x: np.ones((1, *x.shape), np.float32)})
        assert (during, gc.isenabled()) == ([False], is_enabled)
    finally:
        gc.enable()
