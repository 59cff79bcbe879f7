"""Automatic seeds of parameters, dropout and random operations.

With a fixed seed all get the same one, as in CNTK: a graph that is built twice has the same parameters. Otherwise seeds
count up from 0, or from the argument of ``reset_random_seed``, so a script that runs twice draws the same numbers.
"""
from __future__ import annotations

import operator

AUTO_SEED = 2**64 - 3  # CNTK's sentinel for "choose one", which model files contain


class _Seeds:
    next: int = 0
    fixed: bool = False


def _checked(value: int) -> int:
    seed = operator.index(value)
    if not 0 <= seed < 2**64:
        raise OverflowError(f"a random seed is an unsigned 64 bit number, not {seed}")
    return seed


def set_fixed_random_seed(value: int) -> None:
    """Use this seed for everything created from now on.

    Errors: TypeError if ``value`` is no integer, OverflowError if it is negative or has more than 64 bits.

    >>> set_fixed_random_seed(5)
    >>> next_seed(), next_seed(), is_random_seed_fixed()
    (5, 5, True)
    >>> reset_random_seed()
    """
    _Seeds.next, _Seeds.fixed = _checked(value), True


def reset_random_seed(value: int = 0) -> None:
    """Use consecutive seeds from ``value`` on, as at the start of the process.

    Errors: TypeError if ``value`` is no integer, OverflowError if it is negative or has more than 64 bits.

    >>> reset_random_seed(7)
    >>> next_seed(), next_seed(), is_random_seed_fixed()
    (7, 8, False)
    >>> reset_random_seed()
    """
    _Seeds.next, _Seeds.fixed = _checked(value), False


def get_random_seed() -> int:
    """The seed that the next object will get."""
    return _Seeds.next


def is_random_seed_fixed() -> bool:
    """Whether all objects get the same seed."""
    return _Seeds.fixed


def next_seed() -> int:
    """The seed for a new object."""
    seed = _Seeds.next
    if not _Seeds.fixed:
        _Seeds.next = (seed + 1) % 2**64
    return seed


def resolve_seed(seed: int) -> int:
    """``seed`` itself, or the next automatic one if it is ``AUTO_SEED``.

    >>> resolve_seed(3)
    3
    """
    return next_seed() if seed == AUTO_SEED else seed
