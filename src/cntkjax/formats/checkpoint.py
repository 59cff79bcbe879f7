"""The state of a trainer in CNTK's layout: what stands in the file '.ckp' beside its model.

The model of a trainer is a Combine of the model's outputs, the loss and its sum over the minibatch, and the evaluation
criterion and its sum, as far as there are such; docs/formats.md has the rest of the layout.

The two files change together, whenever a process dies: both are written aside; the moment in which the new '.ckp' takes
its place makes the checkpoint; then the model takes its own. The '.ckp' knows the digest of its model, so that whoever
comes next can tell what an interrupted writer left behind, and finish.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..graph.function import Function
from . import _files
from ._records import check_version, take
from ._wire import Buffer
from ._writing import record_of
from .dictionary import FormatError, SizeT, buffers, decode

CHECKPOINT, LEARNER, SCHEDULE = SizeT(1), SizeT(3), SizeT(2)  # the versions that CNTK 2.7 writes
SUFFIX = ".ckp"
DIGEST, OWN = "model_digest", "cntkjax"  # entries of the '.ckp' file that CNTK passes over

Record = dict[str, Any]


@dataclass(frozen=True)
class Rates:
    """A schedule of learning rates: the value of each number of epochs, one after another; the last one stays.

    Units: ``epoch_size`` in samples, 0: sweeps. ``start`` is what the learner had seen when the schedule began.
    """

    entries: tuple[tuple[int, float], ...]
    epoch_size: int = 0
    minibatch_size: int = 0
    start: int = 0


@dataclass(frozen=True)
class LearnerState:
    """What a learner has to know to go on. ``smoothed_gradients`` are those of the file, one for each of its parameters
    in their order: see :func:`joined` and :func:`parted`."""

    samples: int
    minibatches: int
    sweeps: int
    rates: Rates
    smoothed_gradients: list[np.ndarray]
    smoothed_count: float | None = None
    noise_seed: int = 0
    all_workers_samples: int | None = None  # of a distributed learner: seen by all workers together
    block_gradients: list[np.ndarray] | None = None  # of block momentum, smoothed from block to block
    other_state: list[np.ndarray] = field(default_factory=list)  # of optax learners; CNTK has nothing like it


@dataclass(frozen=True)
class Checkpoint:
    """What a trainer has to know to go on, besides its model. ``external`` is whatever the user wants kept."""

    learners: list[LearnerState | Record]  # of a user's class that says itself what to keep, what it says
    external: dict[str, Any] = field(default_factory=dict)
    workers: dict[str, Any] = field(default_factory=dict)  # the external state of each worker
    own: dict[str, Any] = field(default_factory=dict)  # what the trainer keeps that CNTK has nothing like


class Files(NamedTuple):
    """The bytes of the two files of a trainer. They may be views of arrays."""

    model: Sequence[Buffer]
    state: Sequence[Buffer]

    def copied(self) -> Files:
        """The same, whatever happens to the arrays."""
        return Files(*([bytes(buffer) for buffer in buffers] for buffers in self))


def encode(model: Function, checkpoint: Checkpoint) -> Files:
    """What is to be written.

    Errors: TypeError if the external state holds what CNTK's format cannot (see dictionary.buffers).
    """
    content = {
        "Version": CHECKPOINT,
        "Learners": [a if isinstance(a, dict) else _learner_record(a) for a in checkpoint.learners],
        "ExternalState": dict(checkpoint.external),
        "DistributedState": dict(checkpoint.workers),
    }
    if checkpoint.own:
        content[OWN] = checkpoint.own
    return Files(buffers(record_of(model)), buffers(content))


def write(path: str | os.PathLike[str], files: Files) -> None:
    """Writes the two files of a trainer: both appear, or none of them, even if the process dies on the way.

    Errors: OSError if they cannot be written. What was there before is then still there.
    """
    target = Path(os.path.realpath(path))
    if _aside(target).exists():
        with suppress(FormatError):  # what is damaged is about to be replaced
            _settle(target)
    _files.remove_leftovers(_aside(target), Path(f"{target}{SUFFIX}"))
    # Entries of concatenated messages add up: the digest can be computed when all else has been encoded.
    state = [*files.state, *buffers({DIGEST: _digest(files.model)})]
    _files.write((_aside(target), files.model), (f"{target}{SUFFIX}", state))
    os.replace(_aside(target), target)


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """The state beside the model file of that path; that model file is then the one that belongs to it.

    Errors: RuntimeError, as CNTK has it, if there is no such file; FormatError if it is damaged or something else, or
    if the model is of another checkpoint.
    """
    target = Path(os.path.realpath(path))
    name, content = _content(target)
    check_version(content, CHECKPOINT, name, "Version")
    checkpoint = Checkpoint(
        [_learner_of(record, f"{name}, learner {i}") for i, record in enumerate(take(content, "Learners", list, name))],
        take(content, "ExternalState", dict, name),
        take(content, "DistributedState", dict, name),
        take(content, OWN, dict, name) if OWN in content else {},
    )
    _settle(target)
    return checkpoint


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is a checkpoint of that name, or at least one of its files."""
    return os.path.exists(path) or os.path.exists(os.fspath(path) + SUFFIX)


