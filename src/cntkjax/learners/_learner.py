"""The base of all learners: parameters, schedules, counters, and a chain of optax transformations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeAlias

import jax
import numpy as np

from .._interrupts import deferred_interrupts
from .._typing import PyTree
from ..engine.run.compiling import Computation
from ..engine.run.constants import constant_outputs
from ..engine.run.devices import Devices, Divided
from ..engine.run.executables import DonatingFunction, Executables
from ..engine.run.handover import STATE, Captures, hand_over, replace_state, settle
from ..engine.run.state import leaf_array
from ..graph.arguments import internal, public
from ..graph.cells import Cell, Changes
from ..graph.proxy import delegates_to
from ..graph.seed import next_seed
from ..graph.variable import new_value
from ..parallel.block_momentum import BlockMomentum
from ..parallel.gradients import DataParallel
from ..parallel.sharding import divided, gathered
from ..variables import Parameter
from . import _lazy_transforms as transforms
from ._checkpoint import CustomCheckpoint, core_state_dict, decode_core_optax_state, load_core_state
from ._counters import Counters
from ._schedules import (
    IGNORE,
    Schedulable,
    TrainingParameterSchedule,
    _infer_learning_parameter_schedule,
    _infer_learning_rate_schedule_and_ref_minibatch_size,
    _verify_learning_rate_type,
    at_most_1,
    momentum_after,
)

if TYPE_CHECKING:
    import optax

Link: TypeAlias = "tuple[str, optax.GradientTransformation]"
Scalars = dict[str, Any]  # numbers on the host; a step gets them as NumPy's
Gradients = Mapping[Any, Any]  # {parameter: array}


@dataclass(frozen=True)
class LearnerOptions:
    """What all learners share besides their rules: regularization, clipping, noise, and the units of bare numbers.

    The names are those of the learners' arguments. Weights, noise and thresholds below zero have no effect, as in CNTK.

    Units: weights and the threshold are per sample; ``minibatch_size`` and ``epoch_size`` are in samples.
    """

    l1_regularization_weight: float = 0.0
    l2_regularization_weight: float = 0.0
    gaussian_noise_injection_std_dev: Schedulable = 0.0
    gradient_clipping_threshold_per_sample: float = math.inf
    gradient_clipping_with_truncation: bool = True
    use_mean_gradient: bool | None = None
    minibatch_size: int | None = None
    epoch_size: int | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> LearnerOptions:
        """Those among the arguments of a learner's function."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls)})

    def rate(self, lr: Schedulable) -> tuple[TrainingParameterSchedule, int | None]:
        """The schedule of the learning rate, and the reference minibatch size of the learner."""
        return _infer_learning_rate_schedule_and_ref_minibatch_size(
            self.use_mean_gradient, self.minibatch_size, lr, self.epoch_size
        )

    def schedule(self, values: Schedulable) -> TrainingParameterSchedule:
        """A momentum's schedule, for the learner's reference minibatch size.

        A single number has no epochs: `epoch_size` may well be meant for the rates alone.
        """
        epoch_size = self.epoch_size if isinstance(values, list) else None
        return _infer_learning_parameter_schedule(values, self.minibatch_size, epoch_size)

    def chain(self, rule: Sequence[Link]) -> optax.GradientTransformationExtraArgs:
        """The rule, preceded and followed by the links for these options, in CNTK's order."""
        import optax  # slow to import

        l1, l2 = self.l1_regularization_weight, self.l2_regularization_weight
        clip = transforms.clip_by_value if self.gradient_clipping_with_truncation else transforms.clip_by_norm
        threshold = self.gradient_clipping_threshold_per_sample
        links: list[Link | None] = [
            ("mean", transforms.average()),
            ("clip", clip(threshold)) if 0 <= threshold < math.inf else None,
            ("l2", transforms.add_l2(l2)) if l2 > 0 else None,
            *rule,
            ("descend", transforms.descend()),
            ("noise", transforms.add_noise()) if self.gaussian_noise_injection_std_dev != 0 else None,
            ("l1", transforms.shrink_l1(l1)) if l1 > 0 else None,
        ]
        return optax.named_chain(*(link for link in links if link))


