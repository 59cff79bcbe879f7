"""What all workers have to agree on."""

from __future__ import annotations

import json
from typing import TypeVar

from ..parallel import workers

T = TypeVar("T", str, int, float)


def broadcast(operation: str, value: T) -> T:
    """The value of worker 0, on all workers; `operation` names what all do, in messages."""
    return value if workers.size() == 1 else json.loads(workers.gather(operation, json.dumps(value).encode()).wait()[0])
