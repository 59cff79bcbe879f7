"""The cache of programs: which entries it keeps and which it drops."""

import numpy as np

import cntkjax as C
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