def _content(target: Path) -> tuple[str, Record]:
    """What the '.ckp' file is called, and what stands in it."""
    file = f"{target}{SUFFIX}"
    if not os.path.exists(file):
        raise RuntimeError(f"cannot open the checkpoint {file!r}: there is no such file")
    data, name = _files.read(file, "checkpoint")
    return name, decode(data, name)


def _aside(target: Path) -> Path:
    """Where a model waits until its '.ckp' file is in place."""
    return target.with_name(f".{target.name}.next")


def _settle(target: Path) -> None:
    """Puts the model into place that belongs to the '.ckp' file, if an interrupted writer did not come to it."""
    aside = _aside(target)
    digest = _content(target)[1].get(DIGEST) if os.path.exists(f"{target}{SUFFIX}") else None
    if digest is not None and _digest_of(target) != digest:
        if _digest_of(aside) != digest:
            raise FormatError(
                f"the model {str(target)!r} is not the one that '{target}{SUFFIX}' was saved with: it is missing, was "
                "changed, or is of another checkpoint; restore from one whose two files are as they were written"
            )
        os.replace(aside, target)
    aside.unlink(missing_ok=True)


def _digest(pieces: Iterable[Buffer]) -> str:
    digest = hashlib.blake2b()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _digest_of(file: Path) -> str | None:
    if not file.exists():
        return None
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


