"""Gradients of a single worker in 1 bit: CNTK quantizes them as well where a block says so; its Python API does not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp

from .._typing import Array, PyTree
from ..graph.proxy import unwrap
from ..learners import Learner
from ..learners import _lazy_transforms as transforms
from ..parallel.quantization import dequantize, quantize


class Errors(NamedTuple):
    """What quantization has left out of the gradients."""

    errors: PyTree


class OneBit:
    """Quantizes the gradients of learners in some epochs, all of them and by CNTK's columns, the last axis here.

    What it leaves out is added to the next gradient of the same epoch: each begins anew, as CNTK's log of
    Simple2d/MultiGpu shows.
    """

    def __init__(self, learners: Sequence[Learner]) -> None:
        self._cores = [unwrap(learner) for learner in learners]
        self._starts: list[int | None] = [None] * len(learners)  # the samples before the epoch
        link = transforms.per_parameter(_quantized, Errors, every_row=True)
        for number, core in enumerate(self._cores):
            core.precede(link, partial(self._scalars, number))

    def begin_epoch(self, quantizes: bool) -> None:
        """To be called before an epoch, with whether gradients are quantized in it."""
        self._starts = [core.counters.samples if quantizes else None for core in self._cores]

    def _scalars(self, number: int) -> dict[str, Any]:
        start = self._starts[number]
        return {"quantizes": start is not None, "goes_on": self._cores[number].counters.samples != start}


def _quantized(g: Array, w: Array, error: Array, quantizes: Array, goes_on: Array, **_: Any) -> tuple[Array, Array]:
    wanted = g + jnp.where(goes_on == 1, error, 0)
    columns = wanted.reshape(-1, *wanted.shape[-1:])
    sent = dequantize(*quantize(columns, 1), 1).reshape(wanted.shape)
    sent = jnp.where(quantizes == 1, sent, wanted)
    return sent, wanted - sent


__all__ = ["OneBit"]
