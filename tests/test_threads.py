"""Threads of the package begin, and run what they are for once, whatever happens to those that start them."""

import _thread
import os
import subprocess
import sys
import threading
import time

import pytest

from cntkjax import _threads
from cntkjax._threads import cores, start_thread
from tests.stress.training import interrupted


@pytest.fixture
def runs(monkeypatch):
    """What threads have run."""
    monkeypatch.setattr(_threads, "_PATIENCE_SECONDS", 0.01)
    return []


def test_a_thread_has_its_name_and_does_not_keep_the_process_alive(runs):
    done = threading.Event()
    start_thread(lambda: (runs.append(threading.current_thread()), done.set()), "of a test")
    assert done.wait(10)
    assert (runs[0].name, runs[0].daemon) == ("of a test", True)


def test_another_thread_is_started_where_one_never_begins(runs, monkeypatch):
    start, starts = _thread.start_new_thread, []

    def lose_the_first(*arguments):
        starts.append(arguments)
        if len(starts) > 1:
            start(*arguments)

    monkeypatch.setattr(_thread, "start_new_thread", lose_the_first)
    done = threading.Event()
    start_thread(lambda: (runs.append(1), done.set()), "of a test")
    assert done.wait(10) and runs == [1]


def test_of_threads_that_begin_late_one_runs(runs, monkeypatch):
    start, latest, done = _thread.start_new_thread, threading.Event(), threading.Event()

    def later(begin, arguments):
        return start(lambda: (time.sleep(0.1), begin(*arguments), time.sleep(0.2), latest.set()), ())

    monkeypatch.setattr(_thread, "start_new_thread", later)
    start_thread(lambda: (runs.append(1), done.set()), "of a test")
    assert done.wait(10) and latest.wait(10) and runs == [1]


# CPython 3.11 reports an exception that has met a thread which is being created
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_exceptions_that_other_threads_send_do_not_keep_a_thread_from_beginning(runs):
    delays = [2e-5 * (i % 10) for i in range(500)]
    interrupts = sum(interrupted("thread", delay, lambda: start_thread(int, "of a test")) for delay in delays)
    assert interrupts < len(delays)
    done = threading.Event()
    start_thread(done.set, "of a test")
    assert done.wait(10)


DAEMON = """
import threading
import cntk as C

loop = C.layers.Recurrence(C.layers.LSTM(8))(C.sequence.input_variable(1))
has_begun = threading.Event()

def evaluate():
    while True:
        loop.eval([[[1]] * 9])
        has_begun.set()

threading.Thread(target=evaluate, daemon=True).start()
has_begun.wait()
"""


def test_a_process_ends_although_a_daemon_thread_evaluates():
    run = subprocess.run([sys.executable, "-c", DAEMON], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not say which cores may be used")
def test_cores_of_other_workers_do_not_count():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
