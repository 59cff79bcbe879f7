"""Graphs of thousands of operations: nothing recurses, what takes long says so, and Ctrl-C ends it."""

import signal
import sys

import numpy as np
import pytest

import cntk as C
from cntkjax.formats.dictionary import buffers
from cntkjax.formats.writing import record_of

COUNT = 1200
X = np.float32([[1, 2, 3], [0, -1, 4]])


def chain(x):
    h = x
    for _ in range(COUNT):
        h = h + 0.25
    return h


def tree(x):
    level = [x * float(i % 2) for i in range(COUNT // 2)]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [a + b for a, b in pairs] + level[len(level) // 2 * 2 :]
    return level[0]


@pytest.mark.parametrize(("build", "expected"), [(chain, X + COUNT / 4), (tree, X * (COUNT // 4))])
def test_a_graph_of_thousands_of_operations_is_computed_printed_saved_and_loaded(build, expected, tmp_path):
    x = C.input_variable(3)
    f = build(x)
    assert len(str(f)) + len(repr(f)) < 1000
    f.save(tmp_path / "model")
    for g in f, C.load_model(tmp_path / "model"):
        np.testing.assert_array_equal(g.eval({g.arguments[0]: X}), expected)


def calls(work, interrupted=None):
    """The number of calls of Python functions that some work takes; Ctrl-C is pressed in call `interrupted`."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call"
        if count == interrupted:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_building_saving_and_loading_an_operation_takes_few_calls_of_python_functions(tmp_path):
    def build(count):
        h = x
        for _ in range(count // 3):
            h = C.tanh(h * 0.5 + x)
        return h

    def calls_for_each(work):
        return (calls(lambda: work(600)) - calls(lambda: work(300))) / 300

    x = C.input_variable(3)
    graphs = {count: build(count) for count in (300, 600)}
    for count, graph in graphs.items():
        graph.save(tmp_path / str(count))
        C.load_model(tmp_path / str(count))
    assert calls_for_each(build) < 90
    assert calls_for_each(lambda count: graphs[count].save(tmp_path / "again")) < 110
    assert calls_for_each(lambda count: C.load_model(tmp_path / str(count))) < 240


def test_an_operation_that_is_saved_takes_few_pieces_of_memory():
    assert len(buffers(record_of(chain(C.input_variable(3))))) < 4 * COUNT


@pytest.mark.parametrize("number", [100, 2000])
def test_an_evaluation_of_thousands_of_operations_can_be_interrupted_and_repeated(number):
    f = tree(C.input_variable(3, name="interrupted"))
    with pytest.raises(KeyboardInterrupt):
        calls(lambda: f.eval({f.arguments[0]: X}), interrupted=number)
    np.testing.assert_array_equal(f.eval({f.arguments[0]: X}), X * (COUNT // 4))


def test_saving_and_loading_say_on_a_terminal_what_takes_long(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("cntkjax._terminal.is_interactive", lambda: True)
    monkeypatch.setattr("cntkjax._terminal.PATIENCE", 0.001)
    path = tmp_path / "model"
    chain(C.input_variable(3)).save(path)
    C.load_model(path)
    told = capsys.readouterr().err
    assert f"saving {path}: 0 s; {COUNT:,} operations"[:60] in told
    assert f"loading {path}"[:60] in told
