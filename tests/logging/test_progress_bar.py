"""The progress bar: its text, and where it is shown."""

import os
import re
import subprocess
import sys

import nbclient
import nbformat
import numpy as np
import pytest

import cntkjax as C
from cntkjax import _terminal
from cntkjax.engine.run import compilations
from cntkjax.engine.run.compilations import Compilation
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
    monkeypatch.setattr(_terminal, "is_interactive", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def compiled(monkeypatch):
    """Programs that were compiled, in the place of those of this process."""
    programs = []
    monkeypatch.setattr(compilations, "_compilations", programs)
    return programs


@pytest.mark.usefixtures("compiled")
def test_speed_and_time_left_exclude_the_first_minibatch(clock):
    bar = ProgressBar(metric_is_pct=False)
    bar.start(0, 10000)
    bar.update_training(100, 20, 50)
    assert bar.line() == "  1% |                    | 100/10000 samples, loss 0.2000, metric 0.5000"
    clock[0] += 2
    bar.update_training(400, 100, 100)
    assert bar.line() == (
        "  5% |#                   | 500/10000 samples, loss 0.2500, metric 0.2500, 200 samples/s, 0:48 left"
    )
    assert bar.line().endswith("left")  # without new data the text stays the same
    clock[0] += 2
    bar.update_training(1, 1, 1)
    assert ", 1:35 left" in bar.line()


@pytest.mark.usefixtures("compiled")
def test_without_a_limit_there_is_no_bar(clock):
    bar = ProgressBar()
    bar.start(50, None)
    bar.update_training(10, 5, 1)
    clock[0] += 4
    bar.update_training(10, 5, 1)
    assert bar.line() == "70 samples, loss 0.5000, metric 10.00%, 2.5 samples/s"


@pytest.mark.usefixtures("compiled")
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


@pytest.mark.parametrize("columns", [60, 79, 100, 119])
@pytest.mark.usefixtures("compiled")
def test_numbers_have_precedence_over_the_bar_itself(clock, columns):
    bar = ProgressBar(60000)
    for samples in 64, 26936:
        bar.update_training(samples, 0.23456 * samples, 0.1234 * samples)
        clock[0] += 2
    numbers = "loss 0.2346, metric 12.34%, 6734 samples/s, 0:05 left"
    assert bar.line().endswith(numbers) and bar.line(columns).endswith(numbers)
    assert len(bar.line(79)) <= 79


def test_the_text_is_cut_to_the_width_of_the_terminal(clock, watched, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    ProgressBar(1000).update_training(10, 5, 1)
    assert capsys.readouterr().err == "\r  1% 10/1000, loss 0.5000, me"
    _terminal.status.clear()


def test_waits_for_the_compiler_are_shown_and_are_no_part_of_the_speed(clock, watched, capsys, compiled):
    bar = ProgressBar(1000)
    compiled.append(Compilation("the training step", 3.0, stored=False, background=False))
    bar.update_training(100, 50, 50)
    assert bar.line().endswith(", loss 0.5000, metric 50.00%, 3.0 s compiling")
    clock[0] += 5
    compiled.append(Compilation("the training step", 1.0, stored=False, background=False))
    compiled.append(Compilation("the training step", 2.0, stored=False, background=True))
    bar.update_training(100, 50, 50)
    assert bar.line().endswith(", 25.0 samples/s, 0:32 left, 4.0 s compiling")
    bar.write_training_summary()
    assert capsys.readouterr().err.rstrip().endswith(", 25.0 samples/s, 0:08, 50% compiling")


SCRIPT = """
import numpy as np
import cntkjax as C
from cntkjax import _terminal
from cntkjax.logging import _progress_bar
_terminal._BAR_PATIENCE = 0
_progress_bar._LEAST_SECONDS = 0  # a fast machine compiles this network in less
x, y = C.input_variable(4), C.input_variable(2)
loss = C.cross_entropy_with_softmax(C.layers.Dense(2)(x), y)
data = np.ones((64, 4), np.float32), np.ones((64, 2), np.float32) / 2
loss.train(data, parameter_learners=[C.sgd(loss.parameters, 0.1)], minibatch_size=32, max_epochs=2,
           callbacks=[C.logging.ProgressBar(metric_is_pct=False)])
"""


@pytest.fixture
def compiling(monkeypatch):
    """Programs of other processes are compiled anew."""
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")


@pytest.mark.usefixtures("compiling")
def test_a_terminal_shows_what_is_compiled_and_the_share_of_it():
    pty = pytest.importorskip("pty", reason="Windows has no pseudo-terminals")
    screen, terminal = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=terminal, stdout=terminal) as process:
        os.close(terminal)
        text = "".join(iter(lambda: read(screen), ""))
    os.close(screen)
    assert process.returncode == 0, text
    assert re.search(r"\r  0% (\|.*\| )?0/128, compiling the training step", text)  # the bar if there is room
    last = text.rstrip().rsplit("\r", 1)[1]
    assert re.match(r"100% .*128/128, loss 0\.\d+, metric 0\.\d+, \d+ samples/s, 0:\d\d, \d+% compiling", last)


def read(descriptor):
    try:
        return os.read(descriptor, 1 << 16).decode()
    except OSError:  # Linux says in this way that the other end was closed
        return ""


@pytest.mark.usefixtures("compiling")
def test_a_notebook_keeps_the_last_text_only(tmp_path):
    shown = []

    class Client(nbclient.NotebookClient):
        """Remembers what was displayed at any time."""

        def process_message(self, message, cell, index):
            shown.append(message["content"].get("data", {}).get("text/plain", ""))
            return super().process_message(message, cell, index)

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SCRIPT), nbformat.v4.new_code_cell(SCRIPT)])
    Client(notebook, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell in notebook.cells:
        lines = [output["data"]["text/plain"] for output in cell.outputs if output["output_type"] == "display_data"]
        assert [line[:4] for line in lines] == [" 50%", "100%"]  # one for each epoch
        assert re.search(r"128/128 samples, loss 0.*\d samples/s, 0:\d\d, \d+% compiling$", lines[1])
    assert any("compiling the training step" in text for text in shown)


def test_nothing_is_written_to_files(capsys):
    bar = ProgressBar(1000)
    bar.update_training(10, 5, 1)
    bar.write_training_summary()
    assert capsys.readouterr().err == ""


def test_a_training_session_sets_the_total():
    x, w = C.input_variable(1), C.parameter(1, init=1)
    loss = C.square(x * w)
    bar = ProgressBar()
    data = np.ones((8, 1), np.float32)
    loss.train((data,), parameter_learners=[C.sgd([w], 0.1)], minibatch_size=4, max_epochs=3, callbacks=[bar])
    assert bar.line().startswith("100% |####################| 24/24 samples, loss 0.")
