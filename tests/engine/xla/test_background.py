"""A thread for tasks: in order, one at a time; and the process ends, whatever interrupts who submits them."""

import os
import random
import subprocess
import sys
import threading
import time

import pytest

from cntkjax.engine.xla import background
from cntkjax.engine.xla.background import Background
from tests.stress.training import interrupted


def test_tasks_run_in_order_and_return_their_results():
    results = [Background("tasks").submit(lambda i: 2 * i, i) for i in range(5)]
    assert [result.result() for result in results] == [0, 2, 4, 6, 8]


def test_an_error_is_raised_where_the_result_is_asked_for():
    failed = Background("tasks").submit(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result()


def test_an_idle_thread_ends_and_another_one_begins(monkeypatch):
    monkeypatch.setattr(background, "_IDLE_SECONDS", 0.01)
    tasks = Background("idle")
    first = tasks.submit(threading.get_ident).result()
    assert first != threading.get_ident()
    while any(thread.name == "idle" for thread in threading.enumerate()):
        time.sleep(0.001)
    assert tasks.submit(lambda: 3).result() == 3


@pytest.mark.usefixtures("terminal_signals")
# an interrupt may come in jax's callback of the garbage collector, which Python reports instead of raising it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tasks_stay_in_order_when_those_who_submit_them_are_interrupted(monkeypatch):
    monkeypatch.setattr(background, "_IDLE_SECONDS", 1e-4)  # so that most tasks begin a thread
    rng, tasks, running, order = random.Random(0), Background("tasks"), threading.Lock(), []

    def task(i):
        assert running.acquire(blocking=False), "two tasks at a time"
        order.append(i)
        running.release()

    results, count = [], 0
    for i in range(500):
        count += interrupted("signal", rng.uniform(0, 3e-4), lambda: results.append(tasks.submit(task, i)))  # noqa: B023
    tasks.submit(lambda: None).result()
    assert count and order == sorted(order) and len(order) >= len(results)
    for result in results:
        result.result()


PROGRAM = """
import _thread, sys, time
from cntkjax.engine.xla.background import Background
tasks = Background("tasks", finishes=True)
start = _thread.start_new_thread
def interrupted(*arguments):
    _thread.start_new_thread = start
    start(*arguments)
    raise KeyboardInterrupt
_thread.start_new_thread = interrupted
try:
    tasks.submit(time.sleep, 0.2)
except KeyboardInterrupt:
    pass
tasks.submit(lambda: (time.sleep(0.2), print("finished", flush=True)))
"""


def test_a_process_ends_when_its_tasks_have_even_if_a_thread_was_begun_in_an_interrupt():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert run.stdout == "finished\n", run.stderr


def test_tasks_that_have_not_begun_are_dropped_at_the_end():
    background, begun, go_on, done = Background("tasks"), threading.Event(), threading.Event(), []

    def task():
        begun.set()
        go_on.wait()
        done.append("first")

    background.submit(task)
    second = background.submit(lambda: done.append("second"))
    begun.wait()
    threading.Timer(0.05, go_on.set).start()
    background._stop()
    assert done == ["first"] and second.cancelled()


def test_tasks_of_exit_functions_run_at_once():
    for finishes in (True, False):
        background = Background("tasks", finishes)
        background._stop()
        assert background.submit(threading.get_ident).result(0) == threading.get_ident()


AT_EXIT = """
import atexit, sys
atexit.register(lambda: print(len(f.eval([[[1]]]))))  # before cntk registers what ends its own threads

import cntk as C
f = C.layers.Recurrence(getattr(C.layers, sys.argv[1])(2))(C.sequence.input_variable(1))
"""


def test_exit_functions_evaluate_whoever_registered_them_first(tmp_path):
    environment = os.environ | {"CNTKJAX_CACHE_DIR": str(tmp_path)}
    for cell in ("LSTM", "GRU"):  # the second process finds all in the store, but for its own program
        run = subprocess.run(
            [sys.executable, "-c", AT_EXIT, cell], env=environment, capture_output=True, text=True, timeout=60
        )
        assert run.stdout == "1\n", run.stderr