def _no_scalars(count: float, sample_count: int, scalars: Scalars) -> Scalars:
    return {}


class LearnerCore:
    """The implementation of `Learner`, with its arguments. ``update`` takes a step with arrays; ``transform``,
    ``hyper`` and ``advance`` are the pieces of it, for a training step that is compiled as a whole:

        hyper = learner.hyper(n)                     # host scalars; None: this step is skipped (the rate is 0)
        updates, state = learner.transform.update(gradients, learner.optax_state, values, hyper=hyper)  # inside jit
        values = optax.apply_updates(values, updates)
        learner.advance(n, is_sweep_end)

    ``rule`` is a chain of named optax transformations that computes the decrease of the parameters, by default the
    gradient times the learning rate; its links receive
    ``hyper``, with a scalar for each of ``momenta`` ("momentum" and "variance") and the gain that goes with "momentum".
    ``extra_scalars(smoothed, n, hyper)`` adds to it; "count" among them is the next ``counters.smoothed``.
    The learning rate, and with ``reports_momentum`` the momentum, are reported to progress writers when they change.
    """

    ignored_minibatch_size = IGNORE
    _MINIBATCH_SIZE = "MinibatchSize"  # its key in AdditionalLearningOptions.dict_options
    extra_variables: Sequence[Any] = ()  # variables that change in a step, besides the parameters
    strategy: DataParallel | BlockMomentum | None = None  # how it learns from the data of several workers
    runs_python: ClassVar[bool] = False  # a step ends with Python code: see `_user.HostLearner`
    saves_state: ClassVar[bool] = True  # in checkpoints: later steps depend on it
    takes_seed: ClassVar[bool] = True  # even without noise, so that later initializers get CNTK's seeds

    def __init__(
        self,
        parameters: Sequence[Parameter],
        lr_schedule: Schedulable,
        rule: Sequence[Link] | None = None,
        options: LearnerOptions = LearnerOptions(),
        *,
        momenta: Mapping[str, Schedulable] = MappingProxyType({}),
        unit_gain: bool = True,
        extra_scalars: Callable[[float, int, Scalars], Scalars] = _no_scalars,
        reports_momentum: bool = False,
    ) -> None:
        if not isinstance(unit_gain, bool):
            raise TypeError(f"unit_gain must be True or False, not {unit_gain!r}")
        rule = [("rate", transforms.scale_by_rate())] if rule is None else rule
        self._parameters = _checked(parameters)
        self.rate_schedule, minibatch_size = options.rate(lr_schedule)
        self._unit_gain = unit_gain
        self.rule, self.options = tuple(name for name, _ in rule), options
        self.works_on_parts = all(isinstance(link, transforms.PerParameter) for _, link in rule)
        self.momenta = {name: at_most_1(options.schedule(values)) for name, values in momenta.items()}
        self._extra_scalars = extra_scalars
        self._reports_momentum = reports_momentum
        self._reported: dict[str, float] = {}
        self._writers: list[Any] = []
        self._averages_gradients = minibatch_size == IGNORE and minibatch_size is not None
        self._minibatch_size_is_explicit = minibatch_size is not None
        self._minibatch_size = minibatch_size or IGNORE
        noise = options.gaussian_noise_injection_std_dev
        self._noise = _infer_learning_parameter_schedule(noise, None, None) if noise != 0 else None
        self.noise_seed = next_seed() if self.takes_seed else 0
        self.optax_cell = Cell[PyTree](None)
        self.counters_cell = Cell(Counters())
        self.transform = options.chain(rule)
        if any(p.dtype == np.float16 for p in self._parameters):
            self.transform = transforms.with_master_weights(self.transform)
        self._optax_step = self._step()

    def _step(self) -> DonatingFunction:
        step = partial(_step, self.transform)
        return DonatingFunction(step, description=lambda: step)

    @internal
    def precede(self, link: optax.GradientTransformation, scalars: Callable[[], Scalars]) -> None:
        """Put a link before all others, before training; ``scalars`` returns what its ``hyper`` has besides."""
        import optax

        others = self._extra_scalars
        self.transform = optax.chain(link, self.transform)
        self._optax_step = self._step()
        self._extra_scalars = lambda smoothed, n, hyper: others(smoothed, n, hyper) | scalars()

    @property
    def counters(self) -> Counters:
        """What it has counted so far."""
        return self.counters_cell.value

    @property
    def kind(self) -> str:
        """The names of the links of its rule."""
        return ", ".join(self.rule)

    # ------------------------------------------------------------ the members of CNTK's learners

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that this learner updates, in its order."""
        return self._parameters

    @property
    def _learning_rate_schedule(self) -> TrainingParameterSchedule:
        """The schedule of the learning rate, under the name that scripts written for CNTK use."""
        return self.rate_schedule

    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._learning_rate_at(self.counters)

    def _learning_rate_at(self, now: Counters) -> float:
        return self.rate_schedule.at(now.samples - now.rate_samples, now.sweeps - now.rate_sweeps)

    def reset_learning_rate(self, learningRateSchedule: TrainingParameterSchedule) -> None:
        """Replace the schedule of the learning rate by another one, which starts now.

        Units: the values are for as many samples as those of the old schedule, whatever the new one says, as in CNTK.
        Errors: ValueError if it is not a schedule.
        """
        _verify_learning_rate_type(learningRateSchedule)
        learningRateSchedule.take_minibatch_size(self.minibatch_size)
        self.rate_schedule = learningRateSchedule.per(self.rate_schedule.minibatch_size)
        now = self.counters
        self.counters_cell.value = replace(now, rate_samples=now.samples, rate_sweeps=now.sweeps)

    def reset_momentum(self, momentum: TrainingParameterSchedule) -> None:
        """Replace the schedule of the momentum by another one; a learner without momentum stays without."""
        if "momentum" in self.momenta:
            self.momenta["momentum"] = at_most_1(momentum)

    @property
    def minibatch_size(self) -> int:
        """The reference minibatch size, in samples; setting it to ``IGNORE`` makes the learner average gradients."""
        return self._minibatch_size

    @minibatch_size.setter
    def minibatch_size(self, value: int) -> None:
        self._minibatch_size = operator.index(value)
        self._averages_gradients = self._minibatch_size == IGNORE

    @property
    def is_minibatch_size_explicitly_specified(self) -> bool:
        """Whether the learner was made with a ``minibatch_size``, or to average gradients."""
        return self._minibatch_size_is_explicit

    def is_compatible_mode(self) -> bool:
        """Whether gradients are averaged over the minibatch, as other toolkits do."""
        return self._averages_gradients

    def total_number_of_samples_seen(self) -> int:
        """The number of samples of all steps that were not skipped; those too, if the learner is distributed."""
        return self.counters.samples

    def total_number_of_minibatches_seen(self) -> int:
        """The number of steps that were not skipped."""
        return self.counters.minibatches

    def total_number_of_sweeps_seen(self) -> int:
        """The number of sweeps over the data that have ended."""
        return self.counters.sweeps

    def reset_smoothed_gradients(self) -> None:
        """Reset momentum and statistics to zero; the counters of samples are not changed."""
        replace_state({self.optax_cell: None, self.counters_cell: replace(self.counters, smoothed=0.0)})

    @property
    def custom_checkpoint(self) -> CustomCheckpoint | None:
        """The user's object that defines its own checkpoints, if it does."""
        return None

    def create_checkpoint(self) -> Any:
        """The state of this learner, for :meth:`restore_from_checkpoint`."""
        return core_state_dict(self)

    def restore_from_checkpoint(self, checkpoint: Any) -> None:
        """Load the state of a learner that created this checkpoint; momentum and other options stay this learner's.

        Errors: ValueError if that was a learner of another kind or of other parameters; nothing has changed then.
        """
        load_core_state(self, checkpoint, decode_core_optax_state(self, checkpoint))

    def add_progress_writers(self, progressWriters: Sequence[Any]) -> None:
        """Report changes of the learning rate to these writers too."""
        self._writers.extend(progressWriters)

    def update(
        self, gradient_values: Gradients, training_sample_count: int, is_sweep_end: bool = False
    ) -> bool:
        """Take one step; returns whether it was taken (a learning rate of 0 skips it).

        Shapes: each gradient has the shape of its parameter, up to axes of length 1.
        Units: gradients are sums over ``training_sample_count`` samples.
        Errors: RuntimeError if a parameter has no gradient, ValueError for another shape or an empty minibatch,
                TypeError for a gradient that is not an array; nothing has changed then.
        """
        sample_count = operator.index(training_sample_count)
        if sample_count <= 0:
            raise ValueError(
                f"a minibatch of {sample_count} samples: a learner needs at least one; skip empty minibatches"
            )
        gradients = [gradient_of(p, gradient_values) for p in self._parameters]
        hyper = self.hyper(sample_count)
        if hyper is None:
            return self.advance(sample_count, is_sweep_end)

        before = self.counters
        self.divide_state(None)

        def compute(outputs: Captures) -> None:
            with self.precision():
                values, key = [p.value for p in self._parameters], tuple(g.shape for g in gradients)
                self._optax_step(outputs, key, self.optax_state, gradients, values, hyper)

        def conclude(outputs: tuple[list[Any], PyTree]) -> tuple[Changes, bool]:
            values, state = outputs
            counters, taken = self.counted(sample_count, is_sweep_end, hyper)
            changes: dict[Cell[Any], Any] = {self.optax_cell: state, self.counters_cell: counters}
            for p, value in zip(self._parameters, values, strict=True):
                changes |= new_value(p, np.asarray(value))
            return changes, taken

        taken = hand_over(compute, conclude)
        self.report(before)
        return taken

    # ------------------------------------------------------------ the same step in pieces

    @property
    def optax_state(self) -> PyTree:
        """The state of ``transform``, which is initialized on first use; see :meth:`divide_state`.

        Shapes: those of the parameters.
        """
        if self.optax_cell.value is None:
            with self.precision(), deferred_interrupts():
                values = self._values()
                state = constant_outputs(self.transform.init, values)
                self.optax_cell.value = self._computed_state(values) if state is None else state
        return self.optax_cell.value

    @optax_state.setter
    def optax_state(self, state: PyTree) -> None:
        self.optax_cell.value = state

    def _computed_state(self, values: list[Any]) -> PyTree:
        """The state before the first step, by one program; otherwise XLA would compile one for each array."""
        computation = Computation(lambda: self.transform.init, lambda inputs: "the state of a learner")
        return Executables(self.transform.init, computation=computation).get(None, (values,)).run(values)

    def _values(self) -> list[Any]:
        with STATE:
            settle()
            return [leaf_array(p) for p in self._parameters]

    @internal
    def divide_state(self, devices: Devices | None) -> None:
        """Keep a part of the state on each of these devices, or again all of it; workers do that at the same time."""
        state = self.optax_cell.value
        if devices is (state.devices if isinstance(state, Divided) else None):
            return
        with STATE:
            settle()
            state = self.optax_cell.value
            with self.precision(), deferred_interrupts():
                if isinstance(state, Divided):
                    state = jax.tree.map(jax.numpy.asarray, gathered(state))
                values = self._values()
                self.optax_cell.value = state if devices is None else divided(self.transform, values, state, devices)

    @internal
    def whole_state(self) -> PyTree:
        """The state of ``transform``, also if it is divided; all workers call it at the same time."""
        state = self.optax_state
        return gathered(state) if isinstance(state, Divided) else state

    @internal
    def state_shapes(self) -> PyTree:
        """The shapes and types of the state of ``transform``."""
        with self.precision():
            values = [jax.ShapeDtypeStruct(p.shape, p.dtype) for p in self._parameters]
            return jax.eval_shape(self.transform.init, values)

    @internal
    def precision(self) -> AbstractContextManager[Any]:
        """The scope in which ``transform`` has to run: double precision if a parameter has it."""
        return jax.enable_x64(True) if any(p.dtype == np.float64 for p in self._parameters) else nullcontext()

    @internal
    def hyper(self, sample_count: int, flagged: bool = False) -> Scalars | None:
        """The scalars of the next step, under the same names for each.

        None if the step is skipped: the rate is 0, or there are no samples. ``flagged``: not even then, but "learns" is
        1 or, if it is skipped, 0.

        Units: ``sample_count`` is the number of samples in the minibatch.
        """
        now = self.counters
        lr = self._learning_rate_at(now)
        learns, sample_count = bool(lr and sample_count), max(sample_count, 1)
        if not learns and not flagged:
            return None
        reference = self.rate_schedule.minibatch_size or sample_count
        divisor, weight = (sample_count, 1) if self._averages_gradients else (1, sample_count)
        # The learning rate applies to a gradient of `reference` samples.
        scalars: Scalars = {"divisor": divisor, "weight": weight, "rate": lr * divisor / reference}
        for name, schedule in self.momenta.items():
            scalars[name] = momentum_after(schedule, now.samples, now.sweeps, sample_count)
        if "momentum" in scalars:
            scalars["gain"] = 1 - scalars["momentum"] if self._unit_gain else 1
        scalars.update(self._extra_scalars(now.smoothed, sample_count, scalars))
        scalars = {name: np.float64(value) for name, value in scalars.items()}
        if self._noise:
            scalars["noise"] = np.float64(max(self._noise.at(now.samples, now.sweeps), 0))
            scalars["seed"] = np.array([self.noise_seed & 0xFFFFFFFF, now.minibatches & 0xFFFFFFFF], np.uint32)
        return scalars | {"learns": np.uint32(learns)} if flagged else scalars

    def advance(self, sample_count: int, is_sweep_end: bool = False) -> bool:
        """Count a step, and report to progress writers; returns whether it was taken."""
        before = self.counters
        self.counters_cell.value, taken = self.counted(sample_count, is_sweep_end, self.hyper(sample_count))
        self.report(before)
        return taken

    @internal
    def counted(self, sample_count: int, is_sweep_end: bool, scalars: Scalars | None) -> tuple[Counters, bool]:
        """The counters after a step with these scalars (see `hyper`), and whether it was taken.

        As in CNTK a skipped one does not count, nor a sweep that it ends.

        With a distributed learner its samples count, but do not advance the schedule of the learning rate; and where
        there are none, since only other workers have data, a sweep counts.
        """
        now = self.counters
        if scalars is None or not scalars.get("learns", True):
            if self.strategy is not None:
                now = replace(
                    now, samples=now.samples + sample_count, rate_samples=now.rate_samples + sample_count,
                    sweeps=now.sweeps + bool(is_sweep_end and not sample_count),
                )
            return now, False
        after = replace(
            now,
            samples=now.samples + sample_count,
            minibatches=now.minibatches + 1,
            sweeps=now.sweeps + bool(is_sweep_end),
            smoothed=float(scalars.get("count", now.smoothed)),
        )
        return after, True

    @internal
    def report(self, now: Counters) -> None:
        """Report values that change with a step to the progress writers. `now`: the counters before the step.

        For a step that is skipped CNTK reports no momentum, and for distributed learners nothing.
        """
        if not self._writers or self.strategy is not None:
            return
        rate = self._learning_rate_at(now)
        values = {"Learning rate": (self.rate_schedule, rate)}
        if self._reports_momentum and rate != 0:
            momentum = self.momenta["momentum"]
            values["Momentum"] = momentum, momentum.at(now.samples, now.sweeps)
        for name, (schedule, value) in values.items():
            if value != self._reported.get(name):
                self._reported[name] = value
                unit = f"{schedule.minibatch_size} samples" if schedule.minibatch_size else "minibatch"
                for writer in self._writers:
                    writer.write(f"{name} per {unit}", value)

    def __copy__(self) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be copied by copy.deepcopy or pickled, as in CNTK: keep create_checkpoint(), and restore "
            "it into a learner with the same arguments"
        )

    def __repr__(self) -> str:
        names = ", ".join(p.name or p.uid for p in self._parameters)
        return f"Learner([{names}], learning_rate={self.learning_rate()})"


