"""The cache of programs: which entries it keeps and which it drops."""

import gc
import weakref

import jax
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run import program_cache
from cntkjax.engine.run.program_cache import RecentlyUsed, plan_of, programs


def test_the_least_recently_used_entry_is_dropped():
    cache = RecentlyUsed(2)
    for key in ("a", "b", "a", "c"):
        cache.get(key, key.upper)
    assert list(cache) == ["A", "C"]
    assert cache.get("a", list) == "A"
    cache.clear()
    assert cache.get("a", list) == []


def test_programs_are_distinguished_by_what_they_compute():
    x = C.input_variable(2)
    f = x * 3
    programs.clear()
    f.eval({x: np.ones((1, 2))})
    f.eval({x: np.ones((1, 2))})
    f.grad({x: np.ones((1, 2))}, wrt=[x])
    assert sorted(program.name for program in programs) == ["evaluate", "gradients"]


def test_plans_are_rebuilt_after_an_edit():
    x = C.input_variable(2)
    f = x * 3
    plan = plan_of([f.output])
    assert plan_of([f.output]) is plan
    (C.placeholder(2) + 1).replace_placeholder(x)
    assert plan_of([f.output]) is not plan


@pytest.fixture
def two_recent_programs(monkeypatch):
    monkeypatch.setattr(programs, "_recent", RecentlyUsed(2))
    programs.clear()


def widths():
    """The sizes of the outputs of all programs, after collecting garbage."""
    gc.collect()
    return sorted(program.plan.outputs[0].shape[0] for program in programs)


def test_a_program_is_kept_as_long_as_a_graph_that_ran_it(two_recent_programs):
    x = C.input_variable(1)
    kept = [C.splice(*[x] * n) for n in (2, 3, 4)]
    for f in [*kept, *(C.splice(*[x] * n) for n in (5, 6, 7))]:
        f.eval({x: np.ones((1, 1))})
    del f
    assert widths() == [2, 3, 4, 6, 7]
    del kept
    assert widths() == [6, 7]


def test_a_graph_of_the_same_structure_keeps_the_program_of_another(two_recent_programs):
    def doubled():
        x = C.input_variable(2)
        f = x * 2
        f.eval({x: np.ones((1, 2))})
        return f

    first, second = doubled(), doubled()
    (program,) = programs
    del first
    for n in (3, 4):
        C.exp(C.constant(1, shape=n)).eval()
    gc.collect()
    assert program in list(programs)
    assert second is not None


@pytest.mark.parametrize("cell", [C.layers.RNNStep, C.layers.LSTM, C.layers.GRU])
def test_nothing_holds_an_evaluated_recurrence_but_its_graph(two_recent_programs, cell):
    x = C.sequence.input_variable(2)
    f = C.layers.Recurrence(cell(3))(x)
    f.eval({x: [np.ones((3, 2), np.float32), np.ones((2, 2), np.float32)]})
    node = weakref.ref(f.root_function)
    del f, x
    programs.clear()
    gc.collect()
    assert node() is None


def test_executables_of_graphs_that_are_gone_are_let_go():
    programs.clear()
    gc.collect()
    before = len(jax.devices()[0].client.live_executables())
    for n in range(1, program_cache._RECENT_PROGRAMS + 30):
        C.negate(C.constant(1, shape=n)).eval()
    gc.collect()
    assert len(jax.devices()[0].client.live_executables()) <= before + program_cache._RECENT_PROGRAMS
