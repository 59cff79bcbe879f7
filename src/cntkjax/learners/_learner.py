"""What all learners are: parameters, schedules, counters, and a chain of optax transformations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self

import jax
import numpy as np
import optax

from ..engine.xla.cache import persistent
from ..graph.proxy import delegates_to
from ..graph.seed import next_seed
from . import _transforms as transforms
from ._checkpoint import own_optax_state, own_state_of, take_over
from ._counters import Counters
from ._schedules import (
    IGNORE,
    Schedulable,
    TrainingParameterSchedule,
    _infer_learning_parameter_schedule,
    _infer_learning_rate_schedule_and_ref_minibatch_size,
    _verify_learning_rate_type,
    momentum_after,
)

Link = tuple[str, optax.GradientTransformation]
Scalars = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What every learner can do besides its own rule, and how the bare numbers among its arguments are meant.

    Weights, noise and thresholds below zero do nothing, as in CNTK.
    """

    l1: float = 0.0
    l2: float = 0.0
    noise: Schedulable = 0.0
    clip: float = math.inf
    clip_by_value: bool = True
    use_mean_gradient: bool | None = None
    minibatch_size: int | None = None
    epoch_size: int | None = None

    def rate(self, lr: Schedulable) -> tuple[TrainingParameterSchedule, int | None]:
        """The learning rate, and the minibatch size that the learner goes by."""
        return _infer_learning_rate_schedule_and_ref_minibatch_size(
            self.use_mean_gradient, self.minibatch_size, lr, self.epoch_size
        )

    def schedule(self, values: Schedulable) -> TrainingParameterSchedule:
        """A momentum, for the learner's minibatch size."""
        return _infer_learning_parameter_schedule(values, self.minibatch_size, self.epoch_size)

    def chain(self, rule: Sequence[Link]) -> optax.GradientTransformationExtraArgs:
        """The rule with the links around it, in CNTK's order."""
        clip = transforms.clip_by_value if self.clip_by_value else transforms.clip_by_norm
        links: list[Link | None] = [
            ("mean", transforms.average()),
            ("clip", clip(self.clip)) if 0 <= self.clip < math.inf else None,
            ("l2", transforms.add_l2(self.l2)) if self.l2 > 0 else None,
            *rule,
            ("descend", transforms.descend()),
            ("noise", transforms.add_noise()) if self.noise != 0 else None,
            ("l1", transforms.shrink_l1(self.l1)) if self.l1 > 0 else None,
        ]
        return optax.named_chain(*(link for link in links if link))


def _no_more(count: float, sample_count: int, scalars: Scalars) -> Scalars:
    return {}


