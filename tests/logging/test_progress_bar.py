"""The progress bar: its text, and where it is shown."""

import sys

import numpy as np
import pytest

import cntkjax as C
from cntkjax.logging import ProgressBar, ProgressPrinter, _progress_bar


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [100.0]
    monkeypatch.setattr(_progress_bar.time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(_progress_bar, "is_interactive", lambda: True)
    monkeypatch.setattr(_progress_bar.shutil, "get_terminal_size", lambda: SimpleSize(120))


class SimpleSize:
    def __init__(self, columns):
        self.columns = columns


def test_speed_and_time_left_exclude_the_first_minibatch(clock):
    bar = ProgressBar(metric_is_pct=False)
    bar.start(0, 10000)
    bar.update_training(100, 20, 50)
    assert bar.line() == "  1% |                    | 100/10000 samples, loss 0.200000, metric 0.500000"
    clock[0] += 2
    bar.update_training(400, 100, 100)
    assert bar.line() == (
        "  5% |#                   | 500/10000 samples, loss 0.250000, metric 0.250000, 200.0 samples/s, 0:48 left"
    )
    assert bar.line().endswith("left")  # without new data the text stays the same
    clock[0] += 2
    bar.update_training(1, 1, 1)
    assert ", 1:35 left" in bar.line()


def test_without_a_limit_there_is_no_bar(clock):
    bar = ProgressBar()
    bar.start(50, None)
    bar.update_training(10, 5, 1)
    clock[0] += 4
    bar.update_training(10, 5, 1)
    assert bar.line() == "70 samples, loss 0.500000, metric 10.00%, 2.5 samples/s"


def test_remaining_hours_and_the_end_are_shown(clock):
    bar = ProgressBar(100000)
    bar.update_training(1, 0, 0)
    clock[0] += 10
    bar.update_training(99, 0, 0)
    assert bar.line().endswith("9.9 samples/s, 2:48:11 left")
    bar.update_training(99900, 0, 0)
    assert bar.line().startswith("100% |####################| 100000/100000 samples")


def test_the_bar_is_drawn_five_times_a_second_and_erased_for_lines(clock, watched, capsys):
    bar, printer = ProgressBar(1000), ProgressPrinter(freq=3)
    for _ in range(6):
        for writer in bar, printer:
            writer.update_training(10, 5, 1)
        clock[0] += 0.125
    bar.write_training_summary()
    shown = capsys.readouterr()
    lines = shown.err.split("\r")
    drawn = [line.rstrip() for line in lines if line.strip()]
    assert [line.rsplit("| ", 1)[1].split()[0] for line in drawn] == ["10/1000", "30/1000", "50/1000", "60/1000"]
    assert shown.err.endswith("\n")
    assert " " * len(drawn[1]) in lines  # erased before the printer's line
    assert shown.out.count("Minibatch[") == 2


def test_the_bar_is_cut_to_the_width_of_the_terminal(clock, watched, capsys, monkeypatch):
    monkeypatch.setattr(_progress_bar.shutil, "get_terminal_size", lambda: SimpleSize(30))
    ProgressBar(1000).update_training(10, 5, 1)
    assert capsys.readouterr().err == "\r  1% |                    | 1"
    _progress_bar.clear_progress_bar()


def test_a_file_is_not_interactive_and_a_notebook_is(capsys, monkeypatch):
    bar = ProgressBar(1000)
    bar.update_training(10, 5, 1)
    bar.write_training_summary()
    assert capsys.readouterr().err == ""
    assert not _progress_bar.is_interactive()
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert _progress_bar.is_interactive()


def test_a_training_session_sets_the_total():
    x, w = C.input_variable(1), C.parameter(1, init=1)
    loss = C.square(x * w)
    bar = ProgressBar()
    data = np.ones((8, 1), np.float32)
    loss.train((data,), parameter_learners=[C.sgd([w], 0.1)], minibatch_size=4, max_epochs=3, callbacks=[bar])
    assert bar.line().startswith("100% |####################| 24/24 samples, loss 0.")
