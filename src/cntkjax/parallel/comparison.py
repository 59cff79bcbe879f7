"""Workers that train one model have to agree in everything that decides on it; what differs is an error on all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import metadata

from ..engine.xla.devices import training_devices
from . import workers
from .workers import WorkerError


def compare(description: Mapping[str, str]) -> None:
    """Compare what each worker trains, feature by feature, on which devices, and the versions of the packages.

    Errors: WorkerError, on every worker, that says which workers differ from most in what.
    """
    if workers.size() == 1:
        return
    devices = [device.platform for device in training_devices()]
    kinds = {"the devices": f"{len(devices)} of the kind {devices[0]}"}
    part = json.dumps({**dict(_versions()), **kinds, **description}).encode()
    parts = [json.loads(p) for p in workers.gather("the comparison of models", part).wait()]
    if differences := difference(parts):
        raise WorkerError(
            f"{differences}; all workers have to train the same model with the same learners, on as many devices"
        )


def _versions() -> Iterator[tuple[str, str]]:
    for package in ("cntkjax", "jax", "jaxlib"):
        try:
            yield f"the version of {package}", metadata.version(package)
        except metadata.PackageNotFoundError:  # a copy of the sources
            yield f"the version of {package}", "a copy that is not installed"


def difference(parts: list[dict[str, str]]) -> str:
    """The first feature in which descriptions differ, with the workers that differ from most; '' if there is none.

    >>> difference([{"learner": "sgd"}, {"learner": "sgd"}, {"learner": "adam"}])
    'worker 2 differs from worker 0 in learner: adam instead of sgd'
    """
    for feature in dict.fromkeys(name for part in parts for name in part):
        values = [part.get(feature, "none") for part in parts]
        usual = Counter(values).most_common(1)[0][0]
        if others := [rank for rank, value in enumerate(values) if value != usual]:
            names = ", ".join(f"worker {rank}" for rank in others)
            verb, value = "differ" if len(others) > 1 else "differs", values[others[0]]
            return f"{names} {verb} from worker {values.index(usual)} in {feature}: {value} instead of {usual}"
    return ""


__all__ = ["WorkerError", "compare", "difference"]
