"""Callbacks, under the names that Keras and Lightning give them: what is done while a model trains. An extension.

They are arguments of `training_session` and `Function.train`; a loop of one's own calls a `CallbackList`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import numpy as np

from .._user_code import warn
from ..graph.proxy import unwrap
from ..learners import learning_parameter_schedule
from ..logging import ProgressWriter
from ..ops.functions import Function
from ..parallel import workers
from ..variables import Parameter
from .trainer import Trainer, TrainerCore

Logs: TypeAlias = Mapping[str, float]
Mode: TypeAlias = Literal["auto", "min", "max"]
_INCREASING = ("acc", "auc", "f1", "precision", "recall")  # parts of names of quantities that should grow


class Callback:
    """What is done while a model trains; a subclass overrides the methods that it needs.

    `trainer` is set before training begins. Any method ends training by setting `stop_training`.
    `logs`: "loss" and "metric", averages over the samples of an epoch (the progress frequency of a session), or
    "val_metric", the average of a cross validation.
    """

    trainer: TrainerCore
    stop_training = False

    def on_train_begin(self) -> None:
        """Called before the first minibatch, also after a restored checkpoint."""

    def on_train_batch_end(self) -> None:
        """Called after each minibatch."""

    def on_epoch_end(self, logs: Logs) -> None:
        """Called after each progress summary, with "loss" and "metric"."""

    def on_validation_end(self, logs: Logs) -> None:
        """Called after each cross validation, with "val_metric"."""

    def on_train_end(self) -> None:
        """Called after the last minibatch, before the last checkpoint and the final test."""

    def get_checkpoint_state(self) -> dict[str, Any]:
        """What a checkpoint keeps: numbers, texts, arrays, lists and dictionaries of them."""
        return {}

    def restore_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Go on from the state that `get_checkpoint_state` returned."""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """The parameters that are trained."""
        return [p for learner in self.trainer.parameter_learners for p in learner.parameters]


class _Monitor(Callback):
    """What waits for a quantity to improve.

    `monitor`: "loss", "metric" or "val_metric"; in a loop of one's own any name. `mode`: whether less or more is
    better; "auto" takes more for names with "acc", "auc", "f1", "precision" or "recall" in them. `min_delta`: what is
    less than this is no improvement.
    """

    def __init__(self, monitor: str, mode: Mode, min_delta: float) -> None:
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"{type(self).__name__}: mode is 'auto', 'min' or 'max', not {mode!r}")
        if mode == "auto":
            mode = "max" if any(part in monitor.lower() for part in _INCREASING) else "min"
        self.monitor, self.mode, self.min_delta = monitor, mode, abs(min_delta)
        self.best = np.inf if mode == "min" else -np.inf
        self.wait = 0
        self._others: dict[str, None] | None = {}  # what came in the place of the quantity; None once that has come

    def on_epoch_end(self, logs: Logs) -> None:
        """Compare the quantity, if it is one of these."""
        if self.monitor in logs:
            self._others = None
            self._compare(float(logs[self.monitor]))
        elif self._others is not None:
            self._others |= dict.fromkeys(logs)

    on_validation_end = on_epoch_end

    def _check_not_negative(self, **numbers: float) -> None:
        for name, number in numbers.items():
            if number < 0:
                raise ValueError(f"{type(self).__name__}: {name} has to be 0 or more, not {number}")

    def on_train_end(self) -> None:
        """Warn if the quantity never came."""
        if self._others:
            warn(
                f"{type(self).__name__} has done nothing: it waited for {self.monitor!r}, and there was "
                f"{' and '.join(map(repr, self._others))}. Monitor one of these; 'val_metric' needs a "
                "CrossValidationConfig"
            )

    def _compare(self, value: float) -> None:
        gain = self.best - value if self.mode == "min" else value - self.best
        if gain > self.min_delta:
            self.best, self.wait = value, 0
            self.on_improvement()
        else:
            self.wait += 1
            self.on_no_improvement()

    def on_improvement(self) -> None:
        """The quantity is better than ever."""

    def on_no_improvement(self) -> None:
        """The quantity is not; `wait` counts how often in a row."""

    def get_checkpoint_state(self) -> dict[str, Any]:
        """The best value, and for how long there was none."""
        return {"best": float(self.best), "wait": self.wait}

    def restore_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.best, self.wait = state["best"], int(state["wait"])


