"""Executables: compiled when needed or ahead of that, for inputs of any kind, and run by one call in C."""

import os
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest
from jax._src.interpreters import pxla

import cntkjax as C
from cntkjax.engine.data.ragged import Ragged
from cntkjax.engine.lower.carry import Memory
from cntkjax.engine.run import quick_starts
from cntkjax.engine.run.executables import Executables
from cntkjax.engine.run.program import Program
from cntkjax.engine.run.program_cache import plan_of
from cntkjax.engine.xla.work import _LOST_TIME

ONES = (np.ones(3, np.float32),)
SHAPES = (jax.ShapeDtypeStruct((3,), np.float32),)


PROGRAMS = """
import os
import cntkjax as C

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

graphs = []
for n in range(1, 46):
    graphs.append(C.negate(C.constant(1, shape=n)))
    graphs[-1].eval()
    if n == 5:  # what is loaded at first use
        before = resident()
print(resident() - before)
"""


def doubling():
    """Executables that double an array, and the list of the threads that traced it."""
    threads = []

    def double(x):
        threads.append(threading.current_thread())
        return 2 * x

    return Executables(double, is_double=False), threads


def test_of_many_executables_those_that_ran_last_are_kept():
    executables, _ = doubling()
    for size in [*range(1, 65), 1, 65, 66]:
        outputs = []
        executables.run(size, (np.ones(size, np.float32),), outputs)
        np.testing.assert_array_equal(outputs[0], np.full(size, 2))
    assert len(executables) == 64
    assert executables.ready(1)
    assert not executables.ready(2)
    assert not executables.ready(3)
    executables.run(2, (np.ones(2, np.float32),), outputs)
    np.testing.assert_array_equal(outputs[-1], [2, 2])


def wait_for(executables, signature):
    for _ in range(6000):
        if executables.ready(signature):
            return
        time.sleep(0.01)
    raise AssertionError("it was not compiled")


def test_what_is_compiled_from_shapes_in_the_background_runs_on_arrays():
    executables, threads = doubling()
    executables.compile_in_background("key", SHAPES)
    wait_for(executables, "key")
    executable = executables.get("key", ONES)
    assert executable.run(*ONES).tolist() == [2, 2, 2] and executable.seconds > 0
    assert len(threads) == 1 and threads[0] is not threading.main_thread()


def test_what_is_under_way_in_the_background_is_waited_for_not_compiled_twice():
    executables, threads = doubling()
    executables.compile_in_background("key", SHAPES)
    executables.compile_in_background("key", SHAPES)
    assert executables.get("key", ONES).run(*ONES).tolist() == [2, 2, 2]
    wait_for(executables, "key")
    assert len(threads) == 1 and len(executables) == 1


def test_an_error_in_the_background_is_raised_where_the_executable_is_needed():
    def fail(x):
        raise ArithmeticError("cannot be traced")

    executables = Executables(fail, is_double=False)
    executables.compile_in_background("key", SHAPES)
    with pytest.raises(ArithmeticError, match="cannot be traced"):
        executables.get("key", ONES)
    assert executables.ready("key") is None


def test_an_executable_is_a_function_in_c():
    """What `handover.hand_over` relies on: no bytecode runs after it."""
    executables, _ = doubling()
    assert not hasattr(executables.get("key", ONES).run, "__code__")
    assert type(executables.get("key", ONES).run) is type(jax.jit(abs))