class Learning:
    """What stands behind a `Learner`, with its arguments. A step has two forms: ``update`` does one with arrays;
    ``transform``, ``hyper`` and ``advance`` are the same in pieces, for a training step compiled as a whole:

        hyper = learner.hyper(n)                     # host scalars; None: this step is skipped (the rate is 0)
        updates, state = learner.transform.update(gradients, learner.optax_state, values, hyper=hyper)     # inside jit
        values = optax.apply_updates(values, updates)
        learner.advance(n, is_sweep_end)

    ``rule`` is any chain of optax transformations that makes what is subtracted from the parameters; its links receive
    ``hyper``, with a scalar for each of ``momenta`` ("momentum" and "variance") and the gain that goes with "momentum".
    ``more(smoothed, n, hyper)`` adds scalars to it; "count" among them is the next ``counters.smoothed``.
    Progress writers are told the learning rate, and the momentum if it ``tells_momentum``, whenever they change.
    """

    ignored_minibatch_size = IGNORE
    _MINIBATCH_SIZE = "MinibatchSize"  # its key in AdditionalLearningOptions.dict_options
    kept: Sequence[Any] = ()  # variables that change while it learns, besides its parameters and state
    distribution: Any = None  # how it learns together with other workers
    takes_seed: ClassVar[bool] = True  # with noise or without: whatever is created next begins as it does in CNTK
    keeper: Any = None  # the user's object that makes checkpoints of its own and restores from them

    def __init__(
        self,
        parameters: Sequence[Any],
        lr_schedule: Schedulable,
        rule: Sequence[Link] = (("rate", transforms.scale_by_rate()),),
        options: Options = Options(),
        *,
        momenta: Mapping[str, Schedulable] = MappingProxyType({}),
        unit_gain: bool = True,
        more: Callable[[float, int, Scalars], Scalars] = _no_more,
        tells_momentum: bool = False,
    ) -> None:
        if not isinstance(unit_gain, bool):
            raise TypeError(f"unit_gain must be True or False, not {unit_gain!r}")
        self._parameters = _checked(parameters)
        self._learning_rate_schedule, minibatch_size = options.rate(lr_schedule)
        self._unit_gain = unit_gain
        self._momenta = {name: options.schedule(values) for name, values in momenta.items()}
        self._more = more
        self._tells_momentum = tells_momentum
        self._told: dict[str, float] = {}
        self._writers: list[Any] = []
        self._averages = minibatch_size == IGNORE and minibatch_size is not None
        self._told_minibatch_size = minibatch_size is not None
        self._minibatch_size = minibatch_size or IGNORE
        self._noise = _infer_learning_parameter_schedule(options.noise, None, None) if options.noise != 0 else None
        self._noise_seed = next_seed() if self.takes_seed else 0
        self._optax_state: Any = None
        self.counters = Counters()
        self.transform = options.chain(rule)
        if any(p.dtype == np.float16 for p in self._parameters):
            self.transform = transforms.with_master_weights(self.transform)
        self._optax_step = jax.jit(partial(_step, self.transform), donate_argnums=1)

    # ------------------------------------------------------------ what CNTK's learners show

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The parameters that this learner changes, in its order."""
        return self._parameters

    def learning_rate(self) -> float:
        """The rate of the next step, as the schedule says it."""
        seen = self.counters
        return self._learning_rate_schedule.at(seen.samples - seen.rate_samples, seen.sweeps - seen.rate_sweeps)

    def reset_learning_rate(self, learning_rate: TrainingParameterSchedule) -> None:
        """A new schedule, which begins now.

        Units: the values are for as many samples as those before, whatever the new schedule says, as in CNTK.
        Errors: ValueError if it is no schedule.
        """
        _verify_learning_rate_type(learning_rate)
        self._learning_rate_schedule = learning_rate.per(self._learning_rate_schedule.minibatch_size)
        self.counters = replace(
            self.counters, rate_samples=self.counters.samples, rate_sweeps=self.counters.sweeps
        )

    @property
    def minibatch_size(self) -> int:
        """The reference minibatch size; setting it to ``IGNORE`` makes the learner average gradients."""
        return self._minibatch_size

    @minibatch_size.setter
    def minibatch_size(self, value: int) -> None:
        self._minibatch_size = operator.index(value)
        self._averages = self._minibatch_size == IGNORE

    @property
    def is_minibatch_size_explicitly_specified(self) -> bool:
        """Whether the learner was made with a ``minibatch_size``, or to average gradients."""
        return self._told_minibatch_size

    def is_compatible_mode(self) -> bool:
        """Whether gradients are averaged over the minibatch, as other toolkits do."""
        return self._averages

    def total_number_of_samples_seen(self) -> int:
        """Samples of all steps that were not skipped."""
        return self.counters.samples

    def total_number_of_minibatches_seen(self) -> int:
        """Steps that were not skipped."""
        return self.counters.minibatches

    def total_number_of_sweeps_seen(self) -> int:
        """Sweeps of the data that have ended."""
        return self.counters.sweeps

    def reset_smoothed_gradients(self) -> None:
        """Forget momentum and statistics, as if no step had been taken; the counters of samples stay."""
        self._optax_state = None
        self.counters = replace(self.counters, smoothed=0.0)

    def create_checkpoint(self) -> Any:
        """All that changes while it learns, for :meth:`restore_from_checkpoint`."""
        return own_state_of(self)

    def restore_from_checkpoint(self, checkpoint: Any) -> None:
        """Go on where a learner was when it made this checkpoint; momentum and other options stay this learner's.

        Errors: ValueError if that was a learner of another kind or of other parameters; nothing has changed then.
        """
        take_over(self, checkpoint, own_optax_state(self, checkpoint))

    def add_progress_writers(self, writers: Sequence[Any]) -> None:
        """Tell these too when the learning rate changes."""
        self._writers.extend(writers)

    def update(
        self, gradient_values: Mapping[Any, Any], training_sample_count: int, is_sweep_end: bool = False
    ) -> bool:
        """One step; whether it was taken (a learning rate of 0 skips it).

        Shapes: each gradient as its parameter; axes of length 1 may be added or missing.
        Errors: RuntimeError if a parameter has no gradient, ValueError for another shape or an empty minibatch,
                TypeError for what is no array; nothing has changed then.
        """
        sample_count = operator.index(training_sample_count)
        if sample_count <= 0:
            raise ValueError(f"a minibatch of {sample_count} samples: a learner needs at least one")
        gradients = [gradient_of(p, gradient_values) for p in self._parameters]
        hyper = self.hyper(sample_count)
        if hyper is not None:
            with self._precision():
                before = [p.value for p in self._parameters]
                values, self.optax_state = self._optax_step(gradients, self.optax_state, before, hyper)
            for p, value in zip(self._parameters, values, strict=True):
                p.value = np.asarray(value)
        return self.advance(sample_count, is_sweep_end)

    # ------------------------------------------------------------ the same step in pieces

    @property
    def optax_state(self) -> Any:
        """The state of ``transform``, made when it is first asked for."""
        if self._optax_state is None:
            with self._precision(), persistent():  # one program: each array of zeros would be one of its own
                self._optax_state = jax.jit(self.transform.init)([p.value for p in self._parameters])
        return self._optax_state

    @optax_state.setter
    def optax_state(self, state: Any) -> None:
        self._optax_state = state

    def _precision(self) -> AbstractContextManager[Any]:
        """The scope that ``transform`` has to run in: double precision if a parameter has it."""
        return jax.enable_x64(True) if any(p.dtype == np.float64 for p in self._parameters) else nullcontext()

    def hyper(self, sample_count: int) -> Scalars | None:
        """The scalars of the next step, always the same names; None if the learning rate is 0: the step is skipped."""
        lr, seen = self.learning_rate(), self.counters
        if lr == 0:
            return None
        reference = self._learning_rate_schedule.minibatch_size or sample_count
        divisor, weight = (sample_count, 1) if self._averages else (1, sample_count)
        # A gradient that stands for `reference` samples gets the rate itself.
        scalars: Scalars = {"divisor": divisor, "weight": weight, "rate": lr * divisor / reference}
        for name, schedule in self._momenta.items():
            scalars[name] = momentum_after(schedule, seen.samples, seen.sweeps, sample_count)
        if "momentum" in scalars:
            scalars["gain"] = 1 - scalars["momentum"] if self._unit_gain else 1
        scalars.update(self._more(seen.smoothed, sample_count, scalars))
        scalars = {name: np.float64(value) for name, value in scalars.items()}
        if self._noise:
            scalars["noise"] = np.float64(max(self._noise.at(seen.samples, seen.sweeps), 0))
            scalars["seed"] = np.array([self._noise_seed & 0xFFFFFFFF, seen.minibatches & 0xFFFFFFFF], np.uint32)
        return scalars

    def advance(self, sample_count: int, is_sweep_end: bool = False) -> bool:
        """Count a step, and say whether it was taken: as in CNTK, a skipped one does not count, nor a sweep it ends."""
        scalars, seen = self.hyper(sample_count), self.counters
        if self._writers:
            self._tell()
        if scalars is None:
            return False
        self.counters = replace(
            seen,
            samples=seen.samples + sample_count,
            minibatches=seen.minibatches + 1,
            sweeps=seen.sweeps + bool(is_sweep_end),
            smoothed=float(scalars.get("count", seen.smoothed)),
        )
        return True

    def _tell(self) -> None:
        """Tell the progress writers what has changed. Of a step that is skipped CNTK says no momentum."""
        seen, rate = self.counters, self.learning_rate()
        news = {"Learning rate": (self._learning_rate_schedule, rate)}
        if self._tells_momentum and rate != 0:
            momentum = self._momenta["momentum"]
            news["Momentum"] = momentum, momentum.at(seen.samples, seen.sweeps)
        for name, (schedule, value) in news.items():
            if value != self._told.get(name):
                self._told[name] = value
                unit = f"{schedule.minibatch_size} samples" if schedule.minibatch_size else "minibatch"
                for writer in self._writers:
                    writer.write(f"{name} per {unit}", value)

    def __repr__(self) -> str:
        names = ", ".join(p.name or p.uid for p in self._parameters)
        return f"Learner([{names}], learning_rate={self.learning_rate()})"


@delegates_to(Learning, settable=("minibatch_size",), special=("__repr__",))
class Learner(Learning):
    """Changes parameters by their gradients, with ``update`` or in a trainer: see `Learning`.

    Shapes: gradients, values and all state have the shapes of the parameters, in their order.
    Units: gradients are sums over the samples of the minibatch.
    Errors: ValueError if there are no parameters or one stands there twice, TypeError if something is no parameter;
            ValueError if a rate or momentum is no number, list or schedule.
    Source: CNTK 2.7 (golden/learners).
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.__wrapped__ = Learning(*arguments, **options)

    @classmethod
    def _of(cls, learning: Learning) -> Self:
        """One that stands in front of this."""
        made = object.__new__(cls)
        made.__wrapped__ = learning
        return made


