"""Cells: several values are replaced at once, whatever interrupts it."""

import ctypes
import sys
import threading
import time
from contextlib import suppress

import pytest

from cntkjax.graph.cells import Cell, commit


class Interrupt(Exception):
    pass


def test_a_commit_replaces_the_values_of_its_cells_only():
    a, b, c = Cell(1), Cell(2), Cell(3)
    commit({a: 10, c: 30})
    assert (a.value, b.value, c.value) == (10, 2, 30)


def test_no_exception_comes_between_two_cells_of_a_commit():
    """Exceptions sent to a thread while it commits find all cells replaced, or none."""
    if sys.gettrace():
        pytest.skip("a tracer, such as coverage, runs code of its own in the thread, and exceptions end that")
    cells = [Cell(0) for _ in range(200)]
    seen, ends = [], threading.Event()

    def train():
        number = 0
        while not ends.is_set():
            number += 1
            with suppress(Interrupt):
                commit(dict.fromkeys(cells, number))
            seen.append(len({cell.value for cell in cells}))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread = threading.Thread(target=lambda: _until_the_end(train, ends))
        thread.start()
        while len(seen) < 300:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupt))
            time.sleep(1e-5)  # exceptions without a pause would keep the thread from all commits
        ends.set()
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert set(seen) == {1}


def _until_the_end(function, ends):
    """Call a function again where an exception has ended it."""
    while True:
        try:
            function()
            return
        except Interrupt:
            if ends.is_set():
                return


def test_destructors_of_old_values_see_all_new_ones():
    first, second = Cell(None), Cell(0)

    class Old:
        def __del__(self):
            seen.append(second.value)

    seen = []
    first.value = Old()
    commit({first: None, second: 1})
    assert seen == [1]
