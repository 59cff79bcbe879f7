"""Smaller programs are programs, and differences those that CNTK confirms."""

from .compare import Difference
from .executing import executed
from .generator import write
from .shrink import confirmed, size, smaller


def test_what_shrinking_tries_builds_and_is_mostly_smaller():
    program = next(p for p, _ in map(write, range(3, 20)) if len(p.roots) > 1 and len(p.statements) > 5)
    tried = list(smaller(program))
    assert sum(size(p) < size(program) for p in tried) > len(tried) / 2
    for p in tried[:12]:
        assert set(p.roots) <= set(executed(p)[0])


def test_a_difference_is_a_fault_only_if_it_is_there_again():
    chance, fault = Difference("value", "training", "1", 1), Difference("value", "gradients", "2", 0)
    again = [Difference("value", "gradients", "3", 0)]
    assert [d.kind for d in confirmed([chance, fault], again)] == ["known", "value"]
