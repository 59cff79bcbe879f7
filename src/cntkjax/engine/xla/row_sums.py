"""Where XLA:CPU adds up rows one column after the other, which caches hate: a product with ones is faster."""

from __future__ import annotations

from typing import Any

import jax


def prefers_matmul_sum(length: Any) -> bool:
    """True if rows of this length are better added up by a matrix product.

    Adding up [32, 32768] takes 4.5 ms, and 0.16 as a product. Programs that are exported may not know the length.
    """
    return isinstance(length, int) and length >= 4096 and jax.default_backend() == "cpu"


__all__ = ["prefers_matmul_sum"]
