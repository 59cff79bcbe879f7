"""What is compiled is counted, and people are told what they wait for; programs and files are not."""

import io
import re
import time

import numpy as np
import pytest

import cntkjax as C
from cntkjax._terminal import status
from cntkjax.engine.run import compilations
from cntkjax.engine.run.program_cache import programs


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def short_patience(monkeypatch):
    monkeypatch.setattr("cntkjax._terminal.PATIENCE", 0.01)
    monkeypatch.setattr(status, "_bar", lambda: None)


def announce(stream, monkeypatch, seconds, operations=0):
    monkeypatch.setattr("sys.stderr", stream)
    with compilations.announced(compilations.Subject("the training step", operations)):
        time.sleep(seconds)
    return stream.getvalue()


@pytest.mark.usefixtures("short_patience")
def test_a_long_compilation_says_so_on_a_terminal_until_it_ends(monkeypatch):
    text = announce(Terminal(), monkeypatch, 0.3)
    assert text.count("compiling the training step: 0 s") == 1
    assert text.endswith("\r" + " " * len("compiling the training step: 0 s") + "\r")


@pytest.mark.usefixtures("short_patience")
def test_a_wait_says_how_large_a_graph_is_and_how_long_one_of_its_size_took(monkeypatch):
    monkeypatch.setattr(compilations, "_compilations", [])
    assert "compiling the training step: 0 s; 40,000 operations" in announce(Terminal(), monkeypatch, 0.1, 40_000)
    for operations, cost in [(30_000, 21.0), (5_000, 2.0)]:
        compilations.record(compilations.Compilation("a test", cost, False, False, operations, "", cost))
    text = announce(Terminal(), monkeypatch, 0.1, 40_000)
    assert "compiling the training step: 0 s; 40,000 operations, as many took 21 s" in text


@pytest.mark.usefixtures("short_patience")
def test_nothing_is_written_to_files(monkeypatch):
    assert announce(io.StringIO(), monkeypatch, 0.05) == ""


def test_a_short_compilation_says_nothing(monkeypatch):
    assert announce(Terminal(), monkeypatch, 0.0) == ""


def test_programs_are_named_by_what_they_do_and_the_size_of_minibatches(monkeypatch):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", "")
    x, s, y = C.input_variable(2), C.sequence.input_variable(2), C.input_variable(1)
    w = C.parameter((2, 1))
    loss = C.squared_error(C.times(x, w), y)
    trainer = C.Trainer(loss, (loss, None), [C.sgd([w], 0.1)])
    before = len(compilations.report().programs)
    programs.clear()
    trainer.train_minibatch({x: np.ones((5, 2), np.float32), y: np.ones((5, 1), np.float32)})
    C.sequence.reduce_sum(s).eval({s: [np.ones((4, 2)), np.ones((3, 2))]})
    texts = [program.text for program in compilations.report().programs[before:]]
    assert any(re.fullmatch(r"the training step for minibatches of up to \d+", text) for text in texts)
    assert any(re.fullmatch(r"an evaluation for minibatches of up to \d+ x \d", text) for text in texts)


def test_the_report_adds_up():
    report = C.debugging.compilation_report()
    assert report.compiled + report.loaded == len(report.programs)
    assert report.waited + report.background == pytest.approx(sum(p.seconds for p in report.programs))
    assert 0 < report.waited < report.elapsed