def test_after_a_first_run_that_was_interrupted_later_ones_are_called_in_c_again(monkeypatch):
    """What jax had to call from Python for ever would lose what is donated when an exception comes there."""
    executables, _ = doubling()
    outputs, calls, call = [], [], pxla.MeshExecutable.call

    def interrupted(self, *arguments):
        calls.append(len(calls))
        if len(calls) == 1:
            raise KeyboardInterrupt
        return call(self, *arguments)

    monkeypatch.setattr(pxla.MeshExecutable, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        executables.run("key", ONES, outputs)
    for _ in range(3):
        executables.run("key", ONES, outputs)
    assert [output.tolist() for output in outputs] == [[2, 2, 2]] * 3
    assert calls == [0, 1], "the first one, and once more"


def test_other_options_of_jax_have_executables_of_their_own():
    executables, threads = doubling()
    executables.get("key", ONES)
    with jax.default_matmul_precision("float32"):
        assert executables.ready("key") is None
        executables.get("key", ONES)
    executables.get("key", ONES)
    assert len(threads) == 2


def test_double_precision_holds_in_the_background():
    executables = Executables(lambda x: x / 3, is_double=True)
    executables.compile_in_background("key", (np.ones(()),))
    wait_for(executables, "key")
    with jax.enable_x64(True):
        assert float(executables.get("key", (np.ones(()),)).run(np.ones(()))) == 1 / 3


def program():
    """A program that adds to what it is donated."""
    x = C.input_variable(2)
    plan = plan_of(C.tanh(x).outputs)
    return plan, Program(plan, "add", lambda plan, ctx, env, donated, extra: donated + 1, False, donate=True)


def pack(plan, program):
    return program.pack(plan, [Ragged(np.ones((2, 2), np.float32), None)], Memory())


def test_a_program_that_was_compiled_in_the_background_does_not_compile_when_it_runs():
    plan, add = program()
    minibatch = pack(plan, add)
    add.compile_in_background(minibatch, [], None, jax.ShapeDtypeStruct((3,), np.float32))
    wait_for(add.executables, minibatch.signature)
    outputs = []
    add(minibatch, [], None, jax.numpy.ones(3), capture=outputs)
    assert outputs[0]().tolist() == [2, 2, 2] and len(add.executables) == 1


@pytest.mark.parametrize("times", [1, 2])
def test_arrays_of_another_type_than_a_program_was_compiled_for_are_computed(times):
    plan, add = program()
    minibatch, outputs = pack(plan, add), []
    for _ in range(times):
        add(minibatch, [], None, jax.numpy.ones(3), capture=outputs)
    integers = jax.numpy.ones(3, np.int32)
    add(minibatch, [], None, integers, capture=outputs)
    assert outputs[-1]().dtype == np.int32 and outputs[-1]().tolist() == [2, 2, 2]


@pytest.fixture
def quick_products(monkeypatch):
    """Programs of one product that were compiled quickly are replaced when they have computed twelve elements."""
    monkeypatch.setattr(quick_starts, "LOST_TIME_OF_AN_OPERATION", 12 * _LOST_TIME["mul"])


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the options are for the CPU")
def test_a_small_program_is_compiled_thoroughly_when_it_keeps_running(quick_products):
    x = C.input_variable(3)
    plan = plan_of(C.negate(x).outputs)
    negate = Program(plan, "negate", lambda plan, ctx, env, donated, extra: donated * 2, False, quick_start=True)
    minibatch = negate.pack(plan, [Ragged(np.ones((1, 3), np.float32), None)], Memory())
    used = []
    for _ in range(7):  # three elements in a run
        assert negate(minibatch, [], None, np.ones(3, np.float32)).tolist() == [2, 2, 2]
        used.extend(negate.executables)
    assert len({id(e) for e in used[:4]}) == 1 and len({id(e) for e in used[4:]}) == 1
    assert used[0] is not used[4] and used[4].allowance.left > 1e9 and len(used) == 7


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the options are for the CPU")
@pytest.mark.parametrize("quick_start, size, is_quick", [(True, 12, True), (True, 13, False), (False, 12, False)])
def test_a_program_starts_quick_if_it_is_small_and_may(quick_products, quick_start, size, is_quick):
    executables = Executables(lambda x: x * x, False, quick_start)
    executable = executables.get("key", (np.ones(size, np.float32),))
    assert (executable.allowance.left == 1) if is_quick else (executable.allowance.left > 1e9)


def test_what_is_compiled_in_the_background_is_compiled_thoroughly(quick_products):
    executables = Executables(lambda x: 2 * x, is_double=False, quick_start=True)
    executables.compile_in_background("key", SHAPES)
    wait_for(executables, "key")
    assert executables.get("key", ONES).allowance.left > 1e9


def test_without_jit_a_function_runs_as_python_code():
    executables, threads = doubling()
    with jax.disable_jit():
        for _ in range(2):
            assert executables.get("key", ONES).run(*ONES).tolist() == [2, 2, 2]
    assert len(threads) == 2, "called each time, not traced once"
    assert executables.ready("key") is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_of_a_small_program_that_was_compiled_its_executable_alone_stays():
    """It takes 0.15 MB; jax would also keep the trace and modules of MLIR, 1.4 MB."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAMS], env=os.environ | {"CNTKJAX_CACHE_DIR": ""},  # nothing is loaded
        capture_output=True, text=True, check=True,
    )
    assert int(process.stdout) < 25e6  # 40 programs
