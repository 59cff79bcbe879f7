"""The state of a trainer in CNTK's layout: the content of the '.ckp' file next to its model.

The model of a trainer is a Combine of the model's outputs, the loss and its sum over the minibatch, and the evaluation
criterion and its sum, where they exist; docs/formats.md describes the rest of the layout.

The two files change together, even if a process dies, or several save and restore: both are first written under
temporary names; then, one process at a time, replacing the '.ckp' commits the checkpoint, and the model is moved into
place. The '.ckp' holds the digest of its model, so a reader can select the model that belongs to it, and the next
process can detect an interrupted write and finish it.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .._typing import DTypeLike
from ..graph.errors import ShapeError, explain
from ..graph.function import Node
from . import files
from .dictionary import FormatError, SizeT, buffers, decode
from .records import check_version, take
from .wire import Buffer
from .writing import record_of

CHECKPOINT, LEARNER, SCHEDULE = SizeT(1), SizeT(3), SizeT(2)  # the versions that CNTK 2.7 writes
SUFFIX = ".ckp"
_ATTEMPTS = 1000  # to read a checkpoint that others replace
DIGEST, EXTRA_STATE = "model_digest", "cntkjax"  # entries of the '.ckp' file that CNTK ignores

Record = dict[str, Any]


@dataclass(frozen=True)
class Rates:
    """A schedule of learning rates: pairs (number of epochs, value), in order; the last value holds from then on.

    Units: ``epoch_size`` in samples, 0 for sweeps. ``start`` is the learner's sample count when the schedule began.
    """

    entries: tuple[tuple[int, float], ...]
    epoch_size: int = 0
    minibatch_size: int = 0
    start: int = 0


@dataclass(frozen=True)
class LearnerState:
    """The state that a learner needs to resume. ``smoothed_gradients`` are as in the file, one array per parameter, in
    the order of the parameters: see :func:`pack_state` and :func:`unpack_state`."""

    samples: int
    minibatches: int
    sweeps: int
    rates: Rates
    smoothed_gradients: list[np.ndarray]
    smoothed_count: float | None = None
    noise_seed: int = 0
    all_workers_samples: int | None = None  # distributed learners: samples seen by all workers together
    block_gradients: list[np.ndarray] | None = None  # block momentum: gradients smoothed from block to block
    other_state: list[np.ndarray] = field(default_factory=list)  # optax learners; CNTK has no counterpart


@dataclass(frozen=True)
class Checkpoint:
    """The state that a trainer needs to resume, besides its model. ``external`` is the user's state."""

    learners: list[LearnerState | Record]  # a Record for a user-defined learner that saves its state itself
    external: dict[str, Any] = field(default_factory=dict)
    workers: dict[str, Any] = field(default_factory=dict)  # the external state of each worker
    extra: dict[str, Any] = field(default_factory=dict)  # state of the trainer that CNTK has no counterpart for


class Files(NamedTuple):
    """The content of the two files of a trainer, as buffers, which may be views of arrays."""

    model: Sequence[Buffer]
    state: Sequence[Buffer]

    def copied(self) -> Files:
        """A copy that later changes of the arrays do not affect."""
        return Files(*([bytes(buffer) for buffer in buffers] for buffers in self))


def encode(model: Node, checkpoint: Checkpoint) -> Files:
    """The content of the model file and of the '.ckp' file.

    Errors: TypeError if the external state has a value that CNTK's format cannot hold (see dictionary.buffers).
    """
    content = {
        "Version": CHECKPOINT,
        "Learners": [a if isinstance(a, dict) else _learner_record(a) for a in checkpoint.learners],
        "ExternalState": dict(checkpoint.external),
        "DistributedState": dict(checkpoint.workers),
    }
    if checkpoint.extra:
        content[EXTRA_STATE] = checkpoint.extra
    return Files(buffers(record_of(model)), buffers(content))


def write(path: str | os.PathLike[str], contents: Files) -> None:
    """Write the two files of a trainer: both appear, or neither does, even if the process dies halfway.

    Of several processes that write to one path, the last one wins with both files.
    Errors: OSError if they cannot be written. The previous checkpoint is then still intact.
    """
    target = check_path(path)
    committed, next_model = Path(f"{target}{SUFFIX}"), _staged(target)
    files.remove_leftovers(target, next_model, committed)
    # Concatenated protocol-buffer messages merge, so the digest can be appended once everything else is encoded.
    state = [*contents.state, *buffers({DIGEST: _digest(contents.model)})]
    with files.staged((target, contents.model), (committed, state)) as (model, checkpoint), files.locked(target.parent):
        if next_model.exists():
            with suppress(FormatError):  # a damaged checkpoint is about to be replaced
                _finish_interrupted_write(target)
        os.replace(model, next_model)
        os.replace(checkpoint, committed)
        os.replace(next_model, target)


