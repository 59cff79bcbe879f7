"""The point at which state changes hands.

The state of a training is in cells (`graph/cells.py`). A step computes new values for them and commits these at once,
so whatever stops it earlier leaves the old ones. The exception is donation: a program that donates the buffers of
parameters and learner states has destroyed them before the new ones are committed. Whoever reads or replaces such
state holds `STATE` meanwhile, so other threads see it before or after a step. A KeyboardInterrupt, or an exception
that another thread sends (`PyThreadState_SetAsyncExc`), may still arrive between any two bytecodes. So what a program
returns is kept by one call into C, before any bytecode runs; what follows from it is a function of it and of the old
state, which can be computed again. The interrupted thread does that before the exception leaves it, or, if
interrupted again, whoever takes the lock next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import jax

from ..._threads import after_fork
from ..._typing import PyTree
from ...graph.cells import Cell, Changes, commit

T = TypeVar("T")

STATE = threading.RLock()
"""Held from reading leaves, or states of learners, until what is computed from them is stored.

Used in a `with` statement, after which `settle` is called. It has to be a lock written in C: no exception comes between
taking such a lock and entering the statement. It is never held while Python code of users runs.
"""

Captures: TypeAlias = list[Callable[[], PyTree]]
"""A list that gets one function, which returns the outputs of a program."""

_unfinished: list[Callable[[], object]] = []  # what interrupted threads have still to store
_ATTEMPTS = 100  # to finish it; more exceptions than that are no interrupts


def settle() -> None:
    """Finish storing what interrupted threads have computed; to be called first by who has taken `STATE`."""
    if not _unfinished:
        return
    interrupt: BaseException | None = None
    attempts = 0
    while _unfinished:
        attempts += 1
        try:
            _unfinished[0]()
            del _unfinished[0]
        except BaseException as error:
            interrupt = error
            if attempts >= _ATTEMPTS:
                del _unfinished[0]
    if interrupt is not None:
        raise interrupt


def hand_over(
    compute: Callable[[Captures], object], conclude: Callable[[PyTree], tuple[Changes, T]], calls_python: bool = False
) -> T:
    """Run a program, and commit the changes that follow from its outputs: both, or neither, whatever interrupts this.

    `compute` gets a list, to which it has to append a function that returns the program's outputs, in one call of a C
    function if it donates state: see `Program`. `conclude` turns the outputs into changes and the result of this call;
    it changes nothing itself, since an interrupted call is made again, and does not raise. `calls_python`: `compute`
    donates nothing, and runs without the lock, since it calls users' code.
    """
    outputs: Captures = []
    is_committed = Cell(False)

    def complete() -> T:
        changes, result = conclude(outputs[0]())
        commit({**changes, is_committed: True})
        return result

    if calls_python:
        compute(outputs)
    with STATE:
        settle()
        try:
            if not outputs:
                compute(outputs)
            return complete()
        except BaseException:
            if outputs and not is_committed.value:
                finish(lambda: is_committed.value or complete())
            raise


def conclude(changes: Callable[[], Changes]) -> None:
    """Commit what `changes` returns, which may be called again; see `hand_over`."""
    hand_over(_compute_nothing, lambda _: (changes(), None))


def _compute_nothing(outputs: Captures) -> None:
    outputs.append(lambda: None)


def replace_state(changes: Changes) -> None:
    """Commit changes that follow from no program."""
    with STATE:
        settle()
        commit(changes)


def assign(assignments: Callable[[], object]) -> None:
    """Make assignments that may be repeated, to attributes of users' objects too; all of them happen, or none does."""
    with STATE:
        settle()
        try:
            assignments()
        except BaseException:
            finish(assignments)
            raise


def finish(assignments: Callable[[], object]) -> None:
    """Make assignments that must not be left undone, and may be repeated; to be called where one was interrupted."""
    _unfinished.append(assignments)
    with STATE:
        settle()


class Attempt:
    """A scope at whose end these cells have their values of its beginning, unless `kept` was committed in it.

    For steps that are taken in pieces, by several programs or by users' code. None of the values may be donated in it.
    """

    def __init__(self, cells: Iterable[Cell[Any]]) -> None:
        with STATE:
            settle()
            self._before = Cell[Changes]({cell: cell.value for cell in cells})

    @property
    def kept(self) -> Changes:
        """To be committed with the last changes of the scope: then they stay."""
        return {self._before: {}}

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before.value:
            finish(lambda: commit(self._before.value))


def device_copy(array: jax.Array) -> jax.Array:
    """A copy that stays when the array is donated; nothing is compiled for it."""
    return jax.device_put(array, may_alias=False)


def copied(tree: PyTree) -> PyTree:
    """The tree with copies of the arrays on the device."""
    return jax.tree.map(lambda a: device_copy(a) if isinstance(a, jax.Array) else a, tree)


class _Unflatten:
    """Makes a tree of its leaves. Equal for trees of the same structure, as jax expects of what it keeps of a node."""

    def __init__(self, structure: Any) -> None:
        self.structure = structure

    def __call__(self, leaves: Sequence[Any]) -> PyTree:
        return self.structure.unflatten(leaves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unflatten) and self.structure == other.structure

    def __hash__(self) -> int:
        return hash(self.structure)


class Captured(partial):
    """A pytree that a compiled function returns without running bytecode for its containers; a call returns the tree.

    A function of its own with one argument, the leaves. jax makes it by calling the class, which is code in C.
    """


def captured(tree: PyTree) -> Captured:
    """What a function to be compiled returns in the place of a tree."""
    leaves, structure = jax.tree.flatten(tree)
    return Captured(_Unflatten(structure), leaves)


jax.tree_util.register_pytree_node(Captured, lambda c: (c.args[0], c.func), Captured)


def _after_fork() -> None:
    """A forked process lacks the threads that may have held the lock."""
    STATE._at_fork_reinit()  # type: ignore[attr-defined]
    _unfinished.clear()


after_fork(_after_fork)

__all__ = [
    "STATE", "Attempt", "Captured", "Captures", "assign", "captured", "conclude", "copied", "device_copy", "finish",
    "hand_over", "replace_state", "settle",
]
