"""One switch for runs that can be repeated."""
from __future__ import annotations

from cntkjax import cntk_py


def force_deterministic(seed: int) -> None:
    """Give everything this seed, and use only algorithms that give the same bits each time.

    Errors: TypeError if ``seed`` is no integer, OverflowError if it is negative or has more than 64 bits.

    Example:
        >>> force_deterministic(1)
        >>> cntk_py.reset_random_seed()
    """
    cntk_py.set_fixed_random_seed(seed)
    cntk_py.force_deterministic_algorithms()
