"""Smaller programs are programs."""

from .executing import executed
from .generator import write
from .shrink import size, smaller


def test_what_shrinking_tries_builds_and_is_mostly_smaller():
    program = next(p for p, _ in map(write, range(3, 20)) if len(p.roots) > 1 and len(p.statements) > 5)
    tried = list(smaller(program))
    assert sum(size(p) < size(program) for p in tried) > len(tried) / 2
    for p in tried[:12]:
        assert set(p.roots) <= set(executed(p)[0])
