"""What all workers have to agree on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeVar

from ..parallel import workers

MERGING = ("blockMomentumSGD", "modelAveragingSGD", "dataParallelASGD")  # workers train on their own between merges

T = TypeVar("T", str, int, float)


def broadcast(operation: str, value: T) -> T:
    """The value of worker 0, on all workers; `operation` names what all do, in messages."""
    return value if workers.size() == 1 else json.loads(workers.gather(operation, json.dumps(value).encode()).wait()[0])


def summed(operation: str, values: Sequence[float]) -> list[float]:
    """The sums of numbers over all workers."""
    parts = workers.gather(operation, json.dumps([*values]).encode()).wait()
    return [sum(column) for column in zip(*map(json.loads, parts), strict=True)]
