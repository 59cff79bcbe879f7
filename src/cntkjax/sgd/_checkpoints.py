"""The files of a run: a checkpoint after each epoch, and the final model."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from ..configuration import ConfigError
from ..formats import checkpoint
from ..ops.functions import Function
from ..parallel import workers
from ..train._sources import SessionSource
from ..train.trainer import Trainer
from ._workers import broadcast
from .history import History

_SOURCE, _HISTORY = "TrainingMinibatchSource", "SGDHistory"  # keys in a checkpoint; the first is that of sessions


class Checkpoints:
    """The checkpoints ``path.N`` after epoch N, each with its model, and the final model ``path``.

    Without a path they are in a temporary folder, which is removed at the end of the scope, when no worker needs it.

    `keep_all`: keep the states of all epochs; otherwise of those that may be needed. Models are always kept.
    `last`: the number of the epoch whose checkpoint is ``path`` itself, if there is one.
    Errors: OSError if the files cannot be written.
    """

    def __init__(self, path: str | None, keep_all: bool, last: int | None = None) -> None:
        self._last = last
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._is_temporary = path is None
        self._keep_all, self._path = keep_all, path
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            checkpoint.check_path(path)

    def __enter__(self) -> Self:
        if self._path is None:
            if workers.rank() == 0:
                self._folder = tempfile.TemporaryDirectory(prefix="cntkjax", ignore_cleanup_errors=True)
            folder = broadcast("a folder", self._folder.name if self._folder else "")
            self._path = os.path.join(folder, "model")
            self._keep_all = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_temporary and kind is None:
            workers.barrier("the end of an SGD block")
        if self._folder is not None:
            self._folder.cleanup()

    def file(self, epoch: int) -> str:
        """The checkpoint after an epoch."""
        return str(self._path) if epoch == self._last else f"{self._path}.{epoch}"

    def last_epoch(self) -> int:
        """The last epoch that has a checkpoint; 0 if none has."""
        return broadcast("the last checkpoint", max(self._numbers(checkpoint.SUFFIX), default=0))

    def last_model(self) -> int:
        """The last epoch that has a model, perhaps without a state; 0 is one to begin with, -1 none at all."""
        return broadcast("the last model", max(self._numbers(""), default=-1))

    def _numbers(self, suffix: str) -> list[int]:
        """The epochs that have files with a suffix."""
        if self._path is None:
            return []
        path = Path(self._path)
        numbered = re.compile(re.escape(path.name) + rf"\.(\d+){re.escape(suffix)}")
        names = os.listdir(path.parent) if path.parent.is_dir() else []
        return [int(m[1]) for name in names if (m := numbered.fullmatch(name))]

    def resume(self, trainer: Trainer, source: SessionSource) -> History:
        """Restore the last checkpoint, if there is one; returns the history up to it.

        Errors: those of ``Trainer.restore_from_checkpoint``; ValueError if no run of an SGD block wrote it; ConfigError
        if there is only the model of a training that has ended, which a new one would overwrite.
        """
        epoch = self.last_epoch()
        if not epoch and self._last is None and Path(f"{self._path}{checkpoint.SUFFIX}").is_file():
            raise ConfigError(f"{self._path} has been trained by cntk, or by another program: change modelPath, or "
                              "remove it to begin anew")
        return self.restore(epoch, trainer, source) if epoch else History()

    def restore(self, epoch: int, trainer: Trainer, source: SessionSource) -> History:
        """Return to the checkpoint of an epoch; returns the history up to it. Errors: those of `resume`."""
        path = f"{self._path}.{epoch}"  # also of the last one, if maxEpochs was larger before
        try:
            state = trainer.restore_from_checkpoint(path)
        except ValueError as error:
            error.add_note(f"{path} is the checkpoint that training goes on from. If another network wrote "
                           "it, or cntk itself did before its configuration became a program, change modelPath, or "
                           "remove the files of this one to begin anew")
            raise
        if _HISTORY not in state:
            raise ValueError(f"checkpoint {path!r} was not written by an SGD block: change modelPath")
        source.restore_from_checkpoint(state[_SOURCE])
        return History.from_text(state[_HISTORY])

    def save(self, trainer: Trainer, source: SessionSource, history: History, needed: int) -> None:
        """Write the checkpoint of the last epoch; then remove the states of those before the last `needed`."""
        epoch = len(history)
        state = {_SOURCE: source.get_checkpoint_state(), _HISTORY: history.to_text()}
        trainer.save_checkpoint(self.file(epoch), state)
        if self._keep_all or workers.rank() > 0:
            return
        for old in range(1, epoch - needed + 1):
            Path(self.file(old) + checkpoint.SUFFIX).unlink(missing_ok=True)
            if self._folder is not None:
                Path(self.file(old)).unlink(missing_ok=True)

    def save_model(self, model: Function) -> None:
        """Write the final model, unless there is no path."""
        if self._folder is None and workers.rank() == 0:
            model.save(str(self._path))

    def copy(self, epoch: int, name: str) -> str:
        """Copy the model of an epoch to ``path_name``; returns its path."""
        copy = f"{self._path}_{name}"
        if self._folder is None and workers.rank() == 0:
            shutil.copyfile(self.file(epoch), copy)
        return copy


