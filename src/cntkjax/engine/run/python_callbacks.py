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


class OutputResized(Exception):
    """A user's function has made data of another size than the program was compiled for."""


CallbackResults = defaultdict[Any, list[Any]]  # what functions have returned in a run, in the order of their calls


@dataclass(eq=False)  # runs are told apart by identity: comparing their results would compare arrays
class _Run:
    """A run of a program that calls Python."""

    results: CallbackResults
    calls: Counter[Any] = field(default_factory=Counter)
    raised: Exception | None = None


_RUNS: list[_Run] = []  # a user's function may run another program


def call_once(key: Any, call: Callable[[], Any]) -> Any:
    """The result of a call; in a run that is begun anew, what the same call of `key` returned before."""
    run = _RUNS[-1]
    made, at = run.results[key], run.calls[key]
    run.calls[key] += 1
    if at == len(made):
        made.append(call())
    return made[at]


def callback(call: Callable[..., Any], shapes: Any, *args: Any) -> Any:
    """The result of a Python function in a program that runs inside `raising_callback_errors`.

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
def raising_callback_errors(results: CallbackResults) -> Iterator[None]:
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


def run_until_sizes_settle(run: Callable[[], Any], callback_results: CallbackResults | None = None) -> Any:
    """What a program returns, which is run anew while functions make data of other sizes; each is called once.

    `callback_results`: what functions returned in a run on the same data before, which they are not called for
    again; what they return now is added.
    """
    results: CallbackResults = defaultdict(list) if callback_results is None else callback_results
    while True:
        try:
            with raising_callback_errors(results):
                return jax.block_until_ready(run())
        except OutputResized:
            continue
        except BatchSizeError as error:
            error.callback_results = results
            raise