def _step(transform: optax.GradientTransformationExtraArgs, gradients: Any, state: Any, values: Any, hyper: Any) -> Any:
    updates, state = transform.update(gradients, state, values, hyper=hyper)
    return optax.apply_updates(values, updates), state


def _checked(parameters: Iterable[Any]) -> tuple[Any, ...]:
    if not isinstance(parameters, list | tuple):
        raise TypeError(f"parameters must be a list or tuple of parameters, not {type(parameters).__name__}")
    if not parameters:
        raise ValueError("a learner needs at least one parameter, but the list is empty")
    for p in parameters:
        if not getattr(p, "is_parameter", False):
            raise TypeError(f"a learner changes parameters, but {p!r} of type {type(p).__name__} is none")
    for p in parameters:
        if sum(p is other for other in parameters) > 1:
            raise ValueError(f"parameter {p.name or p.uid!r} stands more than once in the learner's list")
    return tuple(parameters)


def gradient_of(parameter: Any, gradients: Mapping[Any, Any]) -> np.ndarray:
    """The gradient of one parameter, checked; see :meth:`Learner.update`."""
    name = parameter.name or parameter.uid
    if parameter not in gradients:
        raise RuntimeError(f"there is no gradient of parameter {name!r}: give one for each of the learner's parameters")
    gradient = gradients[parameter]
    gradient = gradient.asarray() if hasattr(gradient, "asarray") else gradient
    if not isinstance(gradient, np.ndarray | jax.Array):
        raise TypeError(f"the gradient of parameter {name!r} must be an array, not {type(gradient).__name__}")
    if [d for d in gradient.shape if d != 1] != [d for d in parameter.shape if d != 1]:
        raise ValueError(f"parameter {name!r} has shape {parameter.shape}, but its gradient has {gradient.shape}")
    return np.asarray(gradient, parameter.dtype).reshape(parameter.shape)