def check_path(path: str | os.PathLike[str]) -> Path:
    """The model file of a checkpoint that can be saved to a path, links followed.

    Errors: OSError with the path if the model or the '.ckp' file cannot be written there.
    """
    target = files.check_writable(path)
    files.check_writable(f"{target}{SUFFIX}")
    return target


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """The state in the '.ckp' file next to the model file at ``path``; finishes a write that was interrupted.

    Errors: RuntimeError, as in CNTK, if the file does not exist; FormatError if it is damaged or no checkpoint, or if
    the model belongs to another checkpoint.
    """
    return load_with_model(path)[0]


def load_with_model(path: str | os.PathLike[str]) -> tuple[Checkpoint, files.Source]:
    """The state in the '.ckp' file and the model that it was saved with, even if others save to the path meanwhile.

    Errors: those of :func:`load`.
    """
    target = Path(os.path.realpath(path))
    name, content, model = _read_pair(target)
    check_version(content, CHECKPOINT, name, "Version")
    checkpoint = Checkpoint(
        [
            _learner_state(record, f"{name}, learner {i}")
            for i, record in enumerate(take(content, "Learners", list, name))
        ],
        take(content, "ExternalState", dict, name),
        take(content, "DistributedState", dict, name),
        take(content, EXTRA_STATE, dict, name) if EXTRA_STATE in content else {},
    )
    if _staged(target).exists():
        with suppress(OSError, FormatError), files.locked(target.parent, timeout=0, strict=True):  # unless one writes
            _finish_interrupted_write(target)
    return checkpoint, model


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether at least one of the two files of a checkpoint exists."""
    return os.path.exists(path) or os.path.exists(os.fspath(path) + SUFFIX)


def _read_pair(target: Path) -> tuple[str, Record, files.Source]:
    """The name of the '.ckp' file, its content, and the model that it was saved with.

    All files are opened before any is read: if the '.ckp' was not replaced until then, its model is among them.
    """
    for _ in range(_ATTEMPTS):
        with ExitStack() as opened:
            paths = Path(f"{target}{SUFFIX}"), _staged(target), target
            state, staged, model = (_open(path, opened) for path in paths)
            if state is None:
                raise RuntimeError(explain(
                    f"cannot open the checkpoint {str(paths[0])!r}: there is no such file",
                    fix=f"pass the path given to save_checkpoint, without {SUFFIX!r}",
                ))
            if not paths[0].exists() or not os.path.samestat(paths[0].stat(), os.fstat(state.fileno())):
                continue  # replaced meanwhile
            data, name = files.read(state, "checkpoint")
            content = decode(data, name)
            return name, content, _matching(content.get(DIGEST), target, model, staged)
    raise RuntimeError(f"the checkpoint '{target}{SUFFIX}' is replaced too often to be read; pass a copy of both files")


def _open(path: Path, opened: ExitStack) -> BinaryIO | None:
    try:
        return opened.enter_context(path.open("rb"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RuntimeError(explain(
            f"cannot read the checkpoint {str(path)!r}: {error.strerror}",
            fix="pass the path of a file that this user may read",
        )) from error


def _matching(digest: str | None, target: Path, *models: BinaryIO | None) -> files.Source:
    """The model with this digest, or the first one if CNTK has written no digest."""
    for model in models:
        data = b"" if model is None else model.read()
        if model is not None and digest in (None, _digest([data])):
            return files.Content(data, str(target))
    if digest is None:
        return target
    raise _other_model(target)


def _other_model(target: Path) -> FormatError:
    return FormatError(
        f"the model {str(target)!r} is not the one that '{target}{SUFFIX}' was saved with: it is missing, was "
        "changed, or belongs to another checkpoint",
        fix="restore from a checkpoint whose two files are as save_checkpoint wrote them",
    )


def _staged(target: Path) -> Path:
    """The temporary name of a model until its '.ckp' file is in place."""
    return target.with_name(f".{target.name}.next")


def _finish_interrupted_write(target: Path) -> None:
    """Move the model that belongs to the '.ckp' file into place, if the writer was interrupted before it did.

    Call it in a scope in which no other process writes.
    """
    staged, state = _staged(target), f"{target}{SUFFIX}"
    digest = decode(*files.read(state, "checkpoint")).get(DIGEST) if os.path.exists(state) else None
    if digest is not None and _digest_of(target) != digest:
        if _digest_of(staged) != digest:
            raise _other_model(target)
        os.replace(staged, target)
    staged.unlink(missing_ok=True)


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
def pack_state(arrays: Sequence[np.ndarray], dtype: DTypeLike) -> np.ndarray:
    """The state of a learner for one parameter, as CNTK stores it: a single array as it is; several concatenated to
    one matrix whose last axis is the parameter's; a zero of the parameter's type if there is none.

    >>> pack_state([np.zeros((2, 3)), np.ones((2, 3))], np.float64).shape
    (4, 3)
    """
    if not arrays:
        return np.zeros((), dtype)
    if len(arrays) == 1:
        return np.asarray(arrays[0])
    return np.concatenate([np.reshape(a, (-1, np.shape(a)[-1] if np.ndim(a) else 1)) for a in arrays])


def unpack_state(stored: np.ndarray, count: int, shape: tuple[int, ...], where: str) -> list[np.ndarray]:
    """The inverse of :func:`pack_state`: ``count`` arrays of the parameter's shape.

    Errors: ShapeError if ``stored`` has another size: another kind of learner wrote it.
    """
    if stored.size != count * math.prod(shape) and (count or stored.size != 1):
        raise ShapeError(explain(
            f"{where} needs {count} arrays of shape {shape}, but the checkpoint has {stored.shape}: "
            "it was written by another kind of learner, or for another parameter",
            fix="restore with the kind of learner and the model that wrote the checkpoint",
        ))
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


def _learner_state(record: object, where: str) -> LearnerState | Record:
    all_workers_samples = block_gradients = None
    if isinstance(record, dict) and "blockLevelSmoothedGradient" in record:
        block_gradients = _arrays(record, "blockLevelSmoothedGradient", where)
        record = take(record, "base", dict, where)
    if isinstance(record, dict) and "localLearners" in record:
        all_workers_samples = take(record, "totalNumberOfSamplesSeen", int, where)
        record = record["localLearners"]
    if isinstance(record, dict) and record.get("type") != "Learner":
        return record
    check_version(record, LEARNER, where)
    assert isinstance(record, dict)
    is_first = record["version"] == 1 and "smoothed_gradients" not in record
    return LearnerState(
        samples=take(record, "sample_count", int, where),
        minibatches=take(record, "minibatchCount", int, where),
        sweeps=take(record, "sweepCount", int, where) if "sweepCount" in record or not is_first else 0,
        rates=read_rates(take(record, "learnig_rate_schedule", dict, where), f"{where}, learning rate"),
        smoothed_gradients=_first_gradients(record) if is_first else _arrays(record, "smoothed_gradients", where),
        smoothed_count=take(record, "smoothed_count", float, where) if "smoothed_count" in record else None,
        noise_seed=take(record, "noise_injection_seed", int, where),
        all_workers_samples=all_workers_samples,
        block_gradients=block_gradients,
        other_state=_arrays(record, "optax_state", where) if "optax_state" in record else [],
    )


def _first_gradients(record: Record) -> list[np.ndarray]:
    """The arrays of the first version of learners, in which they have the uids of the parameters: in that order."""
    numbers = {key: re.fullmatch(r"Parameter(\d+)", key) for key in record}
    keys = sorted((int(match[1]), key) for key, match in numbers.items() if match)
    return [record[key] for _, key in keys if isinstance(record[key], np.ndarray)]


def _arrays(record: Record, key: str, where: str) -> list[np.ndarray]:
    arrays = take(record, key, list, where)
    if not all(isinstance(array, np.ndarray) for array in arrays):
        raise FormatError(f"{where}: {key} has entries that are not arrays")
    return arrays


def rates_record(rates: Rates) -> Record:
    """The record of a schedule in a file: each value by the count of samples (or sweeps) up to which it holds; the key
    of a single value, which always holds, is 0."""
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


def read_rates(record: Record, where: str) -> Rates:
    """The schedule in a record of a '.ckp' file; ``where`` names it in errors.

    Units: the record has counts of samples, or of sweeps if its epoch size is 0.
    Errors: FormatError for a record that is damaged, or whose values do not change at the ends of epochs.
    """
    check_version(record, SCHEDULE, where)
    epoch_size = take(record, "epoch_size", int, where)
    values = _values(take(record, "schedule", dict, where), where)
    unit = epoch_size or 1
    start = values[0][0] % unit  # a schedule may begin later than its learner; earlier epochs no longer matter
    ends = [start, *(end for end, _ in values)]
    lengths = [(end - begin) / unit for begin, end in pairwise(ends)]
    if not all(length.is_integer() for length in lengths):
        raise FormatError(f"{where}: its values change at {ends[1:]}, which are not multiples of the epoch size "
                          f"{epoch_size}")
    entries = [(int(n), value) for n, (_, value) in zip(lengths, values, strict=True)]
    if values[0][0] == 0:
        entries[0] = (1, values[0][1])
    if "ref_mb_size" in record or "unit" not in record:
        minibatch_size = take(record, "ref_mb_size", int, where)
    else:  # the first version of schedules: 0 for values of a sample, 1 for those of a minibatch
        minibatch_size = 1 if take(record, "unit", int, where) == 0 else 0
    return Rates(tuple(entries), epoch_size, minibatch_size, start)


def _values(schedule: Mapping[str, Any], where: str) -> list[tuple[int, float]]:
    if not schedule or not all(end.isdecimal() and isinstance(value, float) for end, value in schedule.items()):
        raise FormatError(f"{where}: {dict(schedule)!r} is no schedule")
    return sorted((int(end), value) for end, value in schedule.items())