# ---- learners
def joined(arrays: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
    """What a learner keeps for a parameter as CNTK stores it: one array is itself; several stand side by side in one
    matrix, whose last axis is the parameter's; in place of none there is a zero of the parameter's type.

    >>> joined([np.zeros((2, 3)), np.ones((2, 3))], np.float64).shape
    (4, 3)
    """
    if not arrays:
        return np.zeros((), dtype)
    if len(arrays) == 1:
        return np.asarray(arrays[0])
    return np.concatenate([np.reshape(a, (-1, np.shape(a)[-1] if np.ndim(a) else 1)) for a in arrays])


def parted(stored: np.ndarray, count: int, shape: tuple[int, ...], where: str) -> list[np.ndarray]:
    """The ``count`` arrays of a parameter's shape that :func:`joined` made ``stored`` of.

    Errors: ValueError if there is another number of them: another kind of learner has written them.
    """
    if stored.size != count * math.prod(shape) and (count or stored.size != 1):
        raise ValueError(
            f"{where} needs {count} arrays of shape {shape}, but the checkpoint has {stored.shape}: "
            "it was written by another kind of learner, or for another parameter"
        )
    return [part.reshape(shape) for part in np.split(stored.reshape(-1), count)] if count else []


def _learner_record(learner: LearnerState) -> Record:
    record: Record = {
        "version": LEARNER,
        "type": "Learner",
        "sample_count": SizeT(learner.samples),
        "minibatchCount": SizeT(learner.minibatches),
        "sweepCount": SizeT(learner.sweeps),
        "learnig_rate_schedule": rates_record(learner.rates),  # spelled as CNTK does
        "smoothed_gradients": learner.smoothed_gradients,
        "noise_injection_seed": SizeT(learner.noise_seed),
        "master_parameter_updated": True,
    }
    if learner.smoothed_count is not None:
        record["smoothed_count"] = float(learner.smoothed_count)
    if learner.other_state:
        record["optax_state"] = learner.other_state
    if learner.all_workers_samples is None:
        return record
    record = {"localLearners": record, "totalNumberOfSamplesSeen": SizeT(learner.all_workers_samples)}
    if learner.block_gradients is None:
        return record
    local = SizeT(learner.samples)
    return {"base": record, "localTotalNumSamplesSeen": local, "blockLevelSmoothedGradient": learner.block_gradients}


def _learner_of(record: Any, where: str) -> LearnerState | Record:
    everyone = blocks = None
    if isinstance(record, dict) and "blockLevelSmoothedGradient" in record:
        blocks = _arrays(record, "blockLevelSmoothedGradient", where)
        record = take(record, "base", dict, where)
    if isinstance(record, dict) and "localLearners" in record:
        everyone = take(record, "totalNumberOfSamplesSeen", int, where)
        record = record["localLearners"]
    if isinstance(record, dict) and record.get("type") != "Learner":
        return record
    check_version(record, LEARNER, where)
    return LearnerState(
        samples=take(record, "sample_count", int, where),
        minibatches=take(record, "minibatchCount", int, where),
        sweeps=take(record, "sweepCount", int, where),
        rates=rates_of(take(record, "learnig_rate_schedule", dict, where), f"{where}, learning rate"),
        smoothed_gradients=_arrays(record, "smoothed_gradients", where),
        smoothed_count=take(record, "smoothed_count", float, where) if "smoothed_count" in record else None,
        noise_seed=take(record, "noise_injection_seed", int, where),
        all_workers_samples=everyone,
        block_gradients=blocks,
        other_state=_arrays(record, "optax_state", where) if "optax_state" in record else [],
    )


def _arrays(record: Record, key: str, where: str) -> list[np.ndarray]:
    arrays = take(record, key, list, where)
    if not all(isinstance(array, np.ndarray) for array in arrays):
        raise FormatError(f"{where}: {key} lists something else than arrays")
    return arrays


def rates_record(rates: Rates) -> Record:
    """The values by the count of samples (or sweeps) up to which they hold; 0 for the only one, which always holds."""
    ends: dict[str, float] = {}
    end = rates.start
    for epochs, value in rates.entries:
        end += epochs * (rates.epoch_size or 1)
        ends[str(end)] = float(value)
    if len(rates.entries) == 1 and not rates.epoch_size:
        ends = {"0": float(rates.entries[0][1])}
    return {
        "version": SCHEDULE,
        "type": "TrainingParameterSchedule",
        "epoch_size": SizeT(rates.epoch_size),
        "ref_mb_size": SizeT(rates.minibatch_size),
        "schedule": ends,
    }


def rates_of(record: Record, where: str) -> Rates:
    check_version(record, SCHEDULE, where)
    epoch_size = take(record, "epoch_size", int, where)
    values = _values(take(record, "schedule", dict, where), where)
    unit = epoch_size or 1
    start = values[0][0] % unit  # a schedule may begin later than its learner; epochs before that no longer matter
    ends = [start, *(end for end, _ in values)]
    lengths = [(end - begin) / unit for begin, end in pairwise(ends)]
    if not all(length.is_integer() for length in lengths):
        raise FormatError(f"{where}: its values change at {ends[1:]}, which are not epochs of {epoch_size}")
    entries = [(int(n), value) for n, (_, value) in zip(lengths, values, strict=True)]
    if values[0][0] == 0:
        entries[0] = (1, values[0][1])
    return Rates(tuple(entries), epoch_size, take(record, "ref_mb_size", int, where), start)


def _values(schedule: Mapping[str, Any], where: str) -> list[tuple[int, float]]:
    if not schedule or not all(end.isdecimal() and isinstance(value, float) for end, value in schedule.items()):
        raise FormatError(f"{where}: {dict(schedule)!r} is no schedule")
    return sorted((int(end), value) for end, value in schedule.items())