class EarlyStopping(_Monitor):
    """Ends training when a quantity has not improved `patience` times in a row.

    `restore_best_weights`: at the end the parameters get the values that they had at the best one.
    Errors: ValueError for a patience below 0.

    >>> stop = EarlyStopping(monitor="loss", patience=2)
    >>> for loss in (3.0, 2.0, 2.5, 2.1):
    ...     stop.on_epoch_end({"loss": loss})
    >>> stop.stop_training, stop.best
    (True, 2.0)
    """

    def __init__(
        self, monitor: str = "val_metric", min_delta: float = 0.0, patience: int = 0, mode: Mode = "auto",
        restore_best_weights: bool = False,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self._check_not_negative(patience=patience)
        self.patience, self.restore_best_weights = patience, restore_best_weights
        self._best_weights: list[np.ndarray] = []

    def on_improvement(self) -> None:
        """Copy the parameters, if they are to be restored."""
        if self.restore_best_weights:
            self._best_weights = [p.value for p in self.parameters]

    def on_no_improvement(self) -> None:
        """End training if patience is exhausted."""
        self.stop_training = self.wait >= max(self.patience, 1)

    def on_train_end(self) -> None:
        """Restore the parameters."""
        super().on_train_end()
        for parameter, value in zip(self.parameters, self._best_weights, strict=False):
            parameter.value = value

    def get_checkpoint_state(self) -> dict[str, Any]:
        """With the best parameters."""
        return {**super().get_checkpoint_state(), "weights": list(self._best_weights)}

    def restore_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        """With the best parameters."""
        super().restore_from_checkpoint(state)
        self._best_weights = list(state["weights"])


class ModelCheckpoint(_Monitor):
    """Saves the model whenever a quantity is better than ever, or with `save_best_only=False` every time.

    `filepath`: a name, in which "{epoch}" is the number of the save, from 1, and "{value}" the quantity.
    `model`: what is saved, by default the trainer's model, and if it has none its criterion.
    Errors: ValueError for a name with anything else in braces.
    """

    def __init__(
        self, filepath: str | os.PathLike[str], monitor: str = "val_metric", mode: Mode = "auto",
        save_best_only: bool = True, model: Function | None = None,
    ) -> None:
        super().__init__(monitor, mode, 0.0)
        try:
            os.fspath(filepath).format(epoch=1, value=0.0)
        except (KeyError, IndexError, AttributeError, ValueError) as error:
            raise ValueError(
                f"ModelCheckpoint: only {{epoch}} and {{value}} can be in braces in the name of a file, unlike in "
                f"{os.fspath(filepath)!r}: {error}"
            ) from None
        self.filepath, self.save_best_only, self.model, self.epoch = os.fspath(filepath), save_best_only, model, 0
        self._value = 0.0

    def _compare(self, value: float) -> None:
        self._value = value
        super()._compare(value)

    def on_improvement(self) -> None:
        """Save the model. Errors: OSError."""
        self._save()

    def on_no_improvement(self) -> None:
        """Save the model, unless only the best ones are saved."""
        if not self.save_best_only:
            self._save()

    def _save(self) -> None:
        self.epoch += 1
        if workers.rank() == 0:
            model = self.model or self.trainer.model or self.trainer.loss_function
            model.save(self.filepath.format(epoch=self.epoch, value=self._value))

    def get_checkpoint_state(self) -> dict[str, Any]:
        """With the number of saves."""
        return {**super().get_checkpoint_state(), "epoch": self.epoch}

    def restore_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        """With the number of saves."""
        super().restore_from_checkpoint(state)
        self.epoch = int(state["epoch"])


class ReduceLROnPlateau(_Monitor):
    """Multiplies the learning rates by `factor` when a quantity has not improved `patience` times in a row.

    `cooldown`: how many times nothing is counted after that. `min_lr`: no rate becomes less than this.
    Errors: ValueError for a factor that is not between 0 and 1, and for negative numbers.
    """

    def __init__(
        self, monitor: str = "val_metric", factor: float = 0.1, patience: int = 10, mode: Mode = "auto",
        min_delta: float = 1e-4, cooldown: int = 0, min_lr: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        if not 0 < factor < 1:
            raise ValueError(f"ReduceLROnPlateau: factor has to be between 0 and 1, not {factor}")
        self._check_not_negative(patience=patience, cooldown=cooldown, min_lr=min_lr)
        self.factor, self.patience, self.cooldown, self.min_lr = factor, patience, cooldown, min_lr
        self._cooling = 0

    def on_no_improvement(self) -> None:
        """Reduce the rates if patience is exhausted."""
        if self._cooling:
            self._cooling -= 1
            self.wait = 0
        elif self.wait >= max(self.patience, 1):
            self.wait, self._cooling = 0, self.cooldown
            self._set([max(learner.learning_rate() * self.factor, self.min_lr) for learner in self._learners])

    @property
    def _learners(self) -> Sequence[Any]:
        return self.trainer.parameter_learners

    def _set(self, rates: Sequence[float]) -> None:
        for learner, rate in zip(self._learners, rates, strict=True):
            if rate != learner.learning_rate():
                learner.reset_learning_rate(learning_parameter_schedule(rate))

    def get_checkpoint_state(self) -> dict[str, Any]:
        """With the rates."""
        rates = [float(learner.learning_rate()) for learner in self._learners]
        return {**super().get_checkpoint_state(), "cooling": self._cooling, "rates": rates}

    def restore_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        """With the rates."""
        super().restore_from_checkpoint(state)
        self._cooling = int(state["cooling"])
        self._set(state["rates"])


class TerminateOnNaN(Callback):
    """Ends training after a minibatch whose loss is NaN or infinite. It waits for the loss of each minibatch."""

    def on_train_batch_end(self) -> None:
        """Look at the loss."""
        self.stop_training = not np.isfinite(self.trainer.previous_minibatch_loss_average)


class Timer(Callback):
    """Ends training after some time, `duration` in seconds or a timedelta; a resumed training goes on counting.

    With several workers the first that is late ends the training of all.

    >>> Timer(timedelta(hours=2)).duration
    7200.0
    """

    def __init__(self, duration: float | timedelta) -> None:
        self.duration = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
        self._before, self._start = 0.0, time.monotonic()

    @property
    def time_elapsed(self) -> float:
        """The seconds of training so far."""
        return self._before + time.monotonic() - self._start

    def on_train_begin(self) -> None:
        """Start the clock."""
        self._start = time.monotonic()

    def on_train_batch_end(self) -> None:
        """Look at the clock."""
        late = self.time_elapsed >= self.duration
        if workers.size() > 1:
            late = b"1" in workers.gather("time limit of the training", b"1" if late else b"0").wait()
        self.stop_training = late

    def get_checkpoint_state(self) -> dict[str, Any]:
        """The time so far."""
        return {"elapsed": self.time_elapsed}

    def restore_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._before, self._start = state["elapsed"], time.monotonic()


class EpochAverages(ProgressWriter):
    """The averages since the last summary, as callbacks read them."""

    def __init__(self) -> None:
        super().__init__()
        self.averages: dict[str, float] = {}

    def on_write_training_summary(
        self, samples: int, updates: int, summaries: int, aggregate_loss: float, aggregate_metric: float,
        elapsed_milliseconds: int,
    ) -> None:
        """Keep them."""
        n = max(samples, 1)
        self.averages = {"loss": aggregate_loss / n, "metric": aggregate_metric / n} if samples else {}


class CallbackList:
    """Callbacks of one training; a loop of one's own calls its methods.

    >>> import cntkjax as C, numpy as np
    >>> x = C.input_variable(1)
    >>> loss = C.square(C.times(x, C.parameter((1, 1), init=3)) - 6)
    >>> trainer = C.Trainer(None, loss, C.sgd(loss.parameters, 0.01))
    >>> callbacks = CallbackList(trainer, [EarlyStopping("loss", patience=1, min_delta=1)])
    >>> callbacks.on_train_begin()
    >>> while not callbacks.stop_training:
    ...     trained = trainer.train_minibatch({x: np.ones((1, 1), np.float32)})
    ...     callbacks.on_train_batch_end()
    ...     callbacks.on_epoch_end({"loss": trainer.previous_minibatch_loss_average})
    >>> callbacks.on_train_end()
    >>> trainer.total_number_of_samples_seen
    2
    """

    def __init__(self, trainer: Trainer | TrainerCore, callbacks: Sequence[Callback]) -> None:
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(f"a callback derives from cntk.train.callbacks.Callback; this one is {callback!r}")
            callback.trainer = unwrap(trainer)
        self.callbacks = list(callbacks)

    @property
    def stop_training(self) -> bool:
        """True if any callback ends training."""
        return any(callback.stop_training for callback in self.callbacks)

    def on_train_begin(self) -> None:
        """Call this before the first minibatch."""
        for callback in self.callbacks:
            callback.stop_training = False
            callback.on_train_begin()

    def on_train_batch_end(self) -> None:
        """Call this after each minibatch."""
        for callback in self.callbacks:
            callback.on_train_batch_end()

    def on_epoch_end(self, logs: Logs) -> None:
        """Call this after each epoch, with what the callbacks monitor."""
        for callback in self.callbacks:
            callback.on_epoch_end(logs)

    def on_validation_end(self, logs: Logs) -> None:
        """Call this after each validation, with what the callbacks monitor."""
        for callback in self.callbacks:
            callback.on_validation_end(logs)

    def on_train_end(self) -> None:
        """Call this after the last minibatch."""
        for callback in self.callbacks:
            callback.on_train_end()

    def get_checkpoint_state(self) -> dict[str, Any]:
        """The states of the callbacks, for the external state of a checkpoint."""
        names = (f"{i}.{type(callback).__name__}" for i, callback in enumerate(self.callbacks))
        return {name: c.get_checkpoint_state() for name, c in zip(names, self.callbacks, strict=True)}

    def restore_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Go on from these states; a callback that was not there before begins anew."""
        for i, callback in enumerate(self.callbacks):
            saved = state.get(f"{i}.{type(callback).__name__}")
            if saved is not None:
                callback.restore_from_checkpoint(saved)


__all__ = ["Callback", "CallbackList", "EarlyStopping", "ModelCheckpoint", "ReduceLROnPlateau", "TerminateOnNaN",
           "Timer"]
