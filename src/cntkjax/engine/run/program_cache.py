"""Caches of plans and programs; graphs of the same structure share a program."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from ...graph.build import edits
from ...graph.variable import Edge
from ..plan.plan import Plan
from .program import Body, Program

T = TypeVar("T")

_CAPACITY = 256
_RECENT_PROGRAMS = 64  # a small one takes about 1 MB, and it keeps alive the graph that it was made for


class RecentlyUsed(Generic[T]):
    """A cache that drops the entries that have not been used for longest."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[Hashable, T] = OrderedDict()

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries.values())

    def clear(self) -> None:
        """Drop all entries."""
        self._entries.clear()

    def drop(self, key: Hashable) -> None:
        """Drop an entry, if there is one."""
        self._entries.pop(key, None)

    def get(self, key: Hashable, create: Callable[[], T]) -> T:
        """The entry of a key, created if there is none."""
        if key not in self._entries:
            self._entries[key] = create()
            if len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
        self._entries.move_to_end(key)
        return self._entries[key]


class ProgramCache:
    """Programs by the structure of their plans and what they compute.

    A program is kept as long as a plan that it was asked for, so as long as the user holds such a graph. The programs
    that were used last are kept longer, for graphs of the same structure that are created again and again.
    """

    def __init__(self) -> None:
        self._programs: WeakValueDictionary[Hashable, Program] = WeakValueDictionary()
        self._recent: RecentlyUsed[Program] = RecentlyUsed(_RECENT_PROGRAMS)

    def __iter__(self) -> Iterator[Program]:
        return iter(list(self._programs.values()))

    def clear(self) -> None:
        """Forget all programs."""
        self._programs.clear()
        self._recent.clear()

    def program(
        self, plan: Plan, name: str, body: Body, training: bool, variant: Hashable = (), quick_start: bool = True,
        make: type[Program] = Program,
    ) -> Program:
        """The program that computes `body` on graphs of the plan's structure.

        `name` and `variant` distinguish bodies, of which that of the first call is used. `quick_start`: see
        `Executables`. `make`: its class, the same for all programs of a name.
        """
        kind = name, variant, training
        key = plan.key, *kind
        program = self._programs.get(key)
        if program is None or not program.is_current():
            self._recent.drop(key)
            self._programs[key] = program = make(plan, name, body, training, variant, quick_start=quick_start)
        plan.programs[kind] = program
        return self._recent.get(key, lambda: program)


programs = ProgramCache()


def plan_of(outputs: Sequence[Edge], known: Sequence[Edge] = ()) -> Plan:
    """The plan for some outputs, cached on the first of them until a graph is edited. `known`: see `Plan`."""
    # On the variable, not in a weak dictionary: a plan refers to its outputs, and both are to be freed together.
    plans: dict[tuple[int, ...], Plan] = outputs[0].__dict__.setdefault("_plans", {})
    key = (*map(id, outputs), *((0, *map(id, known)) if known else ()))
    if key not in plans or plans[key].edits != edits():
        plans[key] = Plan(outputs, known)
    return plans[key]


__all__ = ["ProgramCache", "RecentlyUsed", "plan_of", "programs"]
