"""Learners written by users: as Python code on arrays, or as a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import NDArrayView
from ..device import DeviceDescriptor, cpu
from ..graph.arguments import public
from ..graph.errors import explain
from ..graph.function import Node
from ..variables import Constant, Parameter
from . import _lazy_transforms as transforms
from ._checkpoint import CustomCheckpoint
from ._counters import Counters
from ._learner import Gradients, Learner, LearnerCore, Scalars, gradient_of
from ._schedules import Schedulable

if TYPE_CHECKING:
    from ..ops.functions import Function

UpdateFunction = Callable[[list[Parameter], list[Constant]], Node]


@public
class UserLearner(Learner):
    """Base of learners whose ``update`` is Python code that gets the gradients and sets the parameters itself.

    The trainer calls ``update`` after each minibatch, and ``train_minibatch`` returns its result. As in CNTK, the
    counters (and with them ``learning_rate()``) do not advance. A class with state of its own may define
    ``create_checkpoint()``, which returns a dict of numbers, texts and arrays, and ``restore_from_checkpoint(dict)``.

    Shapes: gradients have the shapes of their parameters. With ``as_numpy`` they are arrays, otherwise ``NDArrayView``;
            as CNTK passes views in both cases, the arrays have the methods of views too, such as ``asarray()``.
    Units: gradients are sums over the samples of the minibatch.
    Errors: as :class:`Learner`; RuntimeError for an exception in ``update``, with the original as its cause, or if it
            does not return a bool.
    Source: CNTK 2.7.

    >>> import cntkjax as C, numpy as np
    >>> class Descent(UserLearner):
    ...     def update(self, gradient_values, training_sample_count, sweep_end):
    ...         for p, g in gradient_values.items():
    ...             p.value = p.value - self.learning_rate() * g / training_sample_count
    ...         return True
    >>> w = C.parameter((2,), init=1)
    >>> learner = Descent([w], C.learning_parameter_schedule(0.1))
    >>> learner.update({w: np.array([4, -8], np.float32)}, 4, False)
    True
    >>> w.value
    array([0.9, 1.2], dtype=float32)
    """

    def __init__(self, parameters: Sequence[Parameter], lr_schedule: Schedulable, as_numpy: bool = True) -> None:
        self.as_numpy = as_numpy
        self.__wrapped__ = _UserLearnerCore(self, parameters, lr_schedule)

    def update(self, gradient_values: Gradients, training_sample_count: int, sweep_end: bool = False) -> bool:
        """Take one step, and return whether it was taken; subclasses define it.

        Shapes: each gradient has the shape of its parameter.
        Units: gradients are sums over ``training_sample_count`` samples.
        """
        signature = "update(gradient_values, training_sample_count, sweep_end)"
        raise NotImplementedError(f"{type(self).__name__} must define {signature}")


class CallableProperty(tuple[Parameter, ...]):
    """Parameters as a property that can also be called, as CNTK's user and distributed learners have a method."""

    def __call__(self) -> CallableProperty:
        return self


class _Gradient(np.ndarray):
    """An array with the members of an ``NDArrayView``."""

    @classmethod
    def of(cls, gradient: np.ndarray) -> _Gradient:
        """A view of an array. Shapes: the same."""
        return gradient.view(cls)

    @property
    def device(self) -> DeviceDescriptor:  # type: ignore[override]
        """The CPU, where NumPy's arrays are."""
        return cpu()

    def __getattr__(self, name: str) -> Any:
        return getattr(NDArrayView.from_dense(np.asarray(self), borrow=True), name)


class HostLearner(LearnerCore):
    """A learner whose steps run on the host: a compiled step saves the gradients, `step_on_host` takes the step."""

    runs_python = True
    saves_state = False  # the gradients of the last step
    _is_taken = True  # the last step

    def __init__(self, parameters: Sequence[Parameter], lr_schedule: Schedulable) -> None:
        super().__init__(parameters, lr_schedule)
        self.transform, self.works_on_parts = transforms.keep_gradients(), False

    def hyper(self, sample_count: int, flagged: bool = False) -> Scalars:
        """No scalars, except the flag: the step on the host needs none."""
        return {"learns": np.uint32(sample_count > 0)} if flagged else {}

    def step_on_host(self, sample_count: int, is_sweep_end: bool) -> None:
        """Take the step whose gradients were saved, without counting it."""
        gradients = [np.array(gradient) for gradient in self.optax_state]  # copies: the next step reuses the buffers
        self._is_taken = self.step(dict(zip(self.parameters, gradients, strict=True)), sample_count, is_sweep_end)

    def step(self, gradients: dict[Parameter, np.ndarray], sample_count: int, is_sweep_end: bool) -> bool:
        """Take a step; returns whether it was taken."""
        raise NotImplementedError


