"""The action cv: which epoch's model is the best on validation data."""

from __future__ import annotations

import time
from pathlib import Path

from ...sgd import ConfigError
from ..models import load_network
from .session import Command
from .test import evaluate


def cross_validate(command: Command) -> None:
    """Evaluate the models of several epochs, and log the best of each criterion."""
    interval = command.block.integers("crossValidationInterval") or [0, 1, 1000]
    if len(interval) != 3 or interval[1] < 1:
        raise ConfigError("crossValidationInterval is first:step:last, three numbers of epochs")
    first, step, last = interval
    results: dict[str, list[float]] = {}
    for path in [f"{command.model_path}.{epoch}" for epoch in range(first, last + 1, step)] + [command.model_path]:
        if Path(path).is_file():
            command.log.line(f"Model {path}")
            results[path] = evaluate(load_network(path), command)
            time.sleep(command.block.number("sleepTimeBetweenRuns", 0))
    if not results:
        raise ConfigError(f"there are no models {command.model_path}.{first} to {command.model_path}.{last}")
    command.log.line()
    for i in range(len(next(iter(results.values())))):
        best = min(results, key=lambda path: results[path][i])
        command.log.line(f"Best model of criterion {i + 1}: {best} with {results[best][i]:.8f}")


__all__ = ["cross_validate"]
