"""Dynamic loss scaling for training in float16."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ..._typing import AnyArray, Array

INITIAL_FACTOR = 2**15
GROWTH_INTERVAL = 2000


class LossScale(NamedTuple):
    """The factor by which the loss is multiplied so that small gradients do not underflow in float16.

    It is halved when a gradient overflows, and doubled after `GROWTH_INTERVAL` steps without an overflow.

    Shapes: factor is a float32 scalar; steps, the number of steps since the factor last changed, is an int32 scalar.
    Source: Micikevicius et al. 2018, "Mixed precision training".
    """

    factor: AnyArray | np.float32
    steps: AnyArray | np.int32

    @classmethod
    def initial(cls) -> LossScale:
        """The scale with which training begins."""
        return cls(jnp.float32(INITIAL_FACTOR), jnp.int32(0))

    def updated(self, finite: Array) -> LossScale:
        """The scale after a step. `finite`: whether all gradients of the step were finite, a bool scalar."""
        steps = jnp.where(finite, self.steps + 1, 0)
        grows = steps == GROWTH_INTERVAL
        factor = jnp.where(finite, jnp.where(grows, self.factor * 2, self.factor), jnp.maximum(self.factor / 2, 1))
        return LossScale(factor, jnp.where(grows, 0, steps))


__all__ = ["GROWTH_INTERVAL", "INITIAL_FACTOR", "LossScale"]
