"""Learners written in Python, by arrays or as a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core import NDArrayView
from ..device import DeviceDescriptor, cpu
from ..graph.errors import explain
from ..ops.functions import Function
from ..variables import Constant
from . import _transforms as transforms
from ._learner import Learner, Learning, Scalars, gradient_of
from ._schedules import Schedulable


class UserLearner(Learner):
    """Base of learners whose ``update`` is Python code: it gets the gradients and sets the parameters itself.

    The trainer calls ``update`` after each minibatch, and ``train_minibatch`` returns what it returns. As in CNTK, the
    counters (and with them ``learning_rate()``) stand still. A class that has state of its own may define
    ``create_checkpoint()``, which returns a dict of numbers, texts and arrays, and ``restore_from_checkpoint(dict)``.

    Shapes: gradients as their parameters: arrays with ``as_numpy``, otherwise ``NDArrayView``. As CNTK gives the latter
            in any case, arrays have its methods too, as ``asarray()``.
    Units: gradients are sums over the samples of the minibatch.
    Errors: as :class:`Learner`; RuntimeError for what ``update`` raises, with the original as its cause, or if it
            returns no bool.
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

    def __init__(self, parameters: Sequence[Any], lr_schedule: Schedulable, as_numpy: bool = True) -> None:
        self.as_numpy = as_numpy
        self.__wrapped__ = _Behind(self, parameters, lr_schedule)

    def update(self, gradient_values: Mapping[Any, Any], training_sample_count: int, sweep_end: bool = False) -> bool:
        """One step, to be written by each class; whether it was taken."""
        needed = "update(gradient_values, training_sample_count, sweep_end)"
        raise NotImplementedError(f"{type(self).__name__} must define {needed}")


class Parameters(tuple[Any, ...]):
    """Parameters as every learner has them, and as a method: so they are in CNTK in a learner of users or workers."""

    def __call__(self) -> Parameters:
        return self


class _Gradient(np.ndarray):
    """An array, and all that an ``NDArrayView`` is asked for."""

    @classmethod
    def of(cls, gradient: np.ndarray) -> _Gradient:
        return gradient.view(cls)

    @property
    def device(self) -> DeviceDescriptor:  # type: ignore[override]
        return cpu()

    def __getattr__(self, name: str) -> Any:
        return getattr(NDArrayView.from_dense(np.asarray(self), borrow=True), name)


class _InPython(Learning):
    """A learner whose steps are Python code: a compiled step hands over the gradients, and `advance` takes the step."""

    def __init__(self, parameters: Sequence[Any], lr_schedule: Schedulable) -> None:
        super().__init__(parameters, lr_schedule)
        self.transform = transforms.keep_gradients()

    def hyper(self, sample_count: int) -> Scalars:
        """Nothing: what varies from step to step is the business of the code."""
        return {}

    def advance(self, sample_count: int, is_sweep_end: bool = False) -> bool:
        """Take the step whose gradients were kept."""
        gradients = [np.array(gradient) for gradient in self.optax_state]  # copies: the next step takes the buffers
        return self.step(dict(zip(self.parameters, gradients, strict=True)), sample_count, is_sweep_end)

    def step(self, gradients: dict[Any, np.ndarray], sample_count: int, is_sweep_end: bool) -> bool:
        """Take a step; whether it was taken."""
        raise NotImplementedError


class _Behind(_InPython):
    """What a trainer knows of a `UserLearner`."""

    takes_seed = False

    def __init__(self, user: UserLearner, parameters: Sequence[Any], lr_schedule: Schedulable) -> None:
        super().__init__(parameters, lr_schedule)
        self._parameters = Parameters(self._parameters)
        self.user = user

    def step(self, gradients: dict[Any, np.ndarray], sample_count: int, is_sweep_end: bool) -> bool:
        as_given: Callable[[Any], Any] = _Gradient.of if self.user.as_numpy else NDArrayView.from_dense
        title = f"user learner {type(self.user).__name__}"
        try:
            taken = self.user.update({p: as_given(g) for p, g in gradients.items()}, sample_count, is_sweep_end)
        except Exception as error:
            raise RuntimeError(explain(f"{title}: update raised {type(error).__name__}: {error}")) from error
        if not isinstance(taken, bool | np.bool_):
            raise RuntimeError(explain(
                f"{title}: update returned {taken!r}", fix="let it return True if it took the step, otherwise False"
            ))
        return bool(taken)

    @property
    def keeper(self) -> UserLearner | None:
        names = "create_checkpoint", "restore_from_checkpoint"
        own = any(getattr(type(self.user), name) is not getattr(Learning, name) for name in names)
        return self.user if own else None


class _Universal(_InPython):
    """Evaluates a graph of assignments."""

    def __init__(self, parameters: Sequence[Any], update_func: Callable[[list[Any], list[Any]], Any]) -> None:
        super().__init__(parameters, 1.0)
        self._gradients = [Constant(0, p.shape, p.dtype, name="grad") for p in self.parameters]
        self._assignments = update_func(list(self.parameters), list(self._gradients))
        if not isinstance(self._assignments, Function):
            raise TypeError(
                "update_func must return a function that updates the parameters, such as "
                f"combine([assign(p, ...), ...]), not {type(self._assignments).__name__}"
            )
        known = {*self.parameters, *self._gradients}
        inside = (*self._assignments.parameters, *self._assignments.constants)
        self.kept = [v for v in inside if v not in known]

    def update(
        self, gradient_values: Mapping[Any, Any], training_sample_count: int, is_sweep_end: bool = False
    ) -> bool:
        gradients = {p: gradient_of(p, gradient_values) for p in self.parameters}
        return self.step(gradients, training_sample_count, is_sweep_end)

    def step(self, gradients: dict[Any, np.ndarray], sample_count: int, is_sweep_end: bool) -> bool:
        for constant, gradient in zip(self._gradients, gradients.values(), strict=True):
            constant.value = gradient
        self._assignments.eval()
        return Learning.advance(self, sample_count, is_sweep_end)


def universal(update_func: Callable[[list[Any], list[Any]], Any], parameters: Sequence[Any]) -> Learner:
    """A learner given as a graph: ``update_func(parameters, gradients)`` returns the function that does one step.

    That function has no arguments; what it assigns takes effect after all of it was computed. It can keep parameters of
    its own. The gradients are constants that hold sums over the samples of the minibatch.

    Errors: TypeError if ``update_func`` returns no function; otherwise as :class:`Learner`.
    Source: CNTK 2.7.

    >>> import cntkjax as C, numpy as np
    >>> w = C.parameter((2,), init=1)
    >>> learner = universal(lambda ps, gs: C.combine([C.assign(p, p - 0.01 * g) for p, g in zip(ps, gs)]), [w])
    >>> learner.update({w: np.array([10, -20], np.float32)}, 4)
    True
    >>> w.value
    array([0.9, 1.2], dtype=float32)
    """
    return Learner._of(_Universal(parameters, update_func))