@public
@delegates_to(LearnerCore, settable=("minibatch_size",), special=("__repr__",))
class Learner(LearnerCore):
    """Updates parameters by their gradients, with ``update`` or in a trainer. For its arguments see `LearnerCore`.

    Shapes: gradients, values and all state have the shapes of the parameters, in their order.
    Units: gradients are sums over the samples of the minibatch.
    Errors: ValueError if there are no parameters or one is listed twice, TypeError if an item is not a parameter;
            ValueError if a rate or momentum is not a number, list or schedule.
    Source: CNTK 2.7 (tests/golden/learners).

    Any optax transformation can be a rule:

    >>> import cntkjax as C, numpy as np, optax
    >>> w = C.parameter((2,), init=1)
    >>> learner = C.Learner([w], 0.1, [("sign", optax.scale_by_sign()), ("rate", optax.scale(0.5))])
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4)
    True
    >>> w.value
    array([0.5, 1.5], dtype=float32)
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.__wrapped__ = LearnerCore(*arguments, **options)

    @classmethod
    def wrap(cls, core: LearnerCore) -> Self:
        """A learner with this implementation."""
        learner = object.__new__(cls)
        learner.__wrapped__ = core
        return learner


def _step(
    transform: optax.GradientTransformationExtraArgs, state: PyTree, gradients: PyTree, values: PyTree, hyper: Scalars
) -> tuple[PyTree, PyTree]:
    import optax  # slow to import

    updates, state = transform.update(gradients, state, values, hyper=hyper)
    return optax.apply_updates(values, updates), state


def _checked(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    if not isinstance(parameters, list | tuple):
        raise TypeError(
            f"parameters must be a list or tuple of parameters, not {type(parameters).__name__}; give "
            "function.parameters, or [parameter] for a single one"
        )
    if not parameters:
        raise ValueError("a learner needs at least one parameter, but the list is empty: give function.parameters")
    for p in parameters:
        if not getattr(p, "is_parameter", False):
            raise TypeError(
                f"a learner updates parameters, but {p!r} of type {type(p).__name__} is none; give function.parameters"
            )
    for p in parameters:
        if sum(p is other for other in parameters) > 1:
            raise ValueError(f"parameter {p.name or p.uid!r} stands more than once in the learner's list: drop one")
    return tuple(parameters)


def gradient_of(parameter: Parameter, gradients: Gradients) -> np.ndarray:
    """The gradient of one parameter, checked, in its shape and type; see :meth:`Learner.update`."""
    name = parameter.name or parameter.uid
    if parameter not in gradients:
        raise RuntimeError(f"there is no gradient of parameter {name!r}: give one for each of the learner's parameters")
    gradient = gradients[parameter]
    gradient = gradient.asarray() if hasattr(gradient, "asarray") else gradient
    if not isinstance(gradient, np.ndarray | jax.Array):
        kind = type(gradient).__name__
        raise TypeError(f"the gradient of parameter {name!r} must be an array, not {kind}: use numpy.asarray")
    if [d for d in gradient.shape if d != 1] != [d for d in parameter.shape if d != 1]:
        raise ValueError(
            f"parameter {name!r} has shape {parameter.shape}, but its gradient has {gradient.shape}; give an array of "
            "the parameter's shape"
        )
    return np.asarray(gradient, parameter.dtype).reshape(parameter.shape)
