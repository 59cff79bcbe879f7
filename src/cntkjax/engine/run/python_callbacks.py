"""Users' Python code inside compiled programs: what it raises arrives as it was raised."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from ...graph.errors import BatchSizeError


class Resized(Exception):
    """A user's function has made data of another size than the program was compiled for."""


Results = defaultdict[Any, list[Any]]  # what functions have returned in a run, in the order of their calls


@dataclass(eq=False)  # runs are told apart by identity: comparing their results would compare arrays
class _Run:
    """A run of a program that calls Python."""

    results: Results
    calls: Counter[Any] = field(default_factory=Counter)
    raised: Exception | None = None


_RUNS: list[_Run] = []  # a user's function may run another program


def once(key: Any, call: Callable[[], Any]) -> Any:
    """The result of a call; in a run that is begun anew, what the same call of `key` returned before."""
    run = _RUNS[-1]
    made, at = run.results[key], run.calls[key]
    run.calls[key] += 1
    if at == len(made):
        made.append(call())
    return made[at]


def callback(call: Callable[..., Any], shapes: Any, *args: Any) -> Any:
    """The result of a Python function, for which `shapes` stand, in a program that runs inside `surfacing`.

    XLA would pass on no more than the text of an exception: so after one the program gets zeros, and no other call is
    made.
    """

    def guarded(*args: Any) -> Any:
        run = _RUNS[-1]
        if run.raised is None:
            try:
                return call(*args)
            except Exception as error:
                run.raised = error
        return jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)

    return jax.pure_callback(guarded, shapes, *args)


@contextmanager
def surfacing(results: Results) -> Iterator[None]:
    """Around the run of a program that calls Python, and the wait for it: raises what was raised there.

    `results`: empty, or what functions returned before the run was begun anew.
    """
    run = _Run(results)
    _RUNS.append(run)
    try:
        yield
    finally:
        _RUNS.remove(run)
    if run.raised is not None:
        raise run.raised


def run_to_the_end(run: Callable[[], Any], returned: Results | None = None) -> Any:
    """What a program returns, which is run anew while functions make data of other sizes; each is called once.

    `returned`: what functions returned in a run on the same data before, which they are not called for again; what they
    return now is added.
    """
    results: Results = defaultdict(list) if returned is None else returned
    while True:
        try:
            with surfacing(results):
                return jax.block_until_ready(run())
        except Resized:
            continue
        except BatchSizeError as error:
            error.returned = results
            raise