class _UserLearnerCore(HostLearner):
    """The implementation of `UserLearner`: calls its ``update``."""

    takes_seed = False

    def __init__(self, user: UserLearner, parameters: Sequence[Parameter], lr_schedule: Schedulable) -> None:
        super().__init__(parameters, lr_schedule)
        self._parameters = CallableProperty(self._parameters)
        self.user = user

    def step(self, gradients: dict[Parameter, np.ndarray], sample_count: int, is_sweep_end: bool) -> bool:
        """Call the user's ``update``."""
        convert: Callable[[np.ndarray], Any] = _Gradient.of if self.user.as_numpy else NDArrayView.from_dense
        title = f"user learner {type(self.user).__name__}"
        try:
            taken = self.user.update({p: convert(g) for p, g in gradients.items()}, sample_count, is_sweep_end)
        except Exception as error:
            raise RuntimeError(explain(f"{title}: update raised {type(error).__name__}: {error}")) from error
        if not isinstance(taken, bool | np.bool_):
            raise RuntimeError(explain(
                f"{title}: update returned {taken!r}", fix="return True if the step was taken, otherwise False"
            ))
        return bool(taken)

    def counted(self, sample_count: int, is_sweep_end: bool, scalars: Scalars | None) -> tuple[Counters, bool]:
        """Whether the last step was taken; the counters do not advance, as in CNTK."""
        return self.counters, self._is_taken

    def report(self, now: Counters) -> None:
        """Nothing is reported."""

    @property
    def kind(self) -> str:
        """The user's class."""
        return type(self.user).__name__

    @property
    def custom_checkpoint(self) -> CustomCheckpoint | None:
        """The user's object, if its class defines its own checkpoints."""
        names = "create_checkpoint", "restore_from_checkpoint"
        is_custom = any(getattr(type(self.user), name) is not getattr(LearnerCore, name) for name in names)
        return self.user if is_custom else None


class _UniversalCore(HostLearner):
    """The implementation of `universal`: evaluates a graph of assignments."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        update_func: UpdateFunction,
        gradients: Sequence[Constant] | None = None,
    ) -> None:
        super().__init__(parameters, 1.0)
        self._gradients = gradients or [Constant(0, p.shape, p.dtype, name="grad") for p in self.parameters]
        self._assignments: Any = update_func(list(self.parameters), list(self._gradients))
        if not isinstance(self._assignments, Node):
            raise TypeError(
                "update_func must return a function that updates the parameters, such as "
                f"combine([assign(p, ...), ...]), not {type(self._assignments).__name__}"
            )
        for missing in set(self.parameters) - set(self._assignments.parameters):
            raise RuntimeError(explain(
                f"universal: the update function does not contain the parameter {missing!r}",
                fix="combine an assignment for each parameter, or leave it out of the learner's parameters",
            ))
        known = {*self.parameters, *self._gradients}
        variables = (*self._assignments.parameters, *self._assignments.constants)
        self.extra_variables = [v for v in variables if v not in known]

    def update(
        self, gradient_values: Gradients, training_sample_count: int, is_sweep_end: bool = False
    ) -> bool:
        """Take one step; see :meth:`LearnerCore.update`."""
        gradients = {p: gradient_of(p, gradient_values) for p in self.parameters}
        self.step(gradients, training_sample_count, is_sweep_end)
        return self.advance(training_sample_count, is_sweep_end)

    def step(self, gradients: dict[Parameter, np.ndarray], sample_count: int, is_sweep_end: bool) -> bool:
        """Evaluate the graph."""
        for constant, gradient in zip(self._gradients, gradients.values(), strict=True):
            constant.value = gradient
        self._assignments.eval()
        return True


@public
def universal(update_func: UpdateFunction, parameters: Sequence[Parameter]) -> Learner:
    """A learner given as a graph: ``update_func(parameters, gradients)`` returns the function that takes one step.

    That function has no arguments; its assignments take effect after all of it was computed. It may have parameters of
    its own, as state.

    Shapes: the gradients are constants with the shapes of the parameters.
    Units: they are sums over the samples of the minibatch.
    Errors: TypeError if ``update_func`` does not return a function, RuntimeError if that does not contain one of the
            parameters; otherwise as :class:`Learner`.
    Source: CNTK 2.7.

    >>> import cntkjax as C, numpy as np
    >>> w = C.parameter((2,), init=1)
    >>> learner = universal(lambda ps, gs: C.combine([C.assign(p, p - 0.01 * g) for p, g in zip(ps, gs)]), [w])
    >>> learner.update({w: np.array([10, -20], np.float32)}, 4)
    True
    >>> w.value
    array([0.9, 1.2], dtype=float32)
    """
    return Learner.wrap(_UniversalCore(parameters, update_func))


def universal_learner(
    parameters: Sequence[Parameter], gradients: Sequence[Constant], update: Function
) -> Learner:
    """A learner whose step sets the constants `gradients`, and then evaluates the graph `update`.

    >>> import cntkjax as C, numpy as np
    >>> w, g = C.parameter((1,), init=1), C.constant(0, (1,))
    >>> learner = universal_learner([w], [g], C.assign(w, w - 0.5 * g))
    >>> learner.update({w: np.ones(1)}, 1), w.value, g.value
    (True, array([0.5], dtype=float32), array([1.], dtype=float32))
    """
    if len(parameters) != len(gradients):
        raise RuntimeError(f"universal_learner: {len(parameters)} parameters, but {len(gradients)} gradients")
    for gradient in gradients:
        if not isinstance(gradient, Constant):
            raise ValueError(f"universal_learner: gradients are constants, not {gradient!r}")
    return Learner.wrap(_UniversalCore(parameters, lambda *_: update, gradients))


__all__ = ["UserLearner", "universal"]
